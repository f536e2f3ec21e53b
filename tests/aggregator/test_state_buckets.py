"""The buckets of kept state: their names, what has changed, and how their texts are read."""

from __future__ import annotations

import msgspec
import pytest

from aggregator.state_buckets import ChangedBuckets, bucket_of, decoded


@pytest.mark.parametrize(
    ("buckets", "form", "bucket"),
    [(64, "02x", "1f"), (32, "02x", "1f"), (32, "02", "31"), (16, "x", "f")],
)
def test_a_bucket_has_the_name_of_documents_that_are_kept_already(
    buckets: int, form: str, bucket: str
) -> None:
    assert bucket_of("node-1", buckets, form) == bucket


def test_changed_buckets_are_popped_once() -> None:
    changed = ChangedBuckets(("02",))
    changed.add("01", "02")
    assert changed.pop() == {"01", "02"}
    assert changed.pop() == frozenset()
    changed.add("03")
    assert changed.pop() == {"03"}


def test_a_bucket_that_makes_no_sense_is_named_and_spoils_no_other() -> None:
    deep = "[" * 100_000
    texts = {"03": "[3]", "02": "7", "04": deep, "01": "[1]", "05": '"\udfff"'}
    found, problems = decoded(texts, msgspec.json.Decoder(list[int]).decode)
    assert found == {"01": [1], "03": [3]}
    assert [problem.partition(":")[0] for problem in problems] == ["02", "04", "05"]
    assert problems[0] == "02: must be an array, is an integer"
