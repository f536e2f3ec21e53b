"""Kept inputs of each target, which reach lines that its good inputs do not.

``tests/benchmarks/corpora`` has a file for each target, a list of texts. A guided run adds to it,
and tests feed it without atheris.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import VigilError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any, TypeAlias

    from benchmarks.fuzz.running import Target

    Arc: TypeAlias = tuple[str, int, int]

_ROOT = Path(__file__).parents[2]
DIRECTORY = _ROOT / "tests/benchmarks/corpora"
MAX_BYTES = 28_000
"""Of a file, so that all of them have less than 2 MB."""

MAX_SECONDS = 0.012
"""Processor time to feed a kept corpus, so that all of them take tests about a second."""

_SELECTION_SECONDS = 20.0
"""Processor time of a selection: a whole program takes up to a second for an input."""

_OTHERS = tuple(f"{_ROOT / name}/" for name in (".venv", "benchmarks", "tests"))


def kept(name: str) -> list[str]:
    """Return the kept inputs of a target, perhaps none."""
    path = DIRECTORY / f"{name}.json"
    if not path.exists():
        return []
    texts: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return texts


def arcs_of(target: Target, text: str) -> set[Arc]:
    """Feed ``text``; return the steps from line to line in files of the product."""
    arcs: set[Arc] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(f"{_ROOT}/") or file.startswith(_OTHERS):
            return None
        last = frame.f_code.co_firstlineno

        def step(frame: FrameType, _: str, __: Any) -> Any:
            nonlocal last
            arcs.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step(frame, event, argument)

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        target.feed(text)
    except VigilError:
        pass
    finally:
        sys.settrace(before)
    return arcs


def selected(target: Target, texts: Iterable[str]) -> list[str]:
    """Return those of ``texts``, the shortest first, that add a step to the good inputs.

    What is selected fits into ``MAX_BYTES`` and ``MAX_SECONDS``. Nothing is selected where the good
    inputs take too long.
    """
    end = time.thread_time() + _SELECTION_SECONDS
    reached: set[Arc] = set()
    for text in target.seeds:
        reached |= arcs_of(target, text)
        if time.thread_time() > end:
            return []
    result: list[str] = []
    seconds = 0.0
    for text in sorted(set(texts), key=lambda text: (len(text), text)):
        if time.thread_time() > end:
            break
        arcs = arcs_of(target, text)
        if arcs <= reached or len(_file([*result, text])) > MAX_BYTES:
            continue
        begun = time.thread_time()
        with contextlib.suppress(VigilError):
            target.feed(text)
        spent = time.thread_time() - begun
        if seconds + spent <= MAX_SECONDS:
            result.append(text)
            reached |= arcs
            seconds += spent
    return result


def keep(target: Target, texts: Iterable[str]) -> None:
    """Write what is selected of ``texts`` as the kept inputs of ``target``."""
    DIRECTORY.mkdir(exist_ok=True)
    path = DIRECTORY / f"{target.name}.json"
    path.write_text(_file(selected(target, texts)), encoding="utf-8")


def _file(texts: list[str]) -> str:
    return json.dumps(texts, indent=0) + "\n"
