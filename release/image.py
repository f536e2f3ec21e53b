"""The image of a release as an OCI archive: the root of a Debian, and the environment on top of it.

It is written without a builder, a registry and emulation: the environment is made of the locked
wheels, as for packages, and the settings are those of the last stage of ``daemonset/Dockerfile``.
So two builds are equal to the byte, for each processor.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from release.archives import tar_tree
from release.install_wheels import install, write_command
from release.manifest import sha256
from release.packages import GO_PROCESSORS, cache_folders, cached
from release.sbom import PRODUCT, image_bill

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from release.packages import PackageSource

IMAGE_PYTHON = "3.11"
"""The Python of Debian 12, whose root is the base."""
_INTERPRETER = Path("/usr/bin", f"python{IMAGE_PYTHON}")
_ENVIRONMENT = Path("/opt", PRODUCT)
_ENVIRONMENT_COPY = ("COPY", f"--from=build {_ENVIRONMENT} {_ENVIRONMENT}")
_BASES = {"aarch64": "image-bookworm-arm64-2.tar", "x86_64": "base-bookworm-2.tar"}
_VARIANTS = {"aarch64": {"variant": "v8"}, "x86_64": {}}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The search path of a container whose base sets none."""
_LAYER_LEVEL = 6
"""The level of zlib: 9 takes three times as long for one percent."""
_OCI = "application/vnd.oci.image"


class ImageError(Exception):
    """The base or the interpreter of an image is missing. The text has the reason."""


class _Blob(NamedTuple):
    """A file of the archive: its media type, SHA-256 and size in bytes; named by its digest."""

    kind: str
    digest: str
    size: int

    @property
    def descriptor(self) -> dict[str, Any]:
        """Return how a manifest refers to it."""
        return {"mediaType": self.kind, "digest": f"sha256:{self.digest}", "size": self.size}


def image_name(version: str, architecture: str) -> str:
    """Return the name of the archive, without the ending of the file."""
    return f"{PRODUCT}-{version}-image-{GO_PROCESSORS[architecture]}"


def base_root(architecture: str) -> Path:
    """Return the path of the base for a processor; raises ``ImageError``.

    It is a tar archive that ``tests/setup.sh release`` makes. Its list of packages is checked.
    """
    if sys.version_info[:2] != tuple(map(int, IMAGE_PYTHON.split("."))):
        raise ImageError(
            f"the image has bytecode of Python {IMAGE_PYTHON}: run this with Python {IMAGE_PYTHON}"
        )
    processor = GO_PROCESSORS[architecture]
    path = cached(_BASES[architecture])
    if not path.is_file():
        folders = " or ".join(map(str, cache_folders()))
        raise ImageError(
            f"the image for {processor} needs {path.name} in {folders}, the root of a Debian: "
            "tests/setup.sh release makes it as root"
        )
    others = {package[2] for package in _debian_packages(path)} - {processor, "all"}
    if others:
        raise ImageError(
            f"{path} has packages for {', '.join(sorted(others))}, and the image is for {processor}"
        )
    return path


def write_image(source: PackageSource, commit: str, bill: bytes, output: Path) -> None:
    """Write the archive and its bill of materials into ``output``.

    ``bill`` is that of the product. Raises ``ImageError``.
    """
    base = base_root(source.architecture)
    name = image_name(source.version, source.architecture)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = dockerfile_settings(
            (source.tree / "daemonset" / "Dockerfile").read_text(encoding="utf-8"),
            {"VERSION": source.version, "REVISION": commit, "PATH": _PATH},
        )
        _make_tree(source, settings.links, folder / "tree")
        _compile_library(base, folder / "tree")
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        layers = [_write_layer(blobs, base, source.epoch)]
        tar_tree(folder / "tree", folder / "files.tar", source.epoch)
        shutil.rmtree(folder / "tree")
        layers.append(_write_layer(blobs, folder / "files.tar", source.epoch))
        (folder / "files.tar").unlink()
        (base_digest, _), _ = layers
        created = source.day.isoformat()
        configuration = {
            "created": created,
            "architecture": GO_PROCESSORS[source.architecture],
            **_VARIANTS[source.architecture],
            "os": "linux",
            "config": settings.config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}" for diff, _ in layers]},
            "history": [
                {"created": created, "created_by": f"root of Debian 12, SHA-256 {base_digest}"},
                {"created": created, "created_by": f"{PRODUCT} {source.version}, {commit}"},
            ],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _write_json(blobs, f"{_OCI}.config.v1+json", configuration).descriptor,
            "layers": [blob.descriptor for _, blob in layers],
        }
        whole = _write_json(blobs, f"{_OCI}.manifest.v1+json", manifest).descriptor
        whole["annotations"] = {"org.opencontainers.image.ref.name": source.version}
        index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [whole]}
        (folder / "index.json").write_bytes(_encoded(index))
        (folder / "oci-layout").write_bytes(_encoded({"imageLayoutVersion": "1.0.0"}))
        tar_tree(folder, output / f"{name}.tar", source.epoch)
    debian = image_bill(bill, name, _debian_packages(base))
    (output / f"{name}.cdx.json").write_bytes(debian)


class Settings(NamedTuple):
    """What the last stage of a Dockerfile sets: the configuration of containers, and links."""

    config: dict[str, Any]
    links: dict[str, str]


def dockerfile_settings(text: str, variables: Mapping[str, str]) -> Settings:
    """Return the settings of the last stage of a Dockerfile.

    ``variables`` are those that it may use. Raises ``ValueError`` for an instruction that an image
    without a builder cannot follow.
    """
    config: dict[str, Any] = {}
    links: dict[str, str] = {}
    for name, rest in _instructions(text):
        if name in ("LABEL", "ENV"):
            words = shlex.split(string.Template(rest).substitute(variables))
            if name == "LABEL":
                config["Labels"] = dict(word.split("=", 1) for word in words)
            else:
                config["Env"] = words
        elif name == "USER":
            config["User"] = rest
        elif name == "ENTRYPOINT":
            config["Entrypoint"] = json.loads(rest)
        elif name == "RUN":
            links |= _links(rest)
        elif (name, rest) != _ENVIRONMENT_COPY and name != "ARG":
            raise ValueError(f"daemonset/Dockerfile: {name} {rest} is not part of an image")
    return Settings(config, links)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and rest of each instruction of the last stage, behind its ``FROM``."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    stage = re.split(r"^FROM .*$", whole, flags=re.MULTILINE)[-1]
    for line in filter(None, stage.splitlines()):
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


def _links(commands: str) -> dict[str, str]:
    """Return the symbolic links that ``commands`` make: targets by path.

    A removal before it is part of the link: a layer's link takes the place of a folder. Raises
    ``ValueError`` for other commands.
    """
    links: dict[str, str] = {}
    removed: set[str] = set()
    for command in commands.split("&&"):
        match shlex.split(command):
            case ["rm", "-rf", *paths]:
                removed.update(paths)
            case ["ln", "-s" | "-sf", target, path]:
                links[path] = target
            case words:
                raise ValueError(f"daemonset/Dockerfile: {shlex.join(words)} is not a link")
    if left := removed - links.keys():
        raise ValueError(f"daemonset/Dockerfile: {', '.join(sorted(left))}: removed, not linked")
    return links


def _make_tree(source: PackageSource, links: Mapping[str, str], root: Path) -> None:
    """Write everything that the image has above its base into the new folder ``root``."""
    environment = root / _ENVIRONMENT.relative_to("/")
    environment.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as wheels:
        for wheel in source.wheels:
            Path(wheels, wheel.name).symlink_to(wheel.absolute())
        install(Path(wheels), environment, _INTERPRETER, IMAGE_PYTHON)
    write_command(environment, _ENVIRONMENT)
    site = environment / "lib" / f"python{IMAGE_PYTHON}" / "site-packages"
    prune = source.tree / "release" / "scripts" / "prune-kubernetes"
    subprocess.run(["sh", prune, site], check=True)
    for module in site.rglob("*.py"):
        os.utime(module, (source.epoch, source.epoch))
    _compile(site, root)
    for path, target in links.items():
        link = root / path.removeprefix("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _compile_library(base: Path, root: Path) -> None:
    """Write the bytecode of the standard library that ``base`` lacks into ``root``.

    A base whose packages are only unpacked has none. Bytecode is the same for each processor.
    """
    library = root / "usr" / "lib" / f"python{IMAGE_PYTHON}"
    with tarfile.open(base) as archive:
        names = set(archive.getnames())
        prefix = f"./{library.relative_to(root)}/"
        # A link leads to a setting of the site below /etc.
        sources = [
            member.name
            for member in archive
            if member.name.startswith(prefix)
            and member.name.endswith(".py")
            and member.isreg()
            and cache_from_source(member.name) not in names
        ]
        if not sources:
            return
        for name in sources:
            archive.extract(name, root, filter="data")
    _compile(library, root)
    for name in sources:
        (root / name).unlink()


def _compile(folder: Path, root: Path) -> None:
    """Write the bytecode of all modules below ``folder``: containers cannot write it.

    Bytecode has the time of its source, and shares objects as the process has them. So a process
    without settings of its user compiles all files in their order.
    """
    compile_all = ("-m", "compileall", "-q", "--invalidation-mode", "timestamp")
    subprocess.run(
        [sys.executable, "-s", "-S", *compile_all, "-s", root, "-p", "/", folder],
        # The order of a set in bytecode depends on the seed.
        env={"PYTHONHASHSEED": "0"},
        cwd="/",
        check=True,
    )


def _write_layer(blobs: Path, archive: Path, epoch: int) -> tuple[str, _Blob]:
    """Compress a tar archive into ``blobs``; return its SHA-256, and the blob."""
    part = blobs / "part"
    with (
        archive.open("rb") as content,
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", _LAYER_LEVEL, raw, epoch) as packed,
    ):
        shutil.copyfileobj(content, packed)
    digest = sha256(part)
    part.rename(blobs / digest)
    blob = _Blob(f"{_OCI}.layer.v1.tar+gzip", digest, (blobs / digest).stat().st_size)
    return sha256(archive), blob


def _write_json(blobs: Path, kind: str, content: Mapping[str, Any]) -> _Blob:
    data = _encoded(content)
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return _Blob(kind, digest, len(data))


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _debian_packages(base: Path) -> list[tuple[str, str, str]]:
    """Return name, version and architecture of each package in the base, as dpkg lists them."""
    try:
        with tarfile.open(base) as archive:
            file = archive.extractfile("./var/lib/dpkg/status")
            text = file.read().decode() if file else ""
    except (KeyError, tarfile.TarError) as error:
        raise ImageError(f"{base} is not the root of a Debian: {error}") from error
    packages = []
    for paragraph in filter(None, text.split("\n\n")):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        packages.append((fields["Package"], fields["Version"], fields["Architecture"]))
    if not packages:
        raise ImageError(f"{base} has an empty list of packages")
    return sorted(packages)
