#!/usr/bin/env bash
# The first process of the guest that guest.sh starts. usage: in_guest.sh MXFP4-PACK SOURCE-DIR KILLS
program=$1 root=$2 kills=$3 here=$(dirname "$0")
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
export TMPDIR=/run/elsewhere
from=$MXFP4_GUEST_ROOT
trap 'echo "guest: done"; sync; echo o >/proc/sysrq-trigger; sleep 60' EXIT
exec </dev/null >/dev/console 2>&1

load() { modprobe -d "$from" -a "$@"; }
nfs_tool() { LD_LIBRARY_PATH=$from/lib/x86_64-linux-gnu:$from/usr/lib/x86_64-linux-gnu "$from/$@"; }
try() {
  local log=/run/log
  "$@" >$log 2>&1 || echo "guest: failed: $*"
  cat $log
}
story() { try "$here/story.sh" "$program" "$root" "$1" "$2" "$kills"; }

# Exports /run/exported to this guest itself.
serve_nfs() {
  local options=rw,sync,no_root_squash,no_subtree_check,fsid=0,insecure
  load nfsd nfs nfsv3 nfsv4 && mount -t nfsd nfsd /proc/fs/nfsd || return 1
  cp "$from/etc/netconfig" "$from/etc/protocols" "$from/etc/services" "$from/etc/rpc" /etc
  grep -q ^_rpc: /etc/passwd || echo '_rpc:x:100:65534::/run:/bin/false' >>/etc/passwd
  mkdir -p /run/exported /run/rpcbind /run/sendsigs.omit.d /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/v4recovery
  touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
  mount -t tmpfs -o size=256M none /run/exported
  nfs_tool sbin/rpcbind -w && nfs_tool sbin/rpc.statd && nfs_tool usr/sbin/rpc.mountd &&
    touch /etc/exports && nfs_tool usr/sbin/exportfs -o "$options" 127.0.0.1:/run/exported &&
    nfs_tool usr/sbin/rpc.nfsd 8
}
nfs() {
  mkdir -p "/run/nfs$1"
  mount -i -t nfs -o "vers=$1,addr=127.0.0.1,clientaddr=127.0.0.1,proto=tcp$3" "127.0.0.1:$2" "/run/nfs$1" || return 1
  story "NFS $1" "/run/nfs$1"
  umount "/run/nfs$1"
}
vfat() {
  mkdir -p /run/vfat /run/large
  load vfat nls_ascii nls_cp437 nls_iso8859-1 nls_utf8 virtio_blk && mount -t vfat /dev/vda /run/vfat || return 1
  story vfat /run/vfat
  umount /run/vfat
  mount -t vfat /dev/vdb /run/large && try "$here/vfat.sh" "$program" "$root" /run/large
}

mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
mkdir -p $TMPDIR
ip link set lo up
uname -sr
if serve_nfs; then
  nfs 4.2 / '' || echo 'guest: failed: NFS 4.2 is not mounted'
  nfs 3 /run/exported ',mountproto=tcp,mountaddr=127.0.0.1' || echo 'guest: failed: NFS 3 is not mounted'
else
  echo 'guest: failed: no NFS server'
fi
vfat || echo 'guest: failed: vfat is not mounted'
