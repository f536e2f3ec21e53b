"""Messages at places of nodes: what names another node, or is of another kind, changes nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from aggregator.public_faults.plugin import MESSAGES, PublicFaultsPlugin
from aggregator.public_faults.values import PublicFaultReport, Rows, UnplacedFault
from contract.documents.public_fault import Influence, PublicFaultEntry, encode_public_fault
from contract.names import PUBLIC_FAULT_LABEL, owner_of
from stores.base import Changed, Deleted, Document, DocumentsListed
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.public_faults.messages import (
    REPORTED_MS,
    at,
    begun,
    document,
    fault_message,
    one,
    places,
    read,
    standing,
)

if TYPE_CHECKING:
    from contract.documents.public_fault import PublicFault

DPC, DTFS = "npu-vigil-dpc-fault-n1", "npu-vigil-dtfs-fault-n1"


@pytest.mark.parametrize(
    ("name", "node", "resource"),
    [
        (DPC, "n1", "dpcStorage"),
        ("npu-vigil-dtfs-fault-a.b", "a.b", "dtfsStorage"),
        ("mindx-dl-deviceinfo-n1", "n1", None),
        ("mindx-dl-nodeinfo-n1", "n1", None),
        ("npu-vigil-n1", "n1", None),
        ("npu-vigil-dpc-fault-dpc-fault-n1", "dpc-fault-n1", "dpcStorage"),
        ("npu-vigil-dtfs-fault-dpc-fault-n1", "dpc-fault-n1", "dtfsStorage"),
        ("mindx-dl-nodeinfo-dpc-fault-n1", "dpc-fault-n1", None),
        ("npu-vigil-dpc-faults", "dpc-faults", None),
        ("mindx-dl-deviceinfo--", "-", None),
    ],
)
def test_document_name_shows_its_node(name: str, node: str, resource: str | None) -> None:
    assert owner_of(name) == (node, resource)


@pytest.mark.parametrize("name", ["ccae", "npu-vigil", "mindx-dl-fault-config", "n1", ""])
def test_other_names_belong_to_no_node(name: str) -> None:
    assert owner_of(name) is None


def at_place(name: str, message: PublicFault, namespace: str = "mindx-dl") -> Changed:
    return Changed(document(name, message, namespace))


def storage(
    *faults: PublicFaultEntry, resource: str = "dpcStorage", at_ms: int = REPORTED_MS
) -> PublicFault:
    return fault_message(*faults, resource=resource, at_ms=at_ms)


def of_both(name: str = "fault-0001") -> PublicFaultEntry:
    """Return one fault on both nodes."""
    both = [Influence(node, "", [0, 1]) for node in ("n2", "n1")]
    return replace(one(name), influence=both)


ATTACKS = {
    "another node": (at_place(DPC, storage(one(node="n2"))), "other-node"),
    "another node of another kind": (
        at_place(DTFS, storage(one(node="n2"), resource="dtfsStorage")),
        "other-node",
    ),
    "a serial number": (
        at_place(DPC, storage(one(node="", serial_number="serial of n2"))),
        "other-node",
    ),
    "its own serial number": (
        at_place(DPC, storage(one(node="", serial_number="serial of n1"))),
        "other-node",
    ),
    "a node that does not exist": (at_place(DPC, storage(one(node="n9"))), "other-node"),
    "a hundred faults": (
        at_place(DPC, storage(*(one(f"fault-{n:04}", node="n2") for n in range(100)))),
        "other-node",
    ),
    "a fault that ends by itself": (
        at_place(DPC, storage(one(assertion="once", node="n2"))),
        "other-node",
    ),
    "the resource of its other place": (
        at_place(DPC, storage(one(), resource="dtfsStorage")),
        "other-resource",
    ),
    "a resource of others": (at_place(DPC, fault_message(one(node="n2"))), "other-resource"),
    "a resource that nobody knows": (
        at_place(DPC, fault_message(one(node="n2"), resource="nobody's")),
        "other-resource",
    ),
    "another namespace": (at_place(DPC, storage(one(node="n2")), "kube-system"), "other-node"),
} | {
    f"the name {name} in {namespace}": (
        at_place(name, fault_message(one(node="n2")), namespace),
        "other-kind",
    )
    for name, namespace in (
        ("mindx-dl-deviceinfo-n1", "mindx-dl"),
        ("mindx-dl-nodeinfo-n1", "mindx-dl"),
        ("npu-vigil-n1", "mindx-dl"),
        ("npu-vigil-n1", "kube-system"),
    )
}


def everything(faults: PublicFaultsPlugin) -> tuple[object, ...]:
    """Return what is published, kept, shown and counted of the faults that hold."""
    status = faults.status()
    return (
        *(standing(faults, node) for node in ("n1", "n2")),
        *(faults.standing(node) for node in ("n1", "n2", "n9")),
        kept_texts(faults),
        faults.views(),
        (status.standing, status.nodes, status.unplaced, status.held, status.absent, status.away),
    )


def own_documents() -> list[Document]:
    """Return documents of both nodes about themselves: a fault of each resource of storage."""
    found = []
    for node in ("n1", "n2"):
        for kind in ("dpc", "dtfs"):
            fault = one(f"own-{kind}-of-{node}", node=node, devices=(7,))
            message = storage(fault, resource=f"{kind}Storage")
            found.append(document(f"npu-vigil-{kind}-fault-{node}", message, "mindx-dl"))
    return found


def write_own(faults: PublicFaultsPlugin) -> None:
    """Write these documents."""
    for each in own_documents():
        faults.observe(0, MESSAGES, Changed(each), at(0))


def with_faults() -> PublicFaultsPlugin:
    """Return a plugin that has applied and kept these documents."""
    faults = begun()
    write_own(faults)
    kept_texts(faults)
    assert faults.status().standing == 4
    return faults


@pytest.mark.parametrize(("event", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
def test_foreign_reports_in_a_document_of_one_node_change_nothing(
    event: Changed, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults = with_faults()
    before = everything(faults)
    place = f"{event.document.namespace}/{event.document.name}"
    for second in range(3):
        faults.observe(0, MESSAGES, event, at(second))
        faults.step(at(second))
        assert everything(faults) == before
    (refused,) = faults.rejections.now(0)
    assert (refused.place, refused.reason) == (place, reason)
    assert faults.rejections.counts == {(0, reason): 1}
    assert caplog.text.count(f"public faults in {place}: refused") == 1
    assert f"public faults in {place}" in faults.status().troubles
    faults.observe(0, MESSAGES, Deleted(event.document.namespace, event.document.name), at(3))
    assert faults.rejections.now(0) == ()
    assert everything(faults)[:5] == before[:5]


@pytest.mark.parametrize("resource", ["dpcStorage", "dtfsStorage", "CCAE"])
def test_a_node_ends_no_fault_of_another(resource: str) -> None:
    faults = with_faults()
    before = everything(faults)
    names = [f"own-{kind}-of-n2" for kind in ("dpc", "dtfs")]
    ends = [one(name, "recover", node="n2", devices=(7,)) for name in names]
    later = storage(*ends, resource=resource, at_ms=REPORTED_MS + 1000)
    for name in (DPC, DTFS, "mindx-dl-deviceinfo-n1"):
        faults.observe(0, MESSAGES, at_place(name, later), at(10))
        faults.step(at(20))
        assert everything(faults) == before


def test_of_a_message_about_both_the_own_part_counts(caplog: pytest.LogCaptureFixture) -> None:
    faults = begun()
    mixed = storage(one("fault-0002", node="n2"), of_both(), one("fault-0003", devices=(3,)))
    faults.observe(0, MESSAGES, at_place(DPC, mixed), at(0))
    assert standing(faults, "n1").keys() == {"0", "1", "3"}
    assert standing(faults, "n2") == {}
    assert "is about 'n2'; a document of node 'n1' counts for that node only" in caplog.text
    assert faults.rejections.counts == {(0, "other-node"): 1}
    caplog.set_level(logging.INFO)
    good = storage(one("fault-0004", devices=(4,)), at_ms=REPORTED_MS + 1)
    faults.observe(0, MESSAGES, at_place(DPC, good), at(1))
    assert standing(faults, "n1").keys() == {"0", "1", "3", "4"}
    assert faults.rejections.now(0) == ()
    assert f"public faults in mindx-dl/{DPC}: everything is accepted again" in caplog.text


def test_reports_that_wait_for_the_node_list_are_checked_for_ownership_too() -> None:
    known = places("n1", "n2", synced=False)
    faults = begun(known)
    faults.observe(0, MESSAGES, at_place(DPC, storage(of_both())), at(0))
    known.synced = True
    faults.step(at(2))
    faults.step(at(4))
    assert standing(faults, "n1").keys() == {"0", "1"}
    assert standing(faults, "n2") == {}


def test_faults_of_a_node_to_come_are_not_kept() -> None:
    known = places("n1")
    faults = begun(known)
    faults.observe(0, MESSAGES, at_place(DPC, storage(one(node="n9"))), at(0))
    assert faults.status().absent == 0


def test_foreign_state_of_an_earlier_release_does_not_count() -> None:
    report = PublicFaultReport(
        "n9",
        "",
        "dpcStorage",
        "fault-0001",
        "NPU",
        "220001001",
        "occur",
        (0,),
        1,
        REPORTED_MS,
        REPORTED_MS,
    )
    rows = Rows()
    for number, (place, node) in enumerate(
        [("mindx-dl/" + DPC, "n9"), ("default/ccae", "n9"), ("mindx-dl/" + DPC, "n1")]
    ):
        one_report = replace(report, node=node, fault_id=f"fault-{number:04}")
        row = (node, "", report.resource, one_report.fault_id)
        rows.put("absent", row, UnplacedFault(one_report, place, "digest", True))
    faults = begun(places("n2"), kept_texts(rows))
    assert faults.status().absent == 2


def test_after_a_restart_it_is_refused_again_and_what_was_good_stays() -> None:
    faults = begun()
    write_own(faults)
    attack = document(DPC, storage(one(node="n2")), "mindx-dl")
    faults.observe(0, MESSAGES, Changed(attack), at(0))
    state = kept_texts(faults)
    again = begun(kept=state, seconds=1)
    own = [each for each in own_documents() if each.name != DPC]
    read(again, attack, *own, seconds=1)
    assert [again.standing(node) for node in ("n1", "n2")] == [
        faults.standing(node) for node in ("n1", "n2")
    ]
    assert again.rejections.counts == {(0, "other-node"): 1}


def test_good_and_bad_texts_in_turn_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = begun()
    for number in range(500):
        node = ("n1", "n2")[number % 2]
        message = storage(one("fault-0001", node=node), at_ms=REPORTED_MS + number)
        faults.observe(0, MESSAGES, at_place(DPC, message), at(number / 100))
    lines = [one for one in caplog.records if DPC in one.getMessage()]
    assert 0 < len(lines) <= 10
    assert faults.rejections.counts == {(0, "other-node"): 250}
    assert standing(faults, "n2") == {}


def test_other_names_may_name_every_node() -> None:
    faults = begun()
    for namespace in ("default", "mindx-dl"):
        message = fault_message(of_both(f"fault-of-{namespace}"), resource="dpcStorage")
        faults.observe(0, MESSAGES, at_place("ccae", message, namespace), at(0))
    assert standing(faults, "n2").keys() == {"0", "1"}
    assert faults.status().standing == 4
    assert faults.rejections.now(0) == ()


def test_only_namespaces_that_are_named_count(caplog: pytest.LogCaptureFixture) -> None:
    faults = begun(namespaces=("mindx-dl", "cluster-system"))
    theirs = [document(f"d-{n}", fault_message(one(f"fault-{n:04}")), "tenant") for n in range(3)]
    ours = document("ccae", fault_message(one("fault-0009", devices=(5,))), "mindx-dl")
    read(faults, *theirs, ours)
    for _ in range(3):
        for each in theirs:
            faults.observe(0, MESSAGES, Changed(each), at(0))
    assert standing(faults).keys() == {"5"}
    assert faults.status().documents == 1
    assert faults.namespaces.counts == {0: 3}
    (left,) = faults.namespaces.refused(0)
    assert (left.place, left.reason) == ("tenant", "namespace")
    assert "3 documents with public faults left out" in left.what
    assert caplog.text.count("public faults in namespace tenant are left out") == 1
    assert "public_faults.namespaces names only mindx-dl, cluster-system" in caplog.text
    faults.observe(0, MESSAGES, Deleted("tenant", "d-0"), at(0))
    faults.observe(0, MESSAGES, DocumentsListed((theirs[1], ours)), at(0))
    assert "1 document" in faults.namespaces.refused(0)[0].what
    faults.observe(0, MESSAGES, DocumentsListed((ours,)), at(0))
    assert faults.namespaces.refused(0) == ()
    assert standing(faults).keys() == {"5"}


def test_namespaces_without_end_fill_neither_log_nor_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = begun(namespaces=("mindx-dl",))
    data, labels = encode_public_fault(fault_message(one())), dict([PUBLIC_FAULT_LABEL])
    for number in range(12_000):
        event = Changed(Document(f"tenant-{number // 10}", f"d-{number}", data, labels))
        faults.observe(0, MESSAGES, event, at(0))
    assert faults.namespaces.counts == {0: 12_000}
    assert len(faults.namespaces.refused(0)) == 1000
    assert caplog.text.count("left out") == 101
    faults.observe(0, MESSAGES, DocumentsListed(()), at(0))
    assert faults.namespaces.refused(0) == ()
