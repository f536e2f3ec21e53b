"""JSON as Go writes it: the quick encoder and the one for any text write the same."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.go.encode import encode

_LIBRARY = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_SURROGATES = range(0xD800, 0xE000)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def _expected(text: str) -> str:
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@pytest.mark.slow
def test_each_character_is_written_as_the_library_writes_it() -> None:
    characters = "".join(chr(n) for n in range(sys.maxunicode + 1) if n not in _SURROGATES)
    assert encode({characters: characters}) == _expected(_LIBRARY({characters: characters}))


@given(_VALUES)
def test_any_value_is_written_as_the_library_writes_it(value: Any) -> None:
    assert encode(value) == _expected(_LIBRARY(value))


def test_a_lone_surrogate_is_replaced_and_nothing_else_differs() -> None:
    assert encode(["a<\ud800é", 2**70, None]) == '["a\\u003c\ufffdé",1180591620717411303424,null]'
