"""The manual pages are those of the commands, and are installed."""

from __future__ import annotations

import tomllib

import pytest

from tests.parts.tree import ROOT
from tests.vigil.man_pages import FOLDER, pages

_REQUESTS = {".TH", ".SH", ".PP", ".TP", ".B", ".BR"}


@pytest.mark.slow
def test_the_pages_are_those_of_the_commands() -> None:
    there = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*")}
    assert there == pages(), "run python -m tests.vigil.man_pages"


def test_the_pages_are_installed_where_man_looks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    files = project["tool"]["setuptools"]["data-files"]
    assert files == {"share/man/man1": ["vigil/man/*.1"]}


@pytest.mark.slow
def test_no_text_is_taken_for_a_request_of_roff() -> None:
    for name, text in pages().items():
        for line in text.splitlines():
            assert line, f"{name} has an empty line"
            assert line[0] not in ".'" or line.split()[0] in _REQUESTS, line
