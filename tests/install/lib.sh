# Fresh Debian roots for tests of installed packages. usage: . lib.sh; needs root and debootstrap.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$(mktemp -d)
clean_up() {
  umount "$dir/root/proc" "$dir/root/dev/pts" "$dir/root/dev/shm" 2>/dev/null || true
  rm -rf --one-file-system "$dir"
}
trap clean_up EXIT

# fresh_root PACKAGE..: a minimal Debian 12 (SUITE: another) with these at $root, and the tiny checkpoint at its
# /tmp/tiny. ROOTS (a folder) keeps downloads.
fresh_root() {
  local names="$*"
  local suite=${SUITE:-bookworm}
  local kept=${ROOTS:-$dir}/$suite-${names// /-}.tar
  if [ ! -e "$kept" ]; then
    debootstrap --variant=minbase ${names:+--include="${names// /,}"} "$suite" "$dir/made" \
      http://deb.debian.org/debian >"$dir/debootstrap.log" || { tail "$dir/debootstrap.log"; exit 1; }
    tar -C "$dir/made" -cf "$kept" .
  fi
  root=$dir/root
  mkdir "$root"
  tar -C "$root" -xf "$kept"
  mount -t proc proc "$root/proc"
  cp -r "$here/../../testdata/tiny/gpt-oss" "$root/tmp/tiny"
}
inside() { chroot "$root" /usr/bin/env -i HOME=/root PATH="${path:-/usr/sbin:/usr/bin:/sbin:/bin}" LC_ALL=C.UTF-8 "$@"; }
# The README's main example with the installed program, and other first commands of a user.
main_job() {
  inside mxfp4-pack --version
  inside mxfp4-pack convert /tmp/tiny /tmp/out --backend marlin --engine vllm -q
  inside mxfp4-pack verify /tmp/out --source /tmp/tiny
  inside mxfp4-pack unpack /tmp/out /tmp/again -q
  diff -r -x README.md -x LICENSE "$root/tmp/tiny" "$root/tmp/again"
  inside man -w mxfp4-pack mxfp4-pack-format mxfp4-pack-layout mxfp4-pack-loaders mxfp4-pack-vllm mxfp4-pack-sglang
  inside man mxfp4-pack | grep no-loader >/dev/null  # reads to the end
  rm -r "$root/tmp/out" "$root/tmp/again"
}
