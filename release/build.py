"""Builds a release of a source tree: wheel, sdist, chart, SBOM, bundles, packages and images.

Everything is made of the tree, the lock and the environment that runs this. What is built twice is
equal to the byte, whatever umask, path, user and day are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from release.advisories import STATEMENTS_NAME
from release.archives import folder_members, tar_gz
from release.backend import COMMIT_NAME, SBOM_NAME
from release.bundle import bundle, bundle_name, check_wheels, fetch_wheels
from release.image import IMAGE_PYTHON, base_root, write_image
from release.manifest import provenance, sha256, sign, write_manifest
from release.packages import NFPM_PURL, NFPM_SHA256, PackageSource, write_packages
from release.sbom import PRODUCT, bill_of_materials, read_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOCK_NAME = "requirements.lock"
_BUILD = "from release import backend; backend.build_sdist({0!r}); backend.build_wheel({0!r})"


class Source(NamedTuple):
    """A source tree of its own, which the build writes to.

    ``commit`` names its content, ``epoch`` is the time of the commit in seconds since 1970.
    """

    tree: Path
    version: str
    commit: str
    epoch: int


class Target(NamedTuple):
    """What a bundle is for: a processor as ``uname -m`` names it, and a Python such as ``3.11``."""

    architecture: str
    python: str


def build_python(source: Source, output: Path) -> Path:
    """Build sdist and wheel, with SBOM and commit in both; return the path of the wheel."""
    lock = read_lock((source.tree / LOCK_NAME).read_text(encoding="utf-8"))
    bill = bill_of_materials(lock, source.commit, source.epoch)
    (source.tree / SBOM_NAME).write_bytes(bill)
    (source.tree / COMMIT_NAME).write_text(f"{source.commit}\n", encoding="utf-8")
    (output / f"{PRODUCT}-{source.version}.cdx.json").write_bytes(bill)
    # A process of its own: setuptools changes the working directory's files and its own state.
    done = subprocess.run(
        [sys.executable, "-c", _BUILD.format(str(output))],
        cwd=source.tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"setuptools failed:\n{done.stderr}")
    return output / f"{PRODUCT.replace('-', '_')}-{source.version}-py3-none-any.whl"


def build_chart(source: Source, output: Path) -> None:
    """Pack the chart as ``helm package`` names it."""
    members = folder_members(source.tree / "daemonset" / "chart", f"{PRODUCT}/")
    archive = output / f"{PRODUCT}-{source.version}.tgz"
    archive.write_bytes(tar_gz(members, source.epoch))


def build_bundle(
    source: Source, target: Target, wheel: Path, output: Path, key: Path | None
) -> None:
    """Build the bundle for ``target``."""
    with tempfile.TemporaryDirectory() as folder:
        _write_bundle(source, target, (wheel, *_fetched(source, target, folder)), output, key)


def _fetched(source: Source, target: Target, folder: str) -> list[Path]:
    """Download the locked wheels for ``target`` into ``folder``; return their paths."""
    lock = source.tree / LOCK_NAME
    wheels = fetch_wheels(lock, *target, Path(folder))
    check_wheels(wheels, lock.read_text(encoding="utf-8"), *target)
    return wheels


def _write_bundle(
    source: Source, target: Target, wheels: tuple[Path, ...], output: Path, key: Path | None
) -> None:
    name = bundle_name(source.version, *target)
    archive = bundle(source.tree, wheels, name, source.epoch, key)
    (output / f"{name}.tar.gz").write_bytes(archive)


def build_release(
    source: Source, targets: Iterable[Target], output: Path, key: Path | None
) -> None:
    """Build everything into the empty folder ``output``, and sign the manifest with ``key``."""
    locks = (LOCK_NAME, "requirements-dev.lock", "pyproject.toml")
    inputs = {name: sha256(source.tree / name) for name in locks} | {NFPM_PURL: NFPM_SHA256}
    wheel = build_python(source, output)
    build_chart(source, output)
    statements = source.tree / STATEMENTS_NAME
    (output / f"{PRODUCT}-{source.version}.vex.json").write_bytes(statements.read_bytes())
    for target in targets:
        with tempfile.TemporaryDirectory() as folder:
            wheels = _fetched(source, target, folder)
            inputs |= {path.name: sha256(path) for path in wheels}
            _write_bundle(source, target, (wheel, *wheels), output, key)
            given = (source.tree, (wheel, *wheels), source.version, source.epoch)
            packages = PackageSource(*given, *target)
            write_packages(packages, output)
            if target.python == IMAGE_PYTHON:
                base = base_root(target.architecture)
                inputs[base.name] = sha256(base)
                bill = (output / f"{PRODUCT}-{source.version}.cdx.json").read_bytes()
                write_image(packages, source.commit, bill, output)
    finish(source, inputs, output, key)


def finish(source: Source, inputs: Mapping[str, str], output: Path, key: Path | None) -> None:
    """Write statement and manifest about everything in ``output``; sign it with ``key``."""
    # The statement first, so that the manifest covers it as well.
    statement = provenance(output, source.commit, inputs)
    (output / f"{PRODUCT}-{source.version}.intoto.json").write_bytes(statement)
    manifest = write_manifest(output, f"{PRODUCT} {source.version}")
    if key is not None:
        sign(manifest, key)
