#!/bin/bash
# Builds Volcano's job controller and webhooks from public modules, once, about 7 minutes, and prints the
# folder that has them with the definitions of their kinds. volcano.sh/apis has no release that fits v1.15.0:
# v1.14.0 with one constant does. Where that cannot be done, says what is missing and ends with 2.
set -euo pipefail
cd "$(dirname "$0")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/npu-vigil
built=$cache/volcano-$(cat go.mod go.sum main.go build.sh | sha256sum | cut -c1-16)
kinds="batch.volcano.sh_jobs bus.volcano.sh_commands scheduling.volcano.sh_podgroups scheduling.volcano.sh_queues"

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
    needed=$(sed -n 's/^go //p' go.mod)
    source=$(mktemp -d)
    trap 'chmod -R u+w "$source"; rm -rf "$source"' EXIT
    cp go.mod go.sum main.go "$source"
    (cd "$source" && go list -m >/dev/null 2>&1) ||
        cannot "$(go env GOVERSION) does not do, and may fetch no other one; install Go $needed or newer"
    apis=$(folder volcano.sh/apis@v1.14.0)
    volcano=$(folder volcano.sh/volcano@v1.15.0)
    cp -r "$apis" "$source/apis"
    chmod -R u+w "$source/apis"
    for package in scheduling scheduling/v1beta1; do
        printf 'package %s\n\n// QueueAllocationGateKey came after v1.14.0.\nconst QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"\n' \
            "$(basename "$package")" >"$source/apis/pkg/apis/$package/gate.go"
    done
    for kind in $kinds; do
        cp "$volcano/config/crd/volcano/bases/$kind.yaml" "$built/$kind.yaml.part"
        mv -f "$built/$kind.yaml.part" "$built/$kind.yaml"
    done
    (cd "$source" && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$built/part" .) ||
        cannot "Go could not build it; what it says stands above"
    mv "$built/part" "$built/volcano"
}

if [ ! -x "$built/volcano" ]; then
    mkdir -p "$built" || cannot "$built cannot be made; XDG_CACHE_HOME names another place"
    exec 9>"$built/lock"
    flock 9
    if [ ! -x "$built/volcano" ]; then
        echo "tests/volcano/build.sh: building Volcano's controllers and webhooks, once, about 7 minutes" >&2
        build
    fi
fi
echo "$built"
