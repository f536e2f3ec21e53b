"""Documents that carry messages, and their limits."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from aggregator.public_faults.plugin import MESSAGES
from contract.documents.public_fault import Influence, encode_public_fault
from stores.base import Changed, Deleted
from stores.interruption import Interrupted
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.public_faults.messages import (
    at,
    begun,
    changed,
    document,
    fault_message,
    one,
    places,
    read,
    standing,
)

SEPARATED = {"0": ("220001001", "SeparateNPU")}


def test_each_node_has_a_limit_of_its_own() -> None:
    faults = begun()
    first = [faults.send(fault_message(one(f"fault-{n:04}")), at(0)).code for n in range(101)]
    assert first == [0] * 100 + [410]
    both = replace(one("fault-0999"), influence=[Influence(n, "", [0]) for n in ("n1", "n2")])
    answer = faults.send(fault_message(both), at(0))
    assert answer.code == 410
    assert (
        "limiter work by resource failed: node n1: CCAE has reached the limit of messages about it"
        in answer.info
    )
    assert "n2" not in answer.info
    assert standing(faults, "n2") == SEPARATED
    assert faults.send(fault_message(one("fault-0998")), at(1)).code == 0
    assert faults.send(fault_message(one("fault-0997"), resource="Netmind"), at(1)).code == 0


def test_invalid_messages_take_no_tokens_from_valid_ones() -> None:
    """Cover defect B12."""
    faults = begun()
    for _ in range(1000):
        assert faults.send(fault_message(one(code="999999999")), at(0)).code == 409
        assert faults.send(fault_message(one(node="ghost")), at(0)).code == 409
    assert faults.send(fault_message(one()), at(0)).code == 0


@pytest.mark.slow
def test_a_resource_may_report_a_thousand_faults_a_second() -> None:
    names = [f"node-{number}" for number in range(1500)]
    faults = begun(places(*names))
    for second in range(3):
        for name in names:
            fault_ = one(f"fault-{second}-{name}", node=name)
            assert faults.send(fault_message(fault_), at(second)).code == 0


def test_documents_wait_where_messages_are_refused() -> None:
    faults = begun()
    for number in range(103):
        faults.observe(0, MESSAGES, changed("pub", fault_message(one(f"fault-{number:04}"))), at(0))
    status = faults.status()
    assert (status.standing, status.waiting) == (100, 3)
    state = kept_texts(faults)
    for second in (1, 2, 3):
        assert faults.next_due_ms() == second * 1000
        faults.step(at(second))
    assert (faults.status().standing, faults.status().waiting) == (103, 0)
    again = begun(kept=state, seconds=4)
    read(again, document("pub", fault_message(one("fault-0102"))), seconds=4)
    assert again.status().standing == 101, "of a document that waited the newest text counts"


def test_a_text_that_waits_has_not_counted() -> None:
    faults = begun()
    for number in range(102):
        faults.observe(0, MESSAGES, changed("pub", fault_message(one(f"fault-{number:04}"))), at(0))
    faults.step(at(1))
    assert (faults.status().standing, faults.status().waiting) == (101, 1)
    again = begun(kept=kept_texts(faults), seconds=2)
    read(again, document("pub", fault_message(one("fault-0101"))), seconds=2)
    assert again.status().standing == 102


def test_a_document_that_never_rests_is_read_as_it_is_now() -> None:
    faults = begun()
    for number in range(200):
        faults.observe(0, MESSAGES, changed("pub", fault_message(one(f"fault-{number:04}"))), at(0))
    assert (faults.status().waiting, faults.status().dropped) == (16, 84)
    for second in range(1, 17):
        faults.step(at(second))
    assert faults.status().waiting == 0
    (view,) = faults.views()
    assert view.data is not None
    assert "fault-0199" in view.data["PublicFaults"]


def test_a_document_counts_once() -> None:
    faults = begun()
    pub = document("pub", fault_message(one()))
    read(faults, pub)
    faults.send(fault_message(one(assertion="recover")), at(10))
    touched = replace(pub, annotations={"touched": "now"}, version="2")
    faults.observe(0, MESSAGES, Changed(touched), at(20))
    faults.observe(0, MESSAGES, Interrupted("why"), at(20))
    read(faults, touched, seconds=30)
    assert standing(faults) == {}
    faults.observe(0, MESSAGES, Deleted("default", "pub"), at(100))
    faults.observe(0, MESSAGES, Changed(pub), at(101))
    assert standing(faults) == SEPARATED


def test_documents_that_were_counted_are_not_counted_after_a_restart() -> None:
    faults = begun()
    message_1 = document("pub-1", fault_message(one(), at_ms=at(0).wall_ms))
    message_2 = document(
        "pub-2", fault_message(one("fault-0002", devices=(2,)), at_ms=at(0).wall_ms)
    )
    read(faults, message_1, message_2)
    faults.send(fault_message(one(assertion="recover"), at_ms=at(10).wall_ms), at(10))
    state = kept_texts(faults)
    again = begun(kept=state, seconds=100)
    assert standing(again).keys() == {"2"}, "before anything is read"
    assert begun(kept=state, seconds=20).pop_changed() == frozenset()
    message_3 = document("pub-3", fault_message(one("fault-0003", devices=(3,))))
    read(again, message_1, message_3, seconds=100)
    assert standing(again).keys() == {"2", "3"}
    state = kept_texts(again, state)
    third = begun(kept=state, seconds=200)
    read(third, message_1, message_2, message_3, seconds=200)
    assert standing(third).keys() == {"2", "3"}
    assert sum("pub-2" in text for text in kept_texts(third, state).values()) == 1


def test_of_several_documents_the_one_reported_last_holds() -> None:
    older = document("z", fault_message(one(), at_ms=at(-4000).wall_ms))
    newer = document("a", fault_message(one(assertion="recover"), at_ms=at(-2000).wall_ms))
    faults = begun()
    read(faults, newer, older)
    faults.step(at(6))
    assert standing(faults) == {}


def test_troubles_are_reported_once_and_when_they_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = begun()
    caplog.clear()
    for number in range(3):
        bad = document("pub", fault_message(one(code="999999999"), name=f"message-{number}"))
        faults.observe(0, MESSAGES, Changed(bad), at(number))
    faults.observe(0, MESSAGES, changed("pub", fault_message(one())), at(5))
    assert [record.getMessage() for record in caplog.records] == [
        "public faults in default/pub: refused: faults[0].faultCode: '999999999' is refused, and "
        "no other fault is left",
        "public faults in default/pub: everything is accepted again",
    ]
    assert faults.status().troubles == {}


def test_a_document_without_its_key_is_reported() -> None:
    faults = begun()
    data = {"publicfault": encode_public_fault(fault_message(one()))["PublicFault"]}
    read(faults, replace(document("pub", fault_message(one())), data=data))
    assert "the data key is missing" in faults.status().troubles["public faults in default/pub"]
