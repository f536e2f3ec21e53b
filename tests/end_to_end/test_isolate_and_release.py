"""``vigil isolate`` and ``vigil release`` with a real agent and aggregator on each store."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from contract.documents.isolation_request import ISOLATION_ANNOTATION
from contract.names import DEVICE_INFO_NAMESPACE
from tests.end_to_end.isolation_site import CHIP, MANUAL, Site, site_on
from tests.end_to_end.node import SEPARATES, Node
from tests.parts.places import Cluster, Folder
from tests.parts.processes import Running
from tests.parts.rights import allow, forbid
from tests.parts.terminal import CTRL_C, CTRL_D, typed
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane
    from tests.parts.terminal import Ended


class Broking(Folder):
    """A broker, whose documents are read through its store."""

    def __init__(self, broker: Broker, root: Path) -> None:
        super().__init__(root)
        self._url = broker.url

    @property
    def options(self) -> list[str]:
        return ["--store", self._url]


@pytest.fixture(
    params=["directory", "broker", pytest.param("kubernetes", marks=pytest.mark.apiserver)]
)
def site(request: pytest.FixtureRequest, tmp_path: Path, built: Path) -> Iterator[Site]:
    """Yield a healthy node with an aggregator, on each kind of store in turn."""
    place: Folder | Cluster
    if request.param == "directory":
        place = Folder(tmp_path / "store")
    elif request.param == "broker":
        place = Broking(request.getfixturevalue("broker"), tmp_path / "store")
    else:
        place = Cluster(request.getfixturevalue("control_plane"))
    yield from site_on(place, tmp_path, built)


@pytest.fixture
def cluster_site(control_plane: ControlPlane, tmp_path: Path, built: Path) -> Iterator[Site]:
    """Yield a healthy node with an aggregator, on an API server."""
    yield from site_on(Cluster(control_plane), tmp_path, built)


def level(node: Node) -> str:
    """Return the level of the chip in the status of its agent."""
    (chip,) = [chip for chip in node.status()["chips"] if chip["device"] == CHIP]
    found: str = chip["level"]
    return found


@pytest.mark.timeout(150)
def test_a_chip_is_isolated_by_a_person_and_released(site: Site) -> None:
    node = site.node
    status, answer = site.change(
        "isolate", "node-1", "3", "--reason", "its HBM is replaced", "--yes"
    )
    assert (status, answer["done"], answer["isolated"]) == (0, True, True), answer
    assert answer["text"] == f"{CHIP} of node-1 is isolated"
    assert level(node) == MANUAL
    document = site.document()
    assert document.data[MANUAL] == CHIP
    requests = json.loads(document.annotations[ISOLATION_ANNOTATION])
    assert requests[CHIP]["reason"] == "its HBM is replaced"
    assert not [key for key, text in document.data.items() if "replaced" in text]
    by = requests[CHIP]["by"]
    # The journal commits beside the publication.
    node.wait(lambda: node.changes() != [], "it is journaled")
    assert [change["upgrade"]["request"] for change in node.changes()] == [requests[CHIP]]

    status, answer = site.change("isolate", "node-1", "3", "--reason", "again", "--yes")
    assert (status, answer["changed"]) == (0, False)
    assert f"by {by} (as stated): its HBM is replaced" in answer["text"]
    for server in (f"unix:{node.state_dir}/agent.sock", site.aggregator.url):
        status, lines, _ = run_vigil("explain", "node-1/3", "--server", server, COLUMNS="200")
        shown = "\n".join(lines)
        assert status == 1
        assert f"{by} (as stated)" in shown, shown
        assert "its HBM is replaced" in shown, shown

    node.kill()
    node.start()
    node.up()
    node.ready()
    assert level(node) == MANUAL
    assert json.loads(site.document().annotations[ISOLATION_ANNOTATION]) == requests

    status, answer = site.change("release", "node-1", CHIP, "--yes")
    assert (status, answer["done"], answer["isolated"]) == (0, True, False), answer
    assert level(node) == "NormalNPU"
    document = site.document()
    assert document.data[MANUAL] == ""
    assert ISOLATION_ANNOTATION not in document.annotations
    status, answer = site.change("release", "node-1", CHIP, "--yes")
    assert (status, answer["changed"]) == (0, False)
    assert "is not isolated: nothing is to be released" in answer["text"]


@pytest.mark.timeout(120)
def test_a_release_names_the_level_that_stays(folder_site: Site) -> None:
    site, node = folder_site, folder_site.node
    node.emulator.occur(3, SEPARATES)
    node.until(lambda now: now.codes(3) == {SEPARATES}, "the fault is shown")
    assert site.change("isolate", "node-1", "3", "--reason", "why", "--yes")[0] == 0
    status, lines, errors = run_vigil("release", "node-1", "3", *node.place.options, "--yes")
    assert (status, errors) == (0, "")
    assert lines == [
        f"{CHIP} of node-1 is released",
        f"{CHIP} stays at SeparateNPU because of other faults: {SEPARATES}",
    ]


@pytest.mark.timeout(120)
def test_wrong_use_changes_nothing(folder_site: Site) -> None:
    site = folder_site
    for arguments, status, text in (
        (("isolate", "node-9", "3", "--reason", "why", "--yes"), 2, "there is no node 'node-9'"),
        (("isolate", "node-1", "99", "--reason", "why", "--yes"), 2, "has no chip Ascend910-99"),
        (("release", "node-1", "what", "--yes"), 2, "'what' is not a valid name of a chip"),
        (("isolate", "node-1", "3", "--reason", "why"), 2, "without a terminal, add --yes"),
        (("isolate", "node-1", "3", "--reason", "why", "--dry-run"), 0, "nothing was changed"),
    ):
        found, answer = site.change(*arguments)
        assert found == status, answer
        assert text in answer["text"]
    options = site.node.place.options
    status, _, errors = run_vigil("isolate", "node-1", "3", "--reason", "a\nb", "--yes", *options)
    assert status == 2
    assert "--reason" in errors
    assert _isolation(site) == ("", None)


@pytest.mark.timeout(120)
def test_a_name_counts_only_with_a_request_in_the_newest_document(
    folder_site: Site,
) -> None:
    node, place = folder_site.node, folder_site.node.place
    assert isinstance(place, Folder)
    file = place.root / DEVICE_INFO_NAMESPACE / f"{node.document}.json"
    draft = file.with_name(".stranger")
    assert folder_site.change("isolate", "node-1", "3", "--reason", "why", "--yes")[0] == 0
    old = file.read_text()
    assert folder_site.change("release", "node-1", "3", "--yes")[0] == 0
    draft.write_text(old)
    draft.replace(file)
    node.wait(lambda: folder_site.document().data[MANUAL] == "", "an old copy is repaired")
    assert level(node) == "NormalNPU"
    for annotation in ("", "{", json.dumps({CHIP: {"by": "a\x1b[2J", "at_ms": 1, "reason": "b"}})):
        content = json.loads(file.read_text())
        content["data"][MANUAL] = CHIP
        content["annotations"] = {ISOLATION_ANNOTATION: annotation}
        draft.write_text(json.dumps(content))
        draft.replace(file)
        node.wait(lambda: folder_site.document().data[MANUAL] == "", "the name is taken out")
        assert level(node) == "NormalNPU"


@pytest.mark.timeout(120)
def test_a_silent_node_takes_the_change_when_it_runs_again(folder_site: Site) -> None:
    site, node = folder_site, folder_site.node
    node.kill()
    status, answer = site.change("isolate", "node-1", "3", "--reason", "why", "--yes")
    assert (status, answer["changed"]) == (1, True)
    assert "no heartbeat of node-1 came for" in answer["text"]
    node.start()
    node.up()
    node.ready()
    node.wait(lambda: level(node) == MANUAL, "the request counts")
    assert json.loads(site.document().annotations[ISOLATION_ANNOTATION])[CHIP]["reason"] == "why"


@pytest.mark.timeout(120)
def test_a_wait_that_is_ended_leaves_what_is_written(folder_site: Site, tmp_path: Path) -> None:
    site, options = folder_site, folder_site.node.place.options
    site.aggregator.stop()
    verb = ("isolate", "node-1", "3", "--reason", "why", "--yes", *options)
    log = tmp_path / "isolate.log"
    running = Running([sys.executable, "-m", "vigil", *verb], log, site.node.environment)
    running.wait_until(lambda: _isolation(site)[0] == CHIP, 30)
    os.kill(running.pid, signal.SIGINT)
    site.node.wait(lambda: running.status is not None, "it ends")
    assert running.status == 130
    assert f"written: see vigil explain node-1/{CHIP}" in log.read_text()
    assert _isolation(site)[0] == CHIP


@pytest.mark.timeout(150)
def test_a_person_at_a_terminal_is_asked(folder_site: Site) -> None:
    site, options = folder_site, folder_site.node.place.options
    command = [sys.executable, "-m", "vigil"]

    def answer(keys: bytes, verb: str, *more: str) -> Ended:
        arguments = [*command, verb, "node-1", "3", *more, *options]
        return typed(arguments, "Go on? [y/N]", keys, site.node.environment)

    why = ("--reason", "its HBM is replaced")
    for keys, status in ((b"n\n", 1), (b"\n", 1), (b"yesno\n", 1), (CTRL_D, 1), (CTRL_C, 130)):
        ended = answer(keys, "isolate", *why)
        assert ended.status == status, ended.shown
        assert "This will isolate Ascend910-3 of node-1" in ended.shown
        assert "vigil: nothing was changed" in ended.shown
        assert _isolation(site) == ("", None)
    ended = answer(b"y\n", "isolate", *why)
    assert ended.status == 0, ended.shown
    assert ended.shown.endswith(f"{CHIP} of node-1 is isolated\n")
    assert level(site.node) == MANUAL
    ended = answer(b"YES\n", "release")
    assert ended.status == 0, ended.shown
    assert ended.shown.endswith(f"{CHIP} of node-1 is released\n")


@pytest.mark.apiserver
@pytest.mark.timeout(120)
def test_user_with_read_rights_changes_nothing_and_gets_the_missing_right(
    cluster_site: Site, control_plane: ControlPlane
) -> None:
    site = cluster_site
    kubeconfig = str(control_plane.kubeconfig_of("stranger-token"))
    options = ("--store", "kubernetes:", "--kubeconfig", kubeconfig)
    isolate = ("isolate", "node-1", "3", "--reason", "why")
    allow(control_plane, "stranger", ["get", "list"])
    try:
        site.node.wait(
            lambda: run_vigil(*isolate, *options, "--dry-run")[0] == 0,
            "the right to read is in force",
        )
        _assert_may_not_write(*isolate, *options, "--yes")
        assert _isolation(site) == ("", None)
        assert level(site.node) == "NormalNPU"

        assert site.change(*isolate, "--yes")[0] == 0
        before = _isolation(site)
        _assert_may_not_write("release", "node-1", "3", *options, "--yes")
        assert _isolation(site) == before
        assert level(site.node) == MANUAL
    finally:
        forbid(control_plane, "stranger")


def _assert_may_not_write(*arguments: str) -> None:
    status, lines, errors = run_vigil(*arguments)
    assert (status, lines) == (3, [])
    assert 'User "stranger" cannot' in errors
    assert "your account needs get and update of ConfigMaps in kube-system" in errors


def _isolation(site: Site) -> tuple[str, str | None]:
    """Return the parts of the document about isolated chips; its writer may change all others."""
    document = site.document()
    return document.data.get(MANUAL, ""), document.annotations.get(ISOLATION_ANNOTATION)
