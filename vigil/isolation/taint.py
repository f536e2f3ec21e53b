"""Removes the taint ``npu-vigil/fault`` of a Node for an operator.

The aggregator sees that another program removed it, and writes it again for other faults only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreConflict, StoreForbidden, StoreNotFound, StoreRefused
from contract.node_signals import TAINT_KEY
from contract.sentences import joined, sentence
from vigil.aggregator_stores import open_stores
from vigil.exit_status import ExitStatus
from vigil.isolation.change import Consent
from vigil.isolation.run import UNCHANGED, consents
from vigil.language import shown
from vigil.reports.show import print_json, print_lines

if TYPE_CHECKING:
    from aggregator.config import AggregatorConfiguration
    from contract.node_signals import NodeSignals
    from stores.cluster import Cluster

_ATTEMPTS = 5
"""Kubelets and controllers write a Node often, so a conflict is normal; five in a row are not."""


class TaintRelease(msgspec.Struct, frozen=True):
    """What became of a release. ``changed``: the taint was removed."""

    node: str
    taint: str
    action: str
    done: bool
    changed: bool
    text: str


async def release_taint(
    configuration: AggregatorConfiguration, node: str, consent: Consent, *, as_json: bool
) -> ExitStatus:
    """Remove the taint of a Node, show what became of it, and return the exit status.

    Raises ``StoreError``.
    """
    async with open_stores(configuration, by_operator=True) as stores:
        cluster = next((s.cluster for s in stores.read if s.cluster is not None), None)
        changed = False
        try:
            if cluster is None:
                status, text = (
                    ExitStatus.WRONG_USE,
                    sentence("only the store kubernetes: has Nodes"),
                )
            else:
                status, text, changed = await _release(cluster, node, consent)
        except StoreForbidden as error:
            raise StoreRefused(f"{error}; your account needs get and patch of nodes") from None
    if as_json:
        done = status is ExitStatus.OK
        print_json(TaintRelease(node, TAINT_KEY, "release", done, changed, text))
    else:
        print_lines([shown(text)])
    return status


async def _release(cluster: Cluster, node: str, consent: Consent) -> tuple[ExitStatus, str, bool]:
    """Return the exit status, what to show, and whether the taint was removed."""
    try:
        seen = await cluster.node_signals(node)
    except StoreNotFound:
        return ExitStatus.WRONG_USE, sentence("there is no Node {node}", node=node), False
    if not seen.fault_taints:
        text = sentence("node {node} has no taint {taint}", node=node, taint=TAINT_KEY)
        return ExitStatus.NOT_WELL, text, False
    taint = joined("{before}, {part}", (f"{t.key}={t.value}:{t.effect}" for t in seen.fault_taints))
    plan = sentence("remove the taint {taint} from node {node}", taint=taint, node=node)
    if consent is Consent.DRY_RUN:
        return ExitStatus.OK, sentence("would {plan}; nothing was changed", plan=plan), False
    if consent is Consent.ASK:
        # A script gets no question that nothing would answer.
        if not sys.stdin.isatty():
            text = sentence(
                "would {plan}; nothing was changed: without a terminal, add --yes", plan=plan
            )
            return ExitStatus.WRONG_USE, text, False
        if not await consents(plan):
            return ExitStatus.NOT_WELL, sentence(UNCHANGED), False
    await _remove(cluster, node, seen)
    text = sentence(
        "removed the taint {taint} from node {node}; the aggregator writes it again for other "
        "faults only",
        taint=taint,
        node=node,
    )
    return ExitStatus.OK, text, True


async def _remove(cluster: Cluster, node: str, seen: NodeSignals) -> None:
    for attempt in range(_ATTEMPTS):
        others = [taint for taint in seen.taints if taint.key != TAINT_KEY]
        try:
            await cluster.set_taints(node, seen, others)
            return
        except StoreConflict:
            if attempt == _ATTEMPTS - 1:
                raise
            seen = await cluster.node_signals(node)
