#!/bin/bash
# Provides what the tests need beyond Python packages: a C compiler, openssl, ssh-keygen, etcd, prometheus with
# promtool, alertmanager with amtool, systemd-analyze, mosquitto, bindfs, Chromium's headless shell, mochi, go-json,
# kube-apiserver,
# kustomize, Helm 3 and 4, and the resource definitions of the Prometheus operator. A part that is missing is
# installed (as root, from Debian's packages) or built once (the API server, about 4 minutes; Helm, 3 minutes;
# kustomize and mochi, 15 seconds each; go-json, 5 seconds), or fetched as a Go module (the definitions). Where that may not be done, says the
# command that does it and ends with 2.
# With the argument `node` also provides what `make test-node` needs: containerd, runc, network plug-ins,
# buildah, debootstrap, xfsprogs, dnsmasq; kubelet, kubectl and the rest of a cluster (6 minutes), and a base image (1 minute).
# With the argument `release` also provides what `make test-release` needs: Go, which builds nfpm, debootstrap, rpm,
# rpmlint, lintian, buildah and the base images for both processors (1 minute each).
# With the argument `aarch64` also provides what `make test-aarch64` needs: qemu, debootstrap, and a Debian for that
# processor with gcc and as the base of the image (1 minute each).
# With the argument `brokers` also provides RabbitMQ, and HiveMQ CE of Maven Central by pinned hashes.
set -euo pipefail
cd "$(dirname "$0")/controlplane"
# Where Debian has mosquitto, and not everybody looks.
PATH=$PATH:/usr/sbin

has() { # the program $1, where the tests look for it
    [ -x "${KUBEBUILDER_ASSETS:-/nonexistent}/$1" ] || command -v "$1" >/dev/null
}

usual=${XDG_CACHE_HOME:-$HOME/.cache}/npu-vigil
cache=$usual
if ! mkdir -p "$cache" 2>/dev/null || [ ! -w "$cache" ]; then
    # The home is read-only. What Go downloads and compiles has its place there, too.
    cache=/var/tmp/npu-vigil-$(id -u)
    mkdir -p -m 700 "$cache"
    if [ ! -O "$cache" ] || [ -L "$cache" ]; then
        echo "tests/setup.sh: $cache belongs to another user; set XDG_CACHE_HOME to a folder of yours" >&2
        exit 2
    fi
    export GOPATH=$cache/go GOCACHE=$cache/go-build
fi
kept() { # where $1 is or will be
    if [ -e "$usual/$1" ]; then echo "$usual/$1"; else echo "$cache/$1"; fi
}
of() { # the folder of the program $1, which is built from the files behind it
    kept "$1-$(cat "${@:2}" | sha256sum | cut -c1-16)"
}
apiserver=$(of kube-apiserver go.mod go.sum main.go)
kustomize=$(of kustomize ../kustomize/go.mod ../kustomize/go.sum)
helm=$(of helm ../helm/go.mod ../helm/go.sum)
mochi=$(of mochi ../mochi/go.mod ../mochi/go.sum ../mochi/main.go)
gojson=$(of go-json ../go_json/go.mod ../go_json/main.go)
operator=$(of prometheus-operator ../operator/go.mod ../operator/go.sum)
kubernetes=$(of kubernetes ../node/go.mod ../node/go.sum ../node/main.go)
# The number in a name changes with what makes the file: a file made before is not used.
base=$(kept base-bookworm-2.tar)
arm_base=$(kept base-bookworm-arm64.tar)
arm_image=$(kept image-bookworm-arm64-2.tar)
with_aarch64=''
with_node=''
with_brokers=''
with_release=''
case ${1:-} in
aarch64) with_aarch64=1 ;;
node) with_node=1 ;;
brokers) with_brokers=1 ;;
release) with_release=1 ;;
esac
build=()
has kube-apiserver || [ -x "$apiserver/kube-apiserver" ] || build+=(apiserver)
has kustomize || [ -x "$kustomize/kustomize" ] || build+=(kustomize)
if ! has helm3 && [ ! -x "$helm/helm3" ] || ! has helm4 && [ ! -x "$helm/helm4" ]; then build+=(helm); fi
has mochi || [ -x "$mochi/mochi" ] || build+=(mochi)
[ -x "$gojson/go-json" ] || build+=(gojson)
[ -d "$operator" ] || build+=(operator)
[ -z "$with_node" ] || [ -x "$kubernetes/kubernetes" ] || build+=(kubernetes)

packages=()
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
command -v ssh-keygen >/dev/null || packages+=(openssh-client)
command -v openssl >/dev/null || packages+=(openssl)
has etcd || packages+=(etcd-server)
if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then packages+=(prometheus); fi
if ! command -v prometheus-alertmanager >/dev/null || ! command -v amtool >/dev/null; then packages+=(prometheus-alertmanager); fi
command -v systemd-analyze >/dev/null || packages+=(systemd)
command -v mosquitto >/dev/null || packages+=(mosquitto)
command -v mosquitto_sub >/dev/null || packages+=(mosquitto-clients)
command -v bindfs >/dev/null || packages+=(bindfs)
command -v chromium-headless-shell >/dev/null || packages+=(chromium-headless-shell)
# Without it Chinese texts are boxes.
[ -e /usr/share/fonts/truetype/wqy/wqy-microhei.ttc ] || packages+=(fonts-wqy-microhei)
if [ -n "$with_node" ]; then
    for one in containerd runc buildah debootstrap; do
        command -v $one >/dev/null || packages+=($one)
    done
    command -v ip >/dev/null || packages+=(iproute2)
    PATH=$PATH:/sbin command -v mkfs.xfs >/dev/null || packages+=(xfsprogs)
    [ -x /usr/lib/cni/bridge ] || packages+=(containernetworking-plugins)
    command -v dnsmasq >/dev/null || packages+=(dnsmasq-base)
fi
if [ -n "$with_release" ]; then
    for one in debootstrap rpm rpmlint lintian buildah; do
        command -v $one >/dev/null || packages+=($one)
    done
    command -v go >/dev/null || packages+=(golang-go ca-certificates)
fi
if [ -n "$with_aarch64" ]; then
    command -v debootstrap >/dev/null || packages+=(debootstrap)
    [ "$(uname -m)" = aarch64 ] || command -v qemu-aarch64-static >/dev/null || packages+=(qemu-user-static)
fi
if [ -n "$with_brokers" ]; then
    command -v rabbitmq-server >/dev/null || packages+=(rabbitmq-server)
    command -v javac >/dev/null || packages+=(default-jdk-headless)
    command -v mvn >/dev/null || packages+=(maven)
fi
if [ ${#build[@]} -gt 0 ] && ! command -v go >/dev/null; then packages+=(golang-go ca-certificates); fi

if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "tests/setup.sh: these are missing; install them and try again:" >&2
        echo "    sudo apt-get install -y ${packages[*]}" >&2
        exit 2
    fi
    echo "tests/setup.sh: installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Packages do not start their services, each test session starts its own: run level 1 is for
    # scripts of old, the other for systemctl.
    export RUNLEVEL=1 SYSTEMD_OFFLINE=1
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

hivemq=$(of hivemq ../brokers/pom.xml ../brokers/jars.sha256)
if [ -n "$with_brokers" ] && [ ! -d "$hivemq" ]; then
    echo "tests/setup.sh: fetching HiveMQ CE, once, about 1 minute"
    jars=$(mktemp -d)
    trap 'rm -rf "$jars"' EXIT
    mvn -q -B -f ../brokers/pom.xml org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$jars"
    # Neither another content than that which is pinned, nor a file more.
    (cd "$jars" && sha256sum --quiet -c -) <../brokers/jars.sha256
    [ "$(find "$jars" -name '*.jar' | wc -l)" = "$(wc -l <../brokers/jars.sha256)" ]
    mkdir -p "$cache"
    chmod 755 "$jars"
    mv "$jars" "$hivemq"
fi

# debootstrap takes packages from another mirror, which has no security updates.
security='deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main'

new_tree() { # an empty folder, which is left in $tree and removed at the end
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    # A user of a container that is not root enters it.
    chmod 755 "$tree"
}

native_root() { # a Debian for this processor with the packages $1 and security updates, which is left in $tree
    new_tree
    debootstrap --variant=minbase --include="$1" bookworm "$tree" >/dev/null
    echo "$security" >"$tree/etc/apt/sources.list.d/security.list"
    chroot "$tree" apt-get -qq update
    DEBIAN_FRONTEND=noninteractive chroot "$tree" apt-get -qq -y -o Dpkg::Use-Pty=0 upgrade >/dev/null
}

arm_updates() { # the security updates of the packages in $tree, each in place of the one that debootstrap took
    archives=$tree/var/cache/apt/archives
    mkdir -p "$tree"/var/lib/apt/lists/partial "$tree"/etc/apt/{apt.conf.d,preferences.d,sources.list.d}
    echo "$security" >"$tree/etc/apt/sources.list.d/security.list"
    for package in "$archives"/*.deb; do
        dpkg-deb --field "$package" && printf 'Status: install ok installed\n\n'
    done >"$tree/var/lib/dpkg/status"
    # The apt of this machine, with the settings, lists and packages of the root. The root has no key of the first mirror.
    apt=(apt-get -qq -o "Dir=$tree" -o "Dir::State::Status=$tree/var/lib/dpkg/status" -o Dir::Etc::SourceList=/dev/null
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
    "${apt[@]}" update
    mkdir "$tree/old"
    mv "$archives"/*.deb "$tree/old"
    "${apt[@]}" -y --download-only upgrade >/dev/null
    for package in "$tree/old"/*.deb; do
        new=("$archives/$(dpkg-deb --field "$package" Package)"_*.deb)
        if [ -e "${new[0]}" ]; then
            # A file that the update does not have may not stay.
            dpkg-deb --fsys-tarfile "$package" | tar -t | grep -v '/$' | (cd "$tree" && xargs -d '\n' rm -f)
        else
            mv "$package" "$archives"
        fi
    done
    rm -r "$tree/old"
}

arm_root() { # a Debian for aarch64 with the packages $1, which is left in $tree
    new_tree
    # Packages are only unpacked: to configure them takes programs of the root. What is needed of that comes after it:
    # the link that mawk makes, users, certificates and the list of packages.
    debootstrap --foreign --arch=arm64 --variant=minbase --include="$1" bookworm "$tree" >/dev/null
    arm_updates
    : >"$tree/var/lib/dpkg/status"
    for package in "$tree"/var/cache/apt/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$tree"
        { dpkg-deb --field "$package" && printf 'Status: install ok unpacked\n\n'; } >>"$tree/var/lib/dpkg/status"
    done
    ln -s mawk "$tree/usr/bin/awk"
    cp "$tree/usr/share/base-passwd/passwd.master" "$tree/etc/passwd"
    cp "$tree/usr/share/base-passwd/group.master" "$tree/etc/group"
    # Where debootstrap may not mount, it leaves a link to the machine's.
    rm -rf "$tree/proc" "$tree/debootstrap"
    mkdir "$tree/proc"
}

packed() { # $tree as the file $1, without what debootstrap copies from this machine, logs and caches
    mkdir -p "$cache"
    rm -rf "$tree"/etc/{hostname,resolv.conf} "$tree"/var/{cache/apt,lib/apt/lists}
    find "$tree/var/log" -type f -delete
    tar -C "$tree" -cf "$1.part" .
    mv "$1.part" "$1"
    rm -rf "$tree"
}

if [ -n "$with_node$with_release" ] && [ ! -e "$base" ]; then
    echo "tests/setup.sh: making a base image, once, about 1 minute"
    native_root python3,python3-venv,ca-certificates,tzdata
    packed "$base"
fi

if [ -n "$with_aarch64" ] && [ ! -e "$arm_base" ]; then
    echo "tests/setup.sh: making a root for aarch64, once, about 1 minute"
    arm_root python3,gcc,libc6-dev
    packed "$arm_base"
fi

if [ -n "$with_aarch64$with_release" ] && [ ! -e "$arm_image" ]; then
    echo "tests/setup.sh: making the root of the image for aarch64, once, about 1 minute"
    arm_root python3,ca-certificates,tzdata
    cat "$tree"/usr/share/ca-certificates/mozilla/*.crt >"$tree/etc/ssl/certs/ca-certificates.crt"
    packed "$arm_image"
fi

[ ${#build[@]} -gt 0 ] || exit 0

# From 1.21 on Go fetches the release that go.mod demands by itself.
go=$(go env GOVERSION)
minor=${go#go1.}
if [ "${minor%%[!0-9]*}" -lt 21 ]; then
    echo "tests/setup.sh: $go is too old to build ${build[*]}; install Go 1.26 from go.dev/dl" >&2
    exit 2
fi

build() ( # the program $1 from package $2 of the module here into the folder $3, stripped; $4: flags
    mkdir -p "$3"
    exec 9>"$3/lock"
    flock 9
    [ ! -x "$3/$1" ] || exit 0
    CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w $4" -o "$3/$1.part" "$2"
    mv "$3/$1.part" "$3/$1"
)

of_kubernetes() { # the program $1 from the module here into the folder $2; $3: how long that takes
    version=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
    echo "tests/setup.sh: building $1 $version, once, about $3 minutes"
    minor=${version#v1.}
    stamp=k8s.io/component-base/version
    build "$1" . "$2" \
        "-X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}"
}

definitions() ( # of the Prometheus operator, from its Go module of the module here into the folder $1
    module=github.com/prometheus-operator/prometheus-operator
    go mod download "$module"
    from=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")/example/prometheus-operator-crd
    part=$(mktemp -d "$1.XXXXXX")
    cp "$from"/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml "$part"
    chmod 755 "$part"
    chmod 644 "$part"/*
    # Another run may have been quicker.
    [ -d "$1" ] || mv -T "$part" "$1"
)

for part in "${build[@]}"; do
    case $part in
    kustomize) (cd ../kustomize && build kustomize sigs.k8s.io/kustomize/kustomize/v5 "$kustomize" "") ;;
    helm) (
        cd ../helm
        build helm3 helm.sh/helm/v3/cmd/helm "$helm" ""
        build helm4 helm.sh/helm/v4/cmd/helm "$helm" ""
    ) ;;
    operator) (cd ../operator && definitions "$operator") ;;
    mochi) (cd ../mochi && build mochi . "$mochi" "") ;;
    gojson) (cd ../go_json && build go-json . "$gojson" "") ;;
    kubernetes) (cd ../node && of_kubernetes kubernetes "$kubernetes" 6) ;;
    apiserver) of_kubernetes kube-apiserver "$apiserver" 4 ;;
    esac
done
