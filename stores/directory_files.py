"""The files of a directory store: ``PATH/<namespace>/<name>.json``.

A file is ``{"labels": {...}, "data": {...}}``, with ``"annotations"`` only if there are any.
Everything here blocks and is called from threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreRefused, StoreUnavailable
from stores.base import Document
from stores.document_names import is_name, is_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEATS = "beats"
"""Where the heartbeats are: no namespace, though it could be called so."""

_SUFFIX = ".json"
LEADER_LOCK_NAME = ".aggregator.lock"
"""The lock by which one of several aggregators leads."""
LOCK_MODE = 0o600

_LOCK_NAME = ".lock"
_LOCK_PATIENCE_SECONDS = 5.0
_LOCK_STEP_SECONDS = 0.002
_LARGEST_BYTES = 16 * 1024 * 1024

# A failure of this process or of the disk says nothing about the document.
_SAYS_NOTHING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})

# What no repetition cures; everything else may pass (a full disk, a mount that comes back).
_REFUSALS = (PermissionError, NotADirectoryError, IsADirectoryError)


class Malformed(Exception):
    """A file that is no document; the text says why, ``digest`` stands for its content."""

    def __init__(self, what: str, digest: str) -> None:
        super().__init__(what)
        self.digest = digest


class _File(msgspec.Struct, omit_defaults=True):
    labels: dict[str, str]
    data: dict[str, str]
    annotations: dict[str, str] = {}


_decoder = msgspec.json.Decoder(_File)


def document_path(root: Path, namespace: str, name: str) -> Path:
    """Where the document lies."""
    return root / namespace / (name + _SUFFIX)


def name_in(file_name: str) -> str | None:
    """The document that a file of this name holds, or ``None`` if it is no document's."""
    name = file_name.removesuffix(_SUFFIX)
    return name if name != file_name and is_name(name) else None


def namespaces(root: Path) -> list[str]:
    """The namespaces there are."""
    try:
        with os.scandir(root) as entries:
            return sorted(
                e.name for e in entries if is_namespace(e.name) and e.name != BEATS and e.is_dir()
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error(error, f"read {root}") from error


def names(root: Path, namespace: str) -> list[str]:
    """The names for which there is a file, whether it can be read or not."""
    try:
        with os.scandir(root / namespace) as entries:
            found = [name_in(entry.name) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise storage_error(error, f"read {root / namespace}") from error
    return sorted(name for name in found if name is not None)


def read(root: Path, namespace: str, name: str) -> Document | None:
    """Read one document; ``None`` if there is no file. Raises ``Malformed``."""
    found = _content(document_path(root, namespace, name))
    if found is None:
        return None
    content, status = found
    try:
        file = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(str(error), _digest(content)) from None
    version = _version(content, status)
    return Document(namespace, name, file.data, file.labels, file.annotations, version)


def content(path: Path) -> bytes | None:
    """What is in a file; ``None`` if there is none. Raises ``Malformed`` if it cannot be read."""
    found = _content(path)
    return None if found is None else found[0]


def encode(document: Document) -> bytes:
    """The content of the document's file."""
    file = _File(document.labels, document.data, document.annotations)
    try:
        return msgspec.json.encode(file) + b"\n"
    except (UnicodeEncodeError, TypeError) as error:
        place = f"{document.namespace}/{document.name}"
        raise StoreRefused(f"{place} cannot be written as JSON: {error}") from None


def replace(root: Path, namespace: str, name: str, content: bytes) -> str:
    """Replace the file at once, for readers: they see the old one or the new one. Needs the lock.

    There is no sync: after a loss of power the file may be the old one or empty, and its writer
    writes it again at its next start.
    """
    path = document_path(root, namespace, name)
    # A fixed name: under the lock there is one writer, and a killed one leaves nothing that grows.
    draft = path.with_name(f".{name}.new")
    try:
        draft.write_bytes(content)
        status = draft.stat()
        os.replace(draft, path)  # noqa: PTH105
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise storage_error(error, f"write {path}") from error
    return _version(content, status)


def remove(root: Path, namespace: str, name: str) -> None:
    """Remove the file if there is one. Needs the lock."""
    path = document_path(root, namespace, name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, f"delete {path}") from error


@functools.lru_cache(maxsize=16)
def close_locks(root: Path) -> None:
    """Close the locks that there are to other users, once for each ``root``.

    Earlier releases made them for everybody, and whoever can open one can hold writers back.
    """
    for path in (*root.glob(f"*/{_LOCK_NAME}"), root / LEADER_LOCK_NAME):
        with contextlib.suppress(OSError):  # none is there, or one of another user
            if stat.S_IMODE(path.stat().st_mode) != LOCK_MODE:
                path.chmod(LOCK_MODE)


@contextlib.contextmanager
def locked(root: Path, namespace: str) -> Iterator[None]:
    """Keep every other writer of the namespace out, also those of other processes."""
    path = root / namespace / _LOCK_NAME
    close_locks(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, LOCK_MODE)
    except FileExistsError as error:
        raise StoreRefused(f"{path.parent} is not a directory") from error
    except OSError as error:
        raise storage_error(error, f"open {path}") from error
    try:
        give_up = time.monotonic() + _LOCK_PATIENCE_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() >= give_up:
                raise StoreUnavailable(
                    f"{path} has been locked by another process for {_LOCK_PATIENCE_SECONDS:.0f} s"
                )
            time.sleep(_LOCK_STEP_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content(path: Path) -> tuple[bytes, os.stat_result] | None:
    # Without O_NONBLOCK a FIFO of that name would hold the reader for ever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _SAYS_NOTHING:
            raise storage_error(error, f"read {path}") from error
        raise Malformed(f"cannot be opened: {error.strerror}", "") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Malformed("is not a regular file", "")
        if status.st_size > _LARGEST_BYTES:
            raise Malformed(f"has {status.st_size} bytes, more than {_LARGEST_BYTES}", "")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_LARGEST_BYTES), status
    except OSError as error:
        raise storage_error(error, f"read {path}") from error
    finally:
        os.close(descriptor)


def _version(content: bytes, status: os.stat_result) -> str:
    """Content and file: old content that is put back is a change, which a watch must tell of."""
    return f"{_digest(content)}-{status.st_ino:x}-{status.st_mtime_ns:x}"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def storage_error(error: OSError, what: str) -> StoreRefused | StoreUnavailable:
    """The error of ours for one of the file system; ``what`` is what could not be done."""
    kind = StoreRefused if isinstance(error, _REFUSALS) else StoreUnavailable
    return kind(f"cannot {what}: {error.strerror}")
