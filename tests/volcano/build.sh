#!/bin/bash
# Builds real controllers from public modules, once, and prints the folder that has the program with the
# definitions of its kinds: build.sh volcano (the default), lws or aibrix. On two cores Volcano's with its
# webhooks takes about 7 minutes; LeaderWorkerSet's and AIBrix' took up to 10 each on a busy machine.
# volcano.sh/apis has no release that fits v1.15.0: v1.14.0 with one constant does. AIBrix' release needs a
# newer sonic, a JSON library, for Go 1.26. Where it cannot be done, names what is missing and ends with 2.
set -euo pipefail
cd "$(dirname "$0")"
name=${1:-volcano}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/npu-vigil
case $name in
volcano)
    module=.
    package=.
    module_release=volcano.sh/volcano@v1.15.0
    kinds="volcano/bases/batch.volcano.sh_jobs volcano/bases/bus.volcano.sh_commands
        volcano/bases/scheduling.volcano.sh_podgroups volcano/bases/scheduling.volcano.sh_queues"
    ;;
lws)
    module=lws
    package=sigs.k8s.io/lws/cmd
    module_release=sigs.k8s.io/lws@v0.9.0
    kinds="bases/leaderworkerset.x-k8s.io_leaderworkersets bases/disaggregatedset.x-k8s.io_disaggregatedsets"
    ;;
aibrix)
    module=aibrix
    package=.
    module_release=github.com/vllm-project/aibrix@v0.6.0
    kinds="orchestration/orchestration.aibrix.ai_stormservices orchestration/orchestration.aibrix.ai_rolesets
        orchestration/orchestration.aibrix.ai_podsets"
    ;;
*)
    echo "usage: tests/volcano/build.sh [volcano|lws|aibrix]" >&2
    exit 2
    ;;
esac
files="$module/go.mod $module/go.sum"
[ $name = lws ] || files="$files $module/main.go"
built=$cache/$name-$(cat $files build.sh | sha256sum | cut -c1-16)

cannot() {
    echo "tests/volcano/build.sh: $*" >&2
    exit 2
}

folder() { # of the module $1 in the cache of Go
    found=$(cd / && go mod download -json "$1" 2>&1) ||
        cannot "Go cannot get the module $1; it takes a Go module proxy (go env GOPROXY):" "$found"
    sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$found"
}

build() {
    command -v go >/dev/null || cannot "there is no Go; install 1.26 or newer (go.dev/dl, or golang-go)"
    # From 1.21 on Go fetches the release that go.mod demands by itself, unless GOTOOLCHAIN forbids it.
    needed=$(sed -n 's/^go //p' $module/go.mod)
    source=$(mktemp -d)
    trap 'chmod -R u+w "$source"; rm -rf "$source"' EXIT
    cp $files "$source"
    (cd "$source" && go list -m >/dev/null 2>&1) ||
        cannot "$(go env GOVERSION) does not do, and may fetch no other one; install Go $needed or newer"
    release=$(folder $module_release)
    if [ $name = volcano ]; then
        apis=$(folder volcano.sh/apis@v1.14.0)
        cp -r "$apis" "$source/apis"
        chmod -R u+w "$source/apis"
        for one in scheduling scheduling/v1beta1; do
            printf 'package %s\n\n// QueueAllocationGateKey came after v1.14.0.\nconst QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"\n' \
                "$(basename "$one")" >"$source/apis/pkg/apis/$one/gate.go"
        done
    fi
    for kind in $kinds; do
        file=$built/$(basename "$kind").yaml
        cp "$release/config/crd/$kind.yaml" "$file.part"
        mv -f "$file.part" "$file"
    done
    (cd "$source" && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$built/part" $package) ||
        cannot "Go could not build it; what it says stands above"
    mv "$built/part" "$built/$name"
}

if [ ! -x "$built/$name" ]; then
    mkdir -p "$built" || cannot "$built cannot be made; XDG_CACHE_HOME names another place"
    exec 9>"$built/lock"
    flock 9
    if [ ! -x "$built/$name" ]; then
        echo "tests/volcano/build.sh: building the controllers of $name, once, up to 10 minutes" >&2
        build
    fi
fi
echo "$built"
