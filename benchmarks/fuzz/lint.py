"""What ``vigil lint`` reads: manifests in YAML and JSON, texts inside of ConfigMaps, and trees."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from contract.errors import VigilError
from vigil.lint.printing import Format, lines
from vigil.lint.reading import STANDARD_INPUT, File, with_lines
from vigil.lint.run import lint

if TYPE_CHECKING:
    from collections.abc import Callable

    from vigil.lint.run import LintReport

_CASES = Path(__file__).parents[2] / "tests" / "vigil" / "lint" / "cases"
_TEXTS = tuple(
    path.read_text()
    for path in sorted(_CASES.glob("*.yaml"))
    if not path.name.startswith("UNREADABLE")
)


def _as_json(text: str) -> str:
    # Read when this module is loaded: the loader in C takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [one for one in yaml.load_all(text, loader) if isinstance(one, dict)]
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
    _check_defects(report)
    count = file.text.count("\n") + 1
    assert all(1 <= one.place.line <= count for one in report.findings)
    for form in Format:
        output = "\n".join(lines(report, form))
        output.encode("utf-8", "backslashreplace")
    assert lint([file]).findings == report.findings
    if report.exit_status(strict=False) == 2:
        raise VigilError("cannot be read")


def _check_defects(report: LintReport) -> None:
    """Fail where a check ended with an exception, which the lint turns into a finding."""
    defects = [one.happens for one in report.findings if one.rule.code == "NOT_JUDGED"]
    assert defects == []


def _tree(text: str) -> None:
    """Check that a file of a directory neither ends the check nor changes what others show."""
    content = with_lines(text.encode("utf-8", "replace").decode())
    other = File("z.yaml", _OTHER)
    for name in ("a.yaml", "a.json", STANDARD_INPUT):
        report = lint([File(name, content, is_named=name == "a.yaml"), other])
        _check_defects(report)
        assert all(one.place.object for one in report.findings)
        codes = {one.rule.code for one in report.findings if one.place.file == other.name}
        assert "RETRIES_NOT_NUMBER" in codes
    if report.exit_status(strict=False) == 2:
        raise VigilError("cannot be read")


def _manifest(text: str) -> None:
    _judge("fuzz.yaml", text)


def _list(text: str) -> None:
    _judge("fuzz.json", text)


_FORMS = (
    '{{ include "a" . }}\n',
    "{{- if .Values.a }}\nkind: Job\n{{- end }}\n",
    "kind: Job\nmetadata:\n  labels: {{ .Values.labels }}\n  args: {{ toYaml . }}\n",
    "{% for a in b %}\nkind: {{ a }}\n{% endfor %}\n",
    "? [a, b]\n: {c: d}\n",
    "a: &a [x]\nb: *a\n<<: {c: *a}\n",
    "a: !!python/object:x.y {}\nb: !Ref c\n",
    "=== a ===\n\n--- b ---\nkind: Job\n=====\n```yaml\n",
    "kind: Job\nmetadata:\n  ...\n...\nspec:\n  - ...\n",
    "image: {repository: a}\nreplicas: 1\n",
    '{"name": "a", "version": "1.0"}\n',
)
_OTHER = (_CASES / "RETRIES_NOT_NUMBER.wrong.yaml").read_text()

PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
    "lint-yaml": (_TEXTS, _manifest),
    "lint-json": (_lists(), _list),
    "lint-tree": ((*_TEXTS, *_FORMS * (len(_TEXTS) // len(_FORMS))), _tree),
}
