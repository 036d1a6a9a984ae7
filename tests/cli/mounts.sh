#!/usr/bin/env bash
# Places that no rename can replace. usage: mounts.sh MXFP4-PACK SOURCE-DIR
if [ -z "${MXFP4_TEST_IN_NAMESPACE:-}" ]; then
  unshare -Urm true 2>/dev/null || { echo 'skipped: no user namespaces, so nothing can be mounted' && exit 77; }
  MXFP4_TEST_IN_NAMESPACE=1 exec unshare -Urm "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"

on() { "$program" convert "$tiny" "$dir/$1" --backend marlin --engine vllm "${@:2}"; }
bind() { mkdir -p "$1" "$2" && mount --bind "$1" "$2"; }

test_mount_point() {
  prepare bind "$dir/disk" "$dir/volume"
  expect 'a mount point' 2 '' 'volume: is a mount point, which no rename can replace; choose a folder in it' on volume
  expect 'synth too' 2 '' 'is a mount point' "$program" synth gpt-oss-20b "$dir/volume" --tiny
  expect 'nothing is written' 0 '' '' find "$dir/disk" "$dir" -mindepth 1 -name '*mxfp4*'
  expect 'a folder in it' 0 '' 'check it with' on volume/out
  expect 'is right' 0 'right' '' "$program" verify "$dir/volume/out" --source "$tiny"
  umount "$dir/volume"
  prepare bind "$dir/disk/out" "$dir/volume"
  expect 'a complete output that is mounted' 0 '' 'volume: unchanged$' on volume
  expect 'another conversion' 2 '' 'volume: is a mount point' on volume --add --tp-size 2
  expect 'merge' 0 '' 'volume: already complete' "$program" merge "$dir/volume"
  umount "$dir/volume"
}
test_read_only() {
  prepare on out -q
  prepare mount --bind "$dir" "$dir"
  prepare mount -o remount,bind,ro "$dir"
  expect 'the same again' 0 '' 'out: unchanged$' on out
  expect 'the set again' 0 '' 'out: unchanged$' on out --add
  expect 'merge' 0 '' 'out: already complete' "$program" merge "$dir/out"
  expect 'another' 2 '' 'out: cannot be made in .*: Read-only file system' on out --add --tp-size 2
  expect 'a new one' 2 '' 'new: cannot be made in .*: Read-only file system' on new
  umount "$dir"
}
# The source under a second path.
test_source_under_a_second_path() {
  prepare cp -r "$tiny" "$dir/source"
  mkdir "$dir/source/below"
  prepare bind "$dir/source/below" "$dir/second"
  expect 'in the source by another path' 2 '' 'second/out: lies inside the source .*/source; choose another place' \
    "$program" convert "$dir/source" "$dir/second/out" --backend marlin --engine vllm
  expect 'leaves it as it was' 0 '' '' find "$dir/source/below" -mindepth 1
  umount "$dir/second"
  prepare mount --bind "$dir/source" "$dir/second"
  expect 'the source itself by another path' 2 '' 'is a mount point|is the source' \
    "$program" convert "$dir/source" "$dir/second" --backend marlin --engine vllm --force
  umount "$dir/second"
}
test_mount_in_out() {
  prepare bind "$dir/disk" "$dir/volume"
  prepare on 'a b' -q
  prepare bind "$dir/disk" "$dir/a b/packed/mine"
  for how in --force --add; do
    expect "$how with a mount inside" 2 '' 'a b: .*/a b/packed/mine is mounted in it; unmount that first' on 'a b' $how
  done
  expect 'unpack onto a mount point' 2 '' 'volume: is a mount point' "$program" unpack "$dir/a b" "$dir/volume"
  umount "$dir/a b/packed/mine"
  rmdir "$dir/a b/packed/mine"
  expect 'without it' 0 '' 'check it with' on 'a b' --force
  touch "$dir/file"
  prepare mount --bind "$dir/file" "$dir/a b/config.json"
  expect 'a file mounted on one of its files' 2 '' 'config.json is mounted in it' on 'a b' --force
  umount "$dir/a b/config.json" "$dir/volume"
  nothing .*mxfp4*
}
test_mount_in_a_leftover() {
  mkdir disk
  touch "$dir/disk/file"
  left="$dir/.left.mxfp4-pack/new"
  prepare mkdir -m 700 "$dir/.left.mxfp4-pack"
  prepare mkdir -p "$left/packed"
  printf "left\nrun\tpacked/file\n" >"$left/.mxfp4-pack-run"
  prepare bind "$dir/disk" "$left/packed"
  find "$dir/.left.mxfp4-pack" -exec touch -d '1 hour ago' {} +
  expect 'clean does not cross a mount' 0 '^kept: .*/packed is mounted in it; it stays' '' "$program" clean "$dir" --remove
  expect 'nor does convert' 2 '' 'left.mxfp4-pack/new: .*/packed is mounted in it; move it away first' on left
  expect 'what is mounted stays' 0 '' '' test -e "$dir/disk/file"
  umount "$left/packed"
}
# what an image of a container holds
test_image_of_a_container() {
  prepare on 'a b' -q
  prepare mkdir -p "$dir/layers/"{image,upper,work} "$dir/merged"
  prepare cp -r "$dir/a b" "$dir/layers/image/out"
  layers=userxattr,lowerdir=$dir/layers/image,upperdir=$dir/layers/upper,workdir=$dir/layers/work
  if mount -t overlay -o "$layers" overlay "$dir/merged" 2>"$dir/err.txt"; then
    for how in --force --add; do
      expect "$how in an image" 2 '' 'merged/out: is in a lower layer of overlayfs' \
        "$program" convert "$tiny" "$dir/merged/out" --backend marlin --engine sglang $how
      expect "$how: nothing stays beside it" 0 '^out$' '' ls -A "$dir/merged"
    done
    expect 'a new one in an image' 0 '' 'check it with' on merged/new
    expect 'it can be replaced' 0 '' 'check it with' on merged/new --force
    umount "$dir/merged"
  fi
}
test_read_only_file_system() {
  mkdir "$dir/fixed"
  mkdir -m 700 "$dir/fixed/.k.mxfp4-pack"
  prepare mount --bind "$dir/fixed" "$dir/fixed"
  prepare mount -o remount,bind,ro "$dir/fixed"
  expect 'clean of what cannot be written' 2 '' 'fixed: cannot remove anything in it: Read-only file system$' \
    "$program" clean "$dir/fixed" --remove
  umount "$dir/fixed"
}
test_full_disk() {
  mkdir "$dir/small"
  prepare mount -t tmpfs -o size=600k tmpfs "$dir/small"
  expect 'a plan that the disk has no room for' 2 'kB are free$' 'small/out: [0-9.]+ MB needed, [0-9.]+ kB free$' on small/out --dry-run
  expect 'nor has a run' 2 '' 'small: [0-9.]+ MB needed, [0-9.]+ kB free$' on small/out
  umount "$dir/small"

  prepare mount -t tmpfs -o size=4M tmpfs "$dir/small"
  prepare on small/out --part 0/2 -q
  head -c 3M /dev/zero >"$dir/small/others"
  parts() { find "$dir/small" -name part-record; }
  free=$(($(df -B 1000 --output=avail "$dir/small" | tail -n 1) - 1))
  expect 'a run over parts of another that the disk has no room for' 2 '' "small: [0-9.]+ [kM]B needed, ($free|$((free + 1)))([.][0-9])? kB free$" \
    on small/out --link --force
  expect 'leaves the parts' 0 'part-record' '' parts
  umount "$dir/small"
}
run_cases
