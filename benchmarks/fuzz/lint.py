"""What ``vigil lint`` reads: manifests in YAML and JSON, and the texts inside of ConfigMaps."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from contract.errors import VigilError
from vigil.lint.printing import Format, lines
from vigil.lint.reading import File, with_lines
from vigil.lint.run import lint

if TYPE_CHECKING:
    from collections.abc import Callable

_CASES = Path(__file__).parents[2] / "tests" / "vigil" / "lint" / "cases"
_TEXTS = tuple(
    path.read_text()
    for path in sorted(_CASES.glob("*.yaml"))
    if not path.name.startswith("UNREADABLE")
)


def _as_json(text: str) -> str:
    documents = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


@cache
def _lists() -> tuple[str, ...]:
    good = [path.read_text() for path in sorted(_CASES.glob("*.right.yaml"))]
    return tuple(map(_as_json, good))


def _judge(name: str, text: str) -> None:
    """Check that each finding is in a line of the text, in every format, and the same for the same
    text.
    """
    file = File(name, with_lines(text.encode("utf-8", "replace").decode()))
    report = lint([file])
    count = file.text.count("\n") + 1
    assert all(1 <= one.place.line <= count for one in report.findings)
    for form in Format:
        output = "\n".join(lines(report, form))
        output.encode("utf-8", "backslashreplace")
    assert lint([file]).findings == report.findings
    if report.exit_status(strict=False) == 2:
        raise VigilError("cannot be read")


def _manifest(text: str) -> None:
    _judge("fuzz.yaml", text)


def _list(text: str) -> None:
    _judge("fuzz.json", text)


PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
    "lint-yaml": (_TEXTS, _manifest),
    "lint-json": (_lists(), _list),
}
