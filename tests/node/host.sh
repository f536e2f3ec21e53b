#!/bin/bash
# Runs a command as the first process of a host of its own, as root:
#
#     host.sh DIRECTORY COMMAND...
#
# The host has the files of this machine, its devices and its cgroups. What is written there lands in
# DIRECTORY/host/written, in memory, and is gone afterwards; DIRECTORY itself is the same inside. Processes,
# mounts and the network are its own: node-1 at 192.168.77.2, and 10.0.0.1, where pods look for the API
# server. Every process ends with the command.
set -euo pipefail

if [ "$1" != --inside ]; then
    exec unshare --mount --propagation private --pid --fork --kill-child --net --uts --ipc \
        "$0" --inside "$@"
fi
directory=$2
shift 2

here=$directory/host
mkdir -p "$here"
mount -t tmpfs -o mode=755 host "$here"
mkdir "$here/written" "$here/work" "$here/root"
mount -t overlay -o "lowerdir=/,upperdir=$here/written,workdir=$here/work" host "$here/root"
for part in /dev /sys; do mount --rbind "$part" "$here/root$part"; done
mount -t proc proc "$here/root/proc"
mount -t tmpfs -o mode=755 run "$here/root/run"
mkdir -p "$here/root$directory"
mount --bind "$directory" "$here/root$directory"
mount --bind "$here" "$here/root$here"

work=$PWD
cd "$here/root"
pivot_root . .
umount -l .
cd "$work"
# As systemd leaves it: a pod may ask for what is mounted on the host later.
mount --make-rshared /

hostname node-1
ip link set lo up
ip address add 10.0.0.1/32 dev lo
ip link add host0 type bridge
ip address add 192.168.77.2/24 dev host0
ip link set host0 up
ip route add default via 192.168.77.1
exec "$@"
