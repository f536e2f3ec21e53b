"""The tiers of the tests: a marker for each test, and what a unit test may not use.

``server``  needs a program that ``tests/setup.sh`` provides
``daemon``  runs a daemon or a command of the product as a process
``slow``    waits in real time for more than about half a second, or takes a processor for more
            than a tenth of a second, or checks with one more recording, seed or process what a
            unit test of its family checks
``alone``   judges how quick something is; the file itself has the marker, by which the Makefile
            finds it
``unit``    everything else: Python, its packages and a C compiler are enough

``make test`` runs each test that is not alone in one of two parts, which follow from the tier:

``waiting``    a test with a server or a daemon, or a slow coroutine in real time
``computing``  a unit test, or a slow test that is synchronous or in virtual time

``computing`` has the lower priority. A slow coroutine in real time may use deadlines of the
product that do not grow, such as those of a driver, so it is not one of these.

A test has ``server`` or ``daemon`` when one of its fixtures was declared with ``needs``; one that
starts such a program without a fixture has the marker in its own file. While a unit test runs, a
program that is not part of every machine and a connection to another machine make it fail.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import sys
import tempfile
from inspect import iscoroutinefunction, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.unit import COMPUTING, UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.unit import Selection

_Fixture = TypeVar("_Fixture", bound="Callable[..., Any]")

_NOT_UNIT = ("server", "daemon", "slow", "alone")
_COMPILER = {"gcc", "cc", "nm", "readelf"}
# Of the C library and of util-linux, without which Debian does not start.
_SYSTEM = {"sh", "bash", "ldconfig", "kill", "mount", "umount", "unshare", "setpriv", "sleep"}
# Tests read it to know the files of the repository; a clone was made with it.
_GIT = {"git"}
_PROGRAMS = _COMPILER | _SYSTEM | _GIT
_REPOSITORY = Path(__file__).parents[1]
_NEEDED = "_needed_tier"
_STARTING = ("broker", "built", "running_control_plane", "vigil")
"""Fixtures that start programs which the guard allows, such as Python and ``vigil``."""

_DRIVERS = ("tests/collectors/", "tests/dcmi_shim/")
"""Where ``built`` compiles a small driver."""


def needs(tier: str) -> Callable[[_Fixture], _Fixture]:
    """Give all tests that use this fixture the marker ``tier``; stands below ``pytest.fixture``."""

    def mark(function: _Fixture) -> _Fixture:
        setattr(function, _NEEDED, tier)
        return function

    return mark


def only_root(reason: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test of another user; docs/tests.md lists the files with it."""
    return pytest.mark.skipif(os.geteuid() != 0, reason=reason)


def mark_tiers(items: Iterable[pytest.Item]) -> None:
    """Give each test its markers: ``unit`` where there is no other tier, and its part.

    Raises ``UsageError`` for a test that is alone and that the Makefile does not find, and for a
    test that computes in a file whose own mark names another tier. So ``make test`` runs each test
    once. Raises it for a unit test with a fixture that starts a program, too.
    """
    for item in items:
        names = {marker.name for marker in item.iter_markers()}
        if "alone" in names and "mark.alone" not in item.path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{item.nodeid}: its own file must have pytest.mark.alone")
        needed = _of_fixtures(item)
        if "apiserver" in names:
            needed.add("server")
        for tier in sorted(needed):
            item.add_marker(tier)
        tiers = names | needed
        if tiers.isdisjoint(_NOT_UNIT):
            if (starting := _starting(item)) is not None:
                raise pytest.UsageError(f"{item.nodeid}: its fixture {starting} needs a tier")
            item.add_marker("unit")
            _mark_computing(item, UNIT)
        elif tiers.isdisjoint(("server", "daemon", "alone")) and not _is_in_real_time(item):
            _mark_computing(item, COMPUTING)
        elif "alone" not in tiers:
            item.add_marker("waiting")


def _mark_computing(item: pytest.Item, selection: Selection) -> None:
    item.add_marker("computing")
    if not selection.may_have(item.path):
        raise pytest.UsageError(
            f"{item.nodeid}: tests/unit.py leaves out its file, whose pytestmark names another "
            "tier; mark the other tests one by one"
        )


def _is_in_real_time(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    # While a coroutine runs, pytest-asyncio has a function around it in its place.
    is_coroutine = iscoroutinefunction(unwrap(item.function))
    return is_coroutine and item.get_closest_marker("looptime") is None


def _of_fixtures(item: pytest.Item) -> set[str]:
    assert isinstance(item, pytest.Function)
    used = item._fixtureinfo.name2fixturedefs.values()
    return {
        tier
        for definitions in used
        if (tier := getattr(definitions[-1].func, _NEEDED, None)) is not None
    }


def _starting(item: pytest.Item) -> str | None:
    assert isinstance(item, pytest.Function)
    if item.nodeid.startswith(_DRIVERS):
        return None
    return next((name for name in _STARTING if name in item.fixturenames), None)


class Guard:
    """Refuses what a unit test may not use, from ``install`` on, while ``watched`` is set."""

    def __init__(self) -> None:
        self.watched: str | None = None
        """The unit test that runs; ``None`` between tests and in those of other tiers."""
        self._folders: tuple[Path, ...] = ()

    def install(self) -> None:
        """Begin to look at every program and connection of this process, until it ends."""
        folders = (_REPOSITORY, Path(sys.prefix), Path(tempfile.gettempdir()))
        self._folders = tuple(path.resolve() for path in folders)
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watched is None:
            return
        if event == "subprocess.Popen":
            self._check_program(arguments[0])
        elif event == "socket.connect":
            self._check_address(arguments[1])

    def _check_program(self, program: str | bytes | os.PathLike[str]) -> None:
        name = Path(os.fsdecode(program))
        if name.name in _PROGRAMS or "\0" in str(name):
            return
        found = shutil.which(name)
        # A virtual environment has a link to an interpreter that lies elsewhere.
        if found is None or found == sys.executable:
            return
        path = Path(found).resolve()
        if path == Path(sys.executable).resolve():
            return
        if not any(path.is_relative_to(folder) for folder in self._folders):
            self._refuse(f"starts {found}")

    def _check_address(self, address: object) -> None:
        if not isinstance(address, tuple):
            return  # a socket in the file system
        try:
            is_here = ipaddress.ip_address(address[0]).is_loopback
        except ValueError:
            is_here = address[0] == "localhost"
        if not is_here:
            self._refuse(f"connects to {address[0]}")

    def _refuse(self, what: str) -> None:
        # No ``Exception``: what is tested would take it for an error of the program or the network.
        pytest.fail(
            f"{self.watched} {what}, which a unit test may not; mark it as server, daemon or slow"
        )
