"""One target under atheris, in a process of its own: ``guided`` starts it.

::

    python -m benchmarks.fuzz.instrumented TARGET SECONDS DIRECTORY [options of libFuzzer]

Only functions of modules that the good inputs run are instrumented, so that their edges are those
of the parser. Code in C (msgspec, libyaml, OpenSSL, protobuf) has no edges. Ends after so many
seconds of a processor, so that a busy machine feeds as many inputs as a quiet one.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import logging
import os
import sys
import time
from random import Random
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import atheris

from benchmarks.fuzz.binary import encoding_of
from benchmarks.fuzz.corpora import arcs_of
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.targets import TARGETS
from contract.errors import VigilError

if TYPE_CHECKING:
    from benchmarks.fuzz.running import Target

_INPUTS = 200
_SECONDS = 2.0
"""Good and mutated inputs that show which modules a parser needs, and how long they may take."""

_SHOWN_TIMES = 300
"""How often the processor time is printed."""


def _edges(code: CodeType) -> int:
    """Return how many edges of a patched function and of the functions in it are counted."""
    inner = sum(_edges(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    own = [part for part in dis.get_instructions(code) if part.argval == "_trace_branch"]
    return inner + len(own)


def instrument(target: Target) -> tuple[int, set[str]]:
    """Count the edges of all functions of the modules that ``target`` runs.

    Returns how many there are, and the files of the modules.
    """
    rng, end = Random(target.name), time.thread_time() + _SECONDS
    files: set[str] = set()
    for _ in range(_INPUTS):
        if time.thread_time() < end:
            for text in (rng.choice(target.seeds), mutated(rng, target.seeds)):
                files |= {file for file, _, _ in arcs_of(target, text)}
    patched: dict[CodeType, CodeType] = {}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename in files:
            code = function.__code__
            if code not in patched:
                patched[code] = atheris.patch_code(code, trace_dataflow=True)
            function.__code__ = patched[code]
    return sum(map(_edges, patched.values())), files


def main() -> None:
    """Run the command. Ends with 77 where an input fails, as libFuzzer does."""
    logging.disable()
    name, seconds, directory, *options = sys.argv[1:]
    target = TARGETS[name]()
    encoding = encoding_of(name)
    edges, files = instrument(target)
    print(
        f"edges: {edges}",
        *(f"file: {os.path.relpath(file)}" for file in files),
        sep="\n",
        flush=True,
    )
    begun, inputs, shown = time.process_time(), 0, 0.0

    def feed(data: bytes) -> None:
        nonlocal inputs, shown
        inputs += 1
        spent = time.process_time() - begun
        if spent >= shown:
            print(f"spent: {spent:.1f} s, inputs: {inputs}", flush=True)
            shown = spent + float(seconds) / _SHOWN_TIMES
        if spent >= float(seconds):
            os._exit(0)  # libFuzzer has no limit of processor time
        with contextlib.suppress(VigilError):
            target.feed(data.decode(encoding, "replace"))

    atheris.Setup([sys.argv[0], *options, directory], feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
