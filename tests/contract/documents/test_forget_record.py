"""The record by which an operator ends a node on a broker or in a directory."""

from __future__ import annotations

import pytest

from contract.documents.forget_record import (
    FORGET_KEY,
    ForgetRecord,
    decode_forget_record,
    encode_forget_record,
    forget_record_name,
)
from contract.errors import DocumentError

_RECORD = ForgetRecord("node-1", 1_700_000_000_123, "root on admin-1")
_NAME = forget_record_name("node-1")


def test_a_record_is_read_as_it_was_written() -> None:
    assert _NAME == "npu-vigil-forget-node-1"
    data = encode_forget_record(_RECORD)
    assert data == {FORGET_KEY: '{"node":"node-1","at_ms":1700000000123,"by":"root on admin-1"}'}
    assert decode_forget_record(_NAME, data) == _RECORD


def test_members_of_later_releases_are_ignored() -> None:
    text = '{"node":"node-1","at_ms":1,"by":"","why":"moved"}'
    assert decode_forget_record(_NAME, {FORGET_KEY: text}) == ForgetRecord("node-1", 1, "")


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        (_NAME, {}, "is missing"),
        (_NAME, {FORGET_KEY: "{"}, "cut off"),
        (_NAME, {FORGET_KEY: '{"node":"node-1","at_ms":"1","by":""}'}, "at_ms"),
        (_NAME, {FORGET_KEY: '{"node":"Node","at_ms":1,"by":""}'}, "node name"),
        ("npu-vigil-forget-b", encode_forget_record(_RECORD), "not of this name"),
        (_NAME, {FORGET_KEY: " " * 5000}, "5000 characters"),
    ],
)
def test_invalid_record_is_refused_with_its_reason(
    name: str, data: dict[str, str], why: str
) -> None:
    with pytest.raises(DocumentError, match=why):
        decode_forget_record(name, data)
