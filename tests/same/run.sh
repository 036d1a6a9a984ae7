#!/usr/bin/env bash
# The same bytes with 1, 2 and 4 threads, every driver, with and without --link.
# usage: run.sh MXFP4-PACK
# There are files larger than a MiB, which are written past the page cache, and smaller ones, including a shard without
# experts. Without --link, the tensors of this shard go into other files. Therefore these runs are compared with each
# other; their packed files are compared with all runs.
set -u
program=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sum() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum; }
die() { echo "FAILED: $*"; [ -e "$dir/err" ] && cat "$dir/err"; exit 1; }

"$program" synth deepseek-v4-flash "$dir/in" --layers 2 --experts 8 --hidden 512 --intermediate 512 --vocab 4096 -q ||
  die synth
[ "$(find "$dir/in" -size +2M | wc -l)" -gt 0 ] || die 'no large shard'
source=$(sum "$dir/in")
runs=0 skipped= kept=
declare -A whole packed
for driver in tables avx2 avx512; do
  for threads in 1 2 4; do
    for link in '' --link; do
      for backend in marlin flashinfer-cutlass; do
        [ $backend = marlin ] || [ "$threads $link" = "2 " ] || continue
        case "$skipped" in *" $driver "*) continue ;; esac
        if ! MXFP4_PACK_DRIVER=$driver "$program" convert "$dir/in" "$dir/out" --backend $backend --engine vllm -q \
          --threads $threads $link 2>"$dir/err"; then
          grep -q 'does not run here' "$dir/err" && skipped+=" $driver " && continue
          die "$driver $backend $threads $link"
        fi
        form=$backend${link:+.kept}
        [ -z "$link" ] || kept+=$(find "$dir/out" -maxdepth 1 -name 'model-*.safetensors')
        [ -n "${whole[$form]:-}" ] ||
          "$program" verify "$dir/out" --source "$dir/in" --level bytes -q 2>"$dir/err" || die 'not right'
        is=$(sum "$dir/out")
        rm "$dir/out/packed/source-tensors.jsonl"  # it names the files of copied tensors
        part=$(sum "$dir/out/packed")
        [ "${whole[$form]:=$is}" = "$is" ] || die "other bytes with $driver, $threads threads $link"
        [ "${packed[$backend]:=$part}" = "$part" ] || die "other packed bytes with $driver, $threads $link"
        rm -r "$dir/out"
        runs=$((runs + 1))
      done
    done
  done
done
[ "$(sum "$dir/in")" = "$source" ] || die 'the checkpoint was touched'
[ -n "$kept" ] || die 'no shard was kept'
echo "$runs runs, the same bytes; not possible here:${skipped:- nothing}"
