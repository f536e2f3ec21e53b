"""Every parser of what others write, fed with nonsense; ``make fuzz`` has more inputs.

What is left here still finds a parser that raises another error, or changes something, for kinds of
damage that are frequent. Of whole programs that are slow, ``make fuzz`` has 40 times as much.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from benchmarks.fuzz import corpora
from benchmarks.fuzz.guided import Run, file_digest, kept_result
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.running import fuzz, played
from benchmarks.fuzz.targets import TARGETS
from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable

INPUTS = 400
OF_A_SLOW_TARGET = 50
SLOW_TARGETS = (
    *("aggregator-input", "child-frame", "lint-json", "lint-tree", "lint-yaml"),
    *("page-parameters", "tls-files"),
)
"""Targets where an input takes 3 to 40 ms; most of them go through a whole program."""

RARELY_REFUSED = ("structure",)
"""Most members of a structure are numbers of which any is possible."""


@pytest.mark.slow
@pytest.mark.timeout(300)  # some are whole programs
@pytest.mark.parametrize("name", TARGETS)
def test_nonsense_is_refused_and_changes_nothing(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    inputs = OF_A_SLOW_TARGET if name in SLOW_TARGETS else INPUTS
    outcome = fuzz(TARGETS[name](), inputs, seed=5)
    assert outcome.failures == []
    assert outcome.count == inputs
    least = 0 if name in RARELY_REFUSED else inputs * 0.2
    assert least < outcome.refused < inputs, "nearly right, but mostly not quite"


@pytest.mark.slow
def test_kept_inputs_are_refused_or_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    files = sorted(corpora.DIRECTORY.glob("*.json"))
    assert len(files) > 40, "targets whose good inputs take too long have none"
    assert sum(file.stat().st_size for file in files) <= 2_000_000
    for file in files:
        assert played(TARGETS[file.stem](), corpora.kept(file.stem)).failures == []


def test_a_selection_has_the_shortest_inputs_that_reach_more() -> None:
    target = TARGETS["users-file"]()
    good = target.seeds[0]
    assert corpora.arcs_of(target, good)
    assert corpora.selected(target, [good, "name:no hash\n", "n:no hash\n"]) == ["n:no hash\n"]


def test_a_selection_ends_no_measurement() -> None:
    """``make coverage`` traces the tests, too."""

    def trace(*_: object) -> None: ...

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        corpora.arcs_of(TARGETS["users-file"](), "name:no hash\n")
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


def test_a_result_counts_until_a_file_of_its_parser_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("parser.py")
    file.write_text("one = 1\n")
    run = Run("users-file", 180.0, inputs=5, files={str(file): file_digest(str(file))})
    inputs = run.path.with_suffix("")
    inputs.mkdir(parents=True)

    def keep(kept: Run) -> None:
        kept.path.write_text(json.dumps(asdict(kept)))

    assert kept_result(run) is None
    keep(run)
    assert kept_result(replace(run, seconds=20.0)) == run
    assert kept_result(replace(run, seconds=480.0)) is None
    keep(replace(run, failures=["raised"]))
    assert kept_result(run) is None
    keep(run)
    inputs.rmdir()
    assert kept_result(run) is None
    inputs.mkdir()
    file.write_text("one = 2\n")
    assert kept_result(run) is None
    file.unlink()
    assert kept_result(run) is None


@dataclass(frozen=True)
class Broken:
    """A parser that does not like an X, and refuses a Y."""

    feed: Callable[[str], None]
    name: str = "broken"
    seeds: tuple[str, ...] = ('{"a": "some text with an X in it", "b": [1, 2, 3]}',)


def refuses(text: str) -> None:
    if "a" not in text:
        raise DocumentError("it", "$", "has no a")
    if "X" not in text:
        raise KeyError(text)


def test_failing_input_is_found_and_made_small() -> None:
    outcome = fuzz(Broken(refuses), 500, seed=1)
    (failure,) = outcome.failures
    assert failure.what.startswith("KeyError at refuses, line ")
    assert failure.text == "a"
    assert outcome.refused > 5


def test_a_good_input_that_is_refused_is_a_failure() -> None:
    def refuse(_: str) -> None:
        raise DocumentError("it", "$", "is wrong")

    outcome = fuzz(Broken(refuse), 0, seed=1)
    assert [one.what for one in outcome.failures] == ["a good input is refused"]


def test_the_same_seed_makes_the_same_inputs() -> None:
    seeds = ('{"a": [1, {"b": "{\\"c\\": null}"}]}', "no JSON")
    first, second = ([mutated(rng, seeds) for _ in range(300)] for rng in (Random(1), Random(1)))
    assert first == second
    assert len(set(first)) > 250
