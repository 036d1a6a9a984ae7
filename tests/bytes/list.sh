#!/usr/bin/env bash
# Checksums of all files that the program writes, one line each, in a fixed order. The lists of two builds are equal if
# they write the same bytes.
# usage: list.sh MXFP4-PACK [JOBS]
#   tests/bytes/list.sh before/mxfp4-pack >before.txt && tests/bytes/list.sh build/mxfp4-pack | diff before.txt -
# Every backend, engine and layout version with every model of synth, tiny; and options that change files. The
# program's version is part of each manifest.
set -u
[ $# -ge 1 ] || { echo "usage: $0 MXFP4-PACK [JOBS]"; exit 2; }
export program jobs=${2:-$(nproc)} dir
program=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset "${!MXFP4_PACK_@}"
export MXFP4_PACK_DEVICE=cpu MXFP4_PACK_THREADS=1 XDG_CACHE_HOME=$dir/cache LC_ALL=C

sums() {  # FOLDER LABEL
  (cd "$1" && find . -type f -printf '%P\n' | sort | xargs -d '\n' sha256sum | sed "s|^|$2: |")
}

# one LABEL MODEL OPTIONS...: a conversion, into a file that is named by the label
one() {
  local label=$1 model=$2
  shift 2
  local work
  work=$(mktemp -d -p "$dir")
  if (cd "$dir" && "$program" convert "$model" "$work/out" "$@" -q 2>/dev/null); then
    sums "$work/out" "$label"
  else
    echo "$label: refused"
  fi >"$dir/lists/${label//\//_}"
  rm -rf "$work"
}
export -f sums one

models=$("$program" synth --help | sed -n '/^Models: /,/^$/{s/^Models: //;p}' | tr -d ',')
mkdir "$dir/lists"
for model in $models; do
  "$program" synth "$model" "$dir/$model" --tiny --seed 1 -q 2>/dev/null || exit 1
  # rows and columns that no backend pads
  "$program" synth "$model" "$dir/$model.256" --tiny --layers 1 --experts 2 --hidden 256 --intermediate 256 --seed 2 -q \
    2>/dev/null || exit 1
  sums "$dir/$model" "synth $model" >"$dir/lists/synth $model"
done

rows() {
  "$program" backends 2>/dev/null | awk 'NR > 1 {print $1, $2, $3}'
}
conversions() {
  local model backend engine layout
  while read -r backend engine layout; do
    for model in $models; do
      for form in "$model" "$model.256"; do
        echo "$form $backend $engine $layout|$form|--backend $backend --engine $engine --layout-version $layout --no-loader"
      done
    done
  done
}
options() {
  local marlin='--backend marlin --engine vllm'
  echo "tp2|gpt-oss-20b.256|$marlin --tp-size 2"
  echo "kept shards|deepseek-v4-flash|$marlin --link"
}

{ rows | conversions; options; } >"$dir/jobs"
xargs -a "$dir/jobs" -d '\n' -P "$jobs" -I {} bash -c 'IFS="|" read -r label model options <<<"$1"; one "$label" "$model" $options' - {}

# what --add and unpack leave
"$program" convert "$dir/gpt-oss-20b" "$dir/sets" --backend marlin --engine vllm -q 2>/dev/null &&
  "$program" convert "$dir/gpt-oss-20b" "$dir/sets" --add --backend triton-hopper --engine vllm --tp-size 2 -q 2>/dev/null &&
  sums "$dir/sets" 'two sets' >"$dir/lists/two sets"
"$program" unpack "$dir/sets" "$dir/unpacked" -q 2>/dev/null && sums "$dir/unpacked" unpacked >"$dir/lists/unpacked"

cd "$dir/lists" && find . -type f -print0 | sort -z | xargs -0 cat
