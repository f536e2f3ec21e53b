"""The state in buckets: what is in the store is always the whole state, whatever changes."""

from __future__ import annotations

from random import Random

import pytest

from aggregator.public_faults import values as rows_module
from aggregator.public_faults.values import EndedFault, Rows, read_rows
from tests.aggregator.kept_texts import kept_texts


def over(number: int) -> EndedFault:
    return EndedFault(f"n{number % 3}", "CCAE", f"fault-{number}", number, 0)


def test_rows_read_back_equal_the_rows_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_MAX_ROWS", 5)
    rng = Random(7)
    rows, store = Rows(), dict[str, str]()
    there: set[EndedFault] = set()
    for step in range(600):
        one = over(rng.randrange(100))
        if rng.random() < 0.6:
            rows.put("over", one.key, one)
            there.add(one)
        else:
            rows.drop("over", one.key)
            there.discard(one)
        if step % 7 == 0:
            store = kept_texts(rows, store)
            assert set(read_rows(store)[0].over) == there
        if step == 301:
            rows = Rows()  # another process, for which the parts are one again
            for kept in read_rows(store)[0].over:
                rows.put("over", kept.key, kept)
            rows.compare(store)
    assert len(store) > 3
    assert max(text.count("CCAE") for text in store.values()) <= 10


def test_unchanged_buckets_are_not_written() -> None:
    rows = Rows()
    for number in range(50):
        rows.put("over", over(number).key, over(number))
    rows.put("document", ("default/pub",), ("digest",))
    rows.put("away", ("n1",), 5)
    store = kept_texts(rows)
    again = Rows()
    state, unreadable = read_rows(store)
    assert unreadable == []
    for one in reversed(state.over):
        again.put("over", one.key, one)
    again.put("away", ("n1",), state.away["n1"])
    again.put("document", ("default/pub",), state.documents["default/pub"])
    again.compare(store)
    assert again.pop_changed() == frozenset()
    again.drop("away", ("n2",))
    assert again.pop_changed() == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"faults":[["n1"]]}',
        '{"faults":[["n1","r","f","t","c","l",[32],1,1,1,1,null,true]]}',
        '{"away":{"n1":1e99}}',
    ],
)
def test_unreadable_bucket_is_reported(text: str) -> None:
    state, (problem,) = read_rows({"07": text, "08": '{"away":{"n1":1}}'})
    assert problem.startswith("07: ")
    assert state.away == {"n1": 1}
