"""What ``vigil advise`` reads: dumps, assumptions, switches of the scheduler, scaling rules."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from advisor.advise import advise
from advisor.controllers.motor_scaling_rule import read_rule, target_index
from advisor.inputs.scheduler_options import scheduler_options
from advisor.layered_dict import as_dict
from advisor.options import AdvisorOptions, Profile
from advisor.report import flat
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import StoredConfigMap
from advisor.what_if.assume import assume
from advisor.what_if.assumptions import parse_all
from contract import scheduling
from contract.errors import VigilError
from tests.advisor.controllers.motor_services import S, rule_text
from tests.vigil.advise.cluster import as_list, configmap, two_pods_on_two_of_three_nodes
from vigil.advise.dump import sessions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.snapshot import ClusterSnapshot

_SWITCHES = (
    'actions: "enqueue, allocate, backfill"\nconfigurations:\n- name: init-params\n'
    '  arguments: {"grace-over-time": "5", "useClusterInfoManager": "false"}\n',
    "configurations:\n  - name: init-params\n    arguments:\n      grace-over-time: 900\n",
)
_ASSUMED = (
    "chip 3 of n1 SeparateNPU",
    "chip 0 of n3 PreSeparateNPU",
    "code 80E01801 on chip 3 of n2",
    "n1 UnHealthy",
    "n2 gone",
    "switch of n3 SubHealthy",
    "heal n1",
    "pod default/j-0 exits 137",
)


def _ill() -> list[dict[str, object]]:
    items = two_pods_on_two_of_three_nodes()
    text = {"mindx-dl-nodeinfo-n1": {"NodeStatus": "UnHealthy", "FaultDevList": None}}
    items[-1] = configmap("mindx-dl", "cluster-info-node-cm", json.dumps(text), 13)
    return items


def _lines() -> str:
    return "\n".join(json.dumps({"now_ms": at, "items": _ill()}) for at in (1000, 2000))


def _dump(text: str) -> None:
    """Advise about what can be read; each pod that goes must be one of the dump."""
    states = dict.fromkeys(Profile, SchedulerState())
    for snapshot in sessions_of([("dump", text.encode("utf-8", "replace"))]):
        uids = {pod.uid for pod in snapshot.pods}
        for profile in Profile:
            report, after = advise(snapshot, states[profile], AdvisorOptions(profile=profile))
            states[profile] = msgspec.json.decode(
                msgspec.json.encode(after, enc_hook=as_dict), type=SchedulerState
            )
            assert states[profile] == after
            assert {pod["uid"] for pod in flat(report)["deletions"]} <= uids


@cache
def _snapshot() -> ClusterSnapshot:
    (found,) = sessions_of([("dump", as_list(two_pods_on_two_of_three_nodes()).encode())])
    return found


def _assume(text: str) -> None:
    assume(_snapshot(), parse_all([text]), AdvisorOptions())


def _switches(text: str) -> None:
    one = StoredConfigMap(
        scheduling.SCHEDULER_NAMESPACE,
        scheduling.SCHEDULER_CONFIGMAP,
        {scheduling.SCHEDULER_CONFIG_KEY: text},
    )
    found = scheduler_options([one])
    assert found is not None
    options, problem = found
    assert 2 <= options.grace_over_time <= 3600
    if problem:
        assert options == AdvisorOptions()
        raise VigilError(problem)


def _rule(text: str) -> None:
    rule = read_rule(text, "rule")
    index = target_index(rule, {})
    assert index is None or 0 <= index < len(rule.entries)


PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
    "advise-dump": ((as_list(_ill()), _lines()), _dump),
    "advise-what-if": (_ASSUMED, _assume),
    "advise-switches": (_SWITCHES, _switches),
    "scaling-rule": ((rule_text(S), rule_text([{"p": 4, "d": 2}, {"p": 1}])), _rule),
}
