"""What outlives a process, a leader and a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.plugin import LAST
from aggregator.public_faults.plugin import MESSAGES, STATISTIC, PublicFaultsPlugin
from stores.base import Changed, Deleted, Document, DocumentsListed
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.public_faults.messages import (
    at,
    begun,
    document,
    fault_message,
    one,
    places,
    read,
    standing,
)
from tests.parts.examples import examples

SEPARATED = {"0": ("220001001", "SeparateNPU")}


def test_pending_messages_survive_a_restart() -> None:
    faults = begun(places("n1", synced=False))
    faults.send(fault_message(one("fault-0001"), one("fault-0002", devices=(1,))), at(0))
    state = kept_texts(faults)
    again = begun(places("n1"), state, seconds=1)
    assert standing(again).keys() == {"0", "1"}
    later = begun(places("n1"), kept_texts(again, state), seconds=2)
    assert standing(later).keys() == {"0", "1"}
    assert later.status().held == 0


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["occur", "recover", "once"]),
            st.sampled_from(["send", "a", "b"]),
            st.integers(0, 8000),
            st.booleans(),
        ),
        max_size=12,
    )
)
@examples(100)
def test_whatever_way_it_comes_the_newest_holds(
    history: list[tuple[str, str, int, bool]],
) -> None:
    """Send reports by gRPC or in one of two documents, with a restart after any of them, during
    which a document may change.
    """
    faults, state = begun(), dict[str, str]()
    texts: dict[str, Document] = {}
    clock_ms, stands = 0, False
    for number, (assertion, way, pause_ms, restarts) in enumerate(history):
        clock_ms += pause_ms
        now = at(clock_ms / 1000)
        message = fault_message(
            one(assertion=assertion), at_ms=now.wall_ms, name=f"message-{number}"
        )
        faults.step(now)
        if way == "send":
            faults.send(message, now)
        else:
            texts[way] = document(way, message)
            if not restarts:
                faults.observe(0, MESSAGES, Changed(texts[way]), now)
        stands = assertion == "occur" or (stands and assertion == "once")
        state = kept_texts(faults, state)
        if restarts:
            faults = begun(kept=state, seconds=clock_ms / 1000)
            read(faults, *texts.values(), seconds=clock_ms / 1000)
    faults.step(at(clock_ms / 1000 + 5))
    assert bool(standing(faults)) == stands


def test_a_follower_begins_where_the_leader_ended() -> None:
    """Cover a follower that has read the documents, but not the messages over gRPC."""
    leader, follower = begun(), PublicFaultsPlugin(places("n1", "n2"))
    follower.step(at(0))
    first = document("pub-1", fault_message(one()))
    for part in (leader, follower):
        read(part, first)
    leader.send(fault_message(one("fault-0002", devices=(1,))), at(1))
    leader.send(fault_message(one(assertion="recover")), at(10))
    state = kept_texts(leader)
    late = document("pub-2", fault_message(one("fault-0003", devices=(2,))))
    follower.observe(0, MESSAGES, Changed(late), at(11))
    assert standing(follower).keys() == {"0", "2"}
    assert follower.views() == ()
    assert list(follower.restore(state, at(20))) == []
    assert follower.pop_changed_nodes() == {"n1"}
    assert standing(follower).keys() == {"1", "2"}
    assert len(follower.views()) == 1
    assert kept_texts(follower, state).keys() >= state.keys()


def test_faults_in_the_document_of_upstream_are_adopted() -> None:
    left = {
        "PublicFaults": '{"n1":[{"resource":"CCAE","devIds":[0],"faultId":"fault-0001","type":"NPU"'
        ',"faultCode":"220001001","level":"SeparateNPU","faultTime":1760000123},'
        '{"resource":"CCAE","devIds":[1,99],"faultId":"fault-0002","type":"NPU",'
        '"faultCode":"900000009","level":"PreSeparateNPU","faultTime":1760000123},{}],'
        '"ghost":[{"resource":"CCAE","devIds":[3],"faultId":"fault-0001","type":"NPU",'
        '"faultCode":"220001001","level":"SeparateNPU","faultTime":1760000123}]}',
        "FaultNum": '{"publicFaultNum":3}',
    }
    faults = PublicFaultsPlugin(places("n1"), 2)
    faults.restore({}, at(0))
    listed = DocumentsListed((Document("cluster-system", "statistic-fault-info", left),))
    faults.observe(0, STATISTIC, listed, at(0))
    assert faults.views() == (), "another store may know more"
    assert LAST + "about" not in kept_texts(faults)
    faults.observe(1, STATISTIC, DocumentsListed(()), at(0))
    faults.step(at(0))
    assert standing(faults) == SEPARATED | {"1": ("900000009", "PreSeparateNPU")}
    state = kept_texts(faults)
    faults.send(fault_message(one(assertion="recover")), at(1))
    assert (
        faults.send(fault_message(one("fault-0002", "recover", code="900000009")), at(1)).code == 0
    )
    assert faults.send(fault_message(one("fault-0003", code="900000009")), at(1)).code == 409
    assert standing(faults) == {}
    again = begun(places("n1"), kept_texts(faults, state), seconds=10)
    again.observe(0, STATISTIC, listed, at(10))
    assert standing(again) == {}, "it has a state of its own"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ('"n1":[{"devIds":"0"},GOOD]', "PublicFaults.n1[0].devIds"),
        ('"n2":"x","n1":[GOOD]', "PublicFaults.n2 is not a list"),
        ('"n2":[7],"n1":[GOOD]', "PublicFaults.n2[0]"),
    ],
)
def test_a_wrong_entry_in_the_document_of_upstream_touches_no_other(
    caplog: pytest.LogCaptureFixture, wrong: str, text: str
) -> None:
    good = (
        '{"resource":"CCAE","devIds":[0],"faultId":"fault-0001","type":"NPU",'
        '"faultCode":"220001001","level":"SeparateNPU","faultTime":1760000123}'
    )
    left = {"PublicFaults": "{" + wrong.replace("GOOD", good) + "}"}
    faults = PublicFaultsPlugin(places("n1", "n2"))
    faults.restore({}, at(0))
    listed = DocumentsListed((Document("cluster-system", "statistic-fault-info", left),))
    faults.observe(0, STATISTIC, listed, at(0))
    faults.step(at(0))
    assert standing(faults) == SEPARATED
    assert text in caplog.text


def test_a_node_that_went_has_its_faults_for_a_day() -> None:
    known = places("n1", "n2")
    faults = begun(known)
    faults.send(fault_message(one()), at(0))
    faults.step(at(1))
    known.see_node("n1", None)
    known.see_report("n1", None)
    assert faults.next_due_ms() == 60_000
    faults.step(at(60))
    assert faults.status().away == {"n1": at(60).wall_ms}
    state = kept_texts(faults)
    back = places("n1", "n2")
    returned = begun(back, state, seconds=80_000)
    assert returned.status().away == {}
    assert standing(returned) == SEPARATED
    gone = begun(known, state, seconds=80_000)
    assert gone.status().standing == 1
    gone.step(at(86_399 + 60))
    assert gone.status().standing == 1
    assert gone.step(at(86_460 + 60)) == {"n1"}
    assert gone.status().standing == 0
    assert gone.status().away == {}


def test_a_fault_of_a_node_that_went_may_recover() -> None:
    known = places("n1")
    faults = begun(known)
    faults.send(fault_message(one()), at(0))
    known.see_node("n1", None)
    known.see_report("n1", None)
    assert faults.send(fault_message(one("fault-0002")), at(10)).code == 409
    assert faults.send(fault_message(one(assertion="recover")), at(10)).code == 0
    assert faults.status().standing == 0


def test_a_bucket_that_cannot_be_read_is_reported_and_the_others_count() -> None:
    names = [f"n{number}" for number in range(1, 20)]
    known = places(*names)
    faults = begun(known)
    for name in names:
        faults.send(fault_message(one(node=name)), at(0))
    state = kept_texts(faults)
    damaged = next(bucket for bucket in sorted(state) if bucket != LAST + "about")
    state[damaged] = state[damaged][:-5]
    again = PublicFaultsPlugin(known)
    (problem,) = again.restore(state, at(1))
    assert problem.startswith(damaged)
    assert 0 < again.status().standing < len(names)


def test_a_store_that_is_away_keeps_the_statistic_back_for_a_while_only() -> None:
    faults = PublicFaultsPlugin(places("n1"), 2)
    faults.restore({}, at(0))
    faults.observe(0, STATISTIC, DocumentsListed(()), at(0))
    faults.step(at(0))
    faults.send(fault_message(one()), at(1))
    faults.step(at(1))
    assert faults.views() == ()
    assert LAST + "about" not in kept_texts(faults)
    due = faults.next_due_ms()
    while due is not None and due < 30_000:
        faults.step(at(due / 1000))
        assert faults.views() == ()
        due = max(faults.next_due_ms() or 0, due + 1)
    faults.step(at(30))
    assert len(faults.views()) == 1
    assert LAST + "about" in kept_texts(faults)


def test_state_that_is_nested_too_deep_is_logged_and_harms_nothing_else() -> None:
    deep = '{"used":true,"x":' + "[" * 100_000
    faults = PublicFaultsPlugin(places("n1"))
    (problem,) = faults.restore({LAST + "about": deep}, at(0))
    assert problem.startswith(f"{LAST}about: ")
    assert faults.send(fault_message(one()), at(1)).code == 0


def test_a_text_that_a_document_had_briefly_is_applied_after_a_takeover() -> None:
    """Cover a leader that was killed before it had stored the text; now the document has another
    one.
    """
    leader, follower = begun(), begun()
    for part in (leader, follower):
        part.observe(0, MESSAGES, Changed(document("a", fault_message(one("fault-0001")))), at(1))
    state = kept_texts(leader)
    instants = [
        fault_message(one("fault-0002", devices=(1,)), at_ms=at(2).wall_ms),
        fault_message(one("fault-0003", devices=(2,)), at_ms=at(3).wall_ms),
    ]
    for number, message in enumerate(instants):
        follower.observe(0, MESSAGES, Changed(document("a", message)), at(2 + number))
    follower.observe(0, MESSAGES, Deleted("default", "a"), at(4))
    follower.restore(state, at(14))
    assert standing(follower).keys() == {"0", "1", "2"}


def test_an_ended_fault_does_not_come_back_with_a_brief_text() -> None:
    leader, follower = begun(), begun()
    for part in (leader, follower):
        occurs = fault_message(one("fault-0001"), one("fault-0002", "once", devices=(1,)))
        part.observe(0, MESSAGES, Changed(document("a", occurs)), at(1))
        part.observe(0, MESSAGES, Deleted("default", "a"), at(2))
    leader.send(fault_message(one("fault-0001", "recover"), at_ms=at(7).wall_ms), at(7))
    leader.step(at(8))
    follower.restore(kept_texts(leader), at(20))
    assert standing(follower) == {}
    follower.restore(kept_texts(leader), at(100))
    assert standing(follower) == {}
