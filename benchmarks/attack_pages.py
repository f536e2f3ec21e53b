"""What becomes of a daemon while clients attack its pages.

::

    python -m benchmarks.attack_pages [--daemon agent | aggregator] [--seconds 60]
                                      [--connections 5000] [--per-second 500]
                                      [--limit 1024 --limit 1048576]
                                      [--only flood | loop | handshakes | passwords]
                                      [--rounds 1]

Starts a real ``vigil agent`` on an emulated server of 16 chips, or a real ``vigil aggregator`` of
100 nodes, with a directory store. First it is left alone, then attacked, both for ``--seconds``;
with more ``--rounds`` in turns of equal length, so that what else this machine does disturbs both.
The attacks:

* flood, with each ``--limit`` of open files (soft and hard): a process keeps up to
  ``--connections`` connections with unfinished requests from 127.0.0.2 to 127.0.0.11, and opens at
  most ``--per-second`` in a second. The daemon listens on 127.0.0.1. It takes only 127.0.0.1, ::1
  and clients from the address that they connect to for the host; the ten are other machines;
* loop: twelve clients on kept connections ask ``/metrics`` and ``/api/v1/status`` (an aggregator:
  ``/api/v1/nodes``) without a pause;
* handshakes: as flood, with handshakes of TLS that are never finished, on pages with TLS. They are
  spread over the phase: all ``--connections`` begin in it;
* passwords: 100 requests a second with wrong passwords, over 16 kept connections from four
  addresses, on pages with users of cost 10. Each second another user logs in for the first time.

Meanwhile a fault begins or ends every 1.05 s. Measured is how long each takes from the driver's
event (an aggregator: from the node's document) until the published document shows it, how far
heartbeats are apart, and how long a probe of 127.0.0.1 and a scrape from an address that is new
each time take on new connections; further the largest proportional set size of all processes, and
the lines of log that are not about the chip. In the flood an aggregator has 300 clients of its
stream that stay silent as well: 100 from one address and 200 from others.

Ends with 1 if a change was not shown, a probe or scrape failed or took longer than a second, or a
limit of the goal was missed: 60 ms (99th percentile; aggregator: 150), 8 MiB, 10 lines, 2 x quiet.
With TLS it is 1.5 x quiet for the 99th percentile, 2 s for a login, and at an agent 3 MiB for 64
connections that are kept open.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.attack_clients import ADDRESSES, untrusting
from contract.documents.cluster_info import cluster_device_name
from contract.names import CLUSTER_NAMESPACE, DEVICE_INFO_NAMESPACE, DEVICE_INFO_PREFIX
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import install
from service.pages.daemon_pages import LISTEN_NAME
from stores.address import open_store
from stores.base import Changed, DocumentsListed, Selection
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.parts.certificates import make_pki
from tests.parts.processes import PartFailed, Running
from tests.service.tls.tls_site import user_line, write_users
from vigil.demo.reader import read_cluster_info, read_device_info

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from stores.base import Document, Store

_NODE, _CHIP, _CODE = "node-1", 3, "80E18402"
_NODES = 100
_EVERY_SECONDS = 1.05
"""Stamps are whole seconds: what comes faster is published together."""
_LOST_SECONDS = 30.0
_UP_SECONDS = 60.0
_SETTLE_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_BEAT_SECONDS = 5.0
_WARM_UP = 3
_SHOWN = 20
_GOAL_SECONDS = {"agent": 0.060, "aggregator": 0.150}
_GOAL_MIB, _GOAL_LINES, _GOAL_RATIO, _GOAL_ANSWER_SECONDS = 8.0, 10, 2.0, 1.0
_GOAL_TLS_RATIO, _GOAL_TLS_MIB, _GOAL_LOGIN_SECONDS = 1.5, 3.0, 2.0
_ATTACKS = ("flood", "loop", "handshakes", "passwords")
_PASSWORDS_PER_SECOND, _PASSWORD_CONNECTIONS, _PASSWORD = 100.0, 16, "secret"
_USERS, _COST = 400, 10
_KEPT_CONNECTIONS, _KEPT_OF_HOST = 64, 8
# Set in the child before it loads anything: the daemon raises the soft limit by itself.
_LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


@dataclass
class Figures:
    """What was measured in one phase; all but ``pss_mib`` in seconds."""

    phase: str
    changes: list[float] = field(default_factory=list)
    lost_changes: int = 0
    beat_gaps: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    scrapes: list[float] = field(default_factory=list)
    logins: list[float] = field(default_factory=list)
    failed: int = 0
    pss_mib: float = 0.0
    kept_mib: float | None = None
    """What connections cost that are kept open over TLS."""
    logged: list[str] = field(default_factory=list)
    clients: str = ""


class Subject:
    """A daemon with a directory store, and how its documents are changed."""

    def __init__(self, directory: Path, daemon: str, limit: int, attack: str) -> None:
        directory.mkdir()
        self.has_tls = attack in ("handshakes", "passwords")
        self.has_users = attack == "passwords"
        self.daemon = daemon
        self._root = directory / "store"
        self._state_dir = directory / "state"
        self._number = 0
        self.store: Store = open_store(f"directory:{self._root}")
        store = ("--store", f"directory:{self._root}", "--state-dir", str(self._state_dir))
        self._emulator: Emulator | None = None
        own: list[str] = []
        if daemon == "agent":
            install(directory / "driver", directory / "emulator", "a3")
            self._emulator = Emulator(directory / "emulator")
            own = ["--node-name", _NODE, "--driver-root", str(directory / "driver")]
            own.append("--trust-driver")
        # Settings of the caller's shell must not reach the daemon.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "KUBE"))}
        environment |= self._pages(directory)
        verb = ("-m", "vigil", daemon, *own, *store, "--listen", "127.0.0.1:0")
        self.running = Running(
            [sys.executable, "-c", _LIMITED, str(limit), *verb], directory / "log", environment
        )

    def _pages(self, directory: Path) -> dict[str, str]:
        """Return the settings of pages with TLS, and of users where there are any."""
        if not self.has_tls:
            return {}
        make_pki(directory)
        (directory / "server.key").chmod(0o600)
        settings = {
            "VIGIL_PAGES_CERTIFICATE_FILE": str(directory / "server.crt"),
            "VIGIL_PAGES_KEY_FILE": str(directory / "server.key"),
        }
        if self.has_users:
            # All users have the hash of one: to make hundreds takes as long as to compare them.
            _, _, stored = user_line("scraper", _PASSWORD, _COST).partition(b":")
            names = [b"scraper", b"ops", *(b"user%d" % number for number in range(_USERS))]
            lines = [b"%b:%b" % (name, stored) for name in names]
            settings["VIGIL_PAGES_USERS_FILE"] = str(write_users(directory / "users", *lines))
        return settings

    async def settle(self) -> None:
        """Fill the store, and wait until the daemon answers and has been left alone."""
        if self.daemon == "aggregator":
            for number in range(_NODES):
                await self.store.put(report(f"node-{number}", healthy()))
        await asyncio.to_thread(
            self.running.wait_until, (self._state_dir / LISTEN_NAME).exists, _UP_SECONDS
        )
        # After the start, so that its work is in no figure.
        await asyncio.sleep(_SETTLE_SECONDS)

    @property
    def place(self) -> tuple[str, int]:
        """Where it listens."""
        url = (self._state_dir / LISTEN_NAME).read_text().strip()
        host, port = url.partition("://")[2].split(":")
        return host, int(port)

    async def change(self, occurs: bool) -> None:
        """Make the fault begin or end."""
        if self._emulator is not None:
            act = self._emulator.occur if occurs else self._emulator.recover
            act(_CHIP, _CODE)
            return
        self._number += 1
        stamp = T0 + self._number
        data = faulty(_CHIP, stamp) if occurs else healthy(stamp)
        await self.store.put(report(_NODE, data))

    async def shown(self) -> AsyncIterator[bool]:
        """Yield whether the published document shows the fault, each time that it changes."""
        agent = self.daemon == "agent"
        name = f"{DEVICE_INFO_PREFIX}{_NODE}" if agent else cluster_device_name(0)
        namespace = DEVICE_INFO_NAMESPACE if agent else CLUSTER_NAMESPACE
        async for event in self.store.watch(Selection(namespace, name)):
            documents: tuple[Document, ...] = ()
            if isinstance(event, Changed):
                documents = (event.document,)
            elif isinstance(event, DocumentsListed):
                documents = tuple(event.documents)
            for document in documents:
                if agent:
                    view = read_device_info(document.data["DeviceInfoCfg"])
                else:
                    view = read_cluster_info(document.data[name])[_NODE]
                yield _CODE in view.faults.get(_CHIP, ())

    def beat_at(self) -> float | None:
        """Return when the heartbeat was written last; ``None`` where there is none."""
        with contextlib.suppress(FileNotFoundError):
            # The file's own time: it is the write, not the moment of the look.
            return (self._root / "beats" / f"{_NODE}.json").stat().st_mtime
        return None

    def pss_mib(self) -> float:
        """Return the proportional set size of the daemon and its children."""
        total_kb = 0
        for one in (self.running.pid, *self._children()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
                # Proportional: pages that daemon and driver process share are counted once.
                total_kb += int(rollup.partition("\nPss:")[2].split(maxsplit=1)[0])
        return total_kb / 1024

    def _children(self) -> list[int]:
        """Return its children; one that has not begun its own program shares all its memory."""
        daemon = psutil.Process(self.running.pid)
        program, found = daemon.cmdline(), []
        for child in daemon.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                # Between fork and exec a child still has the memory of its parent.
                if child.cmdline() != program:
                    found.append(child.pid)
        return found

    def logged(self) -> list[str]:
        """Return the lines of its log; those about the changes of chips are left out."""
        lines = self.running.log.read_text().splitlines()
        return [line for line in lines if _CODE not in line]

    async def close(self) -> None:
        """End it."""
        self.running.stop()
        if self._emulator is not None:
            self._emulator.close()
        await self.store.close()


_client_tls = untrusting()


async def ask(subject: Subject, address: str, path: str, user: str = "") -> float:
    """Ask for a page on a new connection; the seconds until it was there. Raises ``OSError``."""
    login = base64.b64encode(f"{user}:{_PASSWORD}".encode()).decode()
    header = f"Authorization: Basic {login}\r\n" if user and subject.has_users else ""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
    begun = time.perf_counter()
    async with asyncio.timeout(_ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(
            *subject.place, local_addr=(address, 0), ssl=_client_tls if subject.has_tls else None
        )
        try:
            writer.write(head.encode())
            answer = await reader.read()
            if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")):
                raise ConnectionError(f"{path} answered {answer[:20]!r}")
        finally:
            # Aborted: a client that closes in order would leave thousands of ports in TIME_WAIT.
            writer.transport.abort()
    return time.perf_counter() - begun


class Measurement:
    """Measures one subject, phase after phase."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._shown = asyncio.Queue[tuple[bool, float]]()
        self._state = False
        self._new_users = (f"user{number}" for number in range(_USERS))
        self._new_addresses = (
            # Each scrape has another address: the limits count by address (decision 11).
            f"127.{a}.{b}.{c}"
            for a, b, c in itertools.product(range(1, 255), range(256), range(1, 255))
        )

    async def follow(self) -> NoReturn:
        """Follow the published document, until cancelled."""
        async for shows in self._subject.shown():
            self._shown.put_nowait((shows, time.perf_counter()))
        raise AssertionError("a watch never ends")

    async def change(self) -> float | None:
        """Begin or end the fault; the seconds until that is shown, ``None`` if it never is."""
        self._state = not self._state
        # What came late belongs to the change before.
        while not self._shown.empty():
            self._shown.get_nowait()
        begun = time.perf_counter()
        await self._subject.change(self._state)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOST_SECONDS):
                while True:
                    shows, at = await self._shown.get()
                    if shows == self._state:
                        return at - begun
        return None

    async def measure(self, found: Figures, seconds: float) -> None:
        """Measure for so long; adds to what was found before."""
        lines = len(self._subject.logged())
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._changes(found, until))
            tasks.create_task(self._beats(found, until))
            tasks.create_task(self._asks(found.probes, found, until, own=True))
            tasks.create_task(self._asks(found.scrapes, found, until, own=False))
            tasks.create_task(self._memory(found, until))
            if self._subject.has_users:
                tasks.create_task(self._logins(found, until))
        # A daemon that ended would look quick in everything else.
        if self._subject.running.status is not None:
            raise PartFailed(f"the daemon ended with {self._subject.running.status}")
        found.logged += self._subject.logged()[lines:]

    async def _changes(self, found: Figures, until: float) -> None:
        while time.monotonic() < until:
            begun = time.monotonic()
            took = await self.change()
            if took is None:
                found.lost_changes += 1
            else:
                found.changes.append(took)
            await asyncio.sleep(max(0.0, begun + _EVERY_SECONDS - time.monotonic()))

    async def _beats(self, found: Figures, until: float) -> None:
        before = self._subject.beat_at()
        while time.monotonic() < until:
            await asyncio.sleep(0.05)
            now = self._subject.beat_at()
            if before is not None and now is not None and now != before:
                found.beat_gaps.append(now - before)
            before = now

    async def _asks(self, answers: list[float], found: Figures, until: float, *, own: bool) -> None:
        while time.monotonic() < until:
            address = "127.0.0.1" if own else next(self._new_addresses)
            try:
                path = "/healthz" if own else "/metrics"
                user = "" if own else "scraper"
                answers.append(await ask(self._subject, address, path, user))
            except (OSError, TimeoutError) as error:
                print(f"{found.phase}: {address} got no answer: {error!r}")
                found.failed += 1
            await asyncio.sleep(0.5)

    async def _logins(self, found: Figures, until: float) -> None:
        """Log in with users whose passwords are not remembered."""
        while time.monotonic() < until:
            address, user = next(self._new_addresses), next(self._new_users)
            try:
                found.logins.append(await ask(self._subject, address, "/metrics", user))
            except (OSError, TimeoutError) as error:
                print(f"{found.phase}: {user} from {address} got no answer: {error!r}")
                found.failed += 1
            await asyncio.sleep(1.0)

    async def _memory(self, found: Figures, until: float) -> None:
        while time.monotonic() < until:
            found.pss_mib = max(found.pss_mib, await asyncio.to_thread(self._subject.pss_mib))
            await asyncio.sleep(1.0)


@contextlib.asynccontextmanager
async def clients(
    subject: Subject, attack: str, arguments: argparse.Namespace
) -> AsyncIterator[list[str]]:
    """Let clients attack from a process; what they count is in the list afterwards."""
    host, port = subject.place
    numbers = (arguments.connections, arguments.per_second)
    kind = "requests" if attack == "flood" else attack
    if attack == "handshakes":
        numbers = (arguments.connections, arguments.connections / arguments.seconds)
    if attack == "passwords":
        numbers = (_PASSWORD_CONNECTIONS, _PASSWORDS_PER_SECOND)
    # In a process of its own: clients in this one would slow the measurement.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.attack_clients", kind, host, str(port)),
        *map(str, numbers),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    counted: list[str] = []
    try:
        yield counted
        # The line asks for the counts, and the clients go on until it comes.
        process.stdin.write(b"\n")
        counts = (await process.stdout.readline()).decode().split()
        names = ("opened", "closed by the server", "failed", "held at the end")
        if attack == "passwords":
            names = ("wrong", "busy", "others", "not sent")
        texts = (f"{count} {name}" for count, name in zip(counts, names, strict=True))
        counted.append(", ".join(texts))
    finally:
        process.stdin.close()
        await process.wait()


@contextlib.asynccontextmanager
async def looped(subject: Subject) -> AsyncIterator[list[str]]:
    """Ask from twelve clients without a pause."""
    pages = ("/metrics", "/api/v1/status" if subject.daemon == "agent" else "/api/v1/nodes")
    answers = 0

    async def one(path: str) -> NoReturn:
        nonlocal answers
        reader, writer = await asyncio.open_connection(*subject.place)
        try:
            while True:
                writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                answers += 1
        finally:
            writer.transport.abort()

    tasks = [asyncio.create_task(one(pages[number % 2])) for number in range(12)]
    counted: list[str] = []
    begun = time.monotonic()
    try:
        yield counted
        counted.append(f"{answers / (time.monotonic() - begun):.0f} answers a second")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def silent_streams(subject: Subject) -> AsyncIterator[list[str]]:
    """Hold clients of the stream that read nothing; what they were answered is in the list."""
    # One address with many streams and many with one: both ways to take all places.
    addresses = ["127.0.0.200"] * 100 + [f"127.0.1.{number}" for number in range(1, 201)]
    statuses: list[str] = []
    opened = []
    for address in addresses:
        try:
            reader, writer = await asyncio.open_connection(*subject.place, local_addr=(address, 0))
            opened.append(writer)
            writer.write(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(_ANSWER_SECONDS):
                statuses.append((await reader.readline()).split()[1].decode())
        except (OSError, TimeoutError, IndexError) as error:
            statuses.append(type(error).__name__)
    counts = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
    try:
        yield [f"{len(addresses)} streams: {counts}"]
    finally:
        for writer in opened:
            writer.transport.abort()


async def kept_connections_mib(subject: Subject) -> float:
    """Return the memory of connections over TLS that have answered once and are kept open."""
    await asyncio.sleep(_SETTLE_SECONDS)
    before = subject.pss_mib()
    others = itertools.cycle(ADDRESSES)
    writers = []
    for number in range(_KEPT_CONNECTIONS):
        address = "127.0.0.1" if number < _KEPT_OF_HOST else next(others)
        reader, writer = await asyncio.open_connection(
            *subject.place, local_addr=(address, 0), ssl=_client_tls
        )
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)
    kept = subject.pss_mib() - before
    for writer in writers:
        writer.transport.abort()
    return kept


def percentile(values: list[float], share: float) -> float:
    """Return the value below which so many are; the largest of few."""
    # The nearest rank: of a hundred values the 99th is the 99th percentile.
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


async def run(arguments: argparse.Namespace, attack: str, limit: int) -> list[Figures]:
    """Measure a quiet phase and an attack on a new daemon."""
    with tempfile.TemporaryDirectory(prefix="npu-vigil-") as directory:
        subject = Subject(Path(directory) / "subject", arguments.daemon, limit, attack)
        measurement = Measurement(subject)
        follower = None
        try:
            await subject.settle()
            follower = asyncio.create_task(measurement.follow())
            for _ in range(_WARM_UP):
                await measurement.change()
                await asyncio.sleep(_EVERY_SECONDS)
            quiet, attacked = Figures("quiet"), Figures(f"{attack}, {limit} open files")
            for _ in range(arguments.rounds):
                await measurement.measure(quiet, arguments.seconds / arguments.rounds)
                async with contextlib.AsyncExitStack() as attackers:
                    streams: list[str] = []
                    if attack == "flood" and arguments.daemon == "aggregator":
                        streams = await attackers.enter_async_context(silent_streams(subject))
                    attackers_of = looped(subject)
                    if attack != "loop":
                        attackers_of = clients(subject, attack, arguments)
                    counted = await attackers.enter_async_context(attackers_of)
                    await measurement.measure(attacked, arguments.seconds / arguments.rounds)
                attacked.clients = "; ".join([*streams, *counted])
            if attack == "handshakes" and arguments.daemon == "agent":
                attacked.kept_mib = await kept_connections_mib(subject)
            return [quiet, attacked]
        finally:
            if follower is not None:
                follower.cancel()
            await subject.close()


def missed(daemon: str, quiet: Figures, attacked: Figures) -> Iterator[str]:
    """Yield what missed its goal."""
    if attacked.lost_changes:
        yield f"{attacked.lost_changes} changes were never shown"
    if attacked.failed:
        yield f"{attacked.failed} probes and scrapes failed"
    slowest = max((*attacked.probes, *attacked.scrapes), default=math.inf)
    if slowest > _GOAL_ANSWER_SECONDS:
        yield f"an answer took {slowest:.2f} s"
    if percentile(attacked.changes, 0.99) > _GOAL_SECONDS[daemon]:
        took_ms = percentile(attacked.changes, 0.99) * 1000
        yield f"99 % of changes were shown within {took_ms:.0f} ms"
    yield from missed_over_tls(quiet, attacked)
    if attacked.phase.startswith("loop"):
        ratio = statistics.median(attacked.changes) / statistics.median(quiet.changes)
        if ratio > _GOAL_RATIO:
            yield f"a change took {ratio:.1f} x as long as in quiet"
    if attacked.pss_mib - quiet.pss_mib > _GOAL_MIB:
        yield f"memory grew by {attacked.pss_mib - quiet.pss_mib:.1f} MiB"
    if len(attacked.logged) > _GOAL_LINES:
        yield "\n".join([f"{len(attacked.logged)} lines were logged", *attacked.logged[:_SHOWN]])
    if daemon == "agent" and max(attacked.beat_gaps, default=math.inf) > 2 * _BEAT_SECONDS:
        yield "a heartbeat was missed"


def missed_over_tls(quiet: Figures, attacked: Figures) -> Iterator[str]:
    """Yield what missed the goals of pages with TLS."""
    if attacked.phase.startswith(("handshakes", "passwords")):
        ratio = percentile(attacked.changes, 0.99) / percentile(quiet.changes, 0.99)
        if ratio > _GOAL_TLS_RATIO:
            yield f"99 % of changes were shown within {ratio:.1f} x the time in quiet"
    if max(attacked.logins, default=0.0) > _GOAL_LOGIN_SECONDS:
        yield f"a login took {max(attacked.logins):.2f} s"
    if attacked.kept_mib is not None and attacked.kept_mib > _GOAL_TLS_MIB:
        yield f"{_KEPT_CONNECTIONS} connections took {attacked.kept_mib:.1f} MiB"


def show(daemon: str, rows: list[Figures]) -> None:
    """Print the figures; milliseconds, p50 / p99 / largest."""
    table = Table(title=f"pages of vigil {daemon} under attack; ms: p50 / p99 / max")
    for heading in ("phase", "change", "n", "beat gap max s", "probe", "scrape", "login", "failed"):
        table.add_column(heading)
    for heading in ("PSS MiB", "log lines"):
        table.add_column(heading, justify="right")

    def times(values: list[float]) -> str:
        if not values:
            return "none"
        shown = (percentile(values, 0.5), percentile(values, 0.99), max(values))
        return " / ".join(f"{value * 1000:.1f}" for value in shown)

    for row in rows:
        gap = f"{max(row.beat_gaps):.2f}" if row.beat_gaps else ""
        table.add_row(
            *(row.phase, times(row.changes), f"{len(row.changes)} (lost {row.lost_changes})", gap),
            *(times(row.probes), times(row.scrapes), times(row.logins), str(row.failed)),
            *(f"{row.pss_mib:.1f}", str(len(row.logged))),
        )
    Console(width=160).print(table)
    for row in rows:
        if row.clients:
            print(f"{row.phase}: {row.clients}")
        if row.kept_mib is not None:
            print(f"{_KEPT_CONNECTIONS} kept connections over TLS: {row.kept_mib:.1f} MiB")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="A daemon while clients attack its pages.")
    parser.add_argument("--daemon", choices=tuple(_GOAL_SECONDS), default="agent")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase")
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--per-second", type=float, default=500.0)
    parser.add_argument("--limit", type=int, action="append", help="default: 1024 and 1048576")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=_ATTACKS, help="default: all")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A container may allow less than the second limit.
    limits = [min(limit, hard) for limit in arguments.limit or (1024, 1_048_576)]
    if hard < max(arguments.limit or (1_048_576,)):
        print(f"this machine allows {hard} open files at most")
    runs = [("flood", limit) for limit in limits]
    runs += [(attack, limits[0]) for attack in _ATTACKS[1:]]
    failed = False
    for attack, limit in runs:
        if arguments.only in (None, attack):
            quiet, attacked = asyncio.run(run(arguments, attack, limit))
            show(arguments.daemon, [quiet, attacked])
            for problem in missed(arguments.daemon, quiet, attacked):
                failed = True
                print(f"{attacked.phase}: {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
