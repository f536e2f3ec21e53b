"""Hooks of pre-commit are local programs: a commit needs no network."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_hooks_are_programs_of_the_virtual_environment() -> None:
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [one["repo"] for one in settings["repos"]] == ["local"]
    hooks = settings["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    for hook in hooks:
        program, *arguments = shlex.split(hook["entry"])
        assert program.startswith(".venv/bin/")
        assert all((ROOT / one).is_file() for one in arguments if one.endswith(".py"))
