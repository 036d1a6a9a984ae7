#!/usr/bin/env bash
# Runs the story on file systems of this machine.
# usage: run.sh MXFP4-PACK SOURCE-DIR KILLS [FILE-SYSTEM...]
# FILE-SYSTEM: tmpfs overlay ext4 xfs btrfs weak (default: all). ext4, xfs and btrfs need root and loop devices, weak
# needs /dev/fuse and MXFP4_TEST_WEAK, the program made of weak.cpp. A file system that cannot be mounted here is
# skipped with a message.
# Prints a table, and fails if README.md here lacks one of its rows.
set -u
[ $# -ge 3 ] || { echo "usage: $0 MXFP4-PACK SOURCE-DIR KILLS [FILE-SYSTEM...]"; exit 2; }
if [ -z "${MXFP4_TEST_IN_NAMESPACE:-}" ]; then  # mounts go with their namespace
  [ "$(id -u)" = 0 ] && flags=-m || flags=-Urm
  unshare $flags true 2>/dev/null || { echo 'skipped: nothing can be mounted here' && exit 77; }
  MXFP4_TEST_IN_NAMESPACE=1 exec unshare $flags "$0" "$@"
fi
program=$1 root=$2 kills=$3 here=$(dirname "$0")
shift 3
[ $# -gt 0 ] || set -- tmpfs overlay ext4 xfs btrfs weak
work=$(mktemp -d -p "${MXFP4_TEST_DISKS:-/var/tmp}")
export XDG_CACHE_HOME=$work/cache
trap 'cd / && umount -R "$work"/* 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/elsewhere" && mount -t tmpfs none "$work/elsewhere" || exit 1
export TMPDIR=$work/elsewhere

on_disk() { truncate -s 320M "$work/$1.disk" && "mkfs.$1" -q "$work/$1.disk" && mount -o loop "$work/$1.disk" "$2"; }
mount_tmpfs() { mount -t tmpfs -o size=256M none "$1"; }
mount_overlay() {
  mkdir "$work/layers" && mount -t tmpfs -o size=256M none "$work/layers" || return 1
  mkdir "$work/layers/"{lower,upper,work}
  local layers=lowerdir=lower,upperdir=upper,workdir=work
  (cd "$work/layers" && mount -t overlay -o userxattr,$layers overlay "$1") || return 1
  [ "$("$here/supports.py" exchange "$1")" = yes ] || { echo 'tmpfs has no extended attributes here' && return 1; }
}
mount_ext4() { on_disk ext4 "$1"; }
mount_xfs() { on_disk xfs "$1"; }
mount_btrfs() { on_disk btrfs "$1"; }
mount_weak() { mkdir "$work/behind" && mount_tmpfs "$work/behind" && "$MXFP4_TEST_WEAK" "$work/behind" "$1"; }
# The weak one twice.
late() {
  mkdir "$work/again" && "$MXFP4_TEST_WEAK" "$work/behind" "$work/again" || return
  local script
  for script in late.sh ../nodes/mounts.sh; do
    "$here/$script" "$program" "$root" "$work/weak" "$work/again" >"$work/log" 2>&1 || failed=$((failed + 1))
    sed "s/^/weak, twice, $(basename $script): /" "$work/log"
    rm -rf "$work/behind"/{*,.out.*}
  done
}

failed=0 ran=0
rows=$work/rows
for name; do
  mkdir "$work/$name"
  if ! "mount_$name" "$work/$name" >"$work/log" 2>&1; then
    echo "skipped: $name: $(head -n 1 "$work/log")"
    continue
  fi
  ran=$((ran + 1))
  "$here/story.sh" "$program" "$root" "$name" "$work/$name" "$kills" >"$work/log" 2>&1 || failed=$((failed + 1))
  sed "s/^/$name: /" "$work/log" | grep -v ': |'
  grep '^|' "$work/log" >>"$rows"
  [ "$name" != weak ] || late
  umount "$work/$name"
done
[ $ran -gt 0 ] || exit 77
cat "$rows"
grep -vxFf "$root/tests/filesystems/README.md" "$rows" && echo 'FAILED: tests/filesystems/README.md lacks these rows' && failed=1
[ $failed = 0 ]
