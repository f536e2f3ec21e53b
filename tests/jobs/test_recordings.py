"""Recordings of the real aggregator's fault service: the same messages but for the table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compatibility import check, different
from tests.jobs.recorded import play


@pytest.mark.parametrize(
    "name", ["fault-query", "job-fault-stream", "relation-fault-escalates-at-once"]
)
def test_recording(name: str) -> None:
    upstream, ours = play(name)
    assert upstream
    assert upstream.keys() == ours.keys()
    check(f"clusterd/{name}", different(_in_order(upstream), _in_order(ours)))


def _in_order(heard: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return dict(sorted(heard.items()))
