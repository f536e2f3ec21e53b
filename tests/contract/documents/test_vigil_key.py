"""Our own data key: its form, its bounds, and what its reader refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.documents.vigil_key import (
    MAX_BYTES,
    VIGIL_KEY,
    BlindSource,
    FaultAnswer,
    VigilRecord,
    decode_vigil_key,
    encode_vigil_key,
)
from contract.errors import DocumentError

CHIP = BlindSource("chip-faults", 1_795_000_000_000, "the call hangs", 3)
NODE = BlindSource("bmc", 1_795_000_000_001, "no answer")


def test_blind_sources_are_encoded_as_readers_expect() -> None:
    text = encode_vigil_key([NODE, CHIP])
    assert text is not None
    assert text == (
        '{"version":1,"blind":['
        '{"source":"bmc","since_ms":1795000000001,"why":"no answer"},'
        '{"source":"chip-faults","since_ms":1795000000000,"why":"the call hangs","chip":3}]}'
    )
    assert decode_vigil_key(text, "doc") == VigilRecord(1, (NODE, CHIP))


def test_the_time_of_the_last_change_is_written_where_it_is_known() -> None:
    text = encode_vigil_key([CHIP], 1_795_000_000_009)
    assert text is not None
    assert text.endswith('"chip":3}],"changed_at_ms":1795000000009}')
    assert decode_vigil_key(text, "doc").changed_at_ms == 1_795_000_000_009


def test_with_nothing_to_report_there_is_no_key() -> None:
    assert encode_vigil_key([]) is None


def test_answers_about_faults_are_written_behind_what_is_blind() -> None:
    answers = (
        FaultAnswer(3, "81078603", "minor", device_fault=True),
        FaultAnswer(4, "80E01801"),
    )
    text = encode_vigil_key([], 0, answers)
    assert text == (
        '{"version":1,"faults":['
        '{"chip":3,"code":"81078603","severity":"minor","device_fault":true},'
        '{"chip":4,"code":"80E01801"}]}'
    )
    assert decode_vigil_key(text, "doc") == VigilRecord(1, faults=answers)
    both = encode_vigil_key([CHIP], 7, answers)
    assert both is not None
    assert decode_vigil_key(both, "doc") == VigilRecord(1, (CHIP,), 0, 7, answers)


def test_answers_have_the_room_that_is_left() -> None:
    many = [FaultAnswer(3, f"{number:08X}", "critical") for number in range(5000)]
    for blind in ([], [NODE] * 100):
        text = encode_vigil_key(blind, 0, many)
        assert text is not None
        assert MAX_BYTES - 400 < len(text.encode()) <= MAX_BYTES
        record = decode_vigil_key(text, "doc")
        assert len(record.blind) == len(blind)
        assert record.faults == tuple(many[: len(record.faults)])


def test_sources_without_room_are_counted() -> None:
    many = [BlindSource("links", 1, "x" * 5000, chip) for chip in range(200)]
    text = encode_vigil_key(many)
    assert text is not None
    assert len(text.encode()) <= MAX_BYTES
    record = decode_vigil_key(text, "doc")
    assert len(record.blind) > 40
    assert len(record.blind) + record.left_out == 200
    assert [one.chip for one in record.blind] == list(range(len(record.blind)))
    assert all(one.why.endswith("xxx...") for one in record.blind)


@given(st.lists(st.text(), max_size=300))
def test_any_reason_is_written_within_the_bounds_and_read_again(reasons: list[str]) -> None:
    blind = [BlindSource("storage DPC", 1, why, number) for number, why in enumerate(reasons)]
    text = encode_vigil_key(blind)
    if text is None:
        assert not reasons
        return
    record = decode_vigil_key(text, "doc")
    assert len(text.encode()) <= MAX_BYTES
    assert len(record.blind) + record.left_out == len(reasons)


def test_members_that_this_release_does_not_know_are_ignored() -> None:
    text = json.dumps(
        {
            "version": 1,
            "blind": [{"source": "links", "since_ms": 5, "chip": 1, "later": {}}],
            "later": [{"chip": 1}],
        }
    )
    assert decode_vigil_key(text, "doc") == VigilRecord(1, (BlindSource("links", 5, "", 1),))
    assert decode_vigil_key('{"version":1}', "doc") == VigilRecord(1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not JSON: it is cut off"),
        ("[]", "must be an object"),
        ("{}", "version: is missing"),
        ('{"version":"1"}', "must be an integer, is a text"),
        ('{"version":2,"blind":"anything"}', "is of version 2, this release reads version 1"),
        ('{"version":1,"blind":{}}', "must be an array, is an object"),
        ('{"version":1,"blind":[{"source":"","since_ms":1}]}', "of length at least 1"),
        ('{"version":1,"blind":[{"source":"x"}]}', "since_ms"),
        ('{"version":1,"blind":[{"source":"x","since_ms":-1}]}', "of at least 0"),
        ('{"version":1,"blind":[{"source":"x","since_ms":1e300}]}', "int"),
        ('{"version":1,"blind":[{"source":"x","since_ms":1,"chip":-1}]}', "of at least 0"),
        ('{"version":1,"blind":[{"source":"x","since_ms":1,"chip":true}]}', "must be "),
        ('{"version":1,"left_out":-1}', "of at least 0"),
        ('{"version":1,"faults":[{"chip":1}]}', "code"),
        ('{"version":1,"faults":[{"chip":1,"code":"8"}]}', "of length at least 8"),
        ('{"version":1,"faults":[{"chip":1,"code":"80E01801","severity":"bad"}]}', "that matches"),
        ('{"version":1,"blind":' + "[" * 4000, "nested too deeply|cut off"),
        ('{"version":1,"more":"' + "x" * MAX_BYTES + '"}', "bytes, more than 16384"),
        ('{"version":1,"blind":[{"source":"\ud800","since_ms":1}]}', None),
    ],
)
def test_malformed_key_is_refused_by_name(text: str, what: str | None) -> None:
    if what is None:
        assert decode_vigil_key(text, "doc").blind[0].source == "?"
        return
    with pytest.raises(DocumentError, match=what) as refused:
        decode_vigil_key(text, "doc")
    assert VIGIL_KEY in str(refused.value)
