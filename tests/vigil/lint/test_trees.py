"""Trees of files as repositories have them: what is no manifest hides nothing of what is one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.parts.examples import mostly_slow
from tests.vigil.lint.case_files import CASES
from tests.vigil.lint.running import run
from vigil.lint.reading import STANDARD_INPUT, File, files
from vigil.lint.run import lint

if TYPE_CHECKING:
    from pathlib import Path

    from vigil.lint.run import LintReport

RIGHT = (CASES / "RETRIES_NOT_NUMBER.right.yaml").read_text()
WRONG = (CASES / "RETRIES_NOT_NUMBER.wrong.yaml").read_text()
TEMPLATES = {
    "include alone": '{{ include "common.deployment" . }}\n',
    "include with blanks": '\n{{- include "common.labels" . -}}\n\n',
    "two includes": '{{ include "a" . }}\n---\n{{ include "b" . }}\n',
    "two actions": "{{ $x := 1 }}\n{{ .Values.a }}\n",
    "key": "{{ .Values.kind }}: Job\nmetadata: {}\n",
    "key in quotes": 'metadata:\n  labels:\n    "{{ .Values.key }}": "on"\n',
    "below free text": "kind: Job\nspec:\n  args: {{ toYaml .Values.args }}\n",
    "list below free text": "kind: Job\nspec:\n  command:\n    - {{ .Values.command }}\n",
    "define": '{{- define "x.name" -}}\n{{ .Chart.Name }}\n{{- end -}}\n',
    "range": "kind: List\nitems:\n{{- range .Values.jobs }}\n- kind: Job\n{{- end }}\n",
    "block": "metadata:\n  labels:\n    {{- toYaml .Values.labels | nindent 4 }}\n",
    "value with more": "kind: Job\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}\n",
    "merge": "kind: Job\nmetadata:\n  <<: {{ .Values.x }}\n",
    "jinja": "{% for x in xs %}\nkind: {{ x }}\n{% endfor %}\n",
    "flow": "{ {{ .Values.a }} }\n",
    "list": "[{{ .Values.a }}]\n",
}


def codes(report: LintReport) -> list[str]:
    """Return the codes of all findings."""
    return [one.rule.code for one in report.findings]


def written(folder: Path, texts: dict[str, str]) -> Path:
    """Write files below a directory."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("text", TEMPLATES.values(), ids=TEMPLATES)
def test_template_of_any_form_is_an_info_and_hides_no_other_file(text: str) -> None:
    for name in ("a.yaml", "a.json", STANDARD_INPUT):
        report = lint([File(name, text), File("b.yaml", WRONG)])
        assert set(codes(report)) == {"TEMPLATE", "RETRIES_NOT_NUMBER"}
        assert codes(report)[-1] == "RETRIES_NOT_NUMBER"


def test_defect_in_a_file_is_one_finding_and_the_rest_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(text: str, *_: object) -> None:
        raise KeyError(text) if "broken" in text else RuntimeError

    monkeypatch.setattr("vigil.lint.run.object_at", lambda root, _: broken(root.text("kind")))
    report = lint([File("a.yaml", "kind: broken\n"), File("b.json", '{"kind": "broken"}')])
    assert codes(report) == ["NOT_JUDGED", "NOT_JUDGED"]
    assert [one.place.object for one in report.findings] == ["a.yaml", "b.json"]
    assert report.exit_status(strict=False) == 2
    monkeypatch.undo()
    monkeypatch.setattr("advisor.lint.judge.retries.judge", broken)
    report = lint([File("a.yaml", WRONG.replace("name: bert", "name: other", 1))])
    assert codes(report) == ["NOT_JUDGED", "RETRIES_NOT_NUMBER"]
    assert report.findings[0].place.object == "AscendJob train/other"


def test_what_is_no_manifest_is_passed_over_in_a_directory(tmp_path: Path) -> None:
    others = {
        "chart/Chart.yaml": "apiVersion: v2\nname: x\nversion: 0.1.0\n",
        "chart/values.yaml": "image: {repository: x}\nreplicas: 1\n",
        "package.json": '{"name": "x", "version": "1.0"}\n',
        "data.json": "[1, 2]\n",
        "notes.yml": "just a text\n",
        "empty.yaml": "",
        "mkdocs.yml": "plugins:\n  - emoji: !!python/name:material.emoji\n",
        "stack.yaml": "Resources:\n  A: !Ref B\n",
        "keys.yaml": "? [a, b]\n: c\n",
    }
    folder = written(tmp_path, others | {"z.yaml": WRONG})
    report = lint(files([str(folder)]))
    assert codes(report) == ["RETRIES_NOT_NUMBER"]
    assert report.passed_over == len(others) - 1, "an empty file has no document"
    assert "; documents without a kind: 8" in run(folder).stdout
    assert run(folder).exit_code == 1


@pytest.mark.parametrize("text", ["a: 1\n", "just a text\n", "- 1\n", "[1, 2]\n", "{}\n"])
def test_what_is_no_manifest_is_an_info_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    done = run(path, "--json")
    (one,) = map(json.loads, done.stdout.splitlines())
    assert (one["severity"], one["object"], done.exit_code) == ("info", str(path), 0)


def test_what_cannot_be_read_in_a_directory_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.yaml": "a: [\n", "b/z.yaml": RIGHT})
    (folder / "gone.yaml").symlink_to("missing")
    os.mkfifo(folder / "pipe.yaml")
    report = lint(files([str(folder)]))
    assert codes(report) == ["UNREADABLE"] * 3
    assert report.exit_status(strict=False) == 2
    report = lint(files(["x" * 5000, "\x00.yaml"]))
    assert codes(report) == ["UNREADABLE"] * 2


TOOL = """=== YAML that was made ===

--- inferenceservice ---
{first}
--- deployment ---
{second}
=====================
"""


def test_output_of_a_tool_with_lines_between_its_documents_is_judged() -> None:
    text = TOOL.format(first=WRONG.partition("\n")[2], second=RIGHT)
    done = run("-", "--json", text=text)
    first, second = map(json.loads, done.stdout.splitlines())
    last = text.count("\n")
    middle = text.splitlines().index("--- deployment ---") + 1
    assert (first["code"], first["line"], first["severity"]) == ("NOT_YAML", 1, "warning")
    assert f"lines 1, 3, {middle}, {last} " in first["happens"]
    assert second["code"] == "RETRIES_NOT_NUMBER"
    assert text.splitlines()[second["line"] - 1].strip() == 'fault-retry-times: "three"'
    assert done.exit_code == 1
    report = lint([File("tool.yaml", text)])
    assert codes(report) == ["UNREADABLE", "RETRIES_NOT_NUMBER"], "a file that kubectl refuses"


@pytest.mark.parametrize(
    "line", ["----------", "======", "--- svc ---", "---- svc", "=== svc", "```yaml", "*****"]
)
def test_each_line_between_documents_is_known(line: str) -> None:
    report = lint([File(STANDARD_INPUT, f"{line}\n{RIGHT}\n{line}\n{WRONG}")])
    assert codes(report) == ["NOT_YAML", "RETRIES_NOT_NUMBER"]


def test_lines_in_texts_are_no_lines_between_documents() -> None:
    text = (
        'apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    =====\n    ...\n  b: "x\n====\n  y"\n'
    )
    assert codes(lint([File(STANDARD_INPUT, text)])) == []


PAGE = """apiVersion: mindxdl.gitee.com/v1
kind: AscendJob
metadata:
  name: page
  labels:
    ...
    fault-retry-times: three
{end}
spec:
  replicaSpecs:
    Master:
      ...
      template:
        metadata:
          labels:
            fault-sheduling: grace
"""


@pytest.mark.parametrize("end", ["...", "... # the rest", "  ...", "# nothing", "....", "…"])
def test_page_with_dots_is_judged_without_what_it_does_not_show(end: str) -> None:
    report = lint([File(STANDARD_INPUT, PAGE.format(end=end))])
    found = [(one.rule.code, one.place.line) for one in report.findings]
    assert found == [("NOT_YAML", 6), ("RETRIES_NOT_NUMBER", 7), ("LABEL_TYPO", 16)]
    lines = "lines 6, 12 " if end.startswith("#") else "lines 6, 8, 12 "
    assert lines in report.findings[0].happens


def test_dots_that_end_a_document_in_its_middle_make_nothing_missing() -> None:
    text = "kind: AscendJob\napiVersion: mindxdl.gitee.com/v1\n...\nspec:\n  replicaSpecs: {}\n"
    for name, code in ((STANDARD_INPUT, "NOT_YAML"), ("x.yaml", "UNREADABLE")):
        report = lint([File(name, text)])
        assert [(one.rule.code, one.place.line) for one in report.findings] == [(code, 3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{RIGHT}...\n", []),
        (f"...\n{RIGHT}", ["UNREADABLE"]),
        (f"{RIGHT}...\n---\n{WRONG}", ["RETRIES_NOT_NUMBER"]),
        (f"{RIGHT}...\n{WRONG}", ["UNREADABLE", "RETRIES_NOT_NUMBER"]),
    ],
)
def test_dots_between_objects_leave_both_whole(text: str, expected: list[str]) -> None:
    assert codes(lint([File("x.yaml", text)])) == expected


def test_real_error_beside_dots_is_named_too() -> None:
    text = f"{PAGE.format(end='a: [')}---\n{WRONG}"
    report = lint([File(STANDARD_INPUT, text)])
    assert codes(report) == ["NOT_YAML", "UNREADABLE", "RETRIES_NOT_NUMBER"]


def test_every_finding_names_an_object(tmp_path: Path) -> None:
    twice = RIGHT.replace("  name: bert\n", "  name: bert\n  name: other\n", 1)
    named = {
        "a.yaml": (twice, "AscendJob train/other"),
        "b.yaml": ("kind: Job\nmetadata: {name: 'x', labels: {a: {{ .b }}}}\n", "Job x"),
        "c.yaml": ("a: b: c\n", "c.yaml"),
        "d.yaml": ("{{ x }}\n", "d.yaml"),
        "e.yaml": ("a: 1\n", "e.yaml"),
    }
    assert twice != RIGHT
    report = lint([File(name, text) for name, (text, _) in named.items()])
    assert len(report.findings) == len(named)
    for one in report.findings:
        assert one.place.object == named[one.place.file][1]
    a_list = "apiVersion: v1\nkind: List\nitems:\n- kind: Job\n  metadata: {name: a}\n"
    a_list += "- kind: Job\n  metadata: {name: b, name: c}\n"
    (one,) = lint([File("x.yaml", a_list)]).findings
    assert (one.rule.code, one.place.object) == ("DUPLICATE_KEY", "Job c")


def _right_and_wrong() -> tuple[dict[str, Any], dict[str, Any]]:
    return yaml.safe_load(RIGHT), yaml.safe_load(WRONG.partition("\n")[2])


def _dump(count: int, *, wrong: int) -> str:
    """Return a List as ``kubectl get -o yaml`` writes it, of which one item is wrong."""
    texts = [yaml.safe_dump([item]) for item in _right_and_wrong()]
    items = "".join(texts[number == wrong] for number in range(count))
    return f"apiVersion: v1\nitems:\n{items}kind: List\nmetadata:\n  resourceVersion: ''\n"


@pytest.mark.slow
def test_large_dump_is_read_item_by_item(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _dump(40, wrong=30)
    whole = lint([File("x.yaml", text)]).findings
    monkeypatch.setattr("vigil.lint.yaml_text.IN_ONE", 1000)
    monkeypatch.setattr("vigil.lint.yaml_text.MAX_VALUES", 300)
    report = lint([File("x.yaml", text)])
    assert report.findings == whole
    assert codes(report) == ["RETRIES_NOT_NUMBER"]
    broken = text.replace("  kind: AscendJob\n", "  kind: [\n", 1)
    assert codes(lint([File("x.yaml", broken)])) == ["UNREADABLE", "RETRIES_NOT_NUMBER"]


@pytest.mark.parametrize("indent", mostly_slow([1, None], 2))
@pytest.mark.parametrize("kind", mostly_slow(["AscendJobList", "List"], 2))
@pytest.mark.parametrize("is_sorted", mostly_slow([False, True], 2))
def test_large_list_of_json_is_read_item_by_item(
    indent: int | None, kind: str, is_sorted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, version = _right_and_wrong(), "v1"
    if kind != "List":
        for item in both:
            del item["kind"], item["apiVersion"]
        version = "mindxdl.gitee.com/v1"
    items = [both[number == 15] for number in range(20)]
    content = {"kind": kind, "apiVersion": version, "metadata": {}, "items": items}
    text = json.dumps(content, indent=indent, sort_keys=is_sorted)
    whole = lint([File("x.json", text)]).findings
    assert [one.rule.code for one in whole] == ["RETRIES_NOT_NUMBER"]
    monkeypatch.setattr("vigil.lint.json_text.IN_ONE", 1000)
    monkeypatch.setattr("vigil.lint.json_text.MAX_VALUES", 300)
    assert lint([File("x.json", text)]).findings == whole
    last = text.rfind('"spec"')
    for broken in (text[:-1], f"{text},", text[:last] + text[last:].replace(":", "", 1)):
        report = lint([File("x.json", broken)])
        assert codes(report) == ["RETRIES_NOT_NUMBER", "UNREADABLE"]


def test_list_of_yaml_before_another_document_hides_it_not(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{_dump(2, wrong=5)}---\n{WRONG}"
    monkeypatch.setattr("vigil.lint.yaml_text.IN_ONE", 100)
    assert codes(lint([File("x.yaml", text)])) == ["RETRIES_NOT_NUMBER"]


@pytest.mark.slow
def test_twenty_thousand_objects_of_a_dump_are_judged() -> None:
    item = "- apiVersion: mindxdl.gitee.com/v1\n  kind: AscendJob\n  metadata:\n    name: j{}\n"
    items = "".join(item.format(n) + "    labels: {}\n" * (n % 2) for n in range(20_000))
    text = f"apiVersion: v1\nitems:\n{items}kind: List\n"
    text = text.replace("name: j19999\n", "name: j19999\n    annotations: {fault-scheduling: on}\n")
    report = lint([File("x.yaml", text)])
    assert {one.place.object for one in report.findings if one.rule.severity == "error"} == {
        "AscendJob j19999"
    }
