"""A real agent and its host: what the kernel logs is in node-info, on the configured level."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from collectors.kernel_log.evidence import KernelEvidence
from contract.codes.catalogue import shipped_levels
from contract.codes.host_codes import DRIVER_ERROR, HUNG_TASK, OOM_KILL, SOFT_LOCKUP
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY
from tests.end_to_end.node import HOST_CHECKS
from tests.parts.deadlines import patience
from tests.parts.kernel_log import (
    DRIVER,
    HARMLESS,
    HUNG,
    KILLED,
    LOCKUP,
    REFUSED,
    KernelLogPipe,
    built_library,
    line,
    preloaded,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Set
    from pathlib import Path

    from tests.end_to_end.node import Node

SOURCES = {"file-systems", "memory", "kernel-log", "clock"}


@pytest.fixture(autouse=True)
def host(folder_node: Node) -> None:
    """Enable the checks of the host on each node."""
    for check in HOST_CHECKS:
        del folder_node.environment[f"VIGIL_{check}_ENABLED"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library in the kernel's place."""
    return built_library(tmp_path_factory.mktemp("kmsg"))


@pytest.fixture
def log(tmp_path: Path, folder_node: Node, library: Path) -> Iterator[KernelLogPipe]:
    """Yield the log of the node's kernel, which reports all kinds; the node has no BMC."""
    pipe = KernelLogPipe(tmp_path / "kmsg")
    folder_node.environment |= preloaded(library, pipe.path)
    folder_node.environment["VIGIL_KERNEL_LOG_DEVICE"] = str(pipe.path)
    folder_node.environment["VIGIL_BMC_DEVICE"] = str(tmp_path / "no-ipmi0")
    yield pipe
    pipe.close()


def answers(node: Node, sources: Set[str] = SOURCES) -> None:
    node.up()
    node.wait(lambda: set(node.status()["answered"]) >= sources, "the host checks answer")


def server(node: Node) -> Any:
    data = node.node_info()
    return None if data is None else json.loads(data["NodeInfo"])["NodeInfo"]


def test_a_quiet_host_has_no_fault(folder_node: Node) -> None:
    """This very machine, with everything as it is configured by default.

    Its kernel may be set to report less; then the agent names that.
    """
    node = folder_node
    node.start()
    silenced = KernelEvidence(hold_seconds=300.0).silenced(0.0)
    answers(node, SOURCES - {"kernel-log"} if silenced else SOURCES)
    reasons = [one["reason"] for one in node.status()["blind"] if one["source"] == "kernel-log"]
    assert reasons == (["; ".join(silenced.values())] if silenced else [])
    node.healthy()
    assert node.status()["faults"] == []
    assert node.node_info() is None
    assert node.stop()[0] == 0


def test_errors_in_the_kernel_log_are_in_node_info(folder_node: Node, log: KernelLogPipe) -> None:
    node = folder_node
    # The documents of this time must be looked at meanwhile.
    node.environment["VIGIL_KERNEL_LOG_HOLD_SECONDS"] = f"{patience(1):g}"
    log.write(line(6, HUNG), line(7, HARMLESS))
    node.start()
    answers(node)
    log.write(line(8, HARMLESS, 6), line(9, LOCKUP, 0))
    lockup = [("Kernel", 0, [SOFT_LOCKUP])]
    assert node.wait(lambda: node.parts() == lockup, "the lockup is shown") < patience(0.5)
    found = server(node)
    assert found["NodeStatus"] == "Healthy"
    assert found["FaultDevList"][0]["FaultLevel"] == "NotHandleFault"
    node.wait(lambda: node.node_info() is None, "it was not repeated")
    log.write(line(10, KILLED), line(11, DRIVER, 5))
    both = [("Host Memory", 0, [OOM_KILL]), ("NPU Driver", 0, [DRIVER_ERROR])]
    node.wait(lambda: node.parts() == both, "both are shown")
    node.wait(lambda: node.node_info() is None, "both are over")
    shown = [
        one for batch in node.journal("reports") for one in batch if one["type"] == "observation"
    ]
    assert KILLED in {one.get("text") for one in shown}
    assert HUNG_TASK not in {one["code"] for one in shown}, "it was history at the first start"


def test_a_pipe_in_place_of_the_log_is_named_and_a_device_is_refused(
    folder_node: Node, log: KernelLogPipe
) -> None:
    node = folder_node
    node.start()
    answers(node)
    assert node.status()["kernel_log_pipe"] == str(log.path)
    node.kill()
    node.environment["VIGIL_KERNEL_LOG_DEVICE"] = "/dev/null"
    node.start()
    node.up()
    node.wait(
        lambda: (
            [one["source"] for one in node.status()["blind"] if "device 1:3" in one["reason"]]
            == ["kernel-log"]
        ),
        "the log is blind",
    )
    assert node.status()["kernel_log_pipe"] is None


def test_the_level_is_the_operators(folder_node: Node, log: KernelLogPipe, tmp_path: Path) -> None:
    node, folder = folder_node, tmp_path / "fault-configuration"
    folder.mkdir()
    shipped = dict(shipped_levels().node)
    shipped["SeparateFault"] = [*shipped["SeparateFault"], SOFT_LOCKUP]
    levels = {f"{level}Codes": codes for level, codes in shipped.items()}
    text = json.dumps({"FaultTypeCode": levels})
    (folder / NODE_CONFIGURATION_KEY).write_text(text)
    node.environment["VIGIL_FAULT_CONFIG_DIR"] = str(folder)
    node.start()
    answers(node)
    log.write(line(9, LOCKUP))
    node.wait(lambda: server(node) is not None, "the lockup is shown")
    found = server(node)
    assert found["NodeStatus"] == "UnHealthy"
    assert [one["FaultLevel"] for one in found["FaultDevList"]] == ["SeparateFault"]


def test_a_restart_neither_repeats_nor_loses(folder_node: Node, log: KernelLogPipe) -> None:
    node = folder_node
    node.start()
    answers(node)
    seen = (line(9, LOCKUP), line(10, KILLED))
    log.write(*seen)
    memory = node.state_dir / "memory/kernel-log"
    node.wait(
        lambda: memory.exists() and b'"sequence":10' in memory.read_bytes(), "it is remembered"
    )
    node.wait(lambda: node.assertions(OOM_KILL) == ["once"], "and reported")
    node.kill()
    log.write(*seen, line(11, HUNG, at_us=time.monotonic_ns() // 1000))
    node.start()
    node.wait(lambda: node.assertions(HUNG_TASK) == ["occur"], "what came meanwhile is reported")
    assert node.assertions(OOM_KILL) == ["once"]
    assert node.assertions(SOFT_LOCKUP) == ["occur"]
    faults = {one["code"] for one in node.status()["faults"]}
    assert faults >= {SOFT_LOCKUP, HUNG_TASK}


@pytest.mark.parametrize("forgets", [False, True], ids=["journal", "no journal"])
def test_faults_of_a_check_end_when_it_is_switched_off(
    folder_node: Node, log: KernelLogPipe, forgets: bool
) -> None:
    node = folder_node
    node.start()
    answers(node)
    log.write(line(9, LOCKUP))
    node.wait(lambda: node.parts() == [("Kernel", 0, [SOFT_LOCKUP])], "the lockup is shown")
    node.kill()
    if forgets:
        shutil.rmtree(node.state_dir)
    node.environment["VIGIL_KERNEL_LOG_ENABLED"] = "false"
    node.start()
    node.wait(lambda: node.node_info() is None, "nobody says so any more")
    assert node.status()["faults"] == []


def test_an_overrun_is_a_gap(folder_node: Node, log: KernelLogPipe) -> None:
    node = folder_node
    node.start()
    answers(node)
    log.write(line(3, HARMLESS, 6))
    node.wait(lambda: node.status()["kernel_log_gaps"] == 0, "no gap so far")
    log.write("!overrun\n", line(50, HARMLESS, 6), line(51, LOCKUP))
    node.wait(lambda: node.assertions(SOFT_LOCKUP) == ["occur"], "it goes on behind the gap")
    gaps = [one for batch in node.journal("reports") for one in batch if one["type"] == "gap"]
    assert [one["reason"] for one in gaps] == ["46 records of the kernel's log were lost before 50"]
    assert "npu_vigil_kernel_log_gaps_total 1.0" in node.ask("/metrics")[1]


@pytest.mark.usefixtures("log")
def test_without_the_right_to_read_it_is_blind(folder_node: Node) -> None:
    node = folder_node
    node.environment |= REFUSED
    node.start()
    node.up()
    node.wait(lambda: "kernel-log" in {one["source"] for one in node.status()["blind"]}, "blind")
    (blind,) = [one for one in node.status()["blind"] if one["source"] == "kernel-log"]
    assert "CAP_SYSLOG" in blind["reason"]
    node.healthy()
    node.wait(lambda: node.ask("/readyz")[0] == 200, "the agent is ready all the same")
