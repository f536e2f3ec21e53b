"""Feeding one target: what it raised, how long it took, and the smallest input that still fails."""

from __future__ import annotations

import gc
import time
import traceback
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from benchmarks.fuzz.mutations import mutated
from contract.errors import VigilError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST_SECONDS = 0.050
"""For one input of a parser."""
LONGEST_SECONDS_OF_ALL = {
    "aggregator-input": 0.25,
    "kubeconfig": 5.0,
    "advise-switches": 5.0,
    "lint-yaml": 5.0,
    "lint-json": 0.25,
    "lint-tree": 5.0,
}
"""For a whole program, which lets time pass with each input, and what a thread reads (YAML)."""
_SHOWN_FAILURES = 5
_TOO_LONG = "takes longer than"
_SMALLER_SECONDS = 5.0
_MEASURED_AGAIN = 3


class Target(Protocol):
    """A parser with good inputs for it."""

    @property
    def name(self) -> str:
        """How it is chosen on the command line."""

    @property
    def seeds(self) -> Sequence[str]:
        """Good inputs, from recordings and examples."""

    def feed(self, text: str) -> None:
        """Parse ``text``, and check that a bad one changed nothing.

        Raises an error of the tree of ``contract.errors`` for what is refused. Anything else that
        is raised is a failure.
        """


@dataclass(frozen=True)
class Failure:
    """The smallest input that was found to fail, and how."""

    target: str
    text: str
    what: str


@dataclass
class Outcome:
    """What came of one target."""

    target: str
    count: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def fuzz(target: Target, count: int, seed: int) -> Outcome:
    """Feed all good inputs of ``target`` and ``count`` mutated ones. The same for every ``seed``.

    A good input that is refused is a failure, too. Stops behind the fifth different failure.
    """
    outcome = Outcome(target.name)
    rng = Random(f"{seed} {target.name}")
    # Some are there several times, so that more inputs are made of them.
    for text in dict.fromkeys(target.seeds):
        what, refused, _ = _fed(target, text)
        if refused:
            what = "a good input is refused"
        if what is not None:
            outcome.failures.append(Failure(target.name, text, what))
    _play(outcome, target, (mutated(rng, target.seeds) for _ in range(count)))
    return outcome


def played(target: Target, texts: Iterable[str]) -> Outcome:
    """Feed ``texts``, such as a kept corpus. Stops behind the fifth different failure."""
    outcome = Outcome(target.name)
    _play(outcome, target, texts)
    return outcome


def _play(outcome: Outcome, target: Target, texts: Iterable[str]) -> None:
    longest = LONGEST_SECONDS_OF_ALL.get(target.name, LONGEST_SECONDS)
    known: set[str] = set()
    begun = time.monotonic()
    for text in texts:
        if len(outcome.failures) >= _SHOWN_FAILURES:
            break
        what, refused, seconds = _fed(target, text)
        outcome.count += 1
        outcome.refused += refused
        if seconds > longest:
            seconds = _least_seconds(target, text)
            if seconds > longest and what is None:
                what = f"{_TOO_LONG} {longest * 1000:.0f} ms"
        outcome.slowest_seconds = max(outcome.slowest_seconds, seconds)
        if what is not None and what not in known:
            known.add(what)
            outcome.failures.append(Failure(target.name, _smaller(target, text, what), what))
    outcome.seconds = time.monotonic() - begun


def _fed(target: Target, text: str) -> tuple[str | None, bool, float]:
    """Return what went wrong, whether the text was refused as it should be, and the processor
    seconds.
    """
    what, refused = None, False
    begun = time.thread_time()
    try:
        target.feed(text)
    except VigilError:
        refused = True
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} at {frame.name}, line {frame.lineno} of {frame.filename}"
    return what, refused, time.thread_time() - begun


def _least_seconds(target: Target, text: str) -> float:
    """Return the processor seconds of the quickest of several runs, without garbage collection.

    A collection, or a processor that others slow down, is not the fault of an input.
    """
    gc.disable()
    try:
        return min(_fed(target, text)[2] for _ in range(_MEASURED_AGAIN))
    finally:
        gc.enable()


def _smaller(target: Target, text: str, what: str) -> str:
    """``text`` without what is not needed for it to fail in the same way."""
    end = time.monotonic() + _SMALLER_SECONDS
    longest = LONGEST_SECONDS_OF_ALL.get(target.name, LONGEST_SECONDS)
    length = len(text) // 2
    while length:
        begin = 0
        while begin < len(text):
            if time.monotonic() > end:
                return text
            shorter = text[:begin] + text[begin + length :]
            found, _, seconds = _fed(target, shorter)
            is_long = seconds > longest and _least_seconds(target, shorter) > longest
            if found == what or (found is None and _TOO_LONG in what and is_long):
                text = shorter
            else:
                begin += length
        length //= 2
    return text
