"""Packages ``.deb`` and ``.rpm``: a private environment of the locked wheels, and its services.

nfpm writes both from one list of files. It is a Go module of a fixed version and checksum, built
once for each user. Owners, modes and times are in the list, so two builds are equal to the byte.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from release.archives import ArchiveMember, file_member, folder_members
from release.install_wheels import install, write_command
from release.sbom import PRODUCT

if TYPE_CHECKING:
    from collections.abc import Iterator

NFPM_MODULE = "github.com/goreleaser/nfpm/v2"
NFPM_VERSION = "v2.45.2"
NFPM_SUM = "h1:sWBXUErMSKHMvT8f1mgtY3yn2jbNBAE2TNBXNXpSDGc="
"""The checksum of the module, as Go's checksum database has it and ``nfpm --version`` prints it."""
NFPM_PURL = f"pkg:golang/{NFPM_MODULE}@{NFPM_VERSION}"
NFPM_SHA256 = base64.b64decode(NFPM_SUM.removeprefix("h1:")).hex()
"""The same in hexadecimal digits: a SHA-256 of the list of the module's files (``dirHash``)."""
_READ_ONLY_HOME = Path("/var/tmp")
"""Has the cache of a user whose home cannot be written."""
_ENVIRONMENT = f"usr/lib/{PRODUCT}"
_DOCUMENTS = f"usr/share/doc/{PRODUCT}"
_SHARED = f"usr/share/{PRODUCT}"
_BUNDLE = "/opt/npu-vigil"
"""Where units expect the environment and the documents of a bundle."""
_LICENSE = f"usr/share/licenses/{PRODUCT}/LICENSE"
_OF_DEBIAN = frozenset(
    (
        f"{_DOCUMENTS}/changelog.Debian.gz",
        f"{_DOCUMENTS}/copyright",
        f"usr/share/lintian/overrides/{PRODUCT}",
    )
)
"""What only the ``.deb`` has. The ``.rpm`` has the licence itself."""
_FOLDERS = ("daemonset", "monitoring", "systemd")
GO_PROCESSORS = {"aarch64": "arm64", "x86_64": "amd64"}
"""The names of processors for Go, which Debian has too, for what ``uname -m`` prints."""
_ADDRESS = "maintainers@npu-vigil.invalid"
"""Both formats demand an address. No domain ends with ``invalid`` (RFC 2606)."""
_DESCRIPTION = """Faults of Huawei Ascend NPUs for schedulers
The agent reports faults of NPUs, links, switches and the host in the formats
of MindCluster. The aggregator merges the reports of all nodes. The Python
packages that both need are in an environment of their own."""
_COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: npu-vigil

Files: *
Copyright: {year} the authors of NPU Vigil
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text of this licence.
Comment:
 The licences of the Python packages are in /usr/lib/npu-vigil, in the folders *.dist-info.
 The file npu-vigil.cdx.json of the release lists them.
"""


class PackageSource(NamedTuple):
    """What packages are made of: a source tree, and the wheels of one processor and one Python.

    ``architecture`` is as ``uname -m`` prints it, ``epoch`` is the time of all files in seconds
    since 1970.
    """

    tree: Path
    wheels: tuple[Path, ...]
    version: str
    epoch: int
    architecture: str
    python: str

    @property
    def revision(self) -> str:
        """Return the release of the package, which has the version of Python."""
        return f"1.cp{self.python.replace('.', '')}"

    @property
    def day(self) -> datetime:
        """Return ``epoch`` as a time in UTC."""
        return datetime.fromtimestamp(self.epoch, UTC)


class _Format(NamedTuple):
    """A format of packages. ``processors`` has its names for what ``uname -m`` prints."""

    name: str
    file_name: str
    processors: dict[str, str]
    needs: tuple[str, ...]


# The libraries are those of manylinux2014, which `release.elf` compares with each shared object.
_FORMATS = (
    _Format(
        "deb",
        f"{PRODUCT}_{{version}}-{{revision}}_{{processor}}.deb",
        GO_PROCESSORS,
        ("libc6 (>= 2.17)", "libgcc-s1", "libstdc++6 (>= 4.8.1)", "passwd", "python{python}"),
    ),
    _Format(
        "rpm",
        f"{PRODUCT}-{{version}}-{{revision}}.{{processor}}.rpm",
        {"aarch64": "aarch64", "x86_64": "x86_64"},
        (
            "/bin/sh",
            "/usr/bin/find",
            "/usr/bin/python{python}",
            "/usr/sbin/useradd",
            "libc.so.6(GLIBC_2.17)(64bit)",
            "libgcc_s.so.1(GCC_4.2.0)(64bit)",
            "libstdc++.so.6(GLIBCXX_3.4.19)(64bit)",
            "python(abi) = {python}",
        ),
    ),
)


class PackagerError(Exception):
    """nfpm is missing and cannot be built, or it fails. The text has the reason."""


def cache_folders() -> tuple[Path, ...]:
    """Return where a user keeps what is made once for all releases, as ``tests/setup.sh`` has it.

    The second folder is for a read-only home. All users may write beside it, so it counts only
    where it belongs to this user.
    """
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PRODUCT
    other = _READ_ONLY_HOME / f"{PRODUCT}-{os.getuid()}"
    own = other.is_dir() and not other.is_symlink() and other.stat().st_uid == os.getuid()
    return (usual, other) if own else (usual,)


def cached(name: str) -> Path:
    """Return the path of ``name`` in the first cache folder that has it, or else in the first."""
    paths = [folder / name for folder in cache_folders()]
    return next((path for path in paths if path.exists()), paths[0])


def packager() -> Path:
    """Return the path of nfpm, which is built from its Go module once.

    Raises ``PackagerError``.
    """
    program = cached(f"nfpm-{NFPM_VERSION}/nfpm")
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise PackagerError(
                f"packages need nfpm {NFPM_VERSION}, which Go builds, and there is no program go"
            )
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [go, "install", "-trimpath", f"{NFPM_MODULE}/cmd/nfpm@{NFPM_VERSION}"],
                env={**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise PackagerError(
                    f"packages need nfpm {NFPM_VERSION}, which go cannot build:\n{done.stderr}"
                )
            program.parent.mkdir(parents=True, exist_ok=True)
            part = program.with_name(f"nfpm.{os.getpid()}")
            shutil.move(Path(folder, "nfpm"), part)
            part.replace(program)
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if NFPM_SUM not in shown.stdout:
        raise PackagerError(f"{program} is not nfpm {NFPM_VERSION}: remove it")
    return program


def package_names(version: str, architecture: str, python: str) -> tuple[str, ...]:
    """Return the file names of the packages."""
    revision = PackageSource(Path(), (), version, 0, architecture, python).revision
    return tuple(
        each.file_name.format(
            version=version, revision=revision, processor=each.processors[architecture]
        )
        for each in _FORMATS
    )


def write_packages(source: PackageSource, output: Path) -> None:
    """Write both packages into ``output``; where nfpm fails, nothing is written there.

    Raises ``PackagerError``.
    """
    program = packager()
    names = package_names(source.version, source.architecture, source.python)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        contents = list(_contents(source, folder / "files"))
        for each, name in zip(_FORMATS, names, strict=True):
            configuration = folder / f"{each.name}.json"
            document = {**_information(source, each), "contents": contents}
            configuration.write_text(json.dumps(document), encoding="utf-8")
            done = subprocess.run(
                [
                    *(program, "package", "--packager", each.name),
                    *("--config", configuration, "--target", folder / name),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode:
                raise PackagerError(f"nfpm cannot write {name}:\n{done.stderr}")
        for name in names:
            shutil.move(folder / name, output / name)


def _maintainer(tree: Path) -> str:
    """Return the maintainer of ``pyproject.toml`` in ``tree`` as packages name one."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    (maintainer,) = project["project"]["maintainers"]
    return f"{maintainer['name']} <{_ADDRESS}>"


def _information(source: PackageSource, form: _Format) -> dict[str, Any]:
    """Return everything about a package but its files, as nfpm reads it."""
    folder = source.tree / "release" / "scripts"
    scripts = {
        "preremove": str(folder / "before-removal"),
        "postremove": str(folder / "after-removal"),
    }
    after = str(folder / "after-installation")
    own: dict[str, Any] = {"scripts": {**scripts, "postinstall": after}}
    if form.name == "rpm":
        # %post runs while the files of the release before are still there, %posttrans does not.
        rpm = {
            "scripts": {"posttrans": after},
            "buildhost": PRODUCT,
            "packager": _maintainer(source.tree),
        }
        own = {"scripts": scripts, "rpm": rpm}
    return {
        "name": PRODUCT,
        "arch": GO_PROCESSORS[source.architecture],
        "platform": "linux",
        "version": source.version,
        "version_schema": "none",
        "release": source.revision,
        "section": "admin",
        "priority": "optional",
        "maintainer": _maintainer(source.tree),
        "license": "Apache-2.0",
        "description": _DESCRIPTION,
        "mtime": source.day.isoformat(),
        "disable_globbing": True,
        "depends": [need.format(python=source.python) for need in form.needs],
        **own,
    }


def _contents(source: PackageSource, root: Path) -> Iterator[dict[str, Any]]:
    """Write the files of a package below ``root``; yield the entries of nfpm's list."""
    environment = root / _ENVIRONMENT
    interpreter = Path("/usr/bin", f"python{source.python}")
    wheels = root / "wheels"
    wheels.mkdir(parents=True)
    for wheel in source.wheels:
        (wheels / wheel.name).symlink_to(wheel.absolute())
    install(wheels, environment, interpreter, source.python)
    write_command(environment, Path("/", _ENVIRONMENT))
    shutil.rmtree(wheels)
    manual = environment / "share"
    for page in folder_members(manual, "usr/share/"):
        _write(root, page._replace(name=f"{page.name}.gz", data=_gzip(page.data)))
    shutil.rmtree(manual)
    for member in _members(source):
        _write(root, member)
    command = root / "usr/bin/vigil"
    command.parent.mkdir(parents=True)
    command.symlink_to(f"../lib/{PRODUCT}/bin/vigil")
    (root / "etc/npu-vigil/fault-config").mkdir()
    for path in sorted(root.rglob("*")):
        if (entry := _entry(path, path.relative_to(root).as_posix())) is not None:
            entry["file_info"] |= {
                "owner": "root",
                "group": "root",
                "mtime": source.day.isoformat(),
            }
            yield entry


def _entry(path: Path, name: str) -> dict[str, Any] | None:
    """Return what nfpm needs about a file or a folder; ``None`` for a folder of other packages."""
    entry: dict[str, Any] = {"dst": f"/{name}", "src": str(path)}
    mode = 0o644
    if path.is_symlink():
        entry |= {"type": "symlink", "src": str(path.readlink())}
        mode = 0o777
    elif path.is_dir():
        if PRODUCT not in Path(name).parts:
            return None
        entry = {"dst": f"/{name}", "type": "dir"}
        mode = 0o755
    elif name.startswith("etc/"):
        entry["type"] = "config|noreplace"
    elif name == _LICENSE:
        entry |= {"type": "license", "packager": "rpm"}
    elif name in _OF_DEBIAN:
        entry["packager"] = "deb"
    elif path.stat().st_mode & 0o100:
        mode = 0o755
    return {**entry, "file_info": {"mode": mode}}


def _write(root: Path, member: ArchiveMember) -> None:
    path = root / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(member.data)
    path.chmod(member.mode)


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def _members(source: PackageSource) -> Iterator[ArchiveMember]:
    """Yield the files of a package that are neither of the environment nor manual pages."""
    tree = source.tree
    for folder in _FOLDERS:
        yield from folder_members(tree / folder, f"{_SHARED}/{folder}/")
    yield from folder_members(tree / "docs", f"{_DOCUMENTS}/docs/")
    yield file_member(tree / "README.md", f"{_DOCUMENTS}/README.md")
    changes = (tree / "CHANGELOG.md").read_bytes()
    yield ArchiveMember(f"{_DOCUMENTS}/changelog.gz", _gzip(changes))
    entry = (
        f"{PRODUCT} ({source.version}-{source.revision}) unstable; urgency=medium\n\n"
        f"  * Release {source.version}; changelog.gz lists what changed.\n\n"
        f" -- {_maintainer(source.tree)}  {format_datetime(source.day)}\n"
    )
    yield ArchiveMember(f"{_DOCUMENTS}/changelog.Debian.gz", _gzip(entry.encode()))
    yield ArchiveMember(f"{_DOCUMENTS}/copyright", _COPYRIGHT.format(year=source.day.year).encode())
    yield file_member(tree / "LICENSE", _LICENSE)
    overrides = tree / "release" / "scripts" / "lintian-overrides"
    yield file_member(overrides, f"usr/share/lintian/overrides/{PRODUCT}")
    for name in ("agent", "aggregator"):
        unit = (tree / "systemd" / f"{PRODUCT}-{name}.service").read_text(encoding="utf-8")
        unit = unit.replace(f"{_BUNDLE}/share/doc", f"/{_DOCUMENTS}")
        unit = unit.replace(f"{_BUNDLE}/", f"/{_ENVIRONMENT}/")
        yield ArchiveMember(f"usr/lib/systemd/system/{PRODUCT}-{name}.service", unit.encode())
        yield file_member(tree / "systemd" / f"{name}.toml", f"etc/npu-vigil/{name}.toml")
    users = tree / "systemd" / f"{PRODUCT}.sysusers"
    yield file_member(users, f"usr/lib/sysusers.d/{PRODUCT}.conf")
