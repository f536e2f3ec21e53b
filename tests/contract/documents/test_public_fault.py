"""Messages about public faults: the worked examples, and what a reader refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from contract.codes.catalogue import shipped, shipped_levels
from contract.codes.storage_faults import CODES, RESOURCES, fault_id, resource_of
from contract.documents.public_fault import (
    DATA_KEY,
    Influence,
    PublicFault,
    PublicFaultEntry,
    accepting,
    decode_public_fault,
    encode_public_fault,
)
from contract.errors import DocumentError
from pacing.cooperative import run_to_completion

CHIPS = "[0,1,2,3,4,5,6,7]"


def text(resource: str, at_ms: int, uuid_end: str, *faults: tuple[str, str, str]) -> str:
    """Return a message as Go writes it (``docs/spec/noded.md#9.4``)."""
    listed = ",".join(
        f'{{"faultId":"{name}","faultType":"Node","faultCode":"{code}","faultTime":{at_ms},'
        f'"assertion":"{assertion}","faultLocation":{{}},"influence":[{{"nodeName":"node-1",'
        f'"nodeSN":"","deviceIds":{CHIPS}}}],"description":""}}'
        for name, code, assertion in faults
    )
    return (
        f'{{"id":"6f1c9d3e-0b7a-4e0e-9d0a-3f2b1c4d5e{uuid_end}","timestamp":{at_ms},'
        f'"version":"1.0","resource":"{resource}","faults":[{listed}]}}'
    )


IDS = {
    "110001020": "f509db1b08a9b5ab75798e820c2ec8e990d6c08cf62d95187eb7998747a8df3e",
    "110001021": "9a33f32f446d027474f47adec322664bacd520535f09a17701e970b0ebe74e8c",
    "110001022": "6ecf2726103ddd5c80cbbd5d4bf7448dd78bcbc30dad703b813c04aa48ed023a",
    "110001023": "a29c32bcebbf2e52198db43537409f99027dcfc7ef9c1199c6cb2212cec9052e",
}


@dataclass(frozen=True)
class Example:
    """A worked example, and what it reports."""

    text: str
    assertions: tuple[tuple[str, str], ...]


EXAMPLES = {
    "P1": Example(
        text(
            "dpcStorage",
            1767225600123,
            "6f",
            (IDS["110001020"], "110001020", "recover"),
            (IDS["110001021"], "110001021", "recover"),
        ),
        (("110001020", "recover"), ("110001021", "recover")),
    ),
    "P2": Example(
        text("dpcStorage", 1767225605123, "72", (IDS["110001020"], "110001020", "occur")),
        (("110001020", "occur"),),
    ),
    "P4": Example(
        text("dtfsStorage", 1767225600456, "70", (IDS["110001023"], "110001023", "occur")),
        (("110001023", "occur"),),
    ),
}


def taken(message: PublicFault) -> tuple[PublicFaultEntry, ...]:
    faults, _ = run_to_completion(
        accepting(
            message,
            "cm",
            codes=shipped().public_levels,
            resources=shipped_levels().public_resources,
            is_serial="serial-1".__eq__,
            ending=(),
        )
    )
    return faults


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    example = EXAMPLES[name]
    message = decode_public_fault("cm", {DATA_KEY: example.text})
    assertions = tuple((fault.fault_code, fault.assertion) for fault in taken(message))
    assert assertions == example.assertions
    assert encode_public_fault(message) == {DATA_KEY: example.text}


def test_ids_of_storage_faults() -> None:
    assert {code: fault_id("node-1", code) for codes in CODES.values() for code in codes} == IDS
    assert {resource_of(code) for code in CODES["DPC"]} == {"dpcStorage"}
    assert {resource_of(code) for code in CODES["DTFS"]} == {"dtfsStorage"}
    assert set(RESOURCES.values()) <= set(shipped_levels().public_resources)
    levels = {str(shipped().public_levels[code]) for code in CODES["DPC"]}
    assert levels == {"SubHealthFault"}
    levels = {str(shipped().public_levels[code]) for code in CODES["DTFS"]}
    assert levels == {"PreSeparateNPU"}


GOOD_FAULT = PublicFaultEntry(
    "fault-id",
    "Node",
    "110001020",
    1_767_225_600_000,
    "occur",
    influence=[Influence("node-1", "", [0])],
)
GOOD = PublicFault("message-id", 1_767_225_600_000, "1.0", "dpcStorage", [GOOD_FAULT])


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("id", ["", "1234567", "x" * 129, "message-id\n", "message/id", "mëssage-id"]),
        ("timestamp", [0, -1, 1_735_689_599_999, 10_000_000_000_000]),
        ("version", ["", "1", "1.0 ", "2.0"]),
        ("resource", ["", "DPCSTORAGE", "others"]),
        ("faults", [None, [], [GOOD_FAULT] * 101]),
    ],
)
def test_messages_that_are_refused_whole(member: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(DocumentError, match=f"cm: {member}: .* is refused"):
            taken(replace(GOOD, **{member: value}))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x" * 8},
        {"id": "aZ9-_." * 21},
        {"timestamp": 1_735_689_600_000},
        {"timestamp": 9_999_999_999_999},
        {"faults": [GOOD_FAULT] * 100},
    ],
)
def test_messages_at_their_limits(change: dict[str, object]) -> None:
    assert taken(replace(GOOD, **change))


def about(**change: object) -> dict[str, object]:
    return {"influence": [replace(Influence("node-1", "", [0]), **change)]}


BAD: list[tuple[str, dict[str, object]]] = [
    ("faultId", {"fault_id": "short"}),
    ("faultType", {"fault_type": "node"}),
    ("faultType", {"fault_type": ""}),
    ("faultCode", {"fault_code": "11000102"}),
    ("faultCode", {"fault_code": "110001999"}),
    ("faultTime", {"fault_time": 1_767_225_600}),
    ("assertion", {"assertion": "Occur"}),
    ("faultLocation", {"fault_location": {str(number): "" for number in range(11)}}),
    ("faultLocation", {"fault_location": {"k" * 17: ""}}),
    ("faultLocation", {"fault_location": {"é" * 9: ""}}),
    ("faultLocation", {"fault_location": {"k": "v" * 129}}),
    ("influence", {"influence": None}),
    ("influence", {"influence": [Influence("node-1", "", [0])] * 1001}),
    (r"influence\[0\]", about(node_name="Node")),
    (r"influence\[0\]", about(node_name="-node")),
    (r"influence\[0\]", about(node_name="x" * 254)),
    (r"influence\[0\]", about(node_name="")),
    (r"influence\[0\]", about(node_name="", node_sn="unknown")),
    (r"influence\[0\].deviceIds", about(device_ids=[])),
    (r"influence\[0\].deviceIds", about(device_ids=[1, 1])),
    (r"influence\[0\].deviceIds", about(device_ids=[-1])),
    (r"influence\[0\].deviceIds", about(device_ids=[32])),
    (r"influence\[0\].deviceIds", about(device_ids=list(range(33)))),
    ("description", {"description": "two\nlines"}),
    ("description", {"description": "tab\t"}),
    ("description", {"description": "x" * 513}),
]


@pytest.mark.parametrize(("where", "change"), BAD)
def test_a_bad_fault_is_dropped_alone(where: str, change: dict[str, object]) -> None:
    bad = replace(GOOD_FAULT, **change)
    with pytest.raises(DocumentError, match=rf"faults\[0\]\.{where}: "):
        taken(replace(GOOD, faults=[bad]))
    assert taken(replace(GOOD, faults=[bad, GOOD_FAULT])) == (GOOD_FAULT,)


@pytest.mark.parametrize(
    "change",
    [
        {"fault_location": {str(number): "v" * 128 for number in range(10)}},
        {"fault_location": {"k" * 16: ""}},
        about(device_ids=list(range(32))),
        about(node_name="", node_sn="serial-1"),
        about(node_name="1.node-x"),
        {"description": "with blanks, \v and \u00a0" + "ü" * 400},
        {"fault_type": "Storage", "assertion": "once"},
    ],
)
def test_faults_at_their_limits(change: dict[str, object]) -> None:
    assert taken(replace(GOOD, faults=[replace(GOOD_FAULT, **change)]))


@pytest.mark.parametrize("content", [{}, {DATA_KEY: ""}, {DATA_KEY: "[]"}, {DATA_KEY: "{"}])
def test_data_that_is_no_message_is_refused(content: dict[str, str]) -> None:
    with pytest.raises(DocumentError):
        decode_public_fault("cm", content)


def test_a_message_is_read_as_go_reads_it() -> None:
    tree = json.loads(EXAMPLES["P2"].text)
    tree["Version"] = tree.pop("version")
    tree["unknown"] = 1
    tree["faults"][0]["influence"][0]["nodeSN"] = None
    message = decode_public_fault("cm", {DATA_KEY: json.dumps(tree)})
    assert len(taken(message)) == 1
