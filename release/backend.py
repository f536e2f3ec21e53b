"""The build backend of ``pyproject.toml``: setuptools, with archives equal to the byte.

setuptools builds. The archive is then written again with fixed modes, order and times. A wheel also
gets the files that a release puts into the root of the tree: its SBOM below ``sboms`` (PEP 770) and
its commit. ``make release`` puts them there, and an sdist keeps them. A wheel of a checkout has
neither.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from release.archives import ArchiveMember, read_tar_gz, read_zip, source_epoch, tar_gz, zip_archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
SBOM_NAME = "npu-vigil.cdx.json"
COMMIT_NAME = "commit"
_METADATA_NAMES = {SBOM_NAME: f"sboms/{SBOM_NAME}", COMMIT_NAME: COMMIT_NAME}
"""What a wheel takes from the root of the tree, and its name in the folder of the metadata."""


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; return its file name (PEP 517)."""
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    path = Path(wheel_directory, name)
    folder = f"{'-'.join(name.split('-')[:2])}.dist-info"
    members = [*read_zip(path.read_bytes()), *_release_files(folder)]
    path.write_bytes(zip_archive(with_record(members, folder), source_epoch()))
    return name


def build_sdist(sdist_directory: str, config_settings: Mapping[str, str] | None = None) -> str:
    """Build the source distribution; return its file name (PEP 517)."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory, name)
    path.write_bytes(tar_gz(read_tar_gz(path.read_bytes()), source_epoch()))
    return name


def _release_files(folder: str) -> Iterator[ArchiveMember]:
    for source, name in _METADATA_NAMES.items():
        if Path(source).is_file():
            yield ArchiveMember(f"{folder}/{name}", Path(source).read_bytes())


def with_record(members: Iterable[ArchiveMember], folder: str) -> list[ArchiveMember]:
    """Return ``members`` in order with a new ``RECORD`` at the end.

    ``folder`` has the metadata. It comes last, so that a reader finds it without the whole file.
    """
    record_name = f"{folder}/RECORD"
    ordered = sorted(
        (member for member in members if member.name != record_name),
        key=lambda member: (member.name.startswith(f"{folder}/"), member.name),
    )
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for member in ordered:
        # The format of wheels takes the padding away.
        digest = base64.urlsafe_b64encode(hashlib.sha256(member.data).digest()).rstrip(b"=")
        rows.writerow((member.name, f"sha256={digest.decode()}", len(member.data)))
    # A file cannot contain its own hash.
    rows.writerow((record_name, "", ""))
    return [*ordered, ArchiveMember(record_name, text.getvalue().encode())]
