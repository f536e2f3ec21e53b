"""Makes ``docs/codes.md`` of the tables of fault codes.

::

    python -m tests.contract.codes_document
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contract.codes.reference import CodeKind, CodeReference, all_codes, level_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DOCUMENT = Path(__file__).parents[2] / "docs" / "codes.md"
_TITLES = {
    CodeKind.CHIP: "Codes of chips",
    CodeKind.SWITCH: "Codes of on-board switches",
    CodeKind.NODE: "Codes of the server",
    CodeKind.PUBLIC: "Public fault codes",
    CodeKind.DPU: "Codes of RDMA NICs and DPUs",
}
_HEAD = """\
# Fault codes

This page lists every fault code that MindCluster 26.x ships a level for. It also has the codes of
its RDMA plugin and of the host checks of NPU Vigil. `vigil explain CODE` shows one of them in your
terminal. The fault configuration of your cluster may change the levels.

* **Names** are the vendor's, in English and Chinese. They are never translated here: a name that
  the vendor does not publish is missing. MindCluster's guide to fault levels names the codes of
  nine digits. Its RDMA plugin names those of NICs and DPUs. The file `kg-config.json` of its
  FaultDiag names all others.
* **Text in *italics*** is derived: it follows from the bits of the code, or from its kind.
* **What happens to jobs** and **what to do** follow from the level. [Runbooks](runbooks.md) repeat
  both for each alert.

The page is generated from `contract/data` by `python -m tests.contract.codes_document`.

"""
_FIELDS = {
    "summary": "English name or description",
    "name_zh": "Chinese name",
    "component": "component",
    "module": "part of the component",
    "severity": "severity",
    "level": "level",
    "effect": "what happens to jobs",
    "remedy": "what to do",
}


def document() -> str:
    """Return the whole document."""
    found = list(all_codes())
    return _HEAD + "\n".join(
        [*_counts(found), *(line for kind in CodeKind for line in _of_kind(kind, found))]
    )


def _counts(found: Sequence[CodeReference]) -> Iterator[str]:
    yield "| kind | codes | English name | Chinese name | described in docs/spec | derived |"
    yield "|---|---|---|---|---|---|"
    for kind in CodeKind:
        of_kind = [one for one in found if one.kind is kind]
        named = sum(bool(one.name_en) for one in of_kind)
        chinese = sum(bool(one.name_zh) for one in of_kind)
        derived = sum("summary" in one.follows for one in of_kind)
        others = len(of_kind) - named - derived
        yield f"| {kind} | {len(of_kind)} | {named} | {chinese} | {others} | {derived} |"
    yield ""
    yield "How many codes have each field known, derived or missing:"
    yield ""
    yield "| field | known | derived | missing |"
    yield "|---|---|---|---|"
    for field, heading in _FIELDS.items():
        known = sum(field in one.known for one in found)
        follows = sum(field in one.follows for one in found)
        yield f"| {heading} | {known} | {follows} | {len(found) - known - follows} |"
    yield ""


def _of_kind(kind: CodeKind, found: Sequence[CodeReference]) -> Iterator[str]:
    yield f"## {_TITLES[kind]}"
    yield ""
    levels = dict.fromkeys(one.level for one in found if one.kind is kind)
    texts = level_texts(kind)
    for level in sorted(levels, key=list(texts).index):
        text = texts[level]
        yield f"### {level} ({kind})"
        yield ""
        yield f"Jobs: {text.effect}"
        yield ""
        yield f"To do: {text.remedy}"
        yield ""
        yield "| code | English name | Chinese name | part | severity |"
        yield "|---|---|---|---|---|"
        rows = (one for one in found if one.kind is kind and one.level == level)
        for one in sorted(rows, key=lambda row: row.code):
            part = " ".join(filter(None, (_shown(one, "component"), _shown(one, "module"))))
            name, severity = _shown(one, "summary"), _shown(one, "severity")
            cells = (f"`{one.code}`", name, one.name_zh, part, severity)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""


def _shown(one: CodeReference, field: str) -> str:
    """Return the value of a field, in italics where it only follows."""
    value: str = getattr(one, field)
    return f"*{value}*" if field in one.follows else value


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
