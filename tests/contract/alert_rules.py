"""Makes ``systemd/npu-vigil-alerts.yml`` and ``docs/runbooks.md`` of the tables of fault codes.

::

    python -m tests.contract.alert_rules
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract.codes.chip_codes import NETWORK_FAULT_CODES
from contract.codes.host_codes import HOST_CODES
from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel
from contract.codes.reference import CodeKind, CodeReference, all_codes, level_texts, text_of_level
from contract.plural import plural
from elastic.decision import VcjobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from contract.codes.reference import LevelText

_ROOT = Path(__file__).parents[2]
RULES = _ROOT / "systemd" / "npu-vigil-alerts.yml"
RUNBOOKS = _ROOT / "docs" / "runbooks.md"
_HARMLESS = {ChipLevel.NOT_HANDLE_FAULT, SwitchLevel.NOT_HANDLE, NodeLevel.NOT_HANDLE_FAULT}
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
CAUSE_NOT_KNOWN = VcjobState.CAUSE_NOT_KNOWN.value
_NETWORK = "|".join(sorted(NETWORK_FAULT_CODES))
_WORDS = {
    CodeKind.CHIP: ("Chip", "codes of chips"),
    CodeKind.SWITCH: ("Switch", "codes of on-board switches"),
    CodeKind.NODE: ("Server", "codes of the server"),
    CodeKind.PUBLIC: ("Public", "public fault codes"),
    CodeKind.DPU: ("Dpu", "codes of RDMA NICs and DPUs"),
}
_RULES_HEAD = """\
# Alerts for Prometheus, generated from contract/data by python -m tests.contract.alert_rules.
# Copy this file and list it in rule_files. runbook_url is a path in the source of NPU Vigil.
groups:
  - name: npu-vigil-faults
    rules:
"""
_RUNBOOKS_HEAD = """\
# Runbooks

Each alert of `systemd/npu-vigil-alerts.yml` has a section here: when it fires, what happens to
jobs, and what you do. The commands work from any machine that reaches the cluster; [ten
questions](operate.md) shows their output. [Fault codes](codes.md) lists the codes of each level.

Alerts and runbooks are generated from `contract/data` by `python -m tests.contract.alert_rules`.
"""


class Alert(NamedTuple):
    """An alert of one kind of codes, at one level; ``names`` is whose names its codes may have."""

    name: str
    kind: CodeKind
    names: str
    level: str
    expression: str
    summary: str
    text: LevelText


def alerts() -> Iterator[Alert]:
    """Yield an alert for each level that changes something for jobs, and one for networks."""
    for kind in CodeKind:
        for level, text in level_texts(kind).items():
            if level not in _HARMLESS:
                yield _alert(kind, level, text)
    network = text_of_level(CodeKind.CHIP, min(NETWORK_FAULT_CODES), ChipLevel.PRE_SEPARATE_NPU)
    assert network is not None
    yield Alert(
        "NpuVigilChipNetwork",
        CodeKind.CHIP,
        "chip",
        "",
        f'npu_vigil_faults{{code=~"{_NETWORK}",level!~"{_not_of_network()}"}}',
        "{{ $labels.subject }} of {{ $labels.instance }}: fault {{ $labels.code }} of the network "
        f"at {{{{ $labels.level }}}} ({network.short})",
        network,
    )


class ElasticAlert(NamedTuple):
    """The alert about a job of elastic training that waits for a person."""

    name: str = "NpuVigilElasticCauseNotKnown"
    expression: str = f'max by (state) (npu_vigil_elastic_jobs{{state="{CAUSE_NOT_KNOWN}"}}) > 0'
    lasts: str = "5m"
    summary: str = (
        "{{ $value }} elastic jobs have ended, and it is not known whether a fault ended them"
    )
    when: str = (
        "The record of the scheduler was gone before a daemon saw it, and the history of the "
        "aggregator does not show all."
    )
    effect: str = "The job stays as it has ended: it is started again only after a fault."
    remedy: str = "Look at the faults of its nodes. If a fault ended it, start it again."


def _alert(kind: CodeKind, level: str, text: LevelText) -> Alert:
    word, _ = _WORDS[kind]
    where = "{{ $labels.subject }} of {{ $labels.instance }}"
    if kind is CodeKind.PUBLIC:
        codes = "|".join(sorted(one.code for one in all_codes() if one.kind is kind))
        expression = f'npu_vigil_cluster_faults{{code=~"{codes}",level="{level}"}}'
        where = "{{ $value }} parts of the cluster"
    elif kind is CodeKind.DPU:
        expression = f'npu_vigil_cluster_dpu_faults{{level="{level}"}} > 0'
        where = "{{ $value }} NICs, DPUs or nodes"
    elif level == _MANUAL:
        expression = f'npu_vigil_upgrades{{level="{level}"}}'
        where = "chip {{ $labels.chip }} of {{ $labels.instance }}"
    else:
        subject = {"chip": "chip", "switch": "switch", "node": "host"}[kind]
        others = ""
        if kind is CodeKind.CHIP and level not in _not_of_network().split("|"):
            others = f',code!~"{_NETWORK}"'
        expression = f'npu_vigil_faults{{subject=~"{subject} .*",level="{level}"{others}}}'
    return Alert(
        f"NpuVigil{word}{level}",
        kind,
        str(kind),
        level,
        expression,
        f"{where}: fault {{{{ $labels.code }}}} at {level} ({text.short})",
        text,
    )


def _not_of_network() -> str:
    """Return the levels at which a code of the network is as any other one."""
    code = min(NETWORK_FAULT_CODES)
    texts = level_texts(CodeKind.CHIP).items()
    same = [name for name, text in texts if text_of_level(CodeKind.CHIP, code, name) == text]
    return "|".join(same)


def rules() -> str:
    """Return the file of rules."""
    lines: list[str] = []
    known: set[str] = set()
    for one in alerts():
        lines += [f"      - alert: {one.name}", f"        expr: {_quoted(one.expression)}"]
        lines += ["        annotations:", f"          summary: {_quoted(one.summary)}"]
        description = f"{one.text.effect} {one.text.remedy}"
        lines.append(f"          description: {_quoted(description)}")
        for language, names in (("en", _names(one.names)), ("zh", _names_zh(one.names))):
            anchor = f"{one.names}_{language}"
            if names:
                value = f"*{anchor}" if anchor in known else f"&{anchor} {_quoted(names)}"
                lines.append(f"          name_{language}: {value}")
                known.add(anchor)
        lines.append(f"          runbook_url: docs/runbooks.md#{one.name.lower()}")
    elastic = ElasticAlert()
    lines += [
        "  - name: npu-vigil-elastic",
        "    rules:",
        f"      - alert: {elastic.name}",
        f"        expr: {_quoted(elastic.expression)}",
        f"        for: {elastic.lasts}",
        "        annotations:",
        f"          summary: {_quoted(elastic.summary)}",
        f"          description: {_quoted(f'{elastic.effect} {elastic.remedy}')}",
        f"          runbook_url: docs/runbooks.md#{elastic.name.lower()}",
    ]
    return _RULES_HEAD + "\n".join(lines) + "\n"


def _names(kind: str) -> str:
    return _by_code((one.code, one.summary) for one in _of_kind(kind) if "summary" in one.known)


def _names_zh(kind: str) -> str:
    return _by_code((one.code, one.name_zh) for one in _of_kind(kind) if one.name_zh)


def _by_code(names: Iterable[tuple[str, str]]) -> str:
    """Return a template of the name of ``$labels.code``; empty for another code."""
    tests = (f'{{{{ if eq $labels.code "{code}" }}}}{name}{{{{ end }}}}' for code, name in names)
    return "".join(tests)


def _of_kind(kind: str) -> Iterator[CodeReference]:
    return (one for one in all_codes() if one.kind == kind)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def runbooks() -> str:
    """Return the document."""
    sections = (line for one in alerts() for line in _section(one))
    elastic = _elastic_section(ElasticAlert())
    return "\n".join([_RUNBOOKS_HEAD, *sections, *elastic, *_host_checks()])


def _host_checks() -> Iterator[str]:
    """Yield a section for all codes of host checks, each with what to do."""
    yield "## Codes of host checks\n"
    yield "Without another level in the fault configuration of the node they raise no alert. When"
    yield "each of them ends is in [host checks](configuration.md#host-checks).\n"
    yield "| code | fault | what you do |"
    yield "|---|---|---|"
    for code, check in HOST_CODES.items():
        yield f"| `{code}` | {check.name} | {check.remedy} |"
    yield ""


def _elastic_section(one: ElasticAlert) -> Iterator[str]:
    yield from (f"## {one.name}", "", f"When: {one.when}", "", f"Jobs: {one.effect}", "")
    yield from (f"To do: {one.remedy}", "", "```sh", "vigil elastic list")
    yield "vigil elastic show NAMESPACE/NAME"
    yield from ("vigil faults", "vigil elastic restore --now NAMESPACE/NAME", "```", "")


def _section(one: Alert) -> Iterator[str]:
    if one.level == _MANUAL:
        when = "A rule or an operator isolated the chip."
        filtered = f" --level {_MANUAL}"
    elif one.level:
        when = f"A fault holds at the level `{one.level}`."
        filtered = f" --level {one.level}"
    else:
        when = f"A fault of the network holds: {', '.join(f'`{c}`' for c in _NETWORK.split('|'))}."
        filtered = ""
    yield f"## {one.name}"
    yield ""
    yield f"When: {when}"
    yield ""
    yield f"Jobs: {one.text.effect}"
    yield ""
    yield f"To do: {one.text.remedy}"
    yield ""
    yield "```sh"
    yield f"vigil faults{filtered}"
    if one.kind is not CodeKind.PUBLIC:
        yield "vigil explain NODE/CHIP" if one.kind is CodeKind.CHIP else "vigil explain NODE"
    yield "vigil explain CODE"
    yield "vigil jobs"
    if one.level == _MANUAL:
        yield "vigil release NODE CHIP"
    yield "```"
    yield ""
    codes = [row for row in _of_kind(one.names) if row.level == one.level]
    if codes:
        _, title = _WORDS[one.kind]
        named = sum(bool(row.name_en) for row in codes)
        anchor = f"codes.md#{one.level.lower()}-{one.kind}"
        yield (
            f"MindCluster ships this level for {plural(len(codes), 'code')} "
            f"([{title}]({anchor})). The English name is known for {named} of them."
        )
        yield ""


if __name__ == "__main__":
    RULES.write_text(rules(), encoding="utf-8")
    RUNBOOKS.write_text(runbooks(), encoding="utf-8")
