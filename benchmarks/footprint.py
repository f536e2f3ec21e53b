"""What a node pays for the agent: memory and processor time, idle and busy.

::

    python -m benchmarks.footprint [--store directory --store kubernetes] [--seconds 60]
                                   [--events-per-second 20] [--chips 16 | 8] [--chips-in-use 0]

Starts a real ``vigil agent`` on an emulated server (16 chips: a3, 8: a2) with everything that it
can watch: chips, links by ``hccn_tool``, the BMC by ``ipmitool``, and an a3's switches; on an API
server also its Node, whose labels it keeps, a fault configuration, and a pod that has
``--chips-in-use`` chips, each with a process, which hang detection looks at. Lets it settle, and
measures over ``--seconds`` idle and as long while faults come and go.

Memory is the proportional set size of the daemon and all processes below it, where no other process
maps their files. Processor time is that of the daemon and of the children that live through the
measurement; that of tools, which are run now and then, is counted apart. The kernel counts in steps
of 10 ms for each process: over 60 s a figure is right within some 0.05 % of a core, over 300 s
within 0.01 %. Ends with 1 when the idle figures miss their budget, or when a source is blind, since
that would cost too little;
but where this machine lets no program read its kernel's log, or its kernel does not report
everything, that is only printed. An agent that ends meanwhile has no figures: the run ends with its
log.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.table import Table

from collectors.kernel_log.evidence import KernelEvidence
from contract.codes.catalogue import shipped_levels
from contract.operator_rules.fault_codes import FAULT_CODE_KEY
from contract.operator_rules.fault_configuration import FAULT_CONFIG_NAME, FAULT_CONFIG_NAMESPACE
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import IPMITOOL, install
from service.pages.daemon_pages import LISTEN_NAME
from tests.parts.controlplane import ControlPlane
from tests.parts.pods import make as make_pod
from tests.parts.processes import PartFailed, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MEMORY_BUDGET_MIB = 80.0
CPU_BUDGET_PERCENT = 0.4
NOT_IMPORTED = frozenset(("grpc", "oauthlib", "pydantic", "pydantic_core", "requests", "rich"))
"""What an agent without their users must not load."""

_NODE = "node-1"
_PROFILES = {8: "a2", 16: "a3"}
_CODES = ("80E01801", "80C98008", "80E18402", "80CD8809")
_START_SECONDS = 60.0
_SETTLE_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_KERNEL_LOG = Path("/dev/kmsg")
_OF_KERNEL_LOG = 'source="kernel-log"'
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Processor seconds since the start: of each process that lives, and of those that ended."""

    living: dict[int, float]
    ended: float


@dataclass(frozen=True)
class Figures:
    """One measurement. CPU in percent of one core."""

    store: str
    load: str
    processes: int
    pss_mib: float
    cpu_percent: float
    tools_percent: float

    @property
    def is_within_budget(self) -> bool:
        """Whether an idle agent may take so much."""
        return self.pss_mib <= MEMORY_BUDGET_MIB and self.cpu_percent <= CPU_BUDGET_PERCENT


def family(pid: int) -> list[int]:
    """Return ``pid`` and every process below it."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def pss_mib(pids: Iterable[int]) -> float:
    """Return the proportional set size of all together where no other program maps the same files.

    Other programs would take their share of the interpreter and its libraries otherwise, and the
    figure would be another one each time. One that has just ended has none.
    """
    anonymous_kb = 0
    of_files_kb: dict[tuple[str, str], int] = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for mapping, resident_kb, own_kb in _mappings(Path(f"/proc/{pid}/smaps").read_text()):
                anonymous_kb += own_kb
                of_file = resident_kb - own_kb
                of_files_kb[mapping] = max(of_files_kb.get(mapping, 0), of_file)
    return (anonymous_kb + sum(of_files_kb.values())) / 1024


def _mappings(smaps: str) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Return of each mapping its file and offset, what is resident of it, and what of that is its
    own.
    """
    mapping, resident_kb = ("", ""), 0
    for line in smaps.splitlines():
        fields = line.split(maxsplit=5)
        if fields[0] == "Rss:":
            resident_kb = int(fields[1])
        elif fields[0] == "Anonymous:":
            yield mapping, resident_kb, int(fields[1])
        elif not fields[0].endswith(":"):
            mapping = (fields[5] if len(fields) > 5 else "", fields[2])


def usage(pid: int) -> Usage:
    """Return the processor time of ``pid`` and of every process below it."""
    living: dict[int, float] = {}
    ended = 0.0
    for one in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            user, system, ended_user, ended_system = map(int, fields[11:15])
            living[one] = (user + system) / _TICKS
            ended += (ended_user + ended_system) / _TICKS
    return Usage(living, ended)


def between(before: Usage, after: Usage, seconds: float) -> tuple[float, float]:
    """Return percent of a core: of what lived all the time, and of what did not."""
    lived = before.living.keys() & after.living.keys()
    long = sum(after.living[pid] - before.living[pid] for pid in lived)
    short = after.ended - before.ended
    short += sum(after.living[pid] for pid in after.living.keys() - lived)
    return 100 * long / seconds, 100 * short / seconds


def imported(log: str) -> set[str]:
    """Return the packages that an interpreter imported, by the log that it keeps of them."""
    lines = [line for line in log.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def blind(exposition: str) -> list[str]:
    """Return the samples among an agent's metrics that show a blind source."""
    return [line for line in exposition.splitlines() if line.startswith("npu_vigil_blind{")]


def is_readable(device: Path) -> bool:
    """Return whether ``device`` can be opened and read; an empty one counts."""
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.read(descriptor, 1 << 14)
        finally:
            os.close(descriptor)
    except BlockingIOError:
        return True
    except OSError as error:
        return error.errno == errno.EPIPE
    return True


class Subject:
    """One agent on one emulated server."""

    def __init__(
        self, directory: Path, chips: int, store: Sequence[str], profile: str | None = None
    ) -> None:
        directory.mkdir()
        install(directory / "driver", directory / "emulator", profile or _PROFILES[chips])
        self.chips = chips
        self.emulator = Emulator(directory / "emulator")
        self._state_dir = directory / "state"
        driver = directory / "driver"
        place = ("--driver-root", driver, "--state-dir", self._state_dir, "--listen", "127.0.0.1:0")
        verb = (sys.executable, "-m", "vigil", "agent", "--node-name", _NODE, "--trust-driver")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "KUBE"))}
        environment["PYTHONPROFILEIMPORTTIME"] = "1"
        tools = driver / IPMITOOL.parent
        environment["PATH"] = f"{tools}{os.pathsep}{environment.get('PATH', os.defpath)}"
        self._running = Running([*verb, *place, *store], directory / "log", environment)

    @property
    def pid(self) -> int:
        """The daemon."""
        return self._running.pid

    def settle(self) -> None:
        """Wait until it has published, and for what follows a start."""
        self._running.wait_until((self._state_dir / "agent.sock").exists, _START_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        self._check_runs()
        url = (self._state_dir / LISTEN_NAME).read_text().strip()
        with urllib.request.urlopen(f"{url}/metrics", timeout=_ANSWER_SECONDS) as answer:
            unseen = blind(answer.read().decode())
        refused = [line for line in unseen if _OF_KERNEL_LOG in line]
        if refused and (not is_readable(_KERNEL_LOG) or KernelEvidence(0.0).silenced(0.0)):
            print(f"this machine's kernel shows not all, so its log is blind: {refused}")
            unseen = [line for line in unseen if line not in refused]
        if unseen:
            raise PartFailed(f"the agent does not see everything: {unseen}")

    def measure(self, store: str, load: str, seconds: float, work: Callable[[], None]) -> Figures:
        """Call ``work`` again and again for so long."""
        before, begun = usage(self.pid), time.monotonic()
        while time.monotonic() - begun < seconds:
            work()
        elapsed = time.monotonic() - begun
        self._check_runs()
        cpu, tools = between(before, usage(self.pid), elapsed)
        processes = family(self.pid)
        memory = pss_mib(processes)
        return Figures(store, load, len(processes), memory, cpu, tools)

    def _check_runs(self) -> None:
        if self._running.status is not None:
            raise PartFailed(f"the agent ended:\n{self._running.log.read_text()[-2000:]}")

    def imported(self) -> set[str]:
        """Return the packages that the daemon has imported."""
        return imported(self._running.log.read_text())

    def close(self) -> None:
        """End it."""
        self._running.stop()
        self.emulator.close()


def faults(subject: Subject, per_second: float) -> Callable[[], None]:
    """Make faults that come and go: each call is one event, at its pace."""

    def turns() -> Iterator[None]:
        while True:
            for code in _CODES:
                for chip in range(subject.chips):
                    subject.emulator.occur(chip, code)
                    yield
                for chip in range(subject.chips):
                    subject.emulator.recover(chip, code)
                    yield

    events = turns()

    def one() -> None:
        next(events)
        time.sleep(1 / per_second)

    return one


def furnish(plane: ControlPlane, chips_in_use: int) -> None:
    """Put on the API server what an agent follows there: its Node, a pod, a fault configuration."""
    plane.request("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
    codes = {f"{level}Codes": codes for level, codes in shipped_levels().chip.items()}
    data = {FAULT_CODE_KEY: json.dumps(codes)}
    path = f"/api/v1/namespaces/{FAULT_CONFIG_NAMESPACE}/configmaps"
    plane.request("POST", path, {"metadata": {"name": FAULT_CONFIG_NAME}, "data": data})
    if chips_in_use:
        names = ",".join(f"Ascend910-{chip}" for chip in range(chips_in_use))
        make_pod(plane, "train", _NODE, names)


def measured(arguments: argparse.Namespace, store: str, directory: Path) -> list[Figures]:
    """Return idle and busy figures with one store."""
    with contextlib.ExitStack() as parts:
        options = ["--store", f"directory:{directory / 'store'}"]
        if store == "kubernetes":
            (directory / "plane").mkdir()
            plane = parts.enter_context(ControlPlane(directory / "plane"))
            options = ["--store", "kubernetes:", "--kubeconfig", str(plane.kubeconfig)]
            furnish(plane, arguments.chips_in_use)
        subject = parts.enter_context(
            contextlib.closing(Subject(directory / "node", arguments.chips, options))
        )
        for chip in range(arguments.chips_in_use):
            subject.emulator.load(chip, processes=[os.getpid()], aicore=50)
        subject.settle()
        rows = [subject.measure(store, "idle", arguments.seconds, lambda: time.sleep(0.5))]
        rate = arguments.events_per_second
        if rate:
            load = f"{rate:g} events/s"
            rows.append(subject.measure(store, load, arguments.seconds, faults(subject, rate)))
        for name in sorted(subject.imported() & NOT_IMPORTED):
            print(f"the agent has imported {name}")
        return rows


def table(rows: Sequence[Figures]) -> Table:
    """Return the figures, and how much of its budget an idle agent takes."""
    shown = Table(title="footprint of vigil agent with its children")
    for heading in ("store", "load"):
        shown.add_column(heading)
    for heading in ("processes", "PSS MiB", "of 80", "CPU %", "of 0.4", "tools CPU %"):
        shown.add_column(heading, justify="right")
    for row in rows:
        idle = row.load == "idle"
        shown.add_row(
            *(row.store, row.load, str(row.processes), f"{row.pss_mib:.1f}"),
            f"{row.pss_mib / MEMORY_BUDGET_MIB:.2f}",
            f"{row.cpu_percent:.2f}",
            f"{row.cpu_percent / CPU_BUDGET_PERCENT:.2f}" if idle else "",
            f"{row.tools_percent:.2f}",
        )
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Memory and processor time of vigil agent.")
    stores = ("directory", "kubernetes")
    parser.add_argument("--store", action="append", choices=stores, help="default: both")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure each")
    parser.add_argument("--events-per-second", type=float, default=20.0, help="0: idle only")
    parser.add_argument("--chips-in-use", type=int, default=0, help="by a pod (kubernetes only)")
    parser.add_argument("--chips", type=int, default=16, choices=sorted(_PROFILES))
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="npu-vigil-") as directory:
        for store in arguments.store or stores:
            place = Path(directory) / store
            place.mkdir()
            rows += measured(arguments, store, place)
    Console(width=100).print(table(rows))
    sys.exit(not all(row.is_within_budget for row in rows if row.load == "idle"))


if __name__ == "__main__":
    main()
