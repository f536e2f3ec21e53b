#!/bin/sh
# An ipmitool for acceptance tests: answers the vendor's alarm request from the file "alarms" in
# "<driver root>/control", three alarms a page. One alarm a line: its 15 bytes in hexadecimal.
#   bmc          a shell command that is run first: to hang, to fail, to answer nonsense
control=${0%/*}/../control
case "$*" in
"raw 0x30 0x94 0x"[dD][bB]" 0x07 0x00 0x40 0x00 "*) ;;
*) echo "Invalid command: $*" >&2; exit 1 ;;
esac
[ ! -f "$control/bmc" ] || . "$control/bmc"
first=$(($9 + ${10} * 256))
total=$(wc -l < "$control/alarms")
page=$(tail -n +$((first + 1)) "$control/alarms" | head -n 3)
count=$(printf '%s' "$page" | grep -c .)
printf ' db 07 00 %02x %02x %02x 00' $((total % 256)) $((total / 256)) "$count"
printf '%s\n' "$page" | while read -r alarm; do printf ' %s' "$alarm"; done
echo
