"""Node-info of all releases: the known answers of the specification, and which one a document is.

What an old consumer verifies is computed here a second time, by itself: text that is put together
by hand and hashed.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.documents.node_info import (
    FaultDevice,
    Generation,
    NodeBeat,
    decode_node_info,
    encode_beating_node_info,
    encode_node_beat,
    encode_node_info,
)
from contract.errors import CheckCodeMismatch, DocumentError
from contract.go import encode as go_json

CPU = FaultDevice("CPU", 1, ["00000011"], "SeparateFault")
MEMORY = FaultDevice("Memory", 5, ["01000017"], "PreSeparateFault")
BEAT = NodeBeat(1710907679, 5)

H1 = (
    '{"NodeInfo":{"HeartbeatTime":1703836707,"HeartbeatInterval":5},'
    '"CheckCode":"b97046b8b889ef5b58caaf9e2a861398edf6389302f6826e4abfcc56822a4571"}'
)
H2 = (
    '{"NodeInfo":{"FaultDevList":[],"HeartbeatTime":1710907679,"HeartbeatInterval":5,'
    '"NodeStatus":"Healthy"},'
    '"CheckCode":"b6fecc184864543130ab37083fe79e1bfb1f006671c5315dcdc8dde4789dd9eb"}'
)
H3 = (
    '{"NodeInfo":{"FaultDevList":[{"DeviceType":"CPU","DeviceId":1,"FaultCode":["00000011"],'
    '"FaultLevel":"SeparateFault"}],"HeartbeatTime":1710907679,"HeartbeatInterval":5,'
    '"NodeStatus":"UnHealthy"},'
    '"CheckCode":"3a2934c3cb875f2256c770c75a6fdf24594fcf64481ac6cd0d0f74b8fea88855"}'
)
H4 = (
    '{"NodeInfo":{"FaultDevList":[{"DeviceType":"Memory","DeviceId":5,"FaultCode":["01000017"],'
    '"FaultLevel":"PreSeparateFault"}],"HeartbeatTime":1735000000,"HeartbeatInterval":5,'
    '"NodeStatus":"PreSeparate"},'
    '"CheckCode":"1ff56334e8c3b672eecd97ea65422d3f6a3f1e1eeedb976041ebfcb647314b4b"}'
)
H5 = H2.replace(
    "b6fecc184864543130ab37083fe79e1bfb1f006671c5315dcdc8dde4789dd9eb",
    "de38ed93b4fcbb7e7314695274a68ccf4aaece2c8fa2df361942d25731584886",
)
K2 = "ade0c5676e5fb5a070232c70f0903c0b166f2a222fdf66e4f8361ba9b61e4269"
K3 = "4c97cddcb947bd707778eb50b0986a69768afc2ef3e4f351db0b92e9d07d1fed"


def read(text: str) -> tuple[Generation, NodeBeat | None, tuple[FaultDevice, ...], str]:
    found = decode_node_info("n", {"NodeInfo": text})
    return found.generation, found.beat, found.faults, found.status


@pytest.mark.parametrize(
    ("example", "data"),
    [
        (H1, encode_node_beat(NodeBeat(1703836707, 5))),
        (H2, encode_beating_node_info([], "Healthy", BEAT)),
        (H3, encode_beating_node_info([CPU], "UnHealthy", BEAT)),
        (H4, encode_beating_node_info([MEMORY], "PreSeparate", NodeBeat(1735000000, 5))),
    ],
    ids=["H1", "H2", "H3", "H4"],
)
def test_each_generation_is_encoded_as_its_example(example: str, data: dict[str, str]) -> None:
    assert data == {"NodeInfo": example}, "to the byte, and without updateTime"


def test_each_example_is_read_as_its_own_generation() -> None:
    assert read(H1) == (Generation.B, NodeBeat(1703836707, 5), (), "")
    assert read(H2) == (Generation.C, BEAT, (), "Healthy")
    assert read(H3) == (Generation.C, BEAT, (CPU,), "UnHealthy")
    assert read(H4) == (Generation.C, NodeBeat(1735000000, 5), (MEMORY,), "PreSeparate")
    # The heartbeat of the hybrid is not signed: for ClusterD it is none.
    assert read(H5) == (Generation.D, None, (), "Healthy")


def test_a_document_with_a_heartbeat_is_as_old_as_that() -> None:
    for text, seconds in ((H1, 1703836707), (H3, 1710907679)):
        assert decode_node_info("n", {"NodeInfo": text}).update_time_ms == seconds * 1000
    timed = {"NodeInfo": H3, "updateTime": "2026-01-01T08:00:00Z"}
    assert decode_node_info("n", timed).update_time_ms == 1767254400000
    strange = encode_beating_node_info([], "Healthy", NodeBeat(2**63 - 1, 5))
    assert decode_node_info("n", strange).update_time_ms == 0


def test_known_answers_of_the_hash() -> None:
    inner = '{"FaultDevList":null,"HeartbeatTime":0,"HeartbeatInterval":1,"NodeStatus":""}'
    assert hashlib.sha256(inner.encode()).hexdigest() == K2
    found = read(f'{{"NodeInfo":{inner},"CheckCode":"{K2}"}}')
    assert found == (Generation.C, NodeBeat(0, 1), (), "")
    assert read(f'{{"NodeInfo":{{}},"CheckCode":"{K3}"}}') == (Generation.D, None, (), "")
    assert go_json.check_code({"FaultDevList": None, "NodeStatus": ""}) == K3


@pytest.mark.parametrize("text", [H1, H2, H3, H4, H5])
def test_changed_content_is_refused(text: str) -> None:
    with pytest.raises(CheckCodeMismatch):
        read(
            text.replace('"HeartbeatInterval":5', '"HeartbeatInterval":6').replace(
                '"NodeStatus":"Healthy"', '"NodeStatus":"UnHealthy"'
            )
        )
    with pytest.raises(DocumentError):
        read(text.replace('"HeartbeatTime":1', '"HeartbeatTime":1.'))


def test_members_of_a_heartbeat_are_read_as_go_reads_them() -> None:
    # One that is missing or null is 0; names match without regard to case, the last one counts.
    for members in (
        '"heartbeattime":7',
        '"HeartbeatTime":1,"HeartbeatTime":7',
        '"HeartbeatTime":7,"HeartbeatInterval":null',
    ):
        code = hashlib.sha256(b'{"HeartbeatTime":7,"HeartbeatInterval":0}').hexdigest()
        text = f'{{"NodeInfo":{{{members}}},"CheckCode":"{code}"}}'
        assert read(text) == (Generation.B, NodeBeat(7, 0), (), "")


names = st.text(st.characters(codec="utf-8"), max_size=6)
devices = st.builds(
    FaultDevice,
    names,
    st.integers(0, 255),
    st.lists(st.sampled_from(["00000011", "2C000031"]), min_size=1, max_size=2),
    names,
)
beats = st.builds(NodeBeat, st.integers(0, 2**62), st.integers(1, 300))


@given(st.lists(devices, max_size=3), names, beats)
def test_encoded_documents_are_decoded_to_the_same(
    faults: list[FaultDevice], status: str, beat: NodeBeat
) -> None:
    for data, generation in (
        (encode_beating_node_info(faults, status, beat), Generation.C),
        (encode_node_beat(beat), Generation.B),
        (encode_node_info(faults, status, "2026-01-01T08:00:00Z"), Generation.D),
    ):
        text = data["NodeInfo"]
        found = decode_node_info("n", data)
        assert found.generation is generation
        assert found.beat == (None if generation is Generation.D else beat)
        if generation is not Generation.B:
            assert (list(found.faults), found.status) == (faults, status)
        # As the consumer of that generation does it.
        inner = text[len('{"NodeInfo":') : text.rindex(',"CheckCode":')]
        assert hashlib.sha256(inner.encode()).hexdigest() == json.loads(text)["CheckCode"]
