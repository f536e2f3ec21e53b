"""A driver that is installed again on the host while a real agent runs on it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.end_to_end.node import Node
from tests.parts.deadlines import patience
from tests.parts.places import Folder
from tests.tiers import only_root

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULT = "80E01801"
LOST = "40F84E00"
FOUND_AGAIN_SECONDS = 30.0


def children(node: Node) -> list[psutil.Process]:
    """Return the driver processes of the agent."""
    found = []
    for child in psutil.Process(node.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(word.endswith("child.py") for word in child.cmdline()):
                found.append(child)
    return found


def kill_children(node: Node) -> None:
    for child in children(node):
        child.kill()


def beat(node: Node) -> dict[str, object]:
    assert isinstance(node.place, Folder)
    found: dict[str, object] = json.loads((node.place.root / f"beats/{node.name}.json").read_text())
    return found


def blind_chips(node: Node) -> int:
    return sum(
        any(one["source"] == "chip-faults" for one in chip["blind"])
        for chip in node.status()["chips"]
    )


@pytest.fixture
def own_node(tmp_path: Path, built: Path) -> Iterator[Node]:
    """Yield a node with its own copy of the driver, for replacement; its agent is not started."""
    node = Node(tmp_path, built, Folder(tmp_path / "store"))
    shutil.copytree(node.driver_root, tmp_path / "host" / "driver")
    node.driver_root = tmp_path / "host" / "driver"
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    node.environment["VIGIL_DRIVER_CALL_DEADLINE_SECONDS"] = f"{patience(0.25):g}"
    yield node
    node.close()


def start_as_in_a_pod(node: Node) -> Path:
    """Start the agent where the parent of the driver is a bind mount; the driver on the host."""
    host = node.driver_root
    pod = host.parent.with_name("pod")
    pod.mkdir()
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    inside = ("unshare", "--mount", "sh", "-c", script, "sh", str(host.parent), str(pod))
    node.driver_root = pod / host.name
    node.start((*inside, sys.executable, "-m", "vigil"))
    return host


@only_root("only root mounts")
def test_a_replaced_driver_is_found_again(own_node: Node, built: Path) -> None:
    node = own_node
    host = start_as_in_a_pod(node)
    node.healthy()
    node.emulator.occur(2, FAULT)
    node.until(lambda now: FAULT in now.codes(2), "the fault is shown")
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
    node.wait(lambda: beat(node)["blind"] is False, "its heartbeat says that it sees", 5)

    shutil.rmtree(host)
    kill_children(node)
    node.wait(lambda: blind_chips(node) == 8, "all chips are blind")
    code, answer = node.ask("/readyz")
    assert code == 503
    assert "blind: no chip gives an answer" in str(answer)
    assert node.ask("/healthz")[0] == 200, "nobody is to restart it"
    node.wait(lambda: beat(node)["blind"] is True, "the heartbeat shows it")
    first = beat(node)["beaten_at_ms"]
    node.wait(lambda: beat(node)["beaten_at_ms"] != first, "it beats on")
    shown = node.shown()
    assert shown is not None
    assert (len(shown.free), shown.codes(2)) == (7, {FAULT}), "the last state stays"

    node.emulator.occur(5, FAULT)
    shutil.copytree(built / "driver", host)
    node.until(
        lambda now: FAULT in now.codes(5),
        "a fault from while it was blind is shown",
        FOUND_AGAIN_SECONDS,
    )
    node.wait(lambda: blind_chips(node) == 0, "it sees all chips", FOUND_AGAIN_SECONDS)
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready again")
    node.wait(lambda: beat(node)["blind"] is False, "the heartbeat shows it")
    assert LOST not in str(node.journal("changes"))
    log = node.logged()
    assert log.count("blind: no chip gives an answer") == 1
    assert log.count("not blind any more") == 1
    assert len(node.journal("start")) == 1, "the agent was not restarted"


def test_a_driver_replaced_under_a_process_that_still_answers(own_node: Node, built: Path) -> None:
    node = own_node
    node.start()
    node.healthy()
    replacement = node.driver_root.with_name("new")
    shutil.copytree(built / "driver", replacement)
    shutil.rmtree(node.driver_root)
    replacement.rename(node.driver_root)

    def is_new() -> bool:
        maps = []
        for child in children(node):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                maps.append(Path(f"/proc/{child.pid}/maps").read_text())
        return bool(maps) and not any("libdcmi.so (deleted)" in one for one in maps)

    node.wait(is_new, "no process holds deleted files", FOUND_AGAIN_SECONDS)
    # On a busy machine a call may miss its deadline.
    node.wait(lambda: blind_chips(node) == 0, "it sees all chips")
    node.emulator.occur(1, FAULT)
    node.until(lambda now: FAULT in now.codes(1), "the fault is shown")
    assert LOST not in str(node.journal("changes"))
