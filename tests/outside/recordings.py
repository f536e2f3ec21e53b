"""Compare what verbs and daemons show with the recordings of ``tests/outside/recorded``.

::

    python -m tests.outside.recordings             prints each difference; 1 if there is one
    python -m tests.outside.recordings --record    keeps what is shown now
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dcmi_shim.emulator.install import install
from tests.outside.running import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).parent / "recorded"


def kept(folder: Path = FOLDER) -> dict[str, str]:
    """Return the text of each recording by its name."""
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.txt"))}


def differences(recorded: Mapping[str, str], current: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a difference, each with the call above it that it belongs to."""
    for name in sorted({*recorded, *current}):
        before, after = recorded.get(name, ""), current.get(name, "")
        if before == after:
            continue
        yield f"=== {name}"
        lines = before.splitlines(), after.splitlines()
        matcher = difflib.SequenceMatcher(None, *lines, autojunk=False)
        for kind, start, end, now_start, now_end in matcher.get_opcodes():
            if kind != "equal":
                yield f"@ {_call(lines[0][:start]) or _call(lines[1][:now_start])}"
                yield from (f"- {line}" for line in lines[0][start:end])
                yield from (f"+ {line}" for line in lines[1][now_start:now_end])


def _call(lines: Sequence[str]) -> str:
    """Return the last line that names a call."""
    starts = ("$ ", "GET ", "# HELP ")
    return next((line for line in reversed(lines) if line.startswith(starts)), "")


def record(directory: Path) -> dict[str, str]:
    """Build the emulated driver below ``directory`` and run everything there."""
    install(directory / "driver", directory / "emulator")
    place = directory / "run"
    place.mkdir()
    return Recorder(place, directory).record()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or record; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside.recordings", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep what is shown now")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        current = record(Path(directory))
    lines = list(differences(kept(), current))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if not options.record:
        return bool(lines)
    for file in FOLDER.glob("*.txt"):
        file.unlink()
    for name, text in current.items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
