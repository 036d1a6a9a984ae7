#!/usr/bin/env bash
# Mounts a folder of the NFS server that in_guest.sh runs, in a client with a network of its own, and delays each
# request.
# usage: nfs_client.sh FOLDER MOUNTPOINT MICROSECONDS
# FOLDER is below /run/exported. CLIENT (1): the client's number. OPTIONS (ac): further mount options.
set -eu
number=${CLIENT:-1} folder=${1#/run/exported}
name=node$number
net=10.0.$number
if [ ! -e "/run/netns/$name" ]; then
  ip netns add "$name"
  ip link add "veth$number" type veth peer name eth0 netns "$name"
  ip addr add "$net.1/24" dev "veth$number"
  ip link set "veth$number" up
  ip -n "$name" addr add "$net.2/24" dev eth0
  ip -n "$name" link set eth0 up
fi
tc -n "$name" qdisc replace dev eth0 root netem delay "$3us" limit 100000
mkdir -p "$2"
# to the server a client is its host's name
# shellcheck disable=SC2016
nsenter --net="/run/netns/$name" unshare -u sh -c 'hostname "$0" && exec mount -i -t nfs -o "$@"' "$name" \
  "vers=4.2,proto=tcp,addr=$net.1,clientaddr=$net.2,${OPTIONS:-ac}" "$net.1:${folder:-/}" "$2"
