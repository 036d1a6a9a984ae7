#!/usr/bin/env bash
# How long convert takes from and to a file system that is far away, beside cp. Prints a table of medians.
# usage: slow_bench.sh MXFP4-PACK SLOW DIR [MICROSECONDS [ROUNDS]]
# SLOW: mxfp4_slow, which cmake --build build --target mxfp4_slow makes of tests/filesystems/slow.cpp. DIR has a GB free. Each run has the file system mounted anew, so that nothing is in
# the page cache; cp is cp -r and sync -f.
set -euo pipefail
program=$(realpath "$1") slow=$(realpath "$2") delay=${4:-3000} rounds=${5:-3}
work=$(mktemp -d "$3/mxfp4-pack-slow-XXXXXX")
trap 'fusermount3 -uq "$work/far" || true; rm -rf "$work"' EXIT
mkdir "$work/near" "$work/far"
"$program" synth gpt-oss-20b "$work/near/in" --layers 1 --vocab 1024 -q

# seconds COMMAND..
seconds() {
  fusermount3 -uq "$work/far" || true
  "$slow" "$work/near" "$work/far" "$delay" $direct
  local begin end
  begin=$(date +%s%N)
  "$@" >&2
  end=$(date +%s%N)
  rm -rf "$work/near/out"
  echo $(((end - begin) / 1000000))
}
copy() { cp -r "$work/far/in" "$work/far/out" && sync -f "$work/far"; }
convert() { "$program" convert "$work/far/in" "$work/far/out" --backend marlin --engine vllm -q --threads "$1"; }
median() { sort -n | sed -n "$(((rounds + 1) / 2))p" | sed 's/...$/.&/'; }

du -sm "$work/near/in" | awk -v d="$delay" '{print $1 " MiB in, requests of 128 KiB, " d " us each; seconds"}'
printf '| O_DIRECT | cp and sync | convert, 2 threads | 4 threads |\n|---|---|---|---|\n'
for direct in '' direct; do
  for ((i = 0; i < rounds; i++)); do
    seconds copy >>"$work/cp$direct"
    for n in 2 4; do seconds convert $n >>"$work/convert$direct$n"; done
  done
  printf '| %s | %.1f | %.1f | %.1f |\n' "$([ -n "$direct" ] && echo taken || echo refused)" "$(median <"$work/cp$direct")" \
    "$(median <"$work/convert${direct}2")" "$(median <"$work/convert${direct}4")"
done
