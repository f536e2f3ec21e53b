"""Archives that are equal to the byte whenever their content is.

Owner, mode, order, time and compression of each member are fixed. So an archive depends on neither
umask nor user, path or day. Its compression is zlib's: builds that are compared need the same one.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import time
import zipfile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_LEVEL = 9
# The first second that a ZIP archive can name.
ZIP_EPOCH = 315532800


class ArchiveMember(NamedTuple):
    """A file of an archive. ``name`` is relative and has slashes."""

    name: str
    data: bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        """Return the permissions that the archive gives the file."""
        return 0o755 if self.executable else 0o644


def source_epoch() -> int:
    """Return the time of all members in seconds since 1970: ``SOURCE_DATE_EPOCH``, or 1980."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", ZIP_EPOCH)), ZIP_EPOCH)


def folder_members(folder: Path, prefix: str = "") -> Iterator[ArchiveMember]:
    """Yield each regular file below ``folder``, its name behind ``prefix``.

    Raises ``ValueError`` for a symbolic link: what it leads to may differ on another machine.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link, which no archive of a release has")
        if path.is_file() and "__pycache__" not in path.parts:
            yield file_member(path, f"{prefix}{path.relative_to(folder).as_posix()}")


def file_member(path: Path, name: str) -> ArchiveMember:
    """Return the file at ``path`` as the member ``name``."""
    return ArchiveMember(name, path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))


def tar_gz(members: Iterable[ArchiveMember], epoch: int) -> bytes:
    """Return a compressed tar archive of ``members``, each with the time ``epoch``."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in sorted(members):
            # A new entry belongs to user 0 without a name, so nothing of this machine is in it.
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mode, entry.mtime = len(member.data), member.mode, epoch
            archive.addfile(entry, io.BytesIO(member.data))
    # gzip has a time of its own in its header.
    return gzip.compress(content.getvalue(), _LEVEL, mtime=epoch)


def tar_tree(folder: Path, archive: Path, epoch: int) -> None:
    """Write files, folders and symbolic links below ``folder`` as the tar archive ``archive``.

    All belong to user 0 and have the time ``epoch`` (seconds since 1970).
    """
    with tarfile.open(archive, mode="w", format=tarfile.PAX_FORMAT) as target:
        for path in sorted(folder.rglob("*")):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.mtime, entry.mode = epoch, 0o755
            if path.is_symlink():
                entry.type, entry.linkname, entry.mode = (
                    tarfile.SYMTYPE,
                    str(path.readlink()),
                    0o777,
                )
                target.addfile(entry)
            elif path.is_dir():
                entry.type = tarfile.DIRTYPE
                target.addfile(entry)
            else:
                entry.size = path.stat().st_size
                entry.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
                with path.open("rb") as file:
                    target.addfile(entry, file)


def read_tar_gz(data: bytes) -> Iterator[ArchiveMember]:
    """Yield the files of a compressed tar archive."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() else None
            if file is not None:
                yield ArchiveMember(entry.name, file.read(), bool(entry.mode & stat.S_IXUSR))


def zip_archive(members: Iterable[ArchiveMember], epoch: int) -> bytes:
    """Return a ZIP archive of ``members`` in their order, each with the time ``epoch``."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for member in members:
            entry = zipfile.ZipInfo(member.name, time.gmtime(epoch)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | member.mode) << 16
            # ZipInfo takes the system of the machine: 3 is Unix, as the modes above are.
            entry.create_system = 3
            archive.writestr(entry, member.data)
    return content.getvalue()


def read_zip(data: bytes) -> Iterator[ArchiveMember]:
    """Yield the files of a ZIP archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                executable = bool(entry.external_attr >> 16 & stat.S_IXUSR)
                yield ArchiveMember(entry.filename, archive.read(entry), executable)
