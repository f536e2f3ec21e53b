#!/bin/sh
# Runs a command in namespaces of its own, without a network, where qemu runs programs for aarch64:
#
#     tests/aarch64/emulation.sh COMMAND...
#
# The registration is of this user namespace alone (Linux 6.7 or newer), so nothing of the machine changes. Where the
# kernel refuses it, a registration of the machine is used. Without either the status is 3, with the command that
# registers qemu. A machine for aarch64 needs no qemu.
set -eu
# The magic number of a 64-bit little-endian program or library for aarch64, and what of it counts. The flags: the kernel
# opens qemu now, so that a root needs no copy (F), and hands over the program's own name (P) and credentials (OC).
elf='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
registration=":qemu-aarch64:M::$elf:$mask:$(command -v qemu-aarch64-static || true):POCF"
handlers=/proc/sys/fs/binfmt_misc
register="mount -t binfmt_misc none $handlers && printf %s \"\$0\" >$handlers/register"
namespaces='--user --map-root-user --mount --net --pid --fork --kill-child --mount-proc'
if [ "$(uname -m)" = aarch64 ] || grep -qs '^enabled' "$handlers/qemu-aarch64"; then
    register=true
fi
# shellcheck disable=SC2086
if ! refused=$(unshare $namespaces sh -c "$register" "$registration" 2>&1); then
    echo "tests/aarch64: programs for aarch64 cannot be run here: $refused" >&2
    echo "tests/aarch64: register qemu for the whole machine, and try again:" >&2
    echo "    printf '%s' '$registration' | sudo tee $handlers/register" >&2
    exit 3
fi
# shellcheck disable=SC2086
exec unshare $namespaces sh -c "$register; exec \"\$@\"" "$registration" "$@"
