"""The processes of the demo: emulated nodes with a real agent each, and one aggregator."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from contract.operator_rules.customization import CUSTOMIZATION_KEY
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import IPMITOOL, EmulatedServer, install_servers
from dcmi_shim.emulator.scenario import CHIPS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from prometheus_client.samples import Sample

_DRIVER_ERROR = (
    "[ascend] [ERROR] [devmm] [devmm_svm_device_fault 438] <kworker/u16:1> fault failed."
)
"""No setting of this machine's kernel decides whether it is reported."""
_ERROR = 3
DRIVER_ERROR_SECONDS = 8.0
"""How long an error of the driver holds that is not repeated."""
_A3_ROLE = 2
"""The node with an on-board switch. With fewer nodes than roles its node is an A3, too."""
_STOP_SECONDS = 5.0
_PAGE_SECONDS = 30.0
_RETRY_SECONDS = 0.05
_AGENT_CONFIGURATION = """\
[chip_faults]
audit_period_seconds = {two}
health_period_seconds = {two}

[driver]
probe_period_seconds = {one}

[bmc]
period_seconds = {two}
# The emulated BMC is reached through its ipmitool, also on a machine that has a real one.
device = "/nonexistent/ipmi0"

[heartbeat]
interval_seconds = {five}

[storage]
period_seconds = {two}

[kernel_log]
hold_seconds = {driver_error}

# The nodes are emulated: what this machine itself suffers from is none of theirs.
[file_systems]
enabled = false
[memory]
enabled = false
[clock]
enabled = false
"""


class Host:
    """One emulated host. ``directory`` is its own."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "kmsg"
        self._dpc = directory / "dpc_status_check"
        self._dtfs = directory / "dtfs_status_check"
        os.mkfifo(self._log)
        # Open for reading, too: a pipe loses its content when its last reader is killed.
        self._pipe = os.open(self._log, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._records = 0
        self.dpc(works=True)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that make an agent read this host. There is no DTFS."""
        return {
            "VIGIL_KERNEL_LOG_DEVICE": str(self._log),
            "VIGIL_STORAGE_DPC_FILE": str(self._dpc),
            "VIGIL_STORAGE_DTFS_FILE": str(self._dtfs),
        }

    def report_driver_error(self) -> None:
        """Let the kernel report an error of the NPU driver."""
        self._records += 1
        at_us = time.monotonic_ns() // 1000
        os.write(self._pipe, f"{_ERROR},{self._records},{at_us},-;{_DRIVER_ERROR}\n".encode())

    def dpc(self, *, works: bool) -> None:
        """Let the storage client work or not; a whole file replaces the last one."""
        draft = self._dpc.with_suffix(".new")
        process = 0 if works else -1
        draft.write_text(
            f"[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_ERROR: {process}\n", encoding="ascii"
        )
        # Whatever the umask is: the collector refuses a file that others may write.
        draft.chmod(0o600)
        draft.replace(self._dpc)

    def close(self) -> None:
        """Give the log back."""
        os.close(self._pipe)


@dataclass
class DemoNode:
    """One emulated node: its name, hardware (a profile), driver, and agent process.

    ``open`` is for a server that was installed.
    """

    name: str
    directory: Path
    profile: str
    agent: asyncio.subprocess.Process | None = None
    emulator: Emulator = field(init=False)
    host: Host = field(init=False)

    def open(self) -> None:
        """Open the emulator of the installed server, and its host."""
        self.emulator = Emulator(self.server.emulator_dir)
        self.host = Host(self.directory)

    def close(self) -> None:
        """Close the emulator and the host."""
        self.emulator.close()
        self.host.close()

    @property
    def server(self) -> EmulatedServer:
        """Return the hardware to install."""
        return EmulatedServer(self.driver_root, self.directory / "emulator", self.profile)

    @property
    def driver_root(self) -> Path:
        """Return the folder of the emulated driver, laid out as the vendor's."""
        return self.directory / "driver"

    @property
    def chips(self) -> range:
        """Return the physical ids of its chips."""
        return range(CHIPS[self.profile])

    @property
    def log(self) -> Path:
        """Return the file with what the agent wrote to standard error."""
        return self.directory / "agent.log"


def node_names(count: int) -> list[str]:
    """Return the names of the nodes of a fleet of ``count``."""
    return [f"vigil-demo-{number}" for number in range(1, count + 1)]


class Fleet:
    """All processes of one demo. Nothing is left behind by ``close``.

    Every node is a server of ``profile``; without one they are of two families.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int,
        store: str,
        kubeconfig: Path | None,
        speed: float,
        profile: str | None = None,
    ) -> None:
        self.directory = directory
        self._store = store
        self._kubeconfig = kubeconfig
        self._configuration = directory / "agent.toml"
        self._configuration.write_text(
            _AGENT_CONFIGURATION.format(
                one=round(1 / speed, 3),
                two=round(2 / speed, 3),
                five=max(1.0, round(5 / speed, 3)),
                # Long enough for both documents to show it on a machine that is busy.
                driver_error=max(2.0, round(DRIVER_ERROR_SECONDS / speed, 3)),
            )
        )
        self.fault_config = self._made("fault-config")
        self.nodes = tuple(
            DemoNode(
                name,
                self._made(f"node-{number + 1}"),
                profile or ("a3" if number == _A3_ROLE % nodes else "a2"),
            )
            for number, name in enumerate(node_names(nodes))
        )
        install_servers([node.server for node in self.nodes])
        for node in self.nodes:
            node.open()
        self._aggregator: asyncio.subprocess.Process | None = None

    def _made(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir()
        return path

    def node(self, role: int) -> DemoNode:
        """Return the node that plays ``role``."""
        return self.nodes[role % len(self.nodes)]

    async def start(self) -> None:
        """Start the aggregator and every agent."""
        self._aggregator = await self._spawn(
            self.directory / "aggregator.log",
            "aggregator",
            "--state-dir",
            str(self._made("aggregator")),
            # It is the only one, and an election would leave a Lease behind.
            more={"VIGIL_LEADER_ELECT": "false"},
        )
        for node in self.nodes:
            await self.start_agent(node)

    async def page(self) -> str | None:
        """Return the address of the aggregator's page; ``None`` where it does not serve it."""
        note = self.directory / "aggregator" / "listen"
        for _ in range(int(_PAGE_SECONDS / _RETRY_SECONDS)):
            if note.exists():
                return f"{note.read_text().strip()}/"
            if self._aggregator is None or self._aggregator.returncode is not None:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        return None

    async def start_agent(self, node: DemoNode) -> None:
        """Start the agent of ``node``."""
        node.agent = await self._spawn(
            node.log,
            "agent",
            "--node-name",
            node.name,
            "--driver-root",
            str(node.driver_root),
            "--trust-driver",
            "--state-dir",
            str(node.directory / "state"),
            "--fault-config-dir",
            str(self.fault_config),
            "--config",
            str(self._configuration),
            tools=node.driver_root / IPMITOOL.parent,
            more=node.host.environment,
        )

    async def _spawn(
        self,
        log: Path,
        verb: str,
        *options: str,
        tools: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> asyncio.subprocess.Process:
        where = ["--store", self._store]
        if self._kubeconfig is not None:
            where += ["--kubeconfig", str(self._kubeconfig)]
        # Variables of the demo's own options, such as VIGIL_STORE, would configure the daemons,
        # too.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")}
        environment |= more or {}
        if tools is not None:
            environment["PATH"] = f"{tools}{os.pathsep}{environment.get('PATH', os.defpath)}"
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                # Port 0: daemons of this machine may use the usual ports.
                *("-m", "vigil", verb, "--listen", "127.0.0.1:0", *where, *options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                # Ctrl-C reaches the whole group of a terminal; the demo ends its daemons itself.
                start_new_session=True,
            )

    async def kill_agent(self, node: DemoNode) -> None:
        """Kill the agent of ``node`` by SIGKILL, and wait for its end."""
        assert node.agent is not None
        node.agent.send_signal(signal.SIGKILL)
        await node.agent.wait()

    async def blind_chips(self, node: DemoNode) -> frozenset[int]:
        """Return the chips that the agent of ``node`` reports as blind in its metrics."""
        return frozenset(
            int(sample.labels["chip"])
            for sample in await _samples(node)
            if sample.name == "npu_vigil_blind" and sample.value == 1 and sample.labels["chip"]
        )

    async def policy(self, node: DemoNode) -> str | None:
        """Return what the agent reports of the operator's policy: in force, refused, nothing."""
        samples = [
            sample
            for sample in await _samples(node)
            if sample.labels.get("document") == CUSTOMIZATION_KEY and sample.value
        ]
        if any(sample.name == "npu_vigil_fault_configuration_problems" for sample in samples):
            return "refused"
        sources = [sample.labels.get("source") for sample in samples]
        return "in force" if "configmap" in sources else None

    def dead(self) -> list[str]:
        """Return the processes that ended without a request, each with the last line of its log."""
        named = [(f"agent of {node.name}", node.agent, node.log) for node in self.nodes]
        named.append(("aggregator", self._aggregator, self.directory / "aggregator.log"))
        return [
            f"{name} ended with {process.returncode}: {_last_line(log)}"
            for name, process, log in named
            # Steps end agents by SIGKILL, which is not a failure.
            if process is not None and process.returncode not in (None, -signal.SIGKILL)
        ]

    async def close(self) -> None:
        """Stop every process and close the emulators."""
        running = [
            process
            for process in (*(node.agent for node in self.nodes), self._aggregator)
            if process is not None and process.returncode is None
        ]
        # All are asked to end before any is waited for, so that their times do not add up.
        for process in running:
            process.terminate()
        for process in running:
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        for node in self.nodes:
            node.close()


async def _samples(node: DemoNode) -> list[Sample]:
    """Return all samples of the metrics of a node's agent."""
    url = (node.directory / "state" / "listen").read_text().strip()
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
        session.get(f"{url}/metrics") as response,
    ):
        text = await response.text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "(nothing written)"
