"""The fault configuration on this node's disk: files of the operator, and the last in force."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from typing import TYPE_CHECKING

import msgspec

from contract.errors import ConfigurationError
from contract.file_kinds import kind_of
from contract.operator_rules.fault_configuration import (
    DOCUMENTS,
    POLL_INTERVAL_KEY,
    InForce,
    catalogue_of,
)
from contract.validation_texts import decode_text
from service.files.atomic import replace_durably
from stores.directory.inotify import Inotify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

log = logging.getLogger("agent.fault_configuration")

COPY_NAME = "fault-config.json"
_NAMES = (*DOCUMENTS, POLL_INTERVAL_KEY)
# Upstream reads no more of a file either (device-plugin#0).
_MAX_BYTES = 10 << 20
# Linux follows no more links in one path (``ELOOP``).
_LINKS = 40
_RETRY_SECONDS = 30.0


class Files(msgspec.Struct, frozen=True):
    """Texts by file name, and why a file that is there could not be read.

    ``trouble`` is why changes are not noticed at once.
    """

    texts: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    trouble: str | None = None


def read_files(directory: Path | None) -> Files:
    """Return the texts in ``directory``. Neither it nor any of its files has to exist."""
    texts, unreadable = {}, {}
    for name in _NAMES if directory is not None else ():
        assert directory is not None
        try:
            texts[name] = _read(directory / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable[name] = error.strerror or str(error)
    return Files(texts, unreadable)


def _read(path: Path) -> str:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, f"it is {kind_of(status)}, not a file")
    # Opening must not block, also where the path became a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it was replaced by what is not a file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise OSError(0, f"it is longer than {_MAX_BYTES >> 20} MiB")
    return content.decode(errors="replace")


async def watch_files(directory: Path) -> AsyncIterator[Files]:
    """Yield the files of ``directory`` as they are now, then after each change, for ever.

    Files may be replaced by rename and be links, as in a mounted ConfigMap; the directory may
    appear and disappear.
    """
    before: Files | None = None
    while True:
        trouble = None
        try:
            with Inotify() as inotify:
                while True:
                    awaited = await asyncio.to_thread(_watch_all, inotify, directory)
                    files = await asyncio.to_thread(read_files, directory)
                    if files != before:
                        before = files
                        yield files
                    while True:
                        changed, everything = await inotify.changes()
                        if everything or any(_is_relevant(*change, awaited) for change in changed):
                            break
        except OSError as error:
            trouble = f"{directory} cannot be watched, it is read twice a minute: {error.strerror}"
        files = await asyncio.to_thread(read_files, directory)
        files = msgspec.structs.replace(files, trouble=trouble)
        if files != before:
            before = files
            yield files
        await asyncio.sleep(_RETRY_SECONDS)


def _is_relevant(directory: Path, name: str, awaited: dict[Path, str]) -> bool:
    """Return whether a change is about our files, or about a missing directory that leads
    to them.
    """
    return awaited.get(directory, name) == name


def _watch_all(inotify: Inotify, directory: Path) -> dict[Path, str]:
    """Watch every directory that leads to the files.

    Returns, for a directory that is watched only because something below is missing, the missing
    name.
    """
    watched: set[Path] = set()
    while True:
        places = dict(_places(directory))
        for place in places:
            inotify.add(place)
        # A directory that appeared before its watch began has no event.
        if places.keys() <= watched:
            return {place: name for place, name in places.items() if name is not None}
        watched |= places.keys()


def _places(directory: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the directories whose changes may change the files.

    With a name, only changes of that name.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        for path in (directory, *directory.parents):
            if path.parent.is_dir():
                yield path.parent, path.name
                return
    for path in _links(directory):
        yield path.parent, path.name
    yield directory, None
    for name in _NAMES:
        for path in _links(directory / name):
            target = path.parent / path.readlink()
            if target.parent.is_dir():
                yield target.parent, None


def _links(path: Path) -> Iterator[Path]:
    """Yield ``path`` while it is a link, then each link that it leads to."""
    for _ in range(_LINKS):
        if not path.is_symlink():
            return
        yield path
        path = path.parent / path.readlink()


def read_stored(state_dir: Path) -> InForce | None:
    """Return the texts that were in force when the last agent ended.

    ``None`` where nothing usable is stored.
    """
    path = state_dir / COPY_NAME
    try:
        in_force = msgspec.json.decode(path.read_bytes(), type=InForce)
        catalogue_of(in_force.texts)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError, ConfigurationError) as error:
        log.error("%s cannot be used: %s", path, decode_text(error))
        return None
    return in_force


def store_in_force(state_dir: Path, in_force: InForce) -> None:
    """Store ``in_force`` durably for the next start. Raises ``OSError``."""
    replace_durably(state_dir / COPY_NAME, msgspec.json.encode(in_force))
