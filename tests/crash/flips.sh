#!/usr/bin/env bash
# Damages OUT and expects verify --level files to see it. usage: flips.sh MXFP4-PACK CKPT COUNT
# COUNT random bit flips (the long form: 1000), then every file cut short by one byte, to nothing, and to half, removed,
# and swapped with the next.
set -u
program=$1 count=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$program" convert "$2" "$dir/out" --backend marlin --engine vllm -q || exit 1
mapfile -t files < <(cd "$dir/out" && find . -type f -size +0 | sort)
damages=0
damaged() {
  "$program" verify "$dir/out" --level files >"$dir/stdout" 2>"$dir/stderr"
  local code=$?
  damages=$((damages + 1))
  if { [ $code -eq 1 ] && [ -s "$dir/stdout" ]; } || { [ $code -eq 2 ] && [ -s "$dir/stderr" ]; }; then return; fi
  echo "FAILED: exit $code: $*"
  exit 1
}
random() { echo $(((RANDOM << 30 | RANDOM << 15 | RANDOM) % $1)); }

for ((i = 0; i < count; ++i)); do
  file=$dir/out/${files[$(random ${#files[@]})]}
  at=$(random "$(stat -c %s "$file")")
  byte=$(od -An -tu1 -j "$at" -N 1 "$file")
  bit=$(random 8)
  put() { printf "\\x$(printf %02x "$1")" | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null; }
  put $((byte ^ 1 << bit))
  damaged "bit $bit of byte $at of $file"
  put "$byte"
done
for ((i = 0; i < ${#files[@]}; ++i)); do
  file=$dir/out/${files[$i]} next=$dir/out/${files[$(((i + 1) % ${#files[@]}))]}
  bytes=$(stat -c %s "$file")
  cp "$file" "$dir/good"
  for to in 0 $((bytes / 2)) $((bytes - 1)); do
    truncate -s "$to" "$file"
    damaged "$file cut to $to bytes"
    cp "$dir/good" "$file"
  done
  rm "$file"
  damaged "$file removed"
  cp "$next" "$file" && cp "$dir/good" "$next"
  cmp -s "$file" "$next" || damaged "$file swapped with $next"
  cp "$file" "$next" && cp "$dir/good" "$file"
done
"$program" verify "$dir/out" --source "$2" -q || exit 1
echo "$damages damages, all found"
