"""The reference of fault codes: complete, honest about its sources, and borne out by the tables."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.codes.catalogue import read_table, shipped
from contract.codes.dpu_codes import DPU_CODES, dpu_code, public_code
from contract.codes.host_codes import HOST_CODES, HostCode
from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel
from contract.codes.reference import CodeKind, CodeReference, all_codes, describe_code, level_texts
from tests.contract.codes_document import CHINESE, ENGLISH, Edition, document

FIELDS = {*CodeReference.__struct_fields__} - {"code", "kind", "rules", "known", "follows"}
PATTERNS = {
    "27/0": "heartbeat",
    "C0/0": "fault|exception|abnormal|error",
    "C0/1": "reset fail",
    "C0/2": "input error",
    "C0/3": "software config",
    "C0/4": "config",
    "C0/5": "parity|check error",
    "C0/8": "multi-bit ECC",
    "C0/9": "bus",
    "C0/A": "time ?out|times out",
    "C3/5": "lane",
}


def test_every_code_of_the_tables_is_described() -> None:
    kinds = Counter(one.kind for one in all_codes())
    node = 59 + len(HOST_CODES)
    assert kinds == {"chip": 802, "switch": 30, "node": node, "public": 30, "dpu": 5}
    for one in all_codes():
        assert one.summary, one.code
        assert one.component, one.code
        assert one.effect, one.code
        assert one.remedy, one.code


def test_each_field_that_is_given_has_one_source_and_no_other_has() -> None:
    for one in all_codes():
        given_fields = {name for name in FIELDS if getattr(one, name)}
        assert not set(one.known) & set(one.follows), one.code
        assert set(one.known) | set(one.follows) == given_fields, one.code


def test_a_name_is_the_vendors_or_missing() -> None:
    facts = shipped().facts
    for one in all_codes():
        row = facts.get(one.code)
        check = HOST_CODES.get(one.code) or DPU_CODES.get(one.code)
        name_zh = check.name_zh if isinstance(check, HostCode) else row.name_zh if row else ""
        assert one.name_zh == name_zh, one.code
        assert one.name_en == (row.name_en if row else check.name if check else ""), one.code
        assert "name_en" not in one.follows
        assert "name_zh" not in one.follows
    english = Counter(one.kind for one in all_codes() if one.name_en)
    node = 54 + len(HOST_CODES)
    assert english == {"chip": 186, "switch": 16, "node": node, "public": 21, "dpu": 5}
    chinese = Counter(one.kind for one in all_codes() if one.name_zh)
    assert chinese == {"chip": 191, "switch": 16, "node": 54 + len(HOST_CODES), "public": 30}


def test_the_meaning_of_a_state_is_that_of_codes_with_names() -> None:
    assert set(PATTERNS) == set(read_table("reference.json", dict)["states"])
    named: dict[str, list[str]] = {}
    for code, row in shipped().facts.items():
        if row.name_en and row.component == "NPU":
            number = int(code, 16)
            key = f"{(number >> 9) & 0xFF:02X}/{number & 0x1FF:X}"
            named.setdefault(key, []).append(row.name_en)
    for key, pattern in PATTERNS.items():
        names = named[key]
        fitting = [name for name in names if re.search(pattern, name, re.IGNORECASE)]
        assert len(names) >= 3, key
        assert len(fitting) >= 0.75 * len(names), (key, set(names) - set(fitting))


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        (CodeKind.CHIP, sorted(set(ChipLevel) - {ChipLevel.NORMAL_NPU})),
        (CodeKind.SWITCH, list(SwitchLevel)),
        (CodeKind.NODE, list(NodeLevel)),
    ],
)
def test_every_level_has_its_text(kind: CodeKind, levels: list[str]) -> None:
    assert set(level_texts(kind)) == set(levels)


def test_summary_of_a_code_without_a_name_follows_from_its_bits() -> None:
    unnamed = describe_code("814F8008")
    assert unnamed is not None
    assert unnamed.name_en == ""
    assert unnamed.summary == "ISP: multi-bit ECC error, raised by the chip"


def test_a_link_that_is_down_names_what_raises_its_level() -> None:
    link = describe_code("0x81078603")
    assert link is not None
    assert link.rules == (
        "The level rises to PreSeparateNPU when the fault holds for more than 20 seconds. It falls "
        "again when the fault has been gone for 1 minute.",
        "The chip is at ManuallySeparateNPU when the fault occurs 5 times in 24 hours, until the "
        "fault has been gone for 48 hours.",
    )


def test_a_switch_code_is_taken_apart() -> None:
    port = describe_code("[0x08520003,na,cpu,na]")
    assert port is not None
    assert port.level == "Separate"
    assert port.summary == "Forwarding chip port down error"


def test_a_port_without_a_name_of_the_vendor_is_described_by_its_code() -> None:
    port = describe_code("[0x00f1fef5,155913,cpu,na]")
    assert port is not None
    assert port.name_en == ""
    assert port.name_zh == ""
    assert port.summary == "Switch: port unstable (to the CPU)"
    assert port.follows["summary"] == "docs/spec/dcmi.md#6"


def test_the_first_digit_of_a_public_code_is_its_component() -> None:
    components = {one.code[0]: one.component for one in all_codes() if one.kind == "public"}
    assert components == {"0": "NPU", "1": "Server", "2": "Network", "3": "Storage"}
    storage = describe_code("310001005")
    assert storage is not None
    assert storage.name_en == "DPC client failure"
    assert storage.known["name_en"] == "MindCluster 26.x, guide to fault levels, table 5"
    assert storage.follows["component"] == "docs/spec/clusterd.md#4.5"
    unnamed = describe_code("120001001")
    assert unnamed is not None
    assert unnamed.name_en == ""
    assert unnamed.summary == "Server: public fault, described by the program that reports it"


@given(st.text())
def test_any_text_is_a_code_or_none(text: str) -> None:
    found = describe_code(text)
    assert found is None or found.code in text.upper() or found.code in text


@pytest.mark.parametrize("edition", [ENGLISH, CHINESE], ids=lambda edition: edition.path.name)
def test_the_document_is_made_of_the_tables(edition: Edition) -> None:
    assert edition.path.read_text(encoding="utf-8") == document(edition), (
        "run python -m tests.contract.codes_document"
    )


def test_codes_of_dpus_are_read_back_from_public_faults() -> None:
    assert [dpu_code(public_code(code)) for code in DPU_CODES] == list(DPU_CODES)
    others = ["021000021", "121000022", "21000022", "0", ""]
    assert [dpu_code(code) for code in others] == others
