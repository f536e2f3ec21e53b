"""What the verbs for people read from documents alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aggregator.merge.pipeline import LOST_ANNOTATION
from aggregator.processors.frequent_fault_separation import Separated
from aggregator.processors.state import PersistedNode, bucket_of_node, encode_bucket
from contract.codes.reference import CodeKind
from contract.documents.cluster_device import device_record, render_device_entry
from contract.documents.device_info import decode as decode_device_info
from contract.documents.isolation_request import (
    ISOLATION_ANNOTATION,
    IsolationRequest,
    encode_requests,
)
from contract.documents.node_info import NodeRecord, render_node_entry
from contract.documents.vigil_key import VIGIL_KEY, BlindSource, encode_vigil_key
from contract.errors import ConfigurationError
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    PUBLIC_FAULT_NAMESPACE,
    REPORT_LABEL,
    STATE_KEY,
    STATE_LABEL,
    STATE_NAMESPACE,
    STATE_PREFIX,
    device_info_name,
    node_info_name,
)
from stores.base import Beat, Document
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.nodes import T0, faulty, healthy, node_report, report
from tests.aggregator.public_faults import messages
from tests.cluster.recorded import names, recorded
from tests.contract.documents.node_documents import config, fault
from tests.parts.examples import mostly_slow
from tests.vigil.sources.recorded_documents import (
    cluster_info,
    contents,
    inputs,
    recorded_cluster_info,
)
from vigil.daemon_client import UnknownNode
from vigil.sources.document_answers import DocumentAnswers

if TYPE_CHECKING:
    from pathlib import Path

    from vigil.reports.explanation import PartExplanation
    from vigil.reports.status_report import StatusReport

_ADDRESS = "directory:/somewhere"
_PLACES = (
    (DEVICE_INFO_NAMESPACE, DEVICE_INFO_PREFIX),
    (NODE_INFO_NAMESPACE, NODE_INFO_PREFIX),
)
_MALFORMED = {"unsorted-lists-and-foreign-keys"}
"""What the real ClusterD published in it has blanks in lists, which readers do not trim."""


def reported(directory: Path, *documents: Document, **others: Any) -> StatusReport:
    return DocumentAnswers(contents(directory, *documents, **others), _ADDRESS).report()


def test_a_fault_is_shown_with_its_level_time_and_severity(tmp_path: Path) -> None:
    found = reported(tmp_path, report("n1", faulty()), report("n2", healthy()))
    (row,) = found.faults
    assert (row.node, row.part, row.code, row.level) == (
        "n1",
        "Ascend910-3",
        "80E18402",
        "RestartNPU",
    )
    assert row.since_ms == T0 * 1000
    assert row.severity == "critical"
    assert row.jobs
    assert found.counts == {"nodes": {"reported": 2}, "chips": {"RestartNPU": 1, "NormalNPU": 15}}
    assert not found.well
    assert found.reasons == ("1 part at RestartNPU: n1 Ascend910-3",)


def test_without_faults_nothing_is_called_well(tmp_path: Path) -> None:
    found = reported(tmp_path, report("n1", healthy()))
    assert (found.well, found.reasons) == (False, ())
    assert found.not_known == (
        "whether agents are alive, and whether these documents are current",
        "which jobs are hit, why a fault has its level, who leads",
        "what the scheduler reads: there is no cluster-info",
        "which sources are blind on n1",
    )


def test_no_document_at_all_is_not_well_either(tmp_path: Path) -> None:
    found = reported(tmp_path)
    assert not found.well
    assert found.counts == {"nodes": {}, "chips": {}}


def test_documents_of_a_real_clusterd_are_read(tmp_path: Path) -> None:
    published = recorded_cluster_info("every-fault-level", "cluster-info-device-0")
    found = reported(tmp_path, published, *inputs("every-fault-level").values())
    assert found.not_known[-1] == "which sources are blind on n1"
    levels = {row.part: row.level for row in found.faults}
    assert levels["Ascend910-0"] == "NotHandleFault"
    assert levels["Ascend910-5"] == "RestartNPU"
    assert not any(row.withheld for row in found.faults)


@pytest.mark.parametrize("name", mostly_slow(names(), 6))
def test_whatever_the_real_clusterd_read_and_wrote_is_shown(name: str, tmp_path: Path) -> None:
    outputs = {
        one["name"]: cluster_info(one["name"], one["data"][one["name"]])
        for one in recorded(name)["observed"]
        if one.get("name", "").startswith("cluster-info-") and one["name"] in one.get("data", {})
    }
    given = {key: one for key, one in inputs(name).items() if "NNNN" not in key}
    found = contents(tmp_path, *given.values(), *outputs.values())
    label = dict([REPORT_LABEL]).items()
    expected = {
        one.name.removeprefix(prefix)
        for one in given.values()
        for namespace, prefix in _PLACES
        if one.namespace == namespace
        and one.name.startswith(prefix)
        and label <= one.labels.items()
    }
    shown = DocumentAnswers(found, _ADDRESS).report()
    assert sum(shown.counts["nodes"].values()) >= len(expected)
    problems = [text for text in shown.reasons if text.startswith("cluster-info")]
    assert bool(problems) == (name in _MALFORMED)


def test_a_fault_that_is_not_published_is_withheld(tmp_path: Path) -> None:
    published = recorded_cluster_info("one-healthy-node", "cluster-info-device-0")
    found = reported(
        tmp_path, published, report("n1", config([fault(3, "RestartNPU", "80E18402")]))
    )
    (row,) = found.faults
    assert row.withheld


def test_a_fault_that_only_cluster_info_has_is_shown(tmp_path: Path) -> None:
    published = recorded_cluster_info("every-fault-level", "cluster-info-device-0")
    found = reported(tmp_path, published)
    assert found.counts["nodes"] == {"unreported": 1}
    assert found.faults
    assert "device-info is unreported: n1" in found.reasons


def test_a_broken_document_is_named_and_hides_no_other(tmp_path: Path) -> None:
    wrong = faulty() | {"DeviceInfoCfg": faulty()["DeviceInfoCfg"].replace("Ascend910-3", "x")}
    found = reported(
        tmp_path,
        report("n1", {"DeviceInfoCfg": "{"}),
        report("n2", wrong),
        report("n3", faulty()),
        cluster_info("cluster-info-device-0", "[]"),
    )
    assert found.counts["nodes"] == {"reported": 1, "rejected": 2}
    assert [row.node for row in found.faults] == ["n3"]
    assert found.reasons[0].startswith("cluster-info-device-0: ")
    assert found.reasons[1].startswith("n1: mindx-dl-deviceinfo-n1: ")
    assert "CheckCode" in found.reasons[2]


def test_server_switch_and_blind_sources_are_shown(tmp_path: Path) -> None:
    switch = inputs("switch-info-each-level", "AssembledFaultCode")["mindx-dl-deviceinfo-n1"]
    server = inputs("node-info-each-status")["mindx-dl-nodeinfo-n1"]
    key = encode_vigil_key([BlindSource("bmc", T0 * 1000, "no answer", 3)])
    assert key is not None
    blind = report("n2", healthy() | {VIGIL_KEY: key})
    found = reported(tmp_path, switch, server, blind)
    assert {row.kind.value for row in found.faults} == {"switch", "node"}
    (row,) = found.blind
    assert (row.node, row.part, row.source) == ("n2", "Ascend910-3", "bmc")
    assert found.reasons[-1] == "no answer from bmc of n2 Ascend910-3"


def test_a_heartbeat_shows_that_nothing_is_blind(tmp_path: Path) -> None:
    beat = Beat("n1", "host", 5.0, T0 * 1000 - 3_600_000, blind=False)
    found = reported(tmp_path, report("n1", healthy()), beats=(beat,))
    assert not any("blind" in text for text in found.not_known)


def test_one_node_is_read_by_its_names(tmp_path: Path) -> None:
    found = contents(
        tmp_path,
        report("n1", faulty()),
        report("n2", faulty()),
        node_report("n1", [], "Healthy"),
        recorded_cluster_info("every-fault-level", "cluster-info-device-0"),
        node="n1",
    )
    answers = DocumentAnswers(found, _ADDRESS, "n1")
    explained = answers.explanation("3")
    assert explained.part == "Ascend910-3"
    (part,) = explained.parts
    assert part.because == ("the node reports: unhealthy",)
    assert {(one.fault.code, one.reported, one.published) for one in part.faults} == {
        ("80E18402", "RestartNPU", None),
        ("80000003", None, "RestartBusiness"),
    }
    whole = answers.explanation("")
    assert whole.documents == ("cluster-info-device-0 has other faults than the node reports",)
    with pytest.raises(UnknownNode):
        DocumentAnswers(found, _ADDRESS, "n3")
    with pytest.raises(ConfigurationError, match="names this part"):
        answers.explanation("16")


def test_other_documents_are_not_read(tmp_path: Path) -> None:
    public = Document(
        PUBLIC_FAULT_NAMESPACE, "pub-a", {"x": "{"}, {"mc-consumer-publicfault": "true"}
    )
    foreign = Document("elsewhere", "mindx-dl-deviceinfo-n9", {}, {"mx-consumer-cim": "true"})
    found = reported(tmp_path, public, foreign)
    assert found.counts["nodes"] == {}


def test_documents_show_who_isolated_a_chip(tmp_path: Path) -> None:
    document = report("n1", config([fault(3, "ManuallySeparateNPU", "")], unhealthy=(3,)))
    request = IsolationRequest("alice@laptop", T0 * 1000, "HBM is replaced")
    annotations = {ISOLATION_ANNOTATION: encode_requests({"Ascend910-3": request})}
    isolated = msgspec.structs.replace(document, annotations=annotations)
    found = contents(tmp_path, isolated, node="n1")
    (part,) = DocumentAnswers(found, _ADDRESS, "n1").explanation("3").parts
    assert [one.because for one in part.faults] == [
        ("alice@laptop (as stated) isolated it at 2025-10-09 08:53:20 UTC: HBM is replaced",)
    ]


def state_of(plugin: str, bucket: str, text: str) -> Document:
    """Return a document of the state that an aggregator keeps."""
    name = f"{STATE_PREFIX}{plugin}-{bucket}"
    return Document(STATE_NAMESPACE, name, {STATE_KEY: text}, {STATE_LABEL: plugin})


def explained_chip(directory: Path, *documents: Document) -> PartExplanation:
    found = contents(directory, *documents, node="n1")
    (part,) = DocumentAnswers(found, _ADDRESS, "n1").explanation("3").parts
    return part


def published(node: str, data: dict[str, str], number: int = 0, stamp: int = T0) -> Document:
    """Return a document of cluster-info with what this device-info leads to."""
    info = decode_device_info(data, node)
    entry = render_device_entry(node, device_record(info), stamp)
    name = f"cluster-info-device-{number}"
    return cluster_info(name, f"{{{json.dumps(device_info_name(node))}:{entry}}}")


def test_kept_state_explains_what_an_aggregator_did(tmp_path: Path) -> None:
    separated = config([fault(3, "ManuallySeparateNPU", "ManuallySeparateNPU")], unhealthy=(3,))
    state = PersistedNode(separated={"Ascend910-3": Separated({"80E18402": T0 * 1000})})
    text, _ = encode_bucket({"n1": state})
    assert text is not None
    part = explained_chip(
        tmp_path,
        report("n1", healthy()),
        published("n1", separated),
        state_of("processing", bucket_of_node("n1"), text),
    )
    (explained,) = part.faults
    assert (explained.reported, explained.published) == (None, "ManuallySeparateNPU")
    assert explained.because[0].startswith("in manual separation, because 3 times within 24 h came")
    assert part.because == ("the node reports: available. The aggregator publishes: unhealthy",)


def test_the_program_that_reports_a_public_fault_is_named(tmp_path: Path) -> None:
    plugin = messages.begun()
    plugin.send(messages.fault_message(messages.one(devices=(3,))), messages.at(1))
    info = device_record(decode_device_info(healthy(), "n1"))
    record = plugin.add_public_faults("n1", info, messages.at(1))
    key = json.dumps(device_info_name("n1"))
    document = cluster_info(
        "cluster-info-device-0", f"{{{key}:{render_device_entry('n1', record, T0)}}}"
    )
    texts = kept_texts(plugin)
    states = [state_of("public-faults", bucket, text) for bucket, text in texts.items()]
    part = explained_chip(tmp_path, report("n1", healthy()), document, *states)
    (explained,) = part.faults
    assert explained.fault.kind is CodeKind.PUBLIC
    assert explained.because[0].startswith("a public fault of CCAE (fault-0001)")
    (explained,) = explained_chip(tmp_path / "other", report("n1", healthy()), document).faults
    assert explained.because == ("a public fault of a program that is not known here",)


def test_without_state_no_time_of_a_withheld_fault_is_made_up(tmp_path: Path) -> None:
    part = explained_chip(tmp_path, report("n1", faulty()), published("n1", healthy()))
    (explained,) = part.faults
    assert explained.because == ("the node reports it; it is not published yet",)
    assert explained.fault.withheld
    assert explained.until_ms is None


def test_where_nothing_is_published_nothing_is_withheld(tmp_path: Path) -> None:
    (explained,) = explained_chip(tmp_path, report("n1", faulty())).faults
    assert (explained.reported, explained.published) == ("RestartNPU", None)
    assert not explained.fault.withheld


@pytest.mark.parametrize("later", [0, 1])
def test_of_a_node_in_two_documents_the_later_entry_counts(tmp_path: Path, later: int) -> None:
    documents = [
        report("n1", faulty()),
        published("n1", faulty(), later, T0 + 1),
        published("n1", healthy(), 1 - later),
    ]
    found = contents(tmp_path, *documents, node="n1")
    explained = DocumentAnswers(found, _ADDRESS, "n1").explanation("")
    ((fault_of_chip,),) = [part.faults for part in explained.parts]
    assert fault_of_chip.published == "RestartNPU"
    assert explained.documents == (
        f"cluster-info-device-{later} has the faults that the node reports",
    )


def test_a_node_is_lost_only_where_cluster_info_has_it_so(tmp_path: Path) -> None:
    entry = render_node_entry("n1", NodeRecord((), "UnHealthy", 0))
    document = cluster_info(
        "cluster-info-node-cm", f"{{{json.dumps(node_info_name('n1'))}:{entry}}}"
    )
    lost = msgspec.structs.replace(document, annotations={LOST_ANNOTATION: "n1"})
    beats = tuple(Beat(name, "host", 5.0, 0, blind=False) for name in ("n1", "n2"))
    found = reported(tmp_path, lost, report("n2", healthy()), beats=beats)
    assert "the heartbeat is lost: n1" in found.reasons
    whole = contents(tmp_path, node="n1")
    assert "its heartbeat fell silent: it is lost, and published UnHealthy for that" in (
        DocumentAnswers(whole, _ADDRESS, "n1").explanation("").because
    )
    assert not any("n2" in reason for reason in found.reasons)
    whole = contents(tmp_path, node="n2")
    because = DocumentAnswers(whole, _ADDRESS, "n2").explanation("").because
    assert "whether it is alive is unknown: one look at its heartbeat shows no change of it" in (
        because
    )
