"""A dictionary in two layers and rows in chunks are as any others; copies do not change them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import layered_dict
from advisor.layered_dict import ChunkedRows, LayeredDict, as_dict, layered

_KEYS = st.sampled_from([f"n{number}" for number in range(12)])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _KEYS, st.integers()),
        st.tuples(st.just("del"), _KEYS, st.none()),
        st.tuples(st.just("copy"), st.none(), st.none()),
    ),
    max_size=60,
)


@given(st.dictionaries(_KEYS, st.integers()), _STEPS, st.integers(0, 8))
def test_it_is_a_dictionary(
    base: dict[str, int], steps: list[tuple[str, str, int]], most: int
) -> None:
    plain, found = dict(base), layered(base)
    copies: list[tuple[LayeredDict[int], dict[str, int]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layered_dict, "_MAX_CHANGES", most)
        for what, key, value in steps:
            if what == "set":
                plain[key] = found[key] = value
            elif what == "copy":
                copies.append((found, dict(plain)))
                found = found.copy()
            elif key in plain:
                del plain[key], found[key]
            else:
                with pytest.raises(KeyError):
                    del found[key]
            for each, expected in (*copies, (found, plain)):
                assert each == expected
                assert (len(each), sorted(each)) == (len(expected), sorted(expected))
                assert list(each.pairs()) == list(each.items())
    for number in range(12):
        key = f"n{number}"
        assert (key in found, found.get(key), found.get(key, "none")) == (
            key in plain,
            plain.get(key),
            plain.get(key, "none"),
        )
        if key not in plain:
            with pytest.raises(KeyError):
                found[key]
    given = {key: value for key, value in plain.items() if key in ("n1", "n3", "n5")} | {"n7": 1000}
    assert found.others(given) == {
        key: value for key, value in given.items() if plain.get(key) is not value
    }
    free = next(
        key for key in (*(f"n{number}" for number in range(12)), "n99") if not found.has_place(key)
    )
    found[free] = 1
    assert list(found)[-1] == free
    assert repr(found) == f"LayeredDict({dict(found)!r})"


def test_its_json_is_that_of_a_dictionary() -> None:
    found = layered(layered({"a": 1, "b": 2}))
    del found["a"]
    found["c"] = 3
    assert msgspec.json.encode(found, enc_hook=as_dict) == b'{"b":2,"c":3}'
    with pytest.raises(NotImplementedError):
        msgspec.json.encode(object(), enc_hook=as_dict)


@given(
    st.lists(st.integers(), max_size=20),
    st.dictionaries(st.integers(0, 19), st.integers()),
    st.integers(1, 7),
)
def test_rows_in_chunks_are_a_sequence_and_those_that_follow_do_not_change_them(
    rows: list[int], others: dict[int, int], size: int
) -> None:
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
