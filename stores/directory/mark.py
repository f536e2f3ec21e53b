"""The mark of a directory store: a file with an id, that distinguishes one directory from another.

A mount that is not there shows an empty directory in its place, and a wrong one shows another
cluster. Neither differs from a store in which everything was deleted, but for the mark. It is made
with the first document, so that a first set-up needs no step of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.errors import StoreRefused
from stores.base import FoundMark, StoreMark
from stores.directory import files

if TYPE_CHECKING:
    from pathlib import Path

    from stores.directory.one_thread import OneThread
    from stores.directory.owner import OwnerCheck

MARK_NAME = ".npu-vigil-mark"
"""In the directory of the store; no namespace can be called so."""

_ID = re.compile(r"[0-9a-f]{32}")
_MAX_BYTES = 4096


class _MarkFile(msgspec.Struct, omit_defaults=True):
    id: str
    replaces: str = ""


_decoder = msgspec.json.Decoder(_MarkFile)


def read(root: Path) -> FoundMark:
    """Return the mark of ``root``, none where there is no directory. Blocks.

    Raises ``StoreUnavailable``.
    """
    try:
        content = files.content(root / MARK_NAME, follow=False)
        if content is None:
            return FoundMark()
        if len(content) > _MAX_BYTES:
            raise ValueError(f"it has {len(content)} bytes, more than {_MAX_BYTES}")
        mark = _decoder.decode(content)
        for identifier in (mark.id, mark.replaces or mark.id):
            if _ID.fullmatch(identifier) is None:
                raise ValueError("an id has 32 hexadecimal digits")
    except (files.MalformedFile, ValueError, RecursionError) as error:
        return FoundMark(problem=f"{root / MARK_NAME} cannot be read: {error}")
    return FoundMark(mark.id, mark.replaces)


def make(root: Path) -> None:
    """Mark ``root``, unless there is anything of that name. Blocks.

    A writer that may write documents and not in ``root`` itself leaves it without one.
    """
    if os.path.lexists(root / MARK_NAME):
        return
    # Exclusive, so that of several first writers one makes the mark (decision 22).
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A failure to make the mark stops no document (decision 22).
    with contextlib.suppress(OSError):
        descriptor = os.open(root / MARK_NAME, flags, 0o644)
        try:
            os.write(descriptor, _encode(_MarkFile(uuid.uuid4().hex)))
        except OSError:
            (root / MARK_NAME).unlink()  # a full disk; the next document tries again
        finally:
            os.close(descriptor)


def _encode(mark: _MarkFile) -> bytes:
    return msgspec.json.encode(mark) + b"\n"


class DirectoryMark(StoreMark):
    """The mark in a file below ``root``."""

    def __init__(self, root: Path, owner: OwnerCheck, thread: OneThread) -> None:
        self._root = root
        self._owner = owner
        self._thread = thread

    @override
    async def read(self) -> FoundMark:
        return await self._thread.run(read, self._root)

    @override
    async def replace(self, replaces: str) -> FoundMark:
        if _ID.fullmatch(replaces) is None:
            raise StoreRefused(f"{replaces!r} is not a valid mark: it has 32 hexadecimal digits")
        return await self._thread.run(self._replace, replaces)

    def _replace(self, replaces: str) -> FoundMark:
        stored = read(self._root)
        self._owner.check()
        mark = _MarkFile(stored.id or uuid.uuid4().hex, replaces)
        with files.opened_directory(self._root, follow=True) as directory:
            files.replace(directory, self._root / MARK_NAME, _encode(mark))
        return FoundMark(mark.id, mark.replaces)
