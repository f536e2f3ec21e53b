"""What the verbs for people show of a real agent and a real aggregator."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import report
from tests.contract.documents.node_documents import config, fault
from tests.end_to_end.node import SEPARATES
from tests.parts import pods
from tests.parts.deadlines import patience
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.controlplane import ControlPlane

LINK_DOWN = "81078603"


@pytest.fixture
def well(folder_node: Node, tmp_path: Path) -> Node:
    """Return a node whose agent runs and whose sources all answer."""
    folder_node.give_bmc(tmp_path)
    folder_node.start()
    folder_node.up()
    folder_node.wait(lambda: folder_node.ask("/readyz")[0] == 200, "it is ready")
    folder_node.wait(lambda: not folder_node.status()["blind"], "every source answers")
    return folder_node


@pytest.fixture
def aggregator(well: Node, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "aggregator", *well.place.options)
    daemon.start()
    yield daemon
    daemon.stop()


def test_an_agent_is_well_until_a_chip_fails(well: Node) -> None:
    local = ("--state-dir", str(well.state_dir))
    status, lines, _ = run_vigil("status", *local)
    assert (status, lines[0]) == (0, "node-1 is well")
    assert run_vigil("faults", *local)[:2] == (
        0,
        [*run_vigil("faults", *local)[1][:-1], "no fault holds"],
    )
    well.emulator.occur(3, SEPARATES)
    well.until(lambda now: now.codes(3) == {SEPARATES}, "it is published")
    status, lines, _ = run_vigil("status", *local, COLUMNS="200")
    assert (status, lines[0]) == (
        1,
        "node-1 is not well: 1 part at SeparateNPU: Ascend910-3",
    )
    assert "chips:       1 SeparateNPU; 7 NormalNPU" in lines
    status, lines, _ = run_vigil("faults", *local, "--json")
    assert status == 1
    (row,) = json.loads(lines[0])["faults"]
    assert row["part"] == "Ascend910-3"
    assert row["jobs"] == "pods rescheduled"
    assert abs(row["since_ms"] - json.loads(lines[0])["at_ms"]) < 60_000


def test_a_source_that_gives_no_answer_is_not_well(well: Node) -> None:
    well.emulator.hang("dcmi_get_device_errorcode_v2", 3)
    # On a busy machine calls about other chips miss their deadline, too.
    well.wait(
        lambda: [n for n, chip in enumerate(well.status()["chips"]) if chip["blind"]] == [3],
        "it alone is blind",
    )
    well.wait(lambda: not well.status()["driver"]["trouble"], "another child serves the driver")
    status, lines, _ = run_vigil("status", "--state-dir", str(well.state_dir))
    assert status == 1
    assert lines[0] == "node-1 is not well: no answer from chip-faults of Ascend910-3"


def test_an_aggregator_answers_for_the_cluster(well: Node, aggregator: Daemon) -> None:
    server = ("--server", aggregator.url)

    def known() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run_vigil("faults", *server, "--json")[1][0])[
            "faults"
        ]
        return found

    assert run_vigil("status", *server)[:2][1][0] == "the cluster is well"
    well.emulator.occur(3, SEPARATES)
    well.wait(lambda: len(known()) == 1, "the first is known", 20)
    well.emulator.occur(5, "80E01801")
    well.wait(lambda: len(known()) == 2, "both are known", 20)
    status, lines, _ = run_vigil("status", "node-1", *server, "--utc")
    assert (status, lines[0]) == (
        1,
        "node-1 is not well: 1 part at SeparateNPU: Ascend910-3",
    )
    assert lines[1] == "  1 part at RestartBusiness: Ascend910-5"
    status, lines, _ = run_vigil("faults", *server, "--level", "RestartBusiness", COLUMNS="200")
    assert status == 1
    assert [line.split()[2] for line in lines if line.startswith("node-1")] == ["80E01801"]
    lines = run_vigil("faults", *server, "--order", "newest", "--lang", "zh", COLUMNS="200")[1]
    assert lines[-1].endswith("设备的HBM总的多bit ECC隔离行数达到64个")
    status, _, errors = run_vigil("status", "nobody", *server)
    assert status == 2
    assert "knows no node of this name" in errors


def test_a_chip_is_explained_from_its_agent_to_cluster_info_and_what_happened_is_shown(
    well: Node, aggregator: Daemon, tmp_path: Path
) -> None:
    agent = ("--state-dir", str(well.state_dir))
    cluster = ("--state-dir", str(tmp_path / "aggregator"))
    assert run_vigil("explain", "node-1", *agent)[0] == 0
    output = tmp_path / "watched"
    with output.open("wb") as file:
        watching = subprocess.Popen(
            [sys.executable, "-m", "vigil", "explain", "node-1", "--watch", "--json", *cluster],
            stdout=file,
        )
    try:
        well.wait(lambda: output.read_bytes().count(b"\n") >= 1, "the first state is shown")
        well.emulator.occur(3, SEPARATES)
        well.wait(lambda: aggregator.ask("/api/v1/faults")[1]["faults"] != [], "it is known")
        well.wait(lambda: b'"well":false' in output.read_bytes(), "the change is shown")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(patience(10)) == 0
    finally:
        watching.kill()
        watching.wait()

    status, lines, _ = run_vigil("explain", "node-1/3", *agent)
    assert status == 1
    assert lines[2].startswith("answered by: agent of node-1, version ")
    assert "reported:  SeparateNPU" in [line.strip() for line in lines]

    def explained() -> tuple[int, list[str], str]:
        return run_vigil("explain", "node-1/3", *cluster, COLUMNS="300")

    # It is known before it is published.
    well.wait(lambda: any("published: SeparateNPU" in one for one in explained()[1]), "published")
    status, lines, _ = explained()
    assert status == 1
    socket = tmp_path / "aggregator" / "aggregator.sock"
    assert f"answered by: aggregator, which leads (unix:{socket})" in lines, lines
    text = [line.strip() for line in lines]
    assert text.count("reported:  SeparateNPU") == text.count("published: SeparateNPU") == 1
    assert "because:   the node reports it" in text
    assert run_vigil("explain", "node-2", *cluster)[0] == 2

    def happened() -> list[list[str]]:
        rows = json.loads(run_vigil("timeline", "node-1/3", *cluster, "--json")[1][0])["rows"]
        return [[row["part"], row["code"], row["level"]] for row in rows]

    well.wait(lambda: happened() == [["Ascend910-3", SEPARATES, "SeparateNPU"]], "it is kept")
    line = run_vigil("timeline", "--since", "1h", *cluster, COLUMNS="300")[1][-1]
    assert "node-1  Ascend910-3  80E18402  published  begins at SeparateNPU" in line


@pytest.mark.apiserver
async def test_a_job_is_shown_with_the_fault_that_hits_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    options = ("--store", "kubernetes:", "--kubeconfig", str(control_plane.kubeconfig))
    daemon = Daemon(tmp_path / "aggregator", *options)
    store = open_store("kubernetes:", control_plane.kubeconfig)
    cluster = ("--state-dir", str(tmp_path / "aggregator"))
    try:
        await store.put(report("n1", config([fault(3, "SeparateNPU", SEPARATES)])))
        pods.make(control_plane, "train-0", "n1", "Ascend910-3", owner=pods.owned_by("u", "train"))
        await asyncio.to_thread(daemon.start)
        daemon.process.wait_until(lambda: daemon.ask("/api/v1/jobs")[1]["jobs"] != [], 20)
        status, lines, _ = run_vigil("jobs", *cluster, COLUMNS="300")
        assert status == 1
        assert lines[2].startswith("default/train: UnHealthy, since ")
        # The API server has no Node of this name, so it is not ready.
        assert lines[3] == "  n1  Node  SeparateNPU"
        assert lines[4].startswith("  n1  Ascend910-3  80E18402  SeparateNPU  ")
    finally:
        await store.close()
        daemon.stop()
