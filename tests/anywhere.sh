#!/bin/bash
# Runs a selection of tests of the last commit, as nobody and as root: tests/anywhere.sh ARGUMENTS_OF_PYTEST. Takes root,
# iproute2 and localedef. The clone has a path with a space and Chinese letters; a second call uses it again.
# Each selection runs twice:
#   user  as nobody, with the locale zh_CN.GB18030 and the umask 077
#   root  as root, with LANG=C and PYTHONDONTWRITEBYTECODE
# Common to both: SIGINT and SIGHUP are ignored, there is no terminal, the home is read-only, TMPDIR is noexec and has
# 150 bytes, IPv6 is off, 256 descriptors, a proxy that nobody serves, a fixed hash seed, the time zone of China.
# Fails where a test fails, or where a run leaves a process, a mount or a listening port.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${VIGIL_ANYWHERE:-/var/tmp/npu-vigil-anywhere}
clone="$folder/npu vigil 昇腾"
home=$folder/home
temporary=$folder/$(printf '%*s' $((149 - ${#folder})) '' | tr ' ' t)

left() { # what a run left in its namespaces, a line each
    ps -e -o args= >"$folder/processes"
    grep -Ev '(^| )([^ ]*/tests/anywhere.sh|ps) ' "$folder/processes" | sed 's/^/process /'
    diff "$folder/mounts" <(cut -d' ' -f2 /proc/self/mounts | sort) | sed -n 's/^> /mount /p'
    ss -Hltnu | sed 's/^/port /'
}

inside() { # runs as root in new namespaces of mounts, processes and networks
    local kind=$1 owner=root
    shift
    local as=() environment=(
        HOME="$home" TMPDIR="$temporary" PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TZ=Asia/Shanghai PYTHONHASHSEED=20 PYTHONUTF8=1
        VIGIL_TEST_SEED="$VIGIL_TEST_SEED"
        VIGIL_TEST_PATIENCE="${VIGIL_TEST_PATIENCE:-3}" http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9
    )
    case $kind in
    user)
        as=(setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all)
        environment+=(LOCPATH="$folder/locales" LANG=zh_CN.GB18030)
        owner=nobody
        umask 077
        ;;
    root) environment+=(LANG=C PYTHONDONTWRITEBYTECODE=1) ;;
    esac
    chown -R "$owner" "$clone"
    ip link set lo up
    sysctl -q -w net.ipv6.conf.all.disable_ipv6=1
    mount -t tmpfs -o noexec,mode=1777 tests "$temporary"
    mount --bind "$home" "$home"
    mount --bind "$cache" "$home/.cache/npu-vigil"
    mount -o remount,bind,ro "$home"
    cut -d' ' -f2 /proc/self/mounts | sort >"$folder/mounts"
    trap '' INT HUP
    ulimit -n 256
    cd "$clone"
    local status=0
    setsid --wait "${as[@]}" env -i "${environment[@]}" .venv/bin/python -m pytest "$@" </dev/null || status=$?
    local rest
    rest=$(left)
    if [ -n "$rest" ]; then
        printf 'tests/anywhere.sh: the run as %s left this behind:\n%s\n' "$kind" "$rest"
        status=1
    fi
    return "$status"
}

if [ "${VIGIL_ANYWHERE_INSIDE:-}" ]; then
    inside "$@"
    exit
fi

if [ "$(id -u)" != 0 ]; then
    echo "tests/anywhere.sh: this takes root, for mounts and networks of its own" >&2
    exit 2
fi
mkdir -p "$home/.cache/npu-vigil" "$folder/locales" "$temporary"
chmod 755 "$folder"
[ -d "$folder/locales/zh_CN.GB18030" ] || localedef -i zh_CN -f GB18030 "$folder/locales/zh_CN.GB18030"
if [ -n "$(git status --porcelain)" ]; then
    echo "tests/anywhere.sh: the last commit is tested, without the changes that are not committed" >&2
fi
# Files that are hard links would change their owner in this repository, too.
[ -d "$clone" ] || git clone -q --no-hardlinks . "$clone"
chown -R root:root "$clone"
git -C "$clone" fetch -q "$PWD" HEAD
git -C "$clone" -c advice.detachedHead=false checkout -q --force FETCH_HEAD
lock=$(sha256sum requirements-dev.lock | cut -c1-16)
if [ ! -e "$clone/.venv/installed-$lock" ]; then
    rm -rf "$clone/.venv"
    # nobody may not be able to read the interpreter of this checkout, but has the same packages.
    "$(PATH=/usr/local/bin:/usr/bin command -v python3)" -m venv --without-pip "$clone/.venv"
    cp -a .venv/lib/. "$clone/.venv/lib/"
    (cd "$clone" && .venv/bin/python -m pip install -qq --no-deps --no-build-isolation -e .)
    touch "$clone/.venv/installed-$lock"
fi
export cache=${XDG_CACHE_HOME:-$HOME/.cache}/npu-vigil
export VIGIL_TEST_SEED=${VIGIL_TEST_SEED:-$(date +%s)}
status=0
for kind in user root; do
    VIGIL_ANYWHERE_INSIDE=1 unshare --mount --net --pid --fork --kill-child --mount-proc \
        "$PWD/tests/anywhere.sh" "$kind" "$@" &
    # unshare itself takes no signal while it waits.
    trap "kill -KILL $!; exit 1" INT TERM
    wait $! || status=1
done
exit "$status"
