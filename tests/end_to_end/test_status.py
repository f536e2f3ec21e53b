"""``vigil status`` and ``vigil faults`` of a real agent and a real aggregator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.aggregator.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node

SEPARATES = "80E18402"
LINK_DOWN = "81078603"


def vigil(*arguments: str, **environment: str) -> tuple[int, list[str], str]:
    """Exit status, lines of output, and standard error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "LC_", "LANG"))}
    done = subprocess.run(
        [sys.executable, "-m", "vigil", *arguments],
        capture_output=True,
        timeout=60,
        env=clean | {"LC_ALL": "C.UTF-8"} | environment,
        check=False,
    )
    errors = done.stderr.decode()
    assert "Traceback" not in errors
    return done.returncode, done.stdout.decode().splitlines(), errors


@pytest.fixture
def well(folder_node: Node, tmp_path: Path) -> Node:
    """A node whose agent runs, with every source answering."""
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
    status, lines, _ = vigil("status", *local)
    assert (status, lines[0]) == (0, "node-1 is well")
    assert vigil("faults", *local)[:2] == (0, [*vigil("faults", *local)[1][:-1], "no fault holds"])
    well.emulator.occur(3, SEPARATES)
    well.until(lambda now: now.codes(3) == {SEPARATES}, "it is published")
    status, lines, _ = vigil("status", *local, COLUMNS="200")
    assert (status, lines[0]) == (
        1,
        "node-1 is not well: 1 part at SeparateNPU: node-1 Ascend910-3",
    )
    assert "chips:       1 SeparateNPU; 7 NormalNPU" in lines
    status, lines, _ = vigil("faults", *local, "--json")
    assert status == 1
    (row,) = json.loads(lines[0])["faults"]
    assert row["part"] == "Ascend910-3"
    assert row["jobs"] == "pods rescheduled"
    assert abs(row["since_ms"] - json.loads(lines[0])["at_ms"]) < 60_000


def test_a_source_that_gives_no_answer_is_not_well(well: Node) -> None:
    well.emulator.hang("dcmi_get_device_errorcode_v2", 3)
    well.wait(lambda: any(chip["blind"] for chip in well.status()["chips"]), "it is blind")
    status, lines, _ = vigil("status", "--state-dir", str(well.state_dir))
    assert status == 1
    assert lines[0] == "node-1 is not well: no answer from chip-faults of node-1 Ascend910-3"


def test_an_aggregator_answers_for_the_cluster(well: Node, aggregator: Daemon) -> None:
    server = ("--server", aggregator.url)

    def known() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(vigil("faults", *server, "--json")[1][0])["faults"]
        return found

    assert vigil("status", *server)[:2][1][0] == "the cluster is well"
    well.emulator.occur(3, SEPARATES)
    well.emulator.occur(5, "80E01801")
    well.wait(lambda: len(known()) == 2, "both are known", 20)
    status, lines, _ = vigil("status", "node-1", *server, "--utc")
    assert (status, lines[0]) == (
        1,
        "node-1 is not well: 1 part at SeparateNPU: node-1 Ascend910-3",
    )
    assert lines[1] == "  1 part at RestartBusiness: node-1 Ascend910-5"
    status, lines, _ = vigil("faults", *server, "--level", "RestartBusiness", COLUMNS="200")
    assert status == 1
    assert [line.split()[2] for line in lines if line.startswith("node-1")] == ["80E01801"]
    lines = vigil("faults", *server, "--order", "newest", "--lang", "zh", COLUMNS="200")[1]
    assert lines[-1].endswith("设备的HBM总的多bit ECC隔离行数达到64个")
    status, _, errors = vigil("status", "nobody", *server)
    assert status == 2
    assert "knows no node of this name" in errors


def test_where_no_daemon_listens_it_says_what_to_do(tmp_path: Path) -> None:
    status, lines, errors = vigil("status", "--state-dir", str(tmp_path))
    assert (status, lines) == (3, [])
    assert "no daemon listens there; start the agent, or name another daemon" in errors
    status, _, errors = vigil("faults", "--server", "ftp://x")
    assert status == 2
    assert "is neither http://HOST:PORT" in errors
