"""Verbs and daemons show what is recorded, and the comparison sees what is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.outside.normal import normal, normal_json, normal_metrics
from tests.outside.recordings import differences, kept
from tests.outside.running import Recorder
from tests.outside.situations import AFTER, BEFORE, FAULTS, RUNNING

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_everything_is_shown_as_recorded(tmp_path: Path, built: Path) -> None:
    lines = list(differences(kept(), Recorder(tmp_path, built).record()))
    assert not lines, "\n".join(["run python -m tests.outside.recordings", *lines])


def test_each_call_is_recorded_once() -> None:
    calls = [call.arguments for call in (*BEFORE, *FAULTS, *RUNNING, *AFTER)]
    shown = [
        line.removeprefix("$ vigil ")
        for text in kept().values()
        for line in text.splitlines()
        if line.startswith("$ vigil ")
    ]
    assert sorted(shown) == sorted(calls)
    assert len(calls) >= 100


def test_a_difference_names_its_call() -> None:
    recorded = {"a": "$ vigil a\none\ntwo\n", "b": "same\n"}
    current = {"a": "$ vigil a\none\nthree\n", "b": "same\n", "c": "$ vigil c\n"}
    assert list(differences(recorded, current)) == [
        *("=== a", "@ $ vigil a", "- two", "+ three"),
        *("=== c", "@ ", "+ $ vigil c"),
    ]


def test_times_paths_and_widths_are_the_same_in_each_run() -> None:
    text = "NODE   SINCE\n  node   12 s ago (18:52:41 UTC)  /tmp/x/store 1795891960691  \nleft 3\n"
    assert normal(text, {"/tmp/x": "<directory>", "/tmp/x/store": "<store>"}) == (
        "NODE  SINCE\n  node  <age> ago (<time>)  <store> <ms>\nleft 3"
    )


def test_numbers_of_json_that_grow_with_time_are_left_out() -> None:
    text = '{"chips": 8, "lag_seconds": {"a": 1.5, "b": 0}, "at_ms": 1795891960691}\n[true]\n'
    assert normal_json(text, {}) == (
        '{"chips": 8, "lag_seconds": {"a": "<number>", "b": "<number>"}, "at_ms": "<ms>"}\n[true]'
    )


def test_gaps_of_a_journal_are_left_out_with_their_snapshots() -> None:
    kinds = ("snapshot", "gap", "snapshot", "changes", "gap", "changes", "snapshot")
    text = json.dumps({"entries": [{"kind": kind} for kind in kinds]})
    entries = json.loads(normal_json(text, {}))["entries"]
    assert [entry["kind"] for entry in entries] == ["snapshot", "changes", "changes", "snapshot"]


def test_metrics_are_recorded_without_values_and_each_histogram_in_a_line() -> None:
    text = '# TYPE a histogram\na_bucket{le="1.0",x="y"} 4.0\na_bucket{le="+Inf",x="y"} 4.0\n'
    assert normal_metrics(text, {}) == '# TYPE a histogram\na_bucket{x="y"} le 1.0 +Inf'
