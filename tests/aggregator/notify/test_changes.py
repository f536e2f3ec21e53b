"""What changes in what is published, fault by fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aggregator.cluster_documents.published_node import PublishedNode
from aggregator.notify.changes import ChangeDetector
from contract.documents.node_info import FaultDevice, NodeRecord
from contract.documents.switch_info import SwitchEvent, SwitchRecord
from contract.pages.changes import STATUS, FaultChange
from tests.aggregator.nodes import T0, faulty, healthy, record

if TYPE_CHECKING:
    from collections.abc import Sequence

CODE = "[0x00f1ff09,155913,cpu,na]"


def test_a_chip_fault_begins_changes_and_ends() -> None:
    changes = ChangeDetector()
    assert changes.observe_node("n1", PublishedNode(record(healthy()), None, None), 1) == ()
    began = changes.observe_node("n1", PublishedNode(record(faulty(3)), None, None), 2)
    assert began == (FaultChange("n1", 2, "Ascend910-3", "80E18402", None, "RestartNPU"),)
    assert changes.observe_node("n1", PublishedNode(record(faulty(3, T0 + 9)), None, None), 3) == ()
    moved = changes.observe_node("n1", PublishedNode(record(faulty(4)), None, None), 4)
    assert moved == (
        FaultChange("n1", 4, "Ascend910-3", "80E18402", "RestartNPU", None),
        FaultChange("n1", 4, "Ascend910-4", "80E18402", None, "RestartNPU"),
    )
    ended = changes.observe_node("n1", PublishedNode(None, None, None), 5)
    assert ended == (FaultChange("n1", 5, "Ascend910-4", "80E18402", "RestartNPU", None),)


def test_switches_and_the_server_have_their_codes_and_their_status() -> None:
    event = SwitchEvent(assembled_fault_code=CODE, switch_chip_id=2, switch_port_id=7)
    switch = SwitchRecord(
        (event,), "Separate", T0, "UnHealthy", ((f"{CODE}_2_7", T0, "NotHandle"),)
    )
    part = FaultDevice("Fan", 4, ["06000025"], "PreSeparateFault")
    server = NodeRecord((part,), "PreSeparate", T0 * 1000)
    changes = ChangeDetector()
    assert changes.observe_node("n1", PublishedNode(None, switch, server), 1) == (
        FaultChange("n1", 1, "Fan 4", "06000025", None, "PreSeparateFault"),
        FaultChange("n1", 1, "node", STATUS, None, "PreSeparate"),
        FaultChange("n1", 1, "switch 2 port 7", CODE, None, "NotHandle"),
        FaultChange("n1", 1, "switches", STATUS, None, "UnHealthy"),
    )
    worse = NodeRecord((part,), "UnHealthy", T0 * 1000)
    assert changes.observe_node("n1", PublishedNode(None, switch, worse), 2) == (
        FaultChange("n1", 2, "node", STATUS, "PreSeparate", "UnHealthy"),
    )


def test_entries_of_an_earlier_run_are_no_change() -> None:
    changes = ChangeDetector()
    earlier = record(faulty(3))
    changes.seed("n1", PublishedNode(record(healthy()), None, None), earlier.faults)
    assert changes.observe_node("n1", PublishedNode(record(faulty(3)), None, None), 1) == ()
    assert len(changes.observe_node("n1", PublishedNode(record(healthy()), None, None), 2)) == 1


@given(st.lists(st.sampled_from([None, 1, 2, 3]), max_size=8))
def test_all_changes_together_lead_to_what_is_published(chips: Sequence[int | None]) -> None:
    changes, known = ChangeDetector(), dict[tuple[str, str], str]()
    for at_ms, chip in enumerate(chips):
        published = PublishedNode(record(healthy() if chip is None else faulty(chip)), None, None)
        for one in changes.observe_node("n1", published, at_ms):
            assert known.get((one.subject, one.code)) == one.was
            if one.level is None:
                del known[one.subject, one.code]
            else:
                known[one.subject, one.code] = one.level
        assert known == ({} if chip is None else {(f"Ascend910-{chip}", "80E18402"): "RestartNPU"})
