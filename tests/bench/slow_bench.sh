#!/usr/bin/env bash
# The time of convert from and to a remote file system, compared with cp. Prints a table of medians.
# usage: slow_bench.sh MXFP4-PACK SLOW DIR [MICROSECONDS [ROUNDS]]
# SLOW is mxfp4_slow, which mounts a folder with a delay; build it with cmake --build build --target mxfp4_slow. For NFS
# use tests/filesystems/guest.sh MXFP4-PACK SOURCE-DIR 0 far. DIR needs a GB of free space. The file system is mounted
# again for each run, so that the page cache is empty; cp is cp -r --reflink=never and sync -f. SYNTH: the arguments of
# synth. THREADS: convert's numbers of threads (2 4). DIRECT: whether O_DIRECT is refused or taken (refused taken).
set -euo pipefail
program=$(realpath "$1") slow=$(realpath "$2") delay=${4:-3000} rounds=${5:-3}
read -ra model <<<"${SYNTH:-gpt-oss-20b --layers 1 --vocab 1024}"
read -ra threads <<<"${THREADS:-2 4}"
work=$(mktemp -d "$3/mxfp4-pack-slow-XXXXXX")
unmount() { ! mountpoint -q "$work/far" || umount "$work/far"; }
trap 'unmount; rm -rf "$work"' EXIT
mkdir "$work/near" "$work/far"
"$program" synth "${model[0]}" "$work/near/in" "${model[@]:1}" -q

# seconds COMMAND..
seconds() {
  unmount
  "$slow" "$work/near" "$work/far" "$delay" "${option[@]}"
  local begin end
  begin=$(date +%s%N)
  "$@" >&2
  end=$(date +%s%N)
  rm -rf "$work/near/out"
  echo $(((end - begin) / 1000000))
}
copy() { cp -r --reflink=never "$work/far/in" "$work/far/out" && sync -f "$work/far"; }
convert() { "$program" convert "$work/far/in" "$work/far/out" --backend marlin --engine vllm -q --threads "$1"; }
median() { sort -n "$work/$1" | sed -n "$(((rounds + 1) / 2))p" | awk '{printf " %.2f |", $1 / 1000}'; }

du -sm "$work/near/in" | awk -v d="$delay" '{print $1 " MiB in, each request " d " us later; seconds"}'
printf '| O_DIRECT | cp and sync |'
printf ' convert, %s threads |' "${threads[@]}"
printf '\n|---|---|%s\n' "$(printf -- '---|%.0s' "${threads[@]}")"
for direct in ${DIRECT:-refused taken}; do
  [ "$direct" = taken ] && option=(direct) || option=()
  for ((i = 0; i < rounds; i++)); do
    seconds copy >>"$work/cp-$direct"
    for n in "${threads[@]}"; do seconds convert "$n" >>"$work/$n-$direct"; done
  done
  printf '| %s |' "$direct"
  for what in cp "${threads[@]}"; do median "$what-$direct"; done
  echo
done
