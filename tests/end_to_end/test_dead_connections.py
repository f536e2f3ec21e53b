"""Agent and aggregator whose connections die without a sign: no node is lost, faults are shown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.api_proxy import ApiProxy
from tests.parts.deadlines import let_time_pass, patience
from tests.parts.node_reader import NodeReader
from tests.parts.places import Proxied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

FAULTS = ("80E01801", "80E18402")
GAP_SECONDS = 9.0
SHOWN_SECONDS = 5.0
APART_SECONDS = 7.0
"""One heartbeat, which takes two requests, is not to meet both."""


@pytest.fixture
def place(control_plane: ControlPlane) -> Iterator[Proxied]:
    with ApiProxy(control_plane) as proxy:
        yield Proxied(control_plane, proxy)


@pytest.fixture
def node(tmp_path: Path, built: Path, place: Proxied) -> Iterator[Node]:
    node = Node(tmp_path, built, place)
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, place: Proxied) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "aggregator", *place.options)
    daemon.spawn()
    yield daemon
    daemon.stop()


@pytest.mark.timeout(120)
def test_connections_that_freeze_lose_no_node_and_no_fault(
    node: Node, aggregator: Daemon, place: Proxied
) -> None:
    with NodeReader(place.plane) as reader:
        node.start()
        node.healthy()
        node.wait(lambda: bool(reader.beats(node.name)), "the first beat")
        began = frozen = time.monotonic()
        for chip, code in enumerate(FAULTS):
            let_time_pass(max(1.0, frozen + chip * APART_SECONDS - time.monotonic()))
            assert place.proxy.freeze_old() > 2
            frozen = time.monotonic()
            node.emulator.occur(chip, code)
            for document in (node.document, "cluster-info-device-"):
                node.wait(
                    lambda d=document, c=chip, f=code: (  # type: ignore[misc]
                        reader.shown_at(d, node.name, f"Ascend910-{c}", f) is not None
                    ),
                    f"the fault is in {document}",
                    2 * SHOWN_SECONDS,
                )
            shown = reader.shown_at(node.document, node.name, f"Ascend910-{chip}", code)
            assert shown is not None
            assert shown - frozen < patience(SHOWN_SECONDS)
        node.wait(lambda: reader.beats(node.name)[-1] > frozen + 5, "it beats", 15)
        assert reader.longest_gap(node.name, began) <= patience(GAP_SECONDS)
        assert (reader.lost, reader.vanished) == ({}, [])
