#!/usr/bin/env bash
# Tests of features that this machine's kernel lacks, in a guest with Debian's kernel.
# usage: guest.sh MXFP4-PACK SOURCE-DIR KILLS [STORY...]
# STORY: nfs4 nfs3 vfat (story.sh), noac nodes (parts by three clients of NFS, without caches of attributes and with
# them, which takes 25 minutes), far (speed on NFS with a delay). Default: all. Needs of Debian 12: qemu-system-x86
# busybox-static kmod dosfstools iproute2 python3; skipped without QEMU. Without KVM, QEMU emulates the guest's
# instructions, so times are meaningless. The guest's root is this machine's root, read-only, below a tmpfs. Kernel and
# NFS server are downloaded as packages and unpacked, not installed, to MXFP4_TEST_GUEST (/var/tmp/mxfp4-guest), and
# stay there for the next run. Prints a table, and fails if README.md here lacks one of its rows.
set -eu
[ $# -ge 3 ] || { echo "usage: $0 MXFP4-PACK SOURCE-DIR KILLS [STORY...]"; exit 2; }
command -v qemu-system-x86_64 >/dev/null || { echo 'skipped: no qemu-system-x86_64' && exit 77; }
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
  machine=(-accel kvm -cpu host) seconds=5000
else
  echo 'no KVM of the processor: emulated'
  machine=(-accel 'tcg,thread=multi' -cpu max) seconds=20000
fi
program=$(realpath "$1") root=$(realpath "$2") kills=$3
shift 3
[ $# -gt 0 ] || set -- nfs4 nfs3 vfat noac nodes far
guest=$(realpath -m "${MXFP4_TEST_GUEST:-/var/tmp/mxfp4-guest}")
packages=(nfs-kernel-server nfs-common rpcbind netbase libtirpc3 libtirpc-common libevent-core-2.1-7 libnfsidmap1
  libwrap0 libkeyutils1 libsqlite3-0)

unpack_packages() {
  local kernel
  kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/ *Depends: //p' | head -n 1)
  mkdir -p "$guest/new/packages"
  (cd "$guest/new/packages" && apt-get download -q "$kernel" "${packages[@]}")
  for package in "$guest/new/packages/"*.deb; do dpkg-deb -x "$package" "$guest/new"; done
  rm -r "$guest/new/packages"
  depmod -b "$guest/new" "${kernel#linux-image-}"
  mv "$guest/new" "$guest/root"
}
[ -d "$guest/root" ] || unpack_packages
version=$(ls "$guest/root/lib/modules")

work=$(mktemp -d)
export XDG_CACHE_HOME=$work/cache
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/init/modules"
cp "$(command -v busybox)" "$work/init/busybox"
for module in virtio_pci 9pnet_virtio 9p overlay; do
  modprobe -d "$guest/root" -S "$version" --show-depends "$module" | sed -n 's/^insmod //p'
done | awk '!seen[$1]++' | while read -r path; do
  cp "$path" "$work/init/modules"
  basename "$path" >>"$work/init/modules/order"
done
cat >"$work/init/init" <<INIT
#!/busybox sh
/busybox --install -s /busybox-links 2>/dev/null
for folder in proc dev host layer new; do /busybox mkdir -p /\$folder; done
/busybox mount -t proc none /proc
/busybox mount -t devtmpfs none /dev
for module in \$(/busybox cat /modules/order); do /busybox insmod /modules/\$module; done
/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host
/busybox mount -t tmpfs none /layer
/busybox mkdir /layer/upper /layer/work
/busybox mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /new
/busybox mount --move /dev /new/dev
export MXFP4_GUEST_ROOT=$guest/root MXFP4_TEST_VERBOSE=${MXFP4_TEST_VERBOSE:-}
exec /busybox switch_root /new $root/tests/filesystems/in_guest.sh $program $root $kills $*
INIT
chmod +x "$work/init/init"
(cd "$work/init" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initramfs"
truncate -s 256M "$work/small" && mkfs.vfat "$work/small" >/dev/null
truncate -s 16G "$work/large" && mkfs.vfat -F 32 "$work/large" >/dev/null
timeout $seconds qemu-system-x86_64 "${machine[@]}" -smp 2 -m 4G -display none -no-reboot -nodefaults -serial stdio \
  -kernel "$guest/root/boot/vmlinuz-$version" -initrd "$work/initramfs" \
  -append 'console=ttyS0 quiet panic=-1 no_timer_check mitigations=off' \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -drive "file=$work/small,format=raw,if=virtio" -drive "file=$work/large,format=raw,if=virtio" \
  </dev/null | sed -u 's/\r//' | tee "$work/log"
grep -q '^guest: done$' "$work/log" || { echo 'FAILED: the guest did not come to its end' && exit 1; }
grep '^| ' "$work/log" | grep -vxFf "$root/tests/filesystems/README.md" && echo 'FAILED: tests/filesystems/README.md lacks these rows' && exit 1
! grep -q 'guest: failed' "$work/log"
