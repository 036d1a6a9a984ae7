#!/usr/bin/env bash
# The first process of the guest that guest.sh starts. usage: in_guest.sh MXFP4-PACK SOURCE-DIR KILLS STORY...
program=$1 root=$2 kills=$3 here=$(dirname "$0")
shift 3
set -o pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
export TMPDIR=/run/elsewhere
from=$MXFP4_GUEST_ROOT
trap 'echo "guest: done"; sync; echo o >/proc/sysrq-trigger; sleep 60' EXIT
exec </dev/null >/dev/console 2>&1

load() { modprobe -d "$from" -a "$@"; }
nfs_tool() { LD_LIBRARY_PATH=$from/lib/x86_64-linux-gnu:$from/usr/lib/x86_64-linux-gnu "$from/$1" "${@:2}"; }
# try PREFIX COMMAND...: PREFIX stands before each line that it prints
try() { "${@:2}" 2>&1 | sed -u "s/^/$1/" || echo "guest: failed: ${*:2}"; }
story() { try '' "$here/story.sh" "$program" "$root" "$1" "$2" "$kills"; }

# Exports /run/exported to this guest itself, under several addresses.
serve_nfs() {
  local options=rw,sync,no_root_squash,no_subtree_check,fsid=0,insecure
  load nfsd nfs nfsv3 nfsv4 && mount -t nfsd nfsd /proc/fs/nfsd || return 1
  cp "$from/etc/netconfig" "$from/etc/protocols" "$from/etc/services" "$from/etc/rpc" /etc
  grep -q ^_rpc: /etc/passwd || echo '_rpc:x:100:65534::/run:/bin/false' >>/etc/passwd
  mkdir -p /run/exported /run/rpcbind /run/sendsigs.omit.d /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/v4recovery
  touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
  mount -t tmpfs -o size=256M none /run/exported
  nfs_tool sbin/rpcbind -w && nfs_tool sbin/rpc.statd && nfs_tool usr/sbin/rpc.mountd &&
    touch /etc/exports && nfs_tool usr/sbin/exportfs -o "$options" '*:/run/exported' &&
    nfs_tool usr/sbin/rpc.nfsd --grace-time 10 8
}
nfs() {
  mkdir -p "/run/nfs$1"
  mount -i -t nfs -o "vers=$1,addr=127.0.0.1,clientaddr=127.0.0.1,proto=tcp$3" "127.0.0.1:$2" "/run/nfs$1" || return 1
  story "NFS $1" "/run/nfs$1"
  umount "/run/nfs$1"
}
nfs4() { nfs 4.2 / ''; }
nfs3() { nfs 3 /run/exported ',mountproto=tcp,mountaddr=127.0.0.1'; }

# parts PREFIX OPTIONS SETTLE: by three clients, each with caches of its own
parts() {
  local i clients=(/run/node{1,2,3})
  load veth sch_netem || return 1
  for i in 1 2 3; do CLIENT=$i OPTIONS=$2 "$here/nfs_client.sh" /run/exported /run/node$i 0 || return 1; done
  SETTLE=$3 try "$1: late.sh: " "$here/late.sh" "$program" "$root" "${clients[@]::2}"
  rm -rf /run/exported/*
  SETTLE=$3 try "$1: mounts.sh: " "$here/../nodes/mounts.sh" "$program" "$root" "${clients[@]}"
  umount "${clients[@]}"
  rm -rf /run/exported/{*,.out*}
}
noac() { parts 'noac' noac 1; }
nodes() { parts 'nodes' ac 61; }  # a directory's attributes are cached for 60 s

far() {
  load veth sch_netem && mount -o remount,size=2G /run/exported || return 1
  export SYNTH='gpt-oss-20b --layers 1 --experts 8 --vocab 1024' THREADS=2 DIRECT=taken
  local delay
  for delay in 0 3000 20000; do
    try 'far: ' "$here/../bench/slow_bench.sh" "$program" "$here/nfs_client.sh" /run/exported $delay 5
  done
}

vfat() {
  mkdir -p /run/vfat /run/large
  load vfat nls_ascii nls_cp437 nls_iso8859-1 nls_utf8 virtio_blk && mount -t vfat /dev/vda /run/vfat || return 1
  story vfat /run/vfat
  umount /run/vfat
  mount -t vfat /dev/vdb /run/large && try '' "$here/vfat.sh" "$program" "$root" /run/large
}

mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
mkdir -p $TMPDIR
ln -sfn /proc/self/fd /dev/fd
ip link set lo up
uname -sr
serve_nfs || echo 'guest: failed: no NFS server'
for name; do
  begin=$SECONDS
  "$name" || echo "guest: failed: $name is not mounted"
  echo "guest: $name took $((SECONDS - begin)) s"
done
