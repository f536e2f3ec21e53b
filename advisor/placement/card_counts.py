"""Which cards of a node one pod may have, by the rules that the plugin takes for its job.

The annotation ``huawei.com/schedule_policy`` comes first, then ``sp-block``, then the label
``accelerator-type`` that the pod selects. Jobs without any of them have the rules of the first
generation. Source: ``docs/spec/consumers.md#1.7`` and 2.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import scheduling
from contract.codes.families import resource_of
from contract.sentences import joined, sentence

if TYPE_CHECKING:
    from advisor.jobs import SchedulerJob
    from advisor.snapshot import SchedulerPod

_FIRST_GENERATION = "module"
_SUPER_POD, _SMALL_SUPER_POD = scheduling.SUPER_POD_ACCELERATOR_TYPES
_TYPE_OF_POLICY = {
    "chip8-node8": "module-910b-8",
    "chip8-node16": "module-910b-16",
    "chip2-node16": "module-a3-16",
    "module-a3-16": "module-a3-16",
    "chip2-node8": "module-a3-16",
    "chip2-node16-sp": _SUPER_POD,
    "chip2-node8-sp": _SMALL_SUPER_POD,
}
_POLICY_PREFIX = "chip"
_WITH_NETWORK = (resource_of("Ascend910"), resource_of("npu"))
_WITHOUT_NETWORK = ("card", "chip1-")
_CARDS_OF_SUPER_POD = {_SUPER_POD: 16, _SMALL_SUPER_POD: 8}
_ILLEGAL = {"module-910b-16": (9, 11, 13, 15)}
_A3_PREFIX = "module-a3-"
_A3_CARDS = 16


def rules_of(job: SchedulerJob, pod: SchedulerPod) -> str:
    """Return the ``accelerator-type`` whose rules count for a pod. Not every type has some."""
    policy = job.policy
    if policy in _TYPE_OF_POLICY or policy.startswith(_POLICY_PREFIX) or job.is_multilevel:
        return _TYPE_OF_POLICY.get(policy, policy)
    selected = pod.node_selector.get(scheduling.ACCELERATOR_TYPE, "")
    if scheduling.SUPER_POD_BLOCK in job.annotations:
        return _SMALL_SUPER_POD if selected == _SMALL_SUPER_POD else _SUPER_POD
    return selected or _FIRST_GENERATION


def needs_network(resource: str, rules: str) -> bool:
    """Return whether cards with a broken network are kept from jobs of several pods.

    Inference cards have no network between nodes (consumers#1.3, 1.9).
    """
    return resource in _WITH_NETWORK and not any(part in rules for part in _WITHOUT_NETWORK)


def bad_count(resource: str, cards: int, rules: str, *, is_distributed: bool) -> str:
    """Return why no node can give so many cards to one pod; empty where one can.

    ``is_distributed``: its job has several pods with chips.
    """
    if not cards or resource != resource_of("Ascend910"):
        return ""
    if rules == _FIRST_GENERATION:
        if cards in (1, 2, 4, 8):
            return ""
        return sentence(
            "CardCount: {cards} cards; 1, 2, 4 or 8 on the first generation", cards=cards
        )
    if cards in _ILLEGAL.get(rules, ()):
        return sentence(
            "CardCount: {cards} cards; not {counts} on {rules}",
            cards=cards,
            counts=joined("{before}, {part}", map(str, _ILLEGAL[rules])),
            rules=rules,
        )
    if not rules.startswith(_A3_PREFIX):
        return ""
    whole = _CARDS_OF_SUPER_POD.get(rules)
    if is_distributed and whole is not None:
        if cards == whole:
            return ""
        return sentence(
            "CardCount: {cards} cards; {whole} for each pod of a job on {rules}",
            cards=cards,
            whole=whole,
            rules=rules,
        )
    if cards == 1 and is_distributed:
        return sentence(
            "CardCount: {cards} cards; 1 for a job of one pod alone on {rules}",
            cards=cards,
            rules=rules,
        )
    if cards > _A3_CARDS or (cards > 1 and cards % 2):
        return sentence(
            "CardCount: {cards} cards; 1 or an even count up to {count} on {rules}",
            cards=cards,
            count=_A3_CARDS,
            rules=rules,
        )
    return ""
