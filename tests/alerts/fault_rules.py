"""The alerts about faults, made of the tables of levels."""

from __future__ import annotations

from contract.codes.chip_codes import NETWORK_FAULT_CODES
from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel
from contract.codes.reference import CodeKind, all_codes, level_texts, text_of_level
from tests.alerts.rule import CRITICAL, WARNING, Rule, of_cluster, with_names

HARMLESS = {ChipLevel.NOT_HANDLE_FAULT, SwitchLevel.NOT_HANDLE, NodeLevel.NOT_HANDLE_FAULT}
"""Levels without an effect on jobs, so without an alert."""
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU
NETWORK = "|".join(sorted(NETWORK_FAULT_CODES))
_BY = "node, chip, subject, part, code, level"
_NAME = "{{ with $labels.name_en }}{{ . }}{{ else }}fault{{ end }}"
_CODE = f"{_NAME} (code {{{{ $labels.code }}}}, {{{{ $labels.level }}}})"
_NODE = "node {{ $labels.node }}"
_CHIP = f"Chip {{{{ $labels.chip }}}} of {_NODE}"
_BY_LEVEL = (
    f'{{{{ if match "^(Separate|Restart)" $labels.level }}}}{CRITICAL}{{{{ else }}}}{WARNING}'
    "{{ end }}"
)
_COMMANDS = ("vigil faults", "vigil explain NODE/CHIP", "vigil explain CODE", "vigil jobs")


def fault_rules() -> list[Rule]:
    """Return all alerts about faults. A level that changes nothing for jobs has none."""
    separated, pre_separated = ChipLevel.SEPARATE_NPU, ChipLevel.PRE_SEPARATE_NPU
    restart = [level for level in level_texts(CodeKind.CHIP) if "Restart" in level]
    return [
        _of_chips("NpuVigilChipSeparated", CRITICAL, "15s", [separated]),
        _of_chips("NpuVigilChipToRestart", CRITICAL, "15s", restart),
        _of_chips("NpuVigilChipPreSeparated", WARNING, "1m", [pre_separated]),
        _of_chips("NpuVigilChipSubHealthy", WARNING, "1m", [ChipLevel.SUB_HEALTH_FAULT]),
        *_isolated(),
        _link_down(),
        _of_parts("NpuVigilHostFault", CodeKind.NODE, "host", "Host"),
        _of_parts("NpuVigilSwitchFault", CodeKind.SWITCH, "switch", "On-board switch"),
        _public(),
        _dpu(),
        _short(),
    ]


def _harmful(kind: CodeKind) -> list[str]:
    return [level for level in level_texts(kind) if level not in HARMLESS]


def _of_chips(name: str, severity: str, lasts: str, levels: list[str]) -> Rule:
    texts = level_texts(CodeKind.CHIP)
    wanted = "|".join(levels)
    selector = f'npu_vigil_faults{{subject=~"chip .*",level=~"{wanted}",code!~"{NETWORK}"}}'
    return Rule(
        name,
        "chip",
        severity,
        lasts,
        with_names(selector, _BY),
        f"{_CHIP}: {_CODE}",
        "A fault of a chip is active at a level of the table.",
        _COMMANDS,
        kind=CodeKind.CHIP,
        levels={level: texts[level] for level in levels},
    )


def _isolated() -> list[Rule]:
    text = level_texts(CodeKind.CHIP)[_MANUAL]
    return [
        Rule(
            "NpuVigilChipIsolated",
            "chip",
            WARNING,
            "1m",
            with_names(f'npu_vigil_upgrades{{level="{_MANUAL}"}}', "node, chip, code, level, rule"),
            f"{_CHIP} is isolated by {{{{ $labels.rule }}}}: {_CODE}",
            "A rule of the node or an operator isolated the chip.",
            (
                f"vigil faults --level {_MANUAL}",
                "vigil explain NODE/CHIP",
                "vigil release NODE CHIP",
            ),
            text.effect,
            text.remedy,
        ),
        Rule(
            "NpuVigilChipsIsolatedByAggregator",
            "chip",
            WARNING,
            "1m",
            of_cluster("npu_vigil_separation_chips > 0"),
            "{{ $value }} chips of the cluster are isolated because of frequent faults",
            "The frequency policy of the aggregator isolates chips.",
            (f"vigil faults --level {_MANUAL}", "vigil release NODE CHIP"),
            text.effect,
            text.remedy,
        ),
    ]


def _link_down() -> Rule:
    levels = [level for level in _harmful(CodeKind.CHIP) if level != _MANUAL]
    texts = {
        level: text
        for level in levels
        if (text := text_of_level(CodeKind.CHIP, min(NETWORK_FAULT_CODES), level)) is not None
    }
    wanted = "|".join(levels)
    return Rule(
        "NpuVigilLinkDown",
        "network",
        WARNING,
        "1m",
        with_names(f'npu_vigil_faults{{code=~"{NETWORK}",level=~"{wanted}"}}', _BY),
        f"{_CHIP}: {_CODE} of its network link",
        f"A fault of the network is active: {', '.join(f'`{c}`' for c in NETWORK.split('|'))}.",
        (*_COMMANDS, "hccn_tool -i ID -link -g"),
        kind=CodeKind.CHIP,
        levels=texts,
    )


def _of_parts(name: str, kind: CodeKind, subject: str, title: str) -> Rule:
    levels = _harmful(kind)
    texts = level_texts(kind)
    wanted = "|".join(levels)
    return Rule(
        name,
        subject,
        _BY_LEVEL,
        "15s",
        with_names(f'npu_vigil_faults{{subject=~"{subject} .*",level=~"{wanted}"}}', _BY),
        f"{title} of {_NODE}, {{{{ $labels.subject }}}}, part {{{{ $labels.part }}}}: {_CODE}",
        "A fault of {} is active at a level of the table.".format(
            "a server part" if kind is CodeKind.NODE else "an on-board switch"
        ),
        ("vigil faults", "vigil explain NODE", "vigil explain CODE", "vigil jobs"),
        kind=kind,
        levels={level: texts[level] for level in levels},
    )


def _public() -> Rule:
    kind = CodeKind.PUBLIC
    codes = "|".join(sorted(row.code for row in all_codes() if row.kind is kind))
    levels = _harmful(kind)
    wanted = "|".join(levels)
    chosen = of_cluster(
        f'npu_vigil_cluster_faults{{code=~"{codes}",level=~"{wanted}"}}',
        "instance, code, level",
        "sum",
    )
    return Rule(
        "NpuVigilPublicFault",
        "public",
        _BY_LEVEL,
        "15s",
        with_names(chosen, "code, level"),
        f"{{{{ $value }}}} chips of the cluster, public fault: {_CODE}",
        "Another program reports a fault at a level of the table.",
        ("vigil faults", "vigil explain CODE", "vigil jobs"),
        kind=kind,
        levels={level: level_texts(kind)[level] for level in levels},
    )


def _dpu() -> Rule:
    kind = CodeKind.DPU
    levels = _harmful(kind)
    wanted = "|".join(levels)
    chosen = of_cluster(
        f'npu_vigil_cluster_dpu_faults{{level=~"{wanted}"}} > 0', "instance, code, level", "sum"
    )
    return Rule(
        "NpuVigilDpuFault",
        "dpu",
        _BY_LEVEL,
        "1m",
        with_names(chosen, "code, level"),
        f"{{{{ $value }}}} NICs, DPUs or nodes of the cluster: {_CODE}",
        "The RDMA plugin of a node reports a fault at a level of the table.",
        ("vigil faults", "vigil explain NODE", "vigil explain CODE", "vigil jobs"),
        kind=kind,
        levels={level: level_texts(kind)[level] for level in levels},
    )


def _short() -> Rule:
    """Return the alert about a fault that was over before its own alert could fire."""
    harmless = "|".join(sorted(HARMLESS))
    alerts = "NpuVigil(Chip.*|LinkDown|HostFault|SwitchFault)"
    return Rule(
        "NpuVigilShortFault",
        "chip",
        WARNING,
        "0s",
        "max by (node, level) (\n"
        f'  npu_vigil_last_fault_episode_timestamp_seconds{{level!~"{harmless}"}} > time() - 300\n'
        ")\n"
        "unless on (node, level) npu_vigil_faults\n"
        "unless on (node, level)\n"
        f'  max_over_time(ALERTS{{alertname=~"{alerts}",alertstate="firing"}}[6m])',
        "Node {{ $labels.node }} had a short fault at {{ $labels.level }}, which is over",
        "A fault began within five minutes and ended before another alert fired, for example a "
        "fault that the driver reports once.",
        ("vigil timeline NODE --since 1h", "vigil faults --order newest"),
        "The scheduler acted on the fault as its level demands, if it saw the fault.",
        "Look up the fault in the timeline. If it returns, do what its level demands.",
    )
