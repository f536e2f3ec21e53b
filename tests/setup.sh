#!/bin/bash
# Provides what the tests need beyond Python packages: a C compiler, openssl, etcd,
# prometheus with promtool, kube-apiserver.
# A part that is missing is installed (as root, from Debian's packages) or built once (the API
# server, about 4 minutes). Where that may not be done, says the command that does it and ends
# with 2.
set -euo pipefail
cd "$(dirname "$0")/controlplane"

has() { # the program $1, where the tests look for it
    [ -x "${KUBEBUILDER_ASSETS:-/nonexistent}/$1" ] || command -v "$1" >/dev/null
}

built=${XDG_CACHE_HOME:-$HOME/.cache}/npu-vigil/kube-apiserver-$(cat go.mod go.sum main.go | sha256sum | cut -c1-16)
if has kube-apiserver || [ -x "$built/kube-apiserver" ]; then build=no; else build=yes; fi

packages=()
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
command -v openssl >/dev/null || packages+=(openssl)
has etcd || packages+=(etcd-server)
if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then packages+=(prometheus); fi
if [ $build = yes ] && ! command -v go >/dev/null; then packages+=(golang-go ca-certificates); fi

if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "tests/setup.sh: these are missing; install them and try again:" >&2
        echo "    sudo apt-get install -y ${packages[*]}" >&2
        exit 2
    fi
    echo "tests/setup.sh: installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Run level 1: packages do not start their services, each test session starts its own.
    export RUNLEVEL=1
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

[ $build = yes ] || exit 0

# From 1.21 on Go fetches the release that go.mod demands by itself.
go=$(go env GOVERSION)
minor=${go#go1.}
if [ "${minor%%[!0-9]*}" -lt 21 ]; then
    echo "tests/setup.sh: $go is too old to build kube-apiserver; install Go 1.26 from go.dev/dl" >&2
    exit 2
fi

mkdir -p "$built"
exec 9>"$built/lock"
flock 9
[ ! -x "$built/kube-apiserver" ] || exit 0
version=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
echo "tests/setup.sh: building kube-apiserver $version, once, about 4 minutes"
minor=${version#v1.}
stamp=k8s.io/component-base/version
CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false \
    -ldflags "-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}" \
    -o "$built/kube-apiserver.part" .
mv "$built/kube-apiserver.part" "$built/kube-apiserver"
