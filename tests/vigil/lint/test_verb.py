"""``vigil lint`` from outside: what it prints, what it ends with, what a comment silences."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.vigil.lint.case_files import CASES, NAMES
from tests.vigil.lint.findings_document import BEGIN, DOCUMENT, END, LINT, document, places
from tests.vigil.lint.running import run

if TYPE_CHECKING:
    from collections.abc import Sequence


ROOT = Path(__file__).parents[3]
WRONG = CASES / "RETRIES_NOT_NUMBER.wrong.yaml"
RIGHT = CASES / "RETRIES_NOT_NUMBER.right.yaml"
WARNED = CASES / "RETRY_VS_BACKOFF.wrong.yaml"
KEYS = ["file", "line", "object", "code", "severity", "happens", "write"]


def run_as_program(*arguments: str | Path, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the verb in a process of its own, with a hash seed."""
    command = [sys.executable, "-m", "vigil", "lint", *map(str, arguments)]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()
    assert f"{BEGIN}\n{places()}{END}\n" in LINT.read_text(encoding="utf-8")


def test_the_readme_shows_what_is_found() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"# line (\d+): ([A-Z_]+),", readme)
    done = run(ROOT / "docs/examples/job-with-findings.yaml", "--json")
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert shown == [(str(one["line"]), one["code"]) for one in findings]
    assert (len(shown), done.exit_code) == (3, 1)
    done = run(ROOT / "docs/examples/job-corrected.yaml")
    summary = "1 file: 0 errors, 0 warnings, 0 infos\n"
    assert (done.stdout, done.stderr, done.exit_code) == (summary, "", 0)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([RIGHT], 0),
        ([RIGHT, "--strict"], 0),
        ([WARNED], 0),
        ([WARNED, "--strict"], 1),
        ([WRONG], 1),
        ([WRONG, RIGHT, "--json"], 1),
        ([CASES / "UNREADABLE.wrong.yaml"], 2),
        ([WRONG, CASES / "UNREADABLE.wrong.yaml"], 2),
        ([CASES / "UNKNOWN_KIND.wrong.yaml"], 0),
        ([CASES / "no such file"], 2),
    ],
)
def test_exit_status(arguments: Sequence[str | Path], status: int) -> None:
    assert run(*arguments).exit_code == status


@pytest.mark.daemon
@pytest.mark.parametrize("arguments", [[RIGHT, "--format", "xml"], []])
def test_wrong_use(arguments: Sequence[str | Path]) -> None:
    done = run_as_program(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "vigil: command line: 1 problem" in done.stderr


def test_findings_as_json() -> None:
    done = run(WRONG, WARNED, "--json")
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(one) for one in findings] == [KEYS, KEYS]
    first, second = findings
    assert (first["file"], first["line"]) == (str(WRONG), 11)
    assert (first["object"], first["severity"]) == ("AscendJob train/bert", "error")
    assert (second["code"], second["severity"]) == ("RETRY_VS_BACKOFF", "warning")
    assert done.stderr == "2 files: 1 error, 1 warning, 0 infos\n"


def test_findings_in_place_on_github() -> None:
    done = run(WARNED, "--format", "github")
    begin = f"::warning file={WARNED},line=18,title=RETRY_VS_BACKOFF AscendJob train/bert::"
    assert done.stdout.startswith(begin)
    assert done.stdout.count("\n") == 1


def test_findings_as_sarif() -> None:
    log = json.loads(run(WRONG, WARNED, "--format", "sarif").stdout)
    assert log["version"] == "2.1.0"
    (made,) = log["runs"]
    codes = [rule["id"] for rule in made["tool"]["driver"]["rules"]]
    for result, file, line, level in zip(
        made["results"], (WRONG, WARNED), (11, 18), ("error", "warning"), strict=True
    ):
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == quote(str(file))
        assert physical["region"] == {"startLine": line}
        assert result["level"] == level
        assert codes[result["ruleIndex"]] == result["ruleId"]


def test_a_comment_with_a_reason_silences(tmp_path: Path) -> None:
    text = WRONG.read_text()
    line = '    fault-retry-times: "three"'
    assert line in text
    silenced = text.replace(line, f"{line}  # vigil: ignore RETRIES_NOT_NUMBER a test of the lint")
    done = run("-", text=silenced)
    assert done.stdout == "1 file: 0 errors, 0 warnings, 0 infos, 1 silenced\n"
    for comment in ("RETRIES_NOT_NUMBER", "RETRIES_NEGATIVE another code"):
        done = run("-", text=text.replace(line, f"{line}  # vigil: ignore {comment}"))
        assert "RETRIES_NOT_NUMBER" in done.stdout, comment
        assert done.exit_code == 1


def test_a_directory_is_read_by_name(tmp_path: Path) -> None:
    for name in ("b.yml", "sub/a.json", ".hidden/c.yaml", "notes.txt", "a.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(WARNED.read_text())
    (tmp_path / "sub/a.json").write_text('{"kind": "Odd", "apiVersion": "x/v1"}')
    found = [json.loads(line)["file"] for line in run(tmp_path, "--json").stdout.splitlines()]
    assert [Path(file).relative_to(tmp_path).as_posix() for file in found] == [
        "a.yaml",
        "b.yml",
        "sub/a.json",
    ]


@pytest.mark.daemon
def test_the_same_input_gives_the_same_bytes() -> None:
    files = [CASES / f"{name}.wrong.yaml" for name in NAMES]
    outputs = {run_as_program(*files, "--json", seed=seed).stdout for seed in ("0", "42")}
    assert len(outputs) == 1
    assert outputs.pop().count("\n") > 50


@pytest.mark.daemon
def test_text_has_the_encoding_of_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "任务ł.yaml"
    file.write_bytes(WRONG.read_bytes())
    texts: list[bytes] = []
    documents: list[bytes] = []
    for encoding in ("utf-8", "gbk"):
        environment = os.environ | {"PYTHONIOENCODING": encoding, "VIGIL_LANG": "zh"}
        for outputs, options in ((texts, ()), (documents, ("--format", "github"))):
            command = [sys.executable, "-m", "vigil", "lint", *options, str(file)]
            ended = subprocess.run(command, capture_output=True, check=False, env=environment)
            outputs.append(ended.stdout)
    assert texts[1] == texts[0].decode().encode("gbk", "replace")
    assert "任务?.yaml" in texts[1].decode("gbk")
    assert documents[1] == documents[0]


def test_objects_without_a_judgement_are_counted(tmp_path: Path) -> None:
    text = "".join(
        f"---\napiVersion: {version}\nkind: {kind}\n"
        for version, kind in (("v1", "Service"), ("v1", "Service"), ("batch/v1", "Job"))
    )
    done = run("-", text=text)
    assert done.stdout == "1 file: 0 errors, 0 warnings, 0 infos; not judged: Job 1, Service 2\n"
