#!/bin/sh
# A hccn_tool for acceptance tests: answers "-i N -link -g" from files in "<driver root>/control".
#   link.<chip>   UP or DOWN; UP where there is none
#   tool.<chip>   a shell command that is run instead: to hang, to fail, to answer nonsense
control=${0%/*}/../control
case "$1 $3 $4" in
"-i -link -g") ;;
*) echo "The command is not supported on this product."; exit 13 ;;
esac
[ ! -f "$control/tool.$2" ] || . "$control/tool.$2"
state=UP
[ ! -f "$control/link.$2" ] || read -r state < "$control/link.$2"
echo "link status: $state"
