#!/usr/bin/env bash
# Parts by three clients of sshfs, each with caches of its own. usage: sshfs.sh MXFP4-PACK SOURCE-DIR
# Needs root, sshfs and openssh-server; runs a server of its own on this machine. SYNTH: see mounts.sh.
set -u
[ $# -eq 2 ] || { echo "usage: $0 MXFP4-PACK SOURCE-DIR"; exit 2; }
[ "$(id -u)" = 0 ] || { echo 'skipped: needs root'; exit 77; }
PATH=$PATH:/usr/sbin
for tool in sshfs sshd; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
if [ -z "${MXFP4_TEST_IN_NAMESPACE:-}" ]; then  # mounts go with their namespace
  MXFP4_TEST_IN_NAMESPACE=1 exec unshare -m "$0" "$@"
fi
work=$(mktemp -d -p "${SCRATCH:-/var/tmp}")
server=
trap 'umount "$work"/client-* 2>/dev/null; kill $server 2>/dev/null; wait; rm -rf "$work"' EXIT
mkdir -p "$work/shared" "$work/client-1" "$work/client-2" "$work/client-3" /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$work/key" && cp "$work/key.pub" "$work/keys" || exit 1
port=16850
"$(command -v sshd)" -D -e -f /dev/null -p $port -h "$work/key" -o AuthorizedKeysFile="$work/keys" -o StrictModes=no \
  -o UsePAM=no -o PidFile=none -o Subsystem='sftp internal-sftp' -o ListenAddress=127.0.0.1 2>"$work/log" &
server=$!
until grep -qs listening "$work/log"; do kill -0 $server && sleep 0.1 || { cat "$work/log"; exit 1; }; done
for client in "$work"/client-*; do
  sshfs 127.0.0.1:"$work/shared" "$client" -p $port -o IdentityFile="$work/key",StrictHostKeyChecking=no \
    -o UserKnownHostsFile=/dev/null,LogLevel=ERROR,reconnect,dcache_timeout=3 ||
    { cat "$work/log"; exit 1; }
done
"$(dirname "$0")/mounts.sh" "$1" "$2" "$work"/client-*
