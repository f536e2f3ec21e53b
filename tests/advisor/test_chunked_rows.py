"""Rows in chunks are a sequence as any other, and those that follow do not change them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import layered_dict
from advisor.layered_dict import ChunkedRows


@given(
    st.lists(st.integers(), max_size=20),
    st.dictionaries(st.integers(0, 19), st.integers()),
    st.integers(1, 7),
)
def test_it_is_a_sequence(rows: list[int], others: dict[int, int], size: int) -> None:
    others = {place: row for place, row in others.items() if place < len(rows)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layered_dict, "_CHUNK_ROWS", size)
        before = ChunkedRows(rows)
        after = before.replaced(others)
        expected = [others.get(place, row) for place, row in enumerate(rows)]
        for found, plain in ((before, rows), (after, expected)):
            assert (list(found), len(found)) == (plain, len(plain))
            assert found == ChunkedRows(plain)
            assert found == tuple(plain)
            assert [found[at] for at in range(-len(plain), len(plain))] == plain + plain
            assert found[1:3] == tuple(plain[1:3])
            assert repr(found) == f"ChunkedRows({plain!r})"
            for place in (len(plain), -len(plain) - 1):
                with pytest.raises(IndexError):
                    found[place]
        assert (before == after) == (rows == expected)
