#!/usr/bin/env bash
# A file system that folds the case of names and reports a full disk late.
# usage: odd.sh MXFP4-PACK SOURCE-DIR ODD
# ODD: the program made of odd.cpp. Skipped if FUSE cannot mount.
if [ -z "${MXFP4_TEST_IN_NAMESPACE:-}" ]; then  # mounts go with their namespace
  [ "$(id -u)" = 0 ] && flags=-m || flags=-Urm
  unshare $flags true 2>/dev/null || { echo 'skipped: nothing can be mounted here' && exit 77; }
  MXFP4_TEST_IN_NAMESPACE=1 exec unshare $flags "$0" "$@"
fi
. "$(dirname "$0")/../cli/lib.sh"
behind=$dir/behind place=$dir/place
mkdir "$behind" "$place"
"$3" "$behind" "$place" >"$dir/mount.txt" 2>&1 || { echo "skipped: $(cat "$dir/mount.txt")" && exit 77; }
trap 'umount -l "$place"; rm -rf "$dir"' EXIT

as=(--backend marlin --engine vllm --threads 1)
on() { "$program" "$1" "$2" "$place/out" "${@:3}"; }
tidy() { rm -rf "$place"/{out,.out.*}; }
# stop_after LINES COMMAND...: stops a run as soon as its journal has LINES lines; its process is $run
stop_after() {
  local lines=$1 try
  for try in $(seq 100); do
    tidy
    "${@:2}" >/dev/null 2>"$dir/first.txt" &
    run=$!
    until [ "$(cat "$behind/.out.mxfp4-pack/journal" 2>/dev/null | wc -l)" -ge "$lines" ]; do kill -0 $run || break; done
    kill -STOP $run && [ ! -e "$behind/out" ] && return
    kill -CONT $run
    wait $run
  done 2>/dev/null
  echo 'no run could be stopped' && return 1
}
prepare "$program" synth gpt-oss-20b "$dir/in" --tiny --layers 4 --experts 16 --hidden 256 --intermediate 256 -q
convert "$dir/in" "$dir/whole" "${as[@]}"

expect 'undisturbed' 0 '' '.' on convert "$dir/in" "${as[@]}"
expect 'its bytes, behind the page cache' 0 '' '' diff -r "$behind/out" "$dir/whole"
for lines in 1 2 4; do
  prepare stop_after $lines "$program" convert "$dir/in" "$place/out" "${as[@]}"
  prepare touch "$behind/full"
  expect "full after step $lines" 2 '' 'No space left on device' go_on $run "$dir/first.txt"
  prepare rm "$behind/full"
  expect 'nothing is there' 1 '' '' test -e "$place/out"
  expect 'resumed, once there is room' 0 '' '.' on convert "$dir/in" "${as[@]}"
  expect 'its bytes, behind the page cache' 0 '' '' diff -r "$behind/out" "$dir/whole"
done

prepare cp -r "$dir/in" "$dir/names"
for name in notes.md Notes.md; do echo "$name" >"$dir/names/$name"; done
prepare tidy
expect 'files whose names are one here' 2 '' 'otes.md: this file system cannot keep this name beside the others' \
  on convert "$dir/names" "${as[@]}"
expect 'nothing is put in place' 1 '' '' test -e "$place/out"
prepare tidy
convert "$dir/names" "$dir/both" "${as[@]}"
expect 'unpacked likewise' 2 '' 'otes.md: this file system cannot keep this name' on unpack "$dir/both"
expect 'nor is that' 1 '' '' test -e "$place/out"
finish
