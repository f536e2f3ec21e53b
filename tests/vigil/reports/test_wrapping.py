"""Lines of a width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.parts.verbs import columns_of
from vigil.reports.wrapping import wrapped


def test_a_path_that_is_too_long_begins_a_line() -> None:
    assert wrapped("answered by: (unix:/var/lib/npu-vigil/agent.sock)", 30) == [
        "answered by:",
        "    (unix:/var/lib/npu-vigil/a",
        "    gent.sock)",
    ]


def test_characters_of_two_columns_are_counted_so() -> None:
    lines = wrapped("网口Link状态变化，Up->Down", 13)
    assert "".join(line.strip() for line in lines) == "网口Link状态变化，Up->Down"
    assert max(map(columns_of, lines)) <= 13


@given(st.text(st.sampled_from("a 网口，-\ufdd0\u0301"), max_size=60), st.integers(12, 40))
def test_no_line_is_longer_and_no_word_is_lost(text: str, columns: int) -> None:
    lines = wrapped(text, columns, "  ", "    ")
    assert max(map(columns_of, lines)) <= columns
    assert "".join("".join(lines).split()) == "".join(text.replace("\ufdd0", "?").split())
