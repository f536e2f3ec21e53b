"""The users file, and passwords that are compared one at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import TYPE_CHECKING

import bcrypt
import pytest

from contract.errors import ConfigurationError
from service.http.connections import RateLimits
from service.http.counts import LoginResult
from service.login import users
from service.login.users import PasswordChecks, UsersFile, parsed
from tests.parts.deadlines import patience, time_passes, until
from tests.service.tls.tls_site import user_line, write_users

if TYPE_CHECKING:
    from pathlib import Path

# As ``htpasswd -nbB -C 4 ops secret`` of Apache 2.4 writes a line.
_OF_HTPASSWD = b"ops:$2y$04$2gG8Q7Uo8JdjDvPVzWsq2.iM2nZvyWMFTMlaJpIrjMUbFUiIKqtnG"
_RIGHT, _WRONG, _BUSY = LoginResult.RIGHT, LoginResult.WRONG, LoginResult.BUSY


def test_lines_of_htpasswd_comments_and_both_ends_of_lines_are_read() -> None:
    line = user_line("ops", "secret")
    users, problems = parsed(b"# people\n\n" + line + b"\r\n" + line.replace(b"ops", b"sre"))
    assert (set(users), problems) == ({b"ops", b"sre"}, [])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"ops", "not a bcrypt hash"),
        (b"ops:secret", "not a bcrypt hash"),
        (b"ops:$apr1$x$y", "not a bcrypt hash"),
        (b"ops:$2y$04$short", "not a bcrypt hash"),
        (_OF_HTPASSWD + b"x", "not a bcrypt hash"),
        # The last character of the salt has bits that no salt has.
        (b"ops:$2y$04$" + b"9" * 53, "not a bcrypt hash"),
        (_OF_HTPASSWD.replace(b"$04$", b"$13$"), "the cost is 13; use 4 to 12"),
        (_OF_HTPASSWD.replace(b"$04$", b"$03$"), "the cost is 3; use 4 to 12"),
        (b":" + _OF_HTPASSWD.partition(b":")[2], "does not begin with a name"),
        (b"a\x07b:" + _OF_HTPASSWD.partition(b":")[2], "does not begin with a name"),
        (b"a" * 256 + b":" + _OF_HTPASSWD.partition(b":")[2], "does not begin with a name"),
        (b"root:" + _OF_HTPASSWD.partition(b":")[2], "an earlier line has the same user"),
    ],
)
def test_a_broken_line_is_named_and_not_repeated(tmp_path: Path, line: bytes, text: str) -> None:
    root = b"root:" + _OF_HTPASSWD.partition(b":")[2]
    path = write_users(tmp_path / "users", root, line)
    with pytest.raises(ConfigurationError) as raised:
        UsersFile(path)
    assert f"{path}, line 2: " in str(raised.value)
    assert text in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "$2y$" not in str(raised.value)


def test_of_many_broken_lines_the_first_are_named(tmp_path: Path) -> None:
    path = write_users(tmp_path / "users", *[b"broken"] * 1000)
    with pytest.raises(ConfigurationError, match="995 more lines are wrong"):
        UsersFile(path)


def test_a_file_that_everybody_can_read_is_refused_until_its_rights_are_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_users(tmp_path / "users", user_line("ops", "secret"))
    users = UsersFile(path)
    write_users(path, user_line("sre", "secret"))
    path.chmod(0o604)
    with pytest.raises(ConfigurationError, match=r"users is open to every user; .*chmod o="):
        UsersFile(path)
    assert not users.refresh()
    assert "new users of the pages are not used: pages.users_file" in caplog.text
    assert set(users.content) == {b"ops"}
    path.chmod(0o440)
    assert users.refresh()
    assert set(users.content) == {b"sre"}


def test_a_broken_line_leaves_the_last_good_users(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_users(tmp_path / "users", user_line("ops", "secret"))
    users = UsersFile(path)
    write_users(path, user_line("sre", "secret"), b"ops:plain")
    assert not users.refresh()
    assert not users.refresh()
    assert set(users.content) == {b"ops"}
    assert caplog.text.count(f"{path}, line 2: ") == 1
    with caplog.at_level(logging.INFO):
        write_users(path, user_line("sre", "secret"))
        assert users.refresh()
    assert "the users of the pages are good again" in caplog.text


def test_ten_thousand_users_are_read(tmp_path: Path) -> None:
    stored = _OF_HTPASSWD.partition(b":")[2]
    path = write_users(tmp_path / "users", *(b"user%d:%s" % (n, stored) for n in range(10_000)))
    assert len(UsersFile(path).content) == 10_000


class _Checks:
    """Passwords against the lines of a file; ``stored`` of each user is looked up."""

    def __init__(self, path: Path, *lines: bytes) -> None:
        self.path = write_users(path / "users", *lines)
        self.users = UsersFile(self.path)
        self.checks = PasswordChecks(self.users)

    async def of(self, name: bytes, password: bytes, address: str = "") -> LoginResult:
        stored = self.users.content.get(name)
        return await self.checks.compare(name, password, stored, address)

    def remembers(self, name: bytes, password: bytes) -> bool:
        return self.checks.remembers(name, password, self.users.content.get(name))


@pytest.mark.slow
async def test_a_password_is_right_or_wrong_or_impossible(tmp_path: Path) -> None:
    longest = "x" * 72
    checks = _Checks(
        tmp_path,
        user_line("ops", "secret"),
        user_line("long", longest),
        user_line("empty", ""),
        user_line("zhang", "密码"),
    )
    assert await checks.of(b"ops", b"secret") is _RIGHT
    assert await checks.of(b"long", longest.encode()) is _RIGHT
    assert await checks.of(b"zhang", "密码".encode()) is _RIGHT
    for name, password in (
        (b"ops", b"secret2"),
        (b"ops", b"secret\0"),
        (b"ops", b""),
        (b"stranger", b"secret"),
        (b"long", longest.encode() + b"y"),
        # What is impossible is compared as an empty password.
        (b"empty", b"\0"),
        (b"empty", b"y" * 73),
    ):
        assert await checks.of(name, password) is _WRONG
        assert not checks.remembers(name, password)
    checks.checks.close()


@pytest.mark.slow
async def test_an_unknown_user_costs_as_much_as_a_wrong_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    compare = bcrypt.checkpw

    def compared(password: bytes, stored: bytes) -> bool:
        costs.append(int(stored[4:6]))
        return compare(password, stored)

    monkeypatch.setattr(bcrypt, "checkpw", compared)
    monkeypatch.setattr(users, "_LIMITS", RateLimits(per_second=1000))
    checks = _Checks(tmp_path, user_line("ops", "secret", 5), user_line("sre", "secret", 6))
    for number in range(40):
        name = b"stranger%d" % number
        assert await checks.of(name, b"secret") is _WRONG
        assert await checks.of(name, b"secret") is _WRONG
        # A cost that changed would show that there is no such user.
        assert costs[-1] == costs[-2]
    assert set(costs) == {5, 6}
    checks.checks.close()


async def test_a_right_password_is_remembered_for_five_minutes_and_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = _Checks(tmp_path, user_line("ops", "secret"))
    assert not checks.remembers(b"ops", b"secret")
    assert await checks.of(b"ops", b"secret") is _RIGHT
    assert checks.remembers(b"ops", b"secret")
    assert not checks.remembers(b"ops", b"other")
    write_users(checks.path, user_line("ops", "secret"))
    checks.users.refresh()
    assert not checks.remembers(b"ops", b"secret")
    checks.checks.forget_replaced()
    assert await checks.of(b"ops", b"secret") is _RIGHT
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + 299)
    assert checks.remembers(b"ops", b"secret")
    monkeypatch.setattr(loop, "time", lambda: now + 302)
    assert not checks.remembers(b"ops", b"secret")
    checks.checks.close()


async def test_a_line_that_is_removed_meanwhile_permits_no_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = _Checks(tmp_path, user_line("ops", "secret"))
    may_go_on = threading.Event()

    def compared(password: bytes, stored: bytes) -> bool:
        may_go_on.wait()
        return True

    monkeypatch.setattr(bcrypt, "checkpw", compared)
    login = asyncio.create_task(checks.of(b"ops", b"secret"))
    await asyncio.sleep(0)
    write_users(checks.path)
    checks.users.refresh()
    may_go_on.set()
    assert await login is _WRONG
    checks.checks.close()


@pytest.mark.slow
async def test_wrong_passwords_from_many_addresses_delay_no_new_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    compare = bcrypt.checkpw

    def counted(password: bytes, stored: bytes) -> bool:
        compared.append(password)
        return compare(password, stored)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    checks = _Checks(tmp_path, user_line("ops", "secret"))

    async def attack(address: str) -> None:
        while True:
            await checks.of(b"ops", b"wrong", address)
            await time_passes(0.01)

    loop = asyncio.get_running_loop()
    began = loop.time()
    attackers = [asyncio.create_task(attack(f"192.0.2.{number}")) for number in range(12)]
    try:
        await time_passes(3.0)
        # The reserve of eight, two a second, and one that may begin at either end.
        await until(lambda: len(compared) >= 8, "the reserve was compared")
        assert len(compared) <= 10 + 2 * (loop.time() - began)
        asked = loop.time()
        assert await checks.of(b"ops", b"secret", "198.51.100.1") is _RIGHT
        # The next turn, which comes within half a second.
        assert loop.time() - asked < patience(1.5)
    finally:
        for attacker in attackers:
            attacker.cancel()
        checks.checks.close()


@pytest.mark.slow
async def test_eight_wait_by_address_in_turn_and_the_rest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = _Checks(tmp_path, user_line("ops", "secret"))
    may_go_on = threading.Event()
    order: list[bytes] = []
    threads = set()

    def compared(password: bytes, stored: bytes) -> bool:
        may_go_on.wait()
        order.append(password)
        threads.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return False

    monkeypatch.setattr(bcrypt, "checkpw", compared)
    attack = [
        asyncio.create_task(checks.of(b"ops", b"a%d" % number, "192.0.2.1")) for number in range(12)
    ]
    # One is being compared, eight wait, three are refused.
    await asyncio.wait(attack, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert [task.result() for task in attack if task.done()] == [_BUSY] * 3
    # Another address takes the place of the newest one of the attacker, and has the next turn.
    other = asyncio.create_task(checks.of(b"ops", b"other", "192.0.2.2"))
    # One whose client leaves frees its place.
    attack[3].cancel()
    await asyncio.sleep(0)
    late = asyncio.create_task(checks.of(b"ops", b"late", "192.0.2.1"))
    await asyncio.sleep(0)
    may_go_on.set()
    results = await asyncio.gather(*attack, return_exceptions=True)
    assert (await other, await late) == (_WRONG, _WRONG)
    assert results[8] is _BUSY
    assert order == [b"a0", b"other", b"a1", b"a2", b"a4", b"a5", b"a6", b"a7", b"late"]
    assert threads == {5}
    checks.checks.close()
