"""Real parts that all tests share."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio.plugin
import typer.main
import typer.utils
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from looptime import LoopTimeEventLoop
from looptime._internal import plugin as looptime_plugin

from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import install
from dcmi_shim.tool import _unreaped as unreaped_tools
from dcmi_shim.worker.process import _unreaped as unreaped_children
from pacing.waiting import SHARED_WAKE_UPS
from tests.parts.broker import Broker
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import patience
from tests.parts.emulator_objects import compile_once
from tests.parts.examples import examples
from tests.parts.processes import leftovers, temporary_folder
from tests.parts.template import Templates
from tests.random_order import SEED, RandomOrder
from tests.slowest import Durations
from tests.tiers import Guard, mark_tiers, needs
from tests.unit import wait_for_computing

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTROL_PLANE = pytest.StashKey[ControlPlane]()
_LAST_USER = pytest.StashKey[Path]()
_GUARD = Guard()
_TEMPLATES = Templates()
_TO_THREAD = asyncio.to_thread

settings.register_profile("ours", examples())
settings.load_profile("ours")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder for temporary files before anything is made in it; scale the timeout."""
    # What gRPC does at a fork may abort a program that a test starts, before it runs.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    if seed := os.environ.get(SEED):
        config.pluginmanager.register(RandomOrder(seed))
    # The Makefile sets both, and workers need them; what tests start runs as for a user.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        for name in ("PYTHONUTF8", SEED):
            os.environ.pop(name, None)
    # In workers, too: they have the options as they were before.
    seconds = config.getoption("timeout") or float(config.getini("timeout"))
    config.option.timeout = patience(seconds)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config))
    folder = str(temporary_folder())
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = folder


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Read all tests without garbage collection, and leave them out of each collection after it.

    They are 770,000 objects that stay until the end. To look at them again and again takes more
    than a quarter of the time in which they are read.

    Hypothesis would also read the constants of all modules: 1.4 s, and 7 s for the first time. It
    reads them before the first property instead, which few processes have.
    """
    gc.disable()
    read_constants = providers._get_local_constants
    providers._get_local_constants = lambda: providers._local_constants
    try:
        return (yield)
    finally:
        providers._get_local_constants = read_constants
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tiers before ``-m`` selects, and scale the timeouts of single tests."""
    mark_tiers(items)
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if timeout is not None:
            item.add_marker(pytest.mark.timeout(patience(timeout.args[0])), append=False)


@functools.cache
def _begin(config: pytest.Config) -> None:
    """Let a third of the workers run no test before ``make computing`` has ended.

    The processors have enough to do until then, and are idle half of the time later. Meanwhile
    other workers take over the tests of those that wait.
    """
    worker: dict[str, Any] = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    if int(worker["workerid"].removeprefix("gw")) * 3 >= worker["workercount"] * 2:
        wait_for_computing()


# First, so that no time of a test runs while it waits.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Choose how the test starts commands; guard a unit test with its fixtures."""
    _begin(item.config)
    _TEMPLATES.are_used = not any(map(item.get_closest_marker, ("exec", "alone", "unit")))
    if item.get_closest_marker("unit") is None:
        return (yield)
    _GUARD.watched = item.nodeid
    try:
        return (yield)
    finally:
        _GUARD.watched = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the API server of the session rest behind the last file whose fixtures use it.

    Fixtures of a module end with its last test, which may be one without them.

    Before a property, Hypothesis reads the constants of modules that are new to it: it would
    otherwise do so while the property draws.
    """
    assert isinstance(item, pytest.Function)
    if item.get_closest_marker("hypothesis") is not None:
        providers._get_local_constants()
    stash = item.session.stash
    plane = stash.get(_CONTROL_PLANE, None)
    if "running_control_plane" in item.fixturenames:
        stash[_LAST_USER] = item.path
        if plane is not None:
            plane.wake()
    elif plane is not None and stash.get(_LAST_USER, None) != item.path:
        plane.rest()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Check that each test restores ``asyncio.to_thread``; later tests would fail at random.

    A fixture for it would take each test a tenth of what a test costs that does nothing.
    """
    yield
    assert asyncio.to_thread is _TO_THREAD


def pytest_sessionstart() -> None:
    """Set no event loop for this thread.

    looptime asks for one before synchronous tests too, and asyncio would make one that is
    never closed.
    """
    asyncio.set_event_loop(None)
    _restore_signals()
    _ask_no_proxy_about_loopback()
    _let_virtual_time_pass()
    _name_loop_fixtures_once()
    _read_options_once()
    _GUARD.install()


def _ask_no_proxy_about_loopback() -> None:
    """Let clients that read ``http_proxy`` connect directly to the servers that tests start.

    The proxy stays for what is downloaded. Programs and libraries read one name or the other.
    """
    if any(name.lower().endswith("_proxy") for name in os.environ):
        given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        without = ",".join(filter(None, (given, "127.0.0.1", "localhost", "::1")))
        os.environ.update(no_proxy=without, NO_PROXY=without)


def _restore_signals() -> None:
    """Let the programs that tests start take SIGINT and SIGHUP, wherever the suite was started.

    A shell lets its background jobs ignore SIGINT, ``nohup`` lets them ignore SIGHUP. Child
    processes inherit what is ignored, but not what is handled.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def _let_virtual_time_pass() -> None:
    """Let no loop in virtual time run anything before its time, and each find its time at once.

    asyncio takes what is due within its clock's resolution for due. Who waits for the rest of a
    time that is shorter than that waits again and again, and in virtual time for ever.

    Before each jump in time, looptime looks 44 times for data on sockets. No callback is ready
    then, and threads of executors are waited for by themselves. So two looks do.
    """
    LoopTimeEventLoop._clock_resolution = property(  # type: ignore[attr-defined]
        lambda loop: math.ulp(loop.time()), lambda _, __: None
    )
    defaults = LoopTimeEventLoop.setup_looptime.__kwdefaults__
    assert defaults is not None
    defaults["noop_cycles"] = 0


def _name_loop_fixtures_once() -> None:
    """Let looptime know the event loops of pytest-asyncio by the module of their fixture.

    It lists the names of that module anew for each fixture of each test: 0.1 ms or more.
    A test that then had no virtual time would fail or wait.
    """
    module = pytest_asyncio.plugin.__name__

    def makes_a_loop(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> bool:
        return fixturedef.func.__module__ == module

    assert callable(looptime_plugin._should_patch)
    looptime_plugin._should_patch = makes_a_loop


def _read_options_once() -> None:
    """Let typer read the signature of each verb once; it does so for each call of a verb.

    A process of the product calls one verb. Half of what a call takes is the signature: 5 ms.
    """
    assert callable(typer.main.get_params_from_function)  # type: ignore[attr-defined]
    cached = functools.cache(typer.utils.get_params_from_function)
    typer.main.get_params_from_function = cached  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def _run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Check that the run leaves no process and no mount behind; prepare what its tests share.

    The emulator's sources are compiled once for all workers of a run, and commands of the product
    start from a process that has loaded it. Shared wake-ups begin with virtual time, so that
    periods are exact from the start. pytest looks up each such fixture before each test, so there
    is one.
    """
    SHARED_WAKE_UPS.phase_seconds = 0.0
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch, _TEMPLATES:
        compile_once(patch, base)
        yield
    # A child of a driver that is killed is reaped later, and behind the last one nothing does so.
    left = []
    for process in unreaped_children | unreaped_tools:
        try:
            process.wait(patience(5.0))
        except subprocess.TimeoutExpired as error:
            left.append(str(error))
    left += leftovers(base, seconds=5.0)
    assert not left, "the tests left these behind:\n" + "\n".join(left)


@pytest.fixture
def templates() -> Templates:
    """Return the processes that have loaded the product, from which its commands start."""
    return _TEMPLATES


@pytest.fixture(scope="session")
@needs("server")
def running_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Yield one API server for the session; it has what earlier tests left."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), audited=True) as plane:
        request.session.stash[_CONTROL_PLANE] = plane
        yield plane
        del request.session.stash[_CONTROL_PLANE]


@pytest.fixture
def control_plane(running_control_plane: ControlPlane) -> ControlPlane:
    """Return a real API server that runs and holds no documents."""
    running_control_plane.recover()
    running_control_plane.clean()
    return running_control_plane


@pytest.fixture
@needs("server")
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a real mosquitto with nothing in it."""
    place = tmp_path / "broker"
    place.mkdir()
    with Broker(place) as running:
        yield running


@pytest.fixture(scope="session")
def emulated_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Emulator]]:
    """Yield the driver root of an emulated server without a daemon, and its emulator."""
    place = tmp_path_factory.mktemp("emulated")
    install(place / "driver", place / "emulator")
    emulator = Emulator(place / "emulator")
    yield place / "driver", emulator
    emulator.close()


@pytest.fixture
def hardware(emulated_server: tuple[Path, Emulator]) -> Emulator:
    """Reset the emulated server; return its emulator."""
    emulated_server[1].reset()
    return emulated_server[1]


@pytest.fixture(scope="session")
@needs("daemon")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the emulated driver, built: its root is ``driver``. Daemons run on it."""
    place = tmp_path_factory.mktemp("built")
    install(place / "driver", place / "emulator")
    return place
