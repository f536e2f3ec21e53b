"""The bundle: everything that a server without a network needs, in one archive.

It has the wheels of the lock for one processor and one Python, the units, configurations,
manifests, chart and documents, and ``install``. The files are in an inner archive. ``install``
checks the signed manifest before it unpacks anything.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from release import elf
from release.archives import ArchiveMember, file_member, folder_members, read_zip, tar_gz
from release.manifest import sign, write_manifest
from release.sbom import PRODUCT, read_lock, required

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ARCHITECTURES = ("aarch64", "x86_64")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PAYLOAD_NAME = "payload.tar.gz"
_PLATFORMS = ("manylinux2014", "manylinux_2_17")
_FOLDERS = ("daemonset", "docs", "monitoring", "systemd")
_FILES = ("CHANGELOG.md", "LICENSE", "README.md")


class UnsuitableError(Exception):
    """Wheels do not fit the machines that the bundle is for. The text names each of them."""


def fetch_wheels(lock: Path, architecture: str, python: str, folder: Path) -> list[Path]:
    """Download the locked wheels of what the product needs at run time; return their paths.

    pip compares each with the hashes of ``lock``. Where a version has no wheel for this processor,
    glibc 2.17 and Python, ``CalledProcessError``.
    """
    run_time = required(PRODUCT)
    blocks = re.split(r"^(?=\w)", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chosen = [text for text in blocks if canonicalize_name(text.partition("==")[0]) in run_time]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as requirements:
        requirements.writelines(chosen)
        requirements.flush()
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            # The lock has all dependencies; pip would evaluate their conditions for this machine.
            *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", str(folder)),
            *("--implementation", "cp", "--python-version", python, "--platform", "any"),
            *(f"--platform={name}_{architecture}" for name in _PLATFORMS),
            *("-r", requirements.name),
        ]
        subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def check_wheels(wheels: Iterable[Path], lock: str, architecture: str, python: str) -> None:
    """Check tags, completeness and shared objects of ``wheels``.

    Raises ``UnsuitableError`` with everything that is wrong. Alignment and glibc are checked for
    aarch64 alone: on x86_64 every page has 4 KiB, and pip has checked the tag. Other libraries are
    checked for both.
    """
    wheels = list(wheels)
    wrong = [
        f"{path.name}: {reason}"
        for path in wheels
        for reason in _reasons(path, architecture, python)
    ]
    pinned = read_lock(lock)
    needed = {(name, pinned[name][0]) for name in required(PRODUCT)}
    given = {parse_wheel_filename(path.name)[:2] for path in wheels}
    missing = needed - {(name, str(version)) for name, version in given}
    wrong += [f"{name} {version}: no wheel" for name, version in sorted(missing)]
    if wrong:
        raise UnsuitableError("\n".join(wrong))


def _reasons(wheel: Path, architecture: str, python: str) -> Iterator[str]:
    major, _, minor = python.partition(".")
    version = (int(major), int(minor))
    # Wheels for x86_64 are often tagged with an older glibc alone, which 2.17 can load.
    older = [f"manylinux_2_{number}" for number in range(elf.OLDEST_GLIBC)]
    names = (*_PLATFORMS, *older, "manylinux2010", "manylinux1")
    platforms = [f"{name}_{architecture}" for name in names]
    supported = {
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, f"cp{major}{minor}", platforms),
    }
    if supported.isdisjoint(parse_wheel_filename(wheel.name)[3]):
        yield f"its tags fit neither {architecture} with glibc 2.17 nor Python {python}"
    members = list(read_zip(wheel.read_bytes()))
    # auditwheel puts libraries that a wheel brings itself into the folder NAME.libs.
    own = {member.name.rpartition("/")[2] for member in members}
    for member in members:
        if member.data.startswith(elf.MAGIC):
            for library in sorted(elf.foreign_libraries(member.data) - own):
                yield f"{member.name}: it needs {library}, which no package requires"
            if architecture == "aarch64":
                yield from (f"{member.name}: {text}" for text in elf.problems(member.data))


def bundle_name(version: str, architecture: str, python: str) -> str:
    """Return the name of a bundle, without the ending of the file."""
    return f"{PRODUCT}-{version}-{architecture}-cp{python.replace('.', '')}"


def bundle(
    tree: Path, wheels: Sequence[Path], name: str, epoch: int, key: Path | None = None
) -> bytes:
    """Return the archive ``name`` of the source ``tree`` and of ``wheels``, the product's included.

    With ``key`` its manifest is signed.
    """
    payload = [
        *(file_member(path, f"wheels/{path.name}") for path in wheels),
        *(each for folder in _FOLDERS for each in folder_members(tree / folder, f"{folder}/")),
        *(file_member(tree / file, file) for file in _FILES),
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / PAYLOAD_NAME).write_bytes(tar_gz(payload, epoch))
        for script in ("install", "install_wheels.py"):
            (folder / script).write_bytes((tree / "release" / script).read_bytes())
        manifest = write_manifest(folder, name)
        if key is not None:
            sign(manifest, key)
        members = [
            ArchiveMember(f"{name}/{path.name}", path.read_bytes(), path.name == "install")
            for path in folder.iterdir()
        ]
    return tar_gz(members, epoch)
