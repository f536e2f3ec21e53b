"""``make help`` names every target."""

from __future__ import annotations

import re

from tests.parts.tree import ROOT


def test_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared = re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)
    assert declared is not None
    named = set(re.findall(r'^\t@echo "make ([\w-]+) ', text, re.MULTILINE))
    assert named == set(declared[1].split()) - {"help"}
    made = set(re.findall(r"^([\w-]+):", text, re.MULTILINE))
    assert made == set(declared[1].split())
