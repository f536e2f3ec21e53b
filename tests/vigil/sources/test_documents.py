"""What the verbs for people read from documents alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.documents.isolation_request import (
    ISOLATION_ANNOTATION,
    IsolationRequest,
    encode_requests,
)
from contract.documents.vigil_key import VIGIL_KEY, BlindSource, encode_vigil_key
from contract.errors import ConfigurationError
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    PUBLIC_FAULT_NAMESPACE,
    REPORT_LABEL,
)
from stores.base import Beat, Document
from tests.aggregator.nodes import T0, faulty, healthy, node_report, report
from tests.cluster.recorded import names, recorded
from tests.contract.documents.node_documents import config, fault
from tests.vigil.sources.recorded_documents import (
    cluster_info,
    contents,
    inputs,
    recorded_cluster_info,
)
from vigil.daemon_client import UnknownNode
from vigil.sources.document_report import explanation_of_documents, report_of_documents

if TYPE_CHECKING:
    from pathlib import Path

    from vigil.reports.status_report import StatusReport

_ADDRESS = "directory:/somewhere"
_PLACES = (
    (DEVICE_INFO_NAMESPACE, DEVICE_INFO_PREFIX),
    (NODE_INFO_NAMESPACE, NODE_INFO_PREFIX),
)
_MALFORMED = {"unsorted-lists-and-foreign-keys"}
"""What the real ClusterD published in it has blanks in lists, which readers do not trim."""


def reported(directory: Path, *documents: Document, **others: Any) -> StatusReport:
    return report_of_documents(contents(directory, *documents, **others), _ADDRESS, None)


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


@pytest.mark.parametrize("name", names())
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
    assert found.nodes.keys() >= expected
    shown = report_of_documents(found, _ADDRESS, None)
    assert sum(shown.counts["nodes"].values()) == len(found.nodes)
    assert bool(found.problems) == (name in _MALFORMED)


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
    assert found.counts["nodes"] == {"without device-info": 1}
    assert found.faults
    assert "there is no device-info: n1" in found.reasons


def test_a_broken_document_is_named_and_hides_no_other(tmp_path: Path) -> None:
    wrong = faulty() | {"DeviceInfoCfg": faulty()["DeviceInfoCfg"].replace("Ascend910-3", "x")}
    found = reported(
        tmp_path,
        report("n1", {"DeviceInfoCfg": "{"}),
        report("n2", wrong),
        report("n3", faulty()),
        cluster_info("cluster-info-device-0", "[]"),
    )
    assert found.counts["nodes"] == {"reported": 1, "unreadable": 2}
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
    assert list(found.nodes) == ["n1"]
    explained = explanation_of_documents(found, _ADDRESS, "n1", "3")
    assert explained.part == "Ascend910-3"
    (part,) = explained.parts
    assert part.because == ("reported as unhealthy", "published as unhealthy")
    assert {(one.fault.code, one.reported, one.published) for one in part.faults} == {
        ("80E18402", "RestartNPU", None),
        ("80000003", None, "RestartBusiness"),
    }
    whole = explanation_of_documents(found, _ADDRESS, "n1", "")
    assert whole.documents == ("cluster-info-device-0 has other faults than the node reports",)
    with pytest.raises(UnknownNode):
        explanation_of_documents(found, _ADDRESS, "n3", "")
    with pytest.raises(ConfigurationError, match="names this part"):
        explanation_of_documents(found, _ADDRESS, "n1", "16")


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
    found = contents(tmp_path, isolated)
    (part,) = explanation_of_documents(found, _ADDRESS, "n1", "3").parts
    assert [one.because for one in part.faults] == [
        ("alice@laptop (as stated) isolated it at 2025-10-09 08:53:20 UTC: HBM is replaced",)
    ]
