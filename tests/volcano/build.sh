#!/bin/bash
# Builds Volcano's job controller from public modules, once, about 7 minutes, and prints the folder that has it
# with the definitions of its kinds. volcano.sh/apis has no release that fits v1.15.0: v1.14.0 with one constant does.
set -euo pipefail
cd "$(dirname "$0")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/npu-vigil
built=$cache/volcano-$(cat go.mod go.sum main.go build.sh | sha256sum | cut -c1-16)
if [ ! -x "$built/vc-controller-manager" ]; then
    echo "tests/volcano/build.sh: building the job controller, once, about 7 minutes" >&2
    mkdir -p "$built"
    exec 9>"$built/lock"
    flock 9
fi
if [ ! -x "$built/vc-controller-manager" ]; then
    source=$(mktemp -d)
    trap 'chmod -R u+w "$source"; rm -rf "$source"' EXIT
    cp go.mod go.sum main.go "$source"
    folder() { # of the module $1 in the cache of Go
        (cd / && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p'
    }
    cp -r "$(folder volcano.sh/apis@v1.14.0)" "$source/apis"
    chmod -R u+w "$source/apis"
    for package in scheduling scheduling/v1beta1; do
        printf 'package %s\n\n// QueueAllocationGateKey came after v1.14.0.\nconst QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"\n' \
            "$(basename "$package")" >"$source/apis/pkg/apis/$package/gate.go"
    done
    definitions=$(folder volcano.sh/volcano@v1.15.0)/config/crd/volcano/bases
    for kind in batch.volcano.sh_jobs bus.volcano.sh_commands scheduling.volcano.sh_podgroups scheduling.volcano.sh_queues; do
        cp "$definitions/$kind.yaml" "$built/$kind.yaml.part"
        mv -f "$built/$kind.yaml.part" "$built/$kind.yaml"
    done
    (cd "$source" && CGO_ENABLED=0 go build -mod=mod -trimpath -buildvcs=false -ldflags "-s -w" -o "$built/part" .)
    mv "$built/part" "$built/vc-controller-manager"
fi
echo "$built"
