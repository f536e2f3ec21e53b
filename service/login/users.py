"""The users of the pages: a file as ``htpasswd -B`` writes it, and how passwords are compared.

A comparison takes a quarter of a second of the processor at the highest cost. One thread compares
one at a time: eight in a row after a quiet time, then two a second, addresses in turn. A right
password is remembered for five minutes.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import bcrypt

from contract.errors import ConfigurationError, Problem
from service.files.private import rights_problems
from service.files.reloaded import ReloadedFiles, read_files
from service.http.connections import RateLimits, Turns
from service.http.counts import LoginResult

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

_SETTING = "pages.users_file"
_MAX_FILE_BYTES = 8 << 20
# The limit of ``htpasswd``.
_MAX_NAME_BYTES = 255
_MAX_SHOWN_PROBLEMS = 5
# bcrypt reads no more bytes of a password.
_MAX_PASSWORD_BYTES = 72
_MAX_COST = 12
_MIN_COST = 4
# The last character of a salt holds two bits, so only four characters are possible there.
_HASH = re.compile(rb"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
_NOT_IN_NAMES = re.compile(rb"[\x00-\x1f\x7f]")
# A cost, then a salt and a digest that no password is known for.
_COST_BYTES = len(b"$2y$10$")
_UNKNOWN = b"." * 53

_MAX_WAITING = 8
_REMEMBERED_SECONDS = 300.0
# The thread of the loop comes first on a machine with few processors. With 19, a comparison took up
# to 3.6 s beside 18 busy processes on two processors; with 5 it took 1 s.
_NICENESS = 5
# Eight logins at once follow each other without a pause; more begin twice a second, so an attack
# takes half a processor at most.
_LIMITS = RateLimits(per_second=2.0, burst=_MAX_WAITING, at_once=1)


class UsersFile(ReloadedFiles[Mapping[bytes, bytes]]):
    """The last good content of the users file: the hash of each user."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ``ConfigurationError`` with what is wrong, by line."""
        super().__init__((path,), partial(_load, path), _log, "users of the pages")


def _load(path: Path) -> Mapping[bytes, bytes]:
    contents, problems = read_files({_SETTING: path})
    problems = problems or rights_problems(_SETTING, path)
    if not problems and len(contents[0]) > _MAX_FILE_BYTES:
        problems = [Problem(_SETTING, f"{path} has more than {_MAX_FILE_BYTES >> 20} MiB")]
    users: dict[bytes, bytes] = {}
    if not problems:
        users, wrong = parsed(contents[0])
        # The text of a line is never repeated: it may be a password.
        problems = [
            Problem(_SETTING, f"{path}, line {number}: {text}")
            for number, text in wrong[:_MAX_SHOWN_PROBLEMS]
        ]
        if len(wrong) > _MAX_SHOWN_PROBLEMS:
            rest = len(wrong) - _MAX_SHOWN_PROBLEMS
            problems.append(Problem(_SETTING, f"{path}: {rest} more lines are wrong"))
    if problems:
        raise ConfigurationError("configuration", problems)
    return users


def parsed(content: bytes) -> tuple[dict[bytes, bytes], list[tuple[int, str]]]:
    """Return the hash of each user, and the numbers of wrong lines with what is wrong.

    Empty lines and those that begin with ``#`` are comments, as in Apache's files.
    """
    users: dict[bytes, bytes] = {}
    problems = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        text = line.removesuffix(b"\r")
        if not text.strip() or text.startswith(b"#"):
            continue
        name, _, digest = text.partition(b":")
        problem = _name_problem(name, users) or _hash_problem(digest)
        if problem is None:
            users[name] = digest
        else:
            problems.append((number, problem))
    return users, problems


def _name_problem(name: bytes, users: Mapping[bytes, bytes]) -> str | None:
    if not name or len(name) > _MAX_NAME_BYTES or _NOT_IN_NAMES.search(name):
        return f"it does not begin with a name of 1 to {_MAX_NAME_BYTES} bytes and a colon"
    return "an earlier line has the same user" if name in users else None


def _hash_problem(digest: bytes) -> str | None:
    form = _HASH.fullmatch(digest)
    if form is None:
        return "the text behind the name is not a bcrypt hash; write the line with htpasswd -B"
    cost = int(form[1])
    if not _MIN_COST <= cost <= _MAX_COST:
        return f"the cost is {cost}; use {_MIN_COST} to {_MAX_COST}, as in htpasswd -B -C 10"
    return None


class _Remembered(NamedTuple):
    stored: bytes
    digest: bytes
    until: float


class PasswordChecks:
    """Compares passwords with the hashes of ``users``, one at a time, beside the loop."""

    def __init__(self, users: UsersFile) -> None:
        self._users = users
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(_LIMITS, _MAX_WAITING)
        self._executor = ThreadPoolExecutor(1, "passwords", _yield_to_others)
        # A hash without it shows nothing of a password, and it ends with the process.
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, _Remembered] = {}

    def remembers(self, name: bytes, password: bytes, stored: bytes | None) -> bool:
        """Return whether ``password`` was right lately; ``stored`` is the hash of the user now."""
        entry = self._remembered.get(name)
        return (
            entry is not None
            and entry.stored == stored
            and self._loop.time() < entry.until
            and hmac.compare_digest(entry.digest, self._digest(password))
        )

    async def compare(
        self, name: bytes, password: bytes, stored: bytes | None, address: str
    ) -> LoginResult:
        """Return whether ``stored`` is a hash of ``password``.

        ``None`` stands for an unknown user, which takes as long.
        """
        hashed = self._of_unknown(name) if stored is None else stored
        if not await self._turns.take(address):
            return LoginResult.BUSY
        job = self._loop.run_in_executor(self._executor, _is_password, password, hashed)
        # Not where the result is awaited: the thread goes on when a client has left.
        job.add_done_callback(self._compared)
        is_right = await asyncio.shield(job)
        if is_right:
            # The line may have been replaced meanwhile.
            if stored is None or stored != self._users.content.get(name):
                return LoginResult.WRONG
            until = self._loop.time() + _REMEMBERED_SECONDS
            self._remembered[name] = _Remembered(stored, self._digest(password), until)
        return LoginResult.RIGHT if is_right else LoginResult.WRONG

    def forget_replaced(self) -> None:
        """Forget passwords whose lines were changed or removed."""
        users = self._users.content
        self._remembered = {
            name: entry
            for name, entry in self._remembered.items()
            if users.get(name) == entry.stored
        }

    def close(self) -> None:
        """Compare nothing more."""
        self._turns.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _compared(self, _: asyncio.Future[bool]) -> None:
        self._turns.done()

    def _digest(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    def _of_unknown(self, name: bytes) -> bytes:
        """Return a hash of no password; its cost is that of some user, always the same."""
        hashes = tuple(self._users.content.values()) or (b"$2y$%02d$" % _MIN_COST,)
        index = int.from_bytes(self._digest(name)[:8]) % len(hashes)
        return hashes[index][:_COST_BYTES] + _UNKNOWN


def _yield_to_others() -> None:
    # Linux has a nice value for each thread.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _is_password(password: bytes, hashed: bytes) -> bool:
    # bcrypt refuses or cuts off such passwords; another one takes as long to compare.
    is_possible = len(password) <= _MAX_PASSWORD_BYTES and b"\0" not in password
    return bcrypt.checkpw(password if is_possible else b"", hashed) and is_possible
