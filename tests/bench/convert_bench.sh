#!/usr/bin/env bash
# convert_bench.sh MXFP4-PACK DIR [LAYERS]: how fast the program converts on the CPU and on a GPU, next to cp.
#
# DIR: on a RAM-backed file system with room for three times the checkpoint (2.3 GB and 0.53 GB a layer). Writes a
# gpt-oss-20b of random bytes there, converts it on 1, 4 and 16 threads and on cuda, and copies the output. A figure is
# the median of three; GB/s are bytes of the output, seconds of CPU those of all threads and of the kernel for them.
set -u
program=$(realpath "$1")
dir=$(mktemp -d "$2/mxfp4-bench.XXXXXX") || exit 2
layers=${3:-16}
trap 'rm -rf "$dir"' EXIT
TIMEFORMAT='%R %U %S'

"$program" synth gpt-oss-20b "$dir/in" --layers "$layers" -q || exit 2
convert() { "$program" convert "$dir/in" "$dir/out" --backend marlin --engine vllm -q "$@"; }

# row NAME PLACE COMMAND...: runs it three times, which makes PLACE, and prints the medians. The last PLACE stays.
row() {
  local name=$1 place=$dir/$2 times=
  shift 2
  for _ in 1 2 3; do
    rm -rf "$place"
    times+=$({ time "$@" >"$dir/log" 2>&1; } 2>&1)$'\n'
    if [ ! -d "$place" ]; then
      printf '%-12s %s\n' "$name" "$(tail -n 1 "$dir/log")"
      return
    fi
  done
  local bytes
  bytes=$(du -sb "$place" | cut -f 1)
  printf '%s' "$times" | awk -v name="$name" -v bytes="$bytes" '
    { wall[NR] = $1; cpu[NR] = $2 + $3 }
    function low(a, b) { return a < b ? a : b }
    function high(a, b) { return a < b ? b : a }
    function middle(v) { return high(low(v[1], v[2]), low(high(v[1], v[2]), v[3])) }
    END { printf "%-12s %8.2f %8.2f %8.2f\n", name, bytes / middle(wall) / 1e9, middle(wall), middle(cpu) }'
}

"$program" --version
echo "$(nproc) cores, $(findmnt -n -o FSTYPE -T "$dir"), $(du -sb "$dir/in" | cut -f 1) bytes in $layers layers"
printf '%-12s %8s %8s %8s\n' '' GB/s seconds CPU
row 'cpu, 1' out convert --device cpu --threads 1
row 'cpu, 4' out convert --device cpu --threads 4
row 'cpu, 16' out convert --device cpu --threads 16
row cuda out convert --device cuda
row cp copy cp -r --reflink=never "$dir/out" "$dir/copy"
