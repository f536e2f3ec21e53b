"""Documents lead somewhere: links to files and headings, and quotations of the code."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
_QUOTED = re.compile(r"\(`([\w/]+\.py)`[^()]*\):\n\n```python\n(.*?)```", re.DOTALL)


def _documents() -> list[Path]:
    return [ROOT / name for name in files("*.md") if not name.startswith("tests/")]


@cache
def _anchors(document: Path) -> frozenset[str]:
    """Return what a link may name: anchors, and headings as a forge makes anchors of them."""
    text = document.read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = (re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads)
    return frozenset([*made, *re.findall(r'<a id="([^"]+)">', text)])


def _links(document: Path) -> list[tuple[str, str]]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    return _LINK.findall(text)


def _leads_somewhere(document: Path, name: str, heading: str) -> bool:
    target = (document.parent / name).resolve() if name else document
    return target.exists() and (not heading or heading in _anchors(target))


def test_links_lead_to_a_file_and_its_heading() -> None:
    links = [(one, *link) for one in _documents() for link in _links(one)]
    assert [link for link in links if not _leads_somewhere(*link)] == []


def test_examples_of_style_are_code_of_the_product() -> None:
    examples = _QUOTED.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(examples) == 2
    for name, code in examples:
        assert code in (ROOT / name).read_text(encoding="utf-8"), name


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|^)make ([\w-]+)", text, re.MULTILINE))
        assert named
        assert named <= targets, name


def test_each_change_request_names_a_file_that_exists() -> None:
    text = (ROOT / "docs" / "change-requests.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \| `([^`]+)` \|$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 31))
    assert {path for _, _, path in rows}.difference(files()) == set()
