#!/usr/bin/env bash
# Containerfile built from a local Debian 12 in the place of debian:12-slim, and the README's main job in a container of it.
# Needs root, debootstrap and buildah; no registry is asked. usage: container.sh DEB
. "$(dirname "$0")/lib.sh"
fresh_root
build() { buildah --root "$dir/images" --runroot "$dir/run" --storage-driver vfs "$@"; }
export BUILDAH_ISOLATION=chroot

umount "$root/proc"
empty=$(build from scratch)
build copy -q "$empty" "$root" / >/dev/null
build commit -q "$empty" docker.io/library/debian:12-slim >/dev/null
mkdir "$dir/context"
cp "$1" "$here/../../Containerfile" "$dir/context"
build build -q --pull-never --build-arg DEB="$(basename "$1")" -t mxfp4-pack -f "$dir/context/Containerfile" "$dir/context"

job=$(build from --pull-never mxfp4-pack)
program=$(build inspect --format '{{index .OCIv1.Config.Entrypoint 0}}' "$job")
mxfp4_pack() { build run "$job" -- "$program" "$@"; }
mxfp4_pack --version
mxfp4_pack convert /tmp/tiny /tmp/out --backend marlin --engine vllm -q
mxfp4_pack verify /tmp/out --source /tmp/tiny
build run "$job" -- test ! -e /tmp/mxfp4-pack.deb
echo 'image built, used'
