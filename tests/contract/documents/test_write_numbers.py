"""The key about writes in heartbeats: its text, its size, and what is no such key."""

from __future__ import annotations

import pytest

from contract.documents.write_numbers import (
    KINDS,
    MAX_BYTES,
    NoWrites,
    decode_owned,
    decode_writes,
    encode_writes,
)

LATEST = 253_402_300_799


def test_it_names_each_document_and_the_number_of_its_last_write() -> None:
    numbers = {"device-info": 1_764_000_000, "node-info": -1_764_000_001}
    text = encode_writes(numbers)
    assert text == '{"version":1,"device-info":1764000000,"node-info":-1764000001}'
    assert decode_writes(text) == numbers


def test_no_document_is_no_key() -> None:
    assert encode_writes({}) == ""


def test_the_longest_one_has_160_bytes_with_its_name() -> None:
    text = encode_writes(dict.fromkeys(KINDS, -LATEST), whole=True)
    assert len(text) <= MAX_BYTES
    assert len("npu-vigil/writes") + MAX_BYTES <= 160
    assert decode_writes(text) == dict.fromkeys(KINDS, -LATEST)


def test_documents_without_a_write_are_named_and_have_no_number() -> None:
    text = encode_writes({"device-info": 0, "node-info": -7}, whole=True)
    assert text == '{"version":1,"device-info":0,"node-info":-7,"whole":true}'
    assert decode_writes(text) == {"node-info": -7}
    assert decode_owned(text) == frozenset({"device-info", "node-info"})
    assert decode_owned(encode_writes({}, whole=True)) == frozenset()


def test_the_key_of_the_release_before_does_not_name_what_its_agent_owns() -> None:
    assert decode_owned('{"version":1,"device-info":7}') is None


def test_members_that_are_not_known_are_ignored() -> None:
    text = '{"version":1,"node-info":5,"advice":"none","more":{}}'
    assert decode_writes(text) == {"node-info": 5}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("\ud800", "not a JSON object"),
        ('{"version":2,"device-info":1}', "version 2, this release reads version 1"),
        ('{"device-info":1}', "version None"),
        ('{"version":1,"device-info":"7"}', "the number of device-info is '7'"),
        ('{"version":1,"device-info":true}', "the number of device-info is True"),
        ('{"version":1,"device-info":1.5}', "the number of device-info is 1.5"),
        ('{"version":1,"device-info":999999999999999}', "the number of device-info"),
        ('{"version":1}' + " " * MAX_BYTES, "has 157 characters, more than 144"),
        ("[" * 144, "not a JSON object"),
    ],
)
def test_invalid_key_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(NoWrites, match=why):
        decode_writes(text)
