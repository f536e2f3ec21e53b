"""The files of a directory store: ``PATH/<namespace>/<name>.json``.

A file is ``{"labels": {...}, "data": {...}}``, with ``"annotations"`` only if there are any.
Everything here blocks and is called from threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import stat
import time
from typing import TYPE_CHECKING

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from stores import json_documents
from stores.document_names import is_name, is_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stores.base import Document

BEATS = "beats"
"""Where the heartbeats are: no namespace, though it could be called so."""

_SUFFIX = ".json"
LEADER_LOCK_NAME = ".aggregator.lock"
"""The lock by which one of several aggregators leads."""
LOCK_MODE = 0o600

_DIRECTORY_MODE = 0o755
# A FIFO of that name must not block.
_LOCK_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_LOCK_NAME = ".lock"
# Short, because one thread does all work with files; the store tries again for 5 s.
_LOCK_TRY_SECONDS = 0.02
_LOCK_STEP_SECONDS = 0.002
# As on a broker (``stores/mqtt/documents.py``), so that every document fits into both.
_MAX_BYTES = 16 * 1024 * 1024

_SETTLED_NS = 2_000_000_000

# A failure of this process or of the disk is not a fault of the document.
_PROVES_NOTHING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})

# What no repetition cures; everything else may pass (a full disk, a mount that comes back).
_REFUSALS = (PermissionError, NotADirectoryError, IsADirectoryError)


class MalformedFile(Exception):
    """A file that is not a document; the text is the reason, ``digest`` one of its content."""

    def __init__(self, file: str, digest: str) -> None:
        super().__init__(file)
        self.digest = digest


class Locked(Exception):
    """Another writer has the lock of the namespace."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def document_path(root: Path, namespace: str, name: str) -> Path:
    """Return the path of the document."""
    return root / namespace / (name + _SUFFIX)


def name_in(file_name: str) -> str | None:
    """Return the document that a file of this name holds, or ``None`` for another file."""
    name = file_name.removesuffix(_SUFFIX)
    return name if name != file_name and is_name(name) else None


def namespaces(root: Path, only: str | None = None) -> tuple[str, ...]:
    """Return the namespaces there are, or ``only`` this one."""
    with (
        _explained(f"read {root}"),
        contextlib.suppress(FileNotFoundError),
        os.scandir(root) as entries,
    ):
        names = (e.name for e in entries if is_namespace(e.name) and e.name != BEATS and e.is_dir())
        return tuple(sorted(name for name in names if only in (None, name)))
    return ()


def names(root: Path, namespace: str) -> list[str]:
    """Return the names for which there is a file, whether it can be read or not."""
    directory = root / namespace
    names = []
    with (
        _explained(f"read {directory}"),
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(directory) as entries,
    ):
        names = [name_in(entry.name) for entry in entries]
    return sorted(name for name in names if name is not None)


def read(root: Path, namespace: str, name: str) -> Document | None:
    """Read one document; ``None`` if there is no file. Raises ``MalformedFile``."""
    stored = _content(document_path(root, namespace, name))
    if stored is None:
        return None
    content, status = stored
    try:
        return json_documents.decode((namespace, name), content, _version(content, status))
    except ValueError as error:
        raise MalformedFile(str(error), json_documents.digest(content)) from None


def is_settled(document: Document) -> bool:
    """Return whether the file of ``document`` was last changed so long before now that each later
    change gives it another time. File systems count in steps of some milliseconds.
    """
    modified_ns = int(document.version.rpartition("-")[2], 16)
    return time.time_ns() - modified_ns > _SETTLED_NS


def is_unchanged(root: Path, document: Document) -> bool:
    """Return whether the file of ``document``, which was settled when it was read, is the same."""
    try:
        status = document_path(root, document.namespace, document.name).stat()
    # Whoever reads it learns why.
    except OSError:
        return False
    return document.version.endswith(_file_version(status))


def content(path: Path, *, follow: bool = True) -> bytes | None:
    """Return what is in a file; ``None`` if there is none. Raises ``MalformedFile`` if it cannot be
    read.

    Without ``follow`` a link cannot.
    """
    content = _content(path, 0 if follow else os.O_NOFOLLOW)
    return None if content is None else content[0]


def encode(document: Document) -> bytes:
    """Return the content of the document's file."""
    return json_documents.encode(document) + b"\n"


def replace(directory: int, path: Path, content: bytes) -> str:
    """Replace the file at once, for readers: they see the old one or the new one. Needs the lock.

    ``directory`` is the opened one that ``path`` is in. There is no sync: after a loss of power the
    file may be the old one or empty, and its writer writes it again at its next start.
    """
    # A fixed name: under the lock there is one writer, and a killed one leaves nothing that grows.
    draft = f".{path.name.removesuffix(_SUFFIX)}.new"
    try:
        with os.fdopen(_new_draft(directory, draft), "wb") as file:
            file.write(content)
            file.flush()
            # After the flush, because writing sets the time that is part of the version.
            status = os.fstat(file.fileno())
        # By descriptor: the path may lead to another directory since the lock was taken, such as
        # after a mount.
        os.replace(draft, path.name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise storage_error(error, f"write {path}") from error
    return _version(content, status)


def remove(directory: int, path: Path) -> None:
    """Remove the file if there is one. Needs the lock. ``directory`` is as for ``replace``."""
    with _explained(f"delete {path}"), contextlib.suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=directory)


def _new_draft(directory: int, name: str) -> int:
    """Make the draft anew. What is there already was left by a killed writer, or is a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o666, dir_fd=directory)
    except FileExistsError:
        os.unlink(name, dir_fd=directory)
        return os.open(name, flags, 0o666, dir_fd=directory)


@functools.lru_cache(maxsize=16)
def close_locks(root: Path) -> None:
    """Close existing locks to other users, once for each ``root``.

    Earlier releases made them for all users, and a user that can open one can hold writers back.
    """
    for path in (*root.glob(f"*/{_LOCK_NAME}"), root / LEADER_LOCK_NAME):
        # None is there, or one of another user, or what is refused when it is to be locked.
        with contextlib.suppress(OSError, StoreError), opened_directory(path.parent) as directory:
            descriptor = _existing_lock(directory, path)
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != LOCK_MODE:
                os.fchmod(descriptor, LOCK_MODE)
            os.close(descriptor)


@contextlib.contextmanager
def locked(root: Path, namespace: str) -> Iterator[int]:
    """Keep every other writer of the namespace out, also those of other processes.

    Gives the descriptor of its directory, which is made where it is missing. Raises ``Locked``
    after a moment: no thread is to wait long for another process.
    """
    path = root / namespace / _LOCK_NAME
    close_locks(root)
    make(root)
    with _explained(f"make {path.parent}"), contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=_DIRECTORY_MODE)
    with opened_directory(path.parent) as directory:
        descriptor = open_lock(directory, path)
        try:
            give_up = time.monotonic() + _LOCK_TRY_SECONDS
            while not _try_lock(descriptor):
                if time.monotonic() >= give_up:
                    raise Locked(path)
                time.sleep(_LOCK_STEP_SECONDS)
            yield directory
        finally:
            os.close(descriptor)


def make(root: Path) -> None:
    """Make the directory of the store where it is missing."""
    with _explained(f"make {root}"):
        try:
            root.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        except FileExistsError as error:
            raise StoreRefused(f"{root} is not a directory") from error


@contextlib.contextmanager
def opened_directory(path: Path, *, follow: bool = False) -> Iterator[int]:
    """Give the descriptor of a directory within the block; of a link only with ``follow``."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with _explained(f"open {path}"):
        # With ``O_DIRECTORY`` the kernel answers ENOTDIR to
        # ``O_NOFOLLOW``, not ELOOP, which names no link.
        if not follow and path.is_symlink():
            raise StoreRefused(f"{path} is a symbolic link; nothing is written behind it")
        try:
            descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
        except NotADirectoryError as error:
            raise StoreRefused(f"{path} is not a directory") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_lock(directory: int, path: Path) -> int:
    """Open a lock in ``directory``, and make it where there is none. No link is followed."""
    flags = _LOCK_FLAGS | os.O_CREAT | os.O_EXCL
    with _explained(f"open {path}"):
        try:
            return os.open(path.name, flags, LOCK_MODE, dir_fd=directory)
        except FileExistsError:
            return _existing_lock(directory, path)


def _existing_lock(directory: int, path: Path) -> int:
    try:
        descriptor = os.open(path.name, _LOCK_FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreRefused(f"{path} is a symbolic link, and no lock") from None
        raise
    status = os.fstat(descriptor)
    # A second name may belong to a file of another program,
    # whose mode ``close_locks`` would change.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise StoreRefused(
            f"{path} is not a file of one name, so it is not a valid lock; remove it"
        )
    return descriptor


@contextlib.contextmanager
def _explained(action: str) -> Iterator[None]:
    """Turn errors of the system into ours."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, action) from error


def _try_lock(descriptor: int) -> bool:
    try:
        # Not ``lockf``: such a lock ends when the process closes
        # any descriptor of the file (fcntl(2)).
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content(path: Path, flags: int = 0) -> tuple[bytes, os.stat_result] | None:
    # Without O_NONBLOCK a FIFO of that name would hold the reader for ever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _PROVES_NOTHING:
            raise storage_error(error, f"read {path}") from error
        raise MalformedFile(f"cannot be opened: {error.strerror}", "") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise MalformedFile("is not a regular file", "")
        if status.st_size > _MAX_BYTES:
            raise MalformedFile(f"has {status.st_size} bytes, more than {_MAX_BYTES}", "")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # Limited again: the file may have grown since its size was read.
            return file.read(_MAX_BYTES), status
    except OSError as error:
        raise storage_error(error, f"read {path}") from error
    finally:
        os.close(descriptor)


def _version(content: bytes, status: os.stat_result) -> str:
    """Return a digest of content and file: old content that is put back is a change, which a watch
    must report.
    """
    return f"{json_documents.digest(content)}{_file_version(status)}"


def _file_version(status: os.stat_result) -> str:
    return f"-{status.st_ino:x}-{status.st_mtime_ns:x}"


def storage_error(error: OSError, action: str) -> StoreRefused | StoreUnavailable:
    """Return the error of ours for one of the file system; ``action`` is what could not be done."""
    kind = StoreRefused if isinstance(error, _REFUSALS) else StoreUnavailable
    return kind(f"cannot {action}: {error.strerror}")
