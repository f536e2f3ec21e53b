"""Documents about nodes that are not there yet, and messages about very many nodes."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from aggregator.inputs.node_context import NodeState
from aggregator.public_faults.plugin import MESSAGES
from aggregator.public_faults.values import PIECE
from contract.documents.public_fault import Influence
from stores.base import Deleted, DocumentsListed
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.public_faults.messages import (
    REPORTED_MS,
    at,
    begun,
    changed,
    document,
    eight,
    fault_message,
    one,
    places,
    read,
    standing,
)

if TYPE_CHECKING:
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from contract.documents.public_fault import PublicFaultEntry
    from service.clock import Instant
    from tests.aggregator.public_faults.known import KnownPlaces

LATE = "n9"


def come(known: KnownPlaces, faults: PublicFaultsPlugin, seconds: float) -> frozenset[str]:
    """Add the missing node."""
    known.see_report(LATE, eight())
    return faults.step(at(seconds))


def test_a_document_counts_when_its_node_comes() -> None:
    known = places("n1")
    faults = begun(known)
    read(faults, document("pub", fault_message(one(), one("fault-0002", node=LATE))))
    assert standing(faults).keys() == {"0"}
    status = faults.status()
    assert status.absent == 1
    assert "there is no node 'n9'" in status.troubles["public faults in default/pub"]
    due = faults.next_due_ms()
    assert due is not None
    assert due <= 1000
    assert LATE in come(known, faults, 1)
    assert standing(faults, LATE).keys() == {"0"}
    assert (faults.status().absent, faults.status().troubles) == (0, {})


def test_a_document_counts_when_a_node_has_its_serial_number() -> None:
    known = places("n1")
    faults = begun(known)
    read(faults, document("pub", fault_message(one(node="", serial_number="SN-9"))))
    known.see_node(LATE, NodeState(LATE, serial_number="SN-9"))
    come(known, faults, 3600)
    assert standing(faults, LATE).keys() == {"0"}


def test_it_counts_after_a_restart_too() -> None:
    faults = begun()
    message = document("pub", fault_message(one(), one("fault-0002", node=LATE)))
    read(faults, message)
    faults.send(fault_message(one(assertion="recover"), at_ms=REPORTED_MS + 1), at(10))
    texts = kept_texts(faults)
    known = places("n1")
    again = begun(known, texts, seconds=3600)
    again.observe(0, MESSAGES, DocumentsListed((message,)), at(3600))
    assert standing(again) == {}, "what has counted does not count again"
    come(known, again, 3601)
    assert standing(again, LATE).keys() == {"0"}
    assert kept_texts(again, texts) != texts


@pytest.mark.parametrize("by", ["deletion", "document", "message", "text", "restart"])
def test_old_reports_do_not_count_when_the_node_comes(by: str) -> None:
    known = places("n1")
    faults = begun(known)
    read(faults, document("pub", fault_message(one(node=LATE))))
    over = fault_message(
        one(node=LATE, assertion="recover"), at_ms=REPORTED_MS + 100_000, name="message-2"
    )
    match by:
        case "deletion":
            faults.observe(0, MESSAGES, Deleted("default", "pub"), at(100))
        case "document":
            faults.observe(0, MESSAGES, changed("other", over), at(100))
        case "message":
            faults.send(over, at(100))
        case "text":
            faults.observe(0, MESSAGES, changed("pub", over), at(100))
        case "restart":
            faults = begun(known, kept_texts(faults), seconds=100)
            faults.observe(0, MESSAGES, DocumentsListed(()), at(100))
    come(known, faults, 200)
    assert standing(faults, LATE) == {}
    assert faults.status().absent == 0


@pytest.mark.parametrize(("seconds", "ends"), [(50, True), (70, False)])
def test_a_fault_that_is_reported_once_waits_for_a_minute(seconds: float, ends: bool) -> None:
    known = places("n1")
    faults = begun(known)
    read(faults, document("pub", fault_message(one(node=LATE, assertion="once"))))
    come(known, faults, seconds)
    assert bool(standing(faults, LATE)) is ends
    faults.step(at(seconds + 5))
    assert standing(faults, LATE) == {}


def test_over_grpc_a_node_that_is_not_there_is_refused_for_good() -> None:
    known = places("n1")
    faults = begun(known)
    assert faults.send(fault_message(one(node=LATE)), at(0)).code == 409
    come(known, faults, 1)
    assert standing(faults, LATE) == {}


def test_reports_about_nodes_that_never_come_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aggregator.public_faults.kept_messages.MAX_UNKNOWN", 20)
    faults = begun()
    for number in range(50):
        message = fault_message(one(f"fault-{number:04}", node=f"ghost-{number}"))
        faults.observe(0, MESSAGES, changed(f"pub-{number}", message), at(number))
    assert faults.status().absent == 20


def large(nodes: int, faults: int) -> tuple[KnownPlaces, list[str], list[PublicFaultEntry]]:
    """Return nodes, and a message about so many faults on each of them."""
    names = [f"node-{number:04}" for number in range(nodes)]
    about = [Influence(name, "", [0]) for name in names]
    several = [replace(one(f"fault-{number:04}"), influence=about) for number in range(faults)]
    return places(*names), names, several


def clock() -> Instant:
    return at(0)


@pytest.mark.slow
async def test_a_large_message_lets_others_have_their_turn() -> None:
    known, _, several = large(500, 20)
    faults = begun(known)
    asking = asyncio.create_task(faults.apply_when_ready(fault_message(*several), clock))
    turns, seen = 0, set()
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
        seen.add(faults.status().standing)
    answer = await asking
    assert (answer.code, answer.refused) == (0, ())
    assert faults.status().standing == 10_000
    assert turns >= 10_000 / PIECE
    assert max(after - before for before, after in pairwise(sorted(seen))) <= PIECE


async def test_a_message_does_not_overtake_a_large_one() -> None:
    known, _, several = large(200, 20)
    faults = begun(known)
    many = asyncio.create_task(faults.apply_when_ready(fault_message(*several), clock))
    await asyncio.sleep(0)
    over = one("fault-0019", "recover", node="node-0199")
    answer = await faults.apply_when_ready(fault_message(over), clock)
    assert many.done()
    assert answer.code == 0
    faults.step(at(5))
    assert faults.status().standing == 3999


def test_many_nodes_are_judged_some_at_a_time() -> None:
    known, names, several = large(500, 2)
    faults = begun(known)
    faults.send(fault_message(*several), at(0))
    judged: list[str] = []
    while (due := faults.next_due_ms()) is not None and due <= 1:
        some = faults.step(at(0.001))
        assert 0 < len(some) < 200
        judged += some
    assert sorted(judged) == names


@pytest.mark.slow
def test_a_store_full_of_documents_is_read_some_at_a_time() -> None:
    faults = begun()
    documents = [
        document(
            f"pub-{number:04}", fault_message(one(f"fault-{number:04}"), at_ms=REPORTED_MS + number)
        )
        for number in range(2000)
    ]
    read(faults, *documents)
    steps = 0
    while (due := faults.next_due_ms()) is not None and due <= 1:
        faults.step(at(0.001))
        steps += 1
    assert steps >= 5
    status = faults.status()
    assert (status.standing, status.waiting) == (100, 1900), "in the order in which they were sent"
    assert "0" in standing(faults)
