"""Makes ``docs/codes.md`` and ``docs/codes.zh-CN.md`` of the tables of fault codes.

::

    python -m tests.contract.codes_document
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract.codes.reference import CodeKind, CodeReference, all_codes, level_texts
from vigil.language import CATALOGUE, read_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FOLDER = Path(__file__).parents[2] / "docs"


class Edition(NamedTuple):
    """The texts of the document in one language.

    ``titles`` are by kind. ``fields`` are the headings by the field of a code. ``texts`` are
    translations of what the tables have, by the English text.
    """

    path: Path
    head: str
    titles: Mapping[CodeKind, str]
    kinds: str
    fields_head: str
    counts: str
    fields: Mapping[str, str]
    jobs: str
    remedy: str
    columns: str
    texts: Mapping[str, str]


ENGLISH = Edition(
    path=_FOLDER / "codes.md",
    head="""\
# Fault codes

[简体中文](codes.zh-CN.md)

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

""",
    titles={
        CodeKind.CHIP: "Codes of chips",
        CodeKind.SWITCH: "Codes of on-board switches",
        CodeKind.NODE: "Codes of the server",
        CodeKind.PUBLIC: "Public fault codes",
        CodeKind.DPU: "Codes of RDMA NICs and DPUs",
    },
    kinds="| kind | codes | English name | Chinese name | described in docs/spec | derived |",
    fields_head="How many codes have each field known, derived or missing:",
    counts="| field | known | derived | missing |",
    fields={
        "summary": "English name or description",
        "name_zh": "Chinese name",
        "component": "component",
        "module": "part of the component",
        "severity": "severity",
        "level": "level",
        "effect": "what happens to jobs",
        "remedy": "what to do",
    },
    jobs="Jobs: ",
    remedy="To do: ",
    columns="| code | English name | Chinese name | part | severity |",
    texts={},
)
CHINESE = Edition(
    path=_FOLDER / "codes.zh-CN.md",
    head="""\
# 故障码

[English](codes.md)

本页列出 MindCluster 26.x 随附级别表中的每个故障码，以及其 RDMA 插件和 NPU Vigil 主机检查的故障码。
`vigil explain CODE` 在终端中显示其中一个，`--lang zh` 以中文显示。集群的故障配置可能改变级别。

* **名称**是厂商的英文和中文名称。这里从不翻译名称：厂商未公布的名称为空。
  MindCluster 的故障级别指南给出九位故障码的名称，其 RDMA 插件给出网卡和 DPU 故障码的名称，
  其 FaultDiag 的文件 `kg-config.json` 给出所有其他名称。
* ***斜体*文字**是推导得出的：根据故障码的各个位或其种类。推导得出的描述为英文。
* **对任务的影响**和**处理措施**根据级别得出。
  [告警处理手册](runbooks.zh-CN.md)对每个告警重复这两项。

本页由 `python -m tests.contract.codes_document` 根据 `contract/data` 生成。

""",
    titles={
        CodeKind.CHIP: "芯片的故障码",
        CodeKind.SWITCH: "板载交换芯片的故障码",
        CodeKind.NODE: "服务器的故障码",
        CodeKind.PUBLIC: "公共故障码",
        CodeKind.DPU: "RDMA 网卡和 DPU 的故障码",
    },
    kinds="| 种类 | 故障码 | 英文名称 | 中文名称 | 在 docs/spec 中描述 | 推导得出 |",
    fields_head="各字段已知、推导得出或缺失的故障码数量：",
    counts="| 字段 | 已知 | 推导得出 | 缺失 |",
    fields={
        "summary": "英文名称或描述",
        "name_zh": "中文名称",
        "component": "组件",
        "module": "组件的部件",
        "severity": "严重程度",
        "level": "级别",
        "effect": "对任务的影响",
        "remedy": "处理措施",
    },
    jobs="任务：",
    remedy="处理：",
    columns="| 故障码 | 英文名称 | 中文名称 | 部件 | 严重程度 |",
    texts=read_catalogue(CATALOGUE.read_text(encoding="utf-8").splitlines()),
)


def document(edition: Edition) -> str:
    """Return the whole document."""
    codes = list(all_codes())
    lines = [*_counts(edition, codes)]
    for kind in CodeKind:
        lines += _of_kind(edition, kind, [code for code in codes if code.kind is kind])
    return edition.head + "\n".join(lines)


def _counts(edition: Edition, codes: Sequence[CodeReference]) -> Iterator[str]:
    yield edition.kinds
    yield "|---|---|---|---|---|---|"
    for kind in CodeKind:
        of_kind = [code for code in codes if code.kind is kind]
        named = sum(bool(code.name_en) for code in of_kind)
        chinese = sum(bool(code.name_zh) for code in of_kind)
        derived = sum("summary" in code.follows for code in of_kind)
        others = len(of_kind) - named - derived
        yield f"| {kind} | {len(of_kind)} | {named} | {chinese} | {others} | {derived} |"
    yield ""
    yield edition.fields_head
    yield ""
    yield edition.counts
    yield "|---|---|---|---|"
    for field, heading in edition.fields.items():
        known_count = sum(field in code.known for code in codes)
        follows = sum(field in code.follows for code in codes)
        missing = len(codes) - known_count - follows
        yield f"| {heading} | {known_count} | {follows} | {missing} |"
    yield ""


def _of_kind(edition: Edition, kind: CodeKind, codes: Sequence[CodeReference]) -> Iterator[str]:
    yield f"## {edition.titles[kind]}"
    yield ""
    levels = {code.level for code in codes}
    for level, text in level_texts(kind).items():
        if level not in levels:
            continue
        yield f"### {level} ({kind})"
        yield ""
        yield f"{edition.jobs}{edition.texts.get(text.effect, text.effect)}"
        yield ""
        yield f"{edition.remedy}{edition.texts.get(text.remedy, text.remedy)}"
        yield ""
        yield edition.columns
        yield "|---|---|---|---|---|"
        of_level = (code for code in codes if code.level == level)
        for code in sorted(of_level, key=lambda row: row.code):
            part = " ".join(filter(None, (_shown(code, "component"), _shown(code, "module"))))
            name, severity = _shown(code, "summary"), _shown(code, "severity")
            cells = (f"`{code.code}`", name, code.name_zh, part, severity)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""


def _shown(code: CodeReference, field: str) -> str:
    """Return the value of a field, in italics where it only follows."""
    value: str = getattr(code, field)
    return f"*{value}*" if field in code.follows else value


if __name__ == "__main__":
    for each in (ENGLISH, CHINESE):
        each.path.write_text(document(each), encoding="utf-8")
