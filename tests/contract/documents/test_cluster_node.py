"""Node-info and switch-info and their members of cluster-info: clusterd#E15 to E18 and E33."""

from __future__ import annotations

import json

import pytest

from contract.documents.cluster_info import member, pre_separate_node, pre_separate_switch, value_of
from contract.documents.node_info import (
    FaultDevice,
    decode_node_info,
    encode_node_info,
    render_node_entry,
)
from contract.documents.switch_info import (
    decode_switch_info,
    encode_switch_info,
    render_switch_entry,
)
from contract.errors import CheckCodeMismatch, DocumentError
from contract.names import NODE_INFO_PREFIX, SWITCH_INFO_PREFIX
from tests.contract.documents.node_documents import node_data
from tests.vectors import VECTORS

EXAMPLES: dict[str, dict[str, str]] = json.loads((VECTORS / "clusterd/examples.json").read_text())


def node_value(nodes: dict[str, dict[str, str]], in_use: dict[str, bool] | None = None) -> str:
    return value_of(
        member(
            NODE_INFO_PREFIX + node,
            render_node_entry(
                node, pre_separate_node(decode_node_info(node, data), (in_use or {}).get(node))
            ),
        )
        for node, data in sorted(nodes.items())
    )


def test_e15_node_info() -> None:
    nodes = {
        "node1": {"NodeInfo": EXAMPLES["E15"]["input"], "updateTime": "2026-01-02T03:04:05+08:00"},
        "node2": node_data(None, "Healthy", "bad"),
        "node3": node_data([], "Healthy"),
    }
    assert node_value(nodes) == EXAMPLES["E15"]["output"]


def test_e15_is_what_we_encode() -> None:
    devices = [FaultDevice("CPU", 1, ["00000001", "0000001D"], "SeparateFault")]
    data = encode_node_info(devices, "UnHealthy", "2026-01-02T03:04:05+08:00")
    assert data["NodeInfo"] == EXAMPLES["E15"]["input"]


def test_e16_node_pre_separation() -> None:
    psu = {
        "DeviceType": "PSU",
        "DeviceId": 1,
        "FaultCode": ["0300000D"],
        "FaultLevel": "PreSeparateFault",
    }
    cpu = {
        "DeviceType": "CPU",
        "DeviceId": 0,
        "FaultCode": ["00000001"],
        "FaultLevel": "NotHandleFault",
    }
    nodes = {
        "node1": node_data([psu, cpu], "PreSeparate"),
        "node2": node_data([psu], "PreSeparate"),
    }
    assert node_value(nodes, {"node1": False, "node2": True}) == EXAMPLES["E16"]["output"]
    assert '"NodeStatus":"PreSeparate"' in node_value({"node2": nodes["node2"]})


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        (None, "0e41611c88c69578c004cb930ce23dc99e68844eae5cbac1ea0b6a9f789bfaf0"),
        ([], "de38ed93b4fcbb7e7314695274a68ccf4aaece2c8fa2df361942d25731584886"),
    ],
)
def test_null_and_empty_lists_have_different_check_codes(devices: object, code: str) -> None:
    assert json.loads(node_data(devices, "Healthy")["NodeInfo"])["CheckCode"] == code
    assert decode_node_info("n", node_data(devices, "Healthy")).faults == ()


def test_e33_a_null_device_is_dropped_and_harms_no_other() -> None:
    data = {
        "NodeInfo": '{"NodeInfo":{"FaultDevList":[null],"NodeStatus":"Healthy"},"CheckCode":'
        '"841a062f26da678406c3c55e4cbeea2a46df4996471e36f138cbdc44414e7795"}'
    }
    assert render_node_entry("node1", decode_node_info("x", data)) == (
        '{"FaultDevList":null,"NodeStatus":"Healthy",'
        '"CmName":"mindx-dl-nodeinfo-node1","UpdateTime":0}'
    )


@pytest.mark.parametrize(
    ("codes", "written"), [("null", "null"), ("[]", "null"), ('["1"]', '["1"]')]
)
def test_codes_of_a_device(codes: str, written: str) -> None:
    device = {"DeviceType": "CPU", "DeviceId": 1, "FaultCode": json.loads(codes), "FaultLevel": ""}
    assert f'"FaultCode":{written}' in node_value({"n": node_data([device], "Healthy")})


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        ({}, DocumentError),
        ({"NodeInfo": "{"}, DocumentError),
        ({"NodeInfo": '{"NodeInfo":{"NodeStatus":1}}'}, DocumentError),
        ({"NodeInfo": "{}"}, CheckCodeMismatch),
    ],
)
def test_a_node_info_that_is_refused(data: dict[str, str], refused: type[DocumentError]) -> None:
    with pytest.raises(refused, match="mindx-dl-nodeinfo-n"):
        decode_node_info("mindx-dl-nodeinfo-n", data)


@pytest.mark.parametrize(
    "text", ["2026-13-01T00:00:00Z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "yesterday"]
)
def test_a_time_that_is_none_is_zero(text: str) -> None:
    assert decode_node_info("n", node_data(None, "Healthy", text)).update_time_ms == 0


def switch_value(nodes: dict[str, str], in_use: bool | None = None) -> str:
    members = []
    for node, text in sorted(nodes.items()):
        record = decode_switch_info(node, {"SwitchInfoCfg": text})
        assert record is not None
        entry = render_switch_entry(node, pre_separate_switch(record, in_use))
        members.append(member(SWITCH_INFO_PREFIX + node, entry))
    return value_of(members)


def test_e17_switch_info() -> None:
    first = EXAMPLES["E17"]["input"]
    healthy = (
        '{"FaultCode":[],"FaultLevel":"","UpdateTime":1760000000,"NodeStatus":"Healthy",'
        '"FaultTimeAndLevelMap":{}}'
    )
    third = first.replace('"FaultLevel":"Separate"', '"FaultLevel":"PreSeparate"').replace(
        '"UnHealthy"', '"PreSeparate"'
    )
    nodes = {"node1": first, "node2": healthy, "node3": third}
    assert switch_value(nodes, in_use=False) == EXAMPLES["E17"]["output"]


def test_e18_switch_without_map_then_a_bad_event() -> None:
    text = (
        '{"FaultCode":null,"FaultLevel":"NotHandle","UpdateTime":1760000000,"NodeStatus":"Healthy"}'
    )
    assert switch_value({"node2": text}) == EXAMPLES["E18"]["output"]
    bad = '{"FaultCode":["{\\"EventType\\":-1}"]}'
    with pytest.raises(DocumentError, match=r"FaultCode\[0\].*EventType"):
        decode_switch_info("node2", {"SwitchInfoCfg": bad})


def test_switch_data_comes_back() -> None:
    record = decode_switch_info("n", {"SwitchInfoCfg": EXAMPLES["E17"]["input"]})
    assert record is not None
    assert decode_switch_info("n", {"SwitchInfoCfg": encode_switch_info(record)}) == record
    assert decode_switch_info("n", {}) is None


def test_a_pre_separated_switch_follows_the_use_of_its_chips() -> None:
    record = decode_switch_info("n", {"SwitchInfoCfg": '{"FaultLevel":"PreSeparate"}'})
    assert record is not None
    assert pre_separate_switch(record, None) == record
    assert pre_separate_switch(record, True).status == "Healthy"
    assert pre_separate_switch(record, False).status == "UnHealthy"
