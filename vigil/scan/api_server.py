"""Checks of the API server: connection, namespaces, and the rights that the agent needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.node.own_node_only import ADVICE, MISSING
from contract.errors import ConfigurationError, StoreError
from contract.names import DEVICE_INFO_NAMESPACE, NODE_INFO_NAMESPACE
from stores.deadline import answered_within
from vigil.exit_status import ExitStatus
from vigil.scan.findings import CheckState, not_applicable, ok, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from agent.config import AgentConfiguration
    from stores.kubernetes_api.access import Access
    from vigil.scan.findings import Check

SERVER, NAMESPACES = "api-server", "namespaces"
RIGHTS, OWN_NODE_ONLY = "rights", "own-node-only"
_SECONDS = 15.0
_PROBE = "npu-vigil-scan"
"""A name that no document has; nothing of this name is ever made."""


async def check_cluster(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check what of the API server the agent could use."""
    # The client costs 0.4 s, which who uses another store does not pay.
    from stores.address import kubeconfig_files
    from stores.kubernetes_api.access import Access

    try:
        access = Access(kubeconfig_files(configuration.kubeconfig))
    except ConfigurationError as error:
        found = "; ".join(str(one) for one in error.problems)
        return _left_out(problem(SERVER, found, "give --kubeconfig", ExitStatus.WRONG_USE))
    try:
        async with answered_within(_SECONDS):
            server = ok(SERVER, f"Kubernetes {await access.version()}")
    except ConfigurationError as error:
        found = "; ".join(str(one) for one in error.problems)
        advice = "see kubectl --kubeconfig ... version"
        return _left_out(problem(SERVER, found, advice, ExitStatus.WRONG_USE))
    except StoreError as error:
        found = str(error)
        advice = "see kubectl --kubeconfig ... version; a firewall, a proxy, a certificate?"
        return _left_out(problem(SERVER, found, advice, ExitStatus.OUTSIDE))
    else:
        namespaces = await _answered(NAMESPACES, _namespaces(access))
        own_node_only = await _answered(OWN_NODE_ONLY, _own_node_only(access, configuration))
        deletes = own_node_only.state is CheckState.OK
        rights = await _answered(RIGHTS, _rights(access, configuration, deletes))
        return (server, namespaces, rights, own_node_only)
    finally:
        await access.close()


def _left_out(check: Check) -> tuple[Check, ...]:
    return (
        check,
        *(not_applicable(name, "no API server") for name in (NAMESPACES, RIGHTS, OWN_NODE_ONLY)),
    )


async def _answered(name: str, check: Awaitable[Check]) -> Check:
    try:
        async with answered_within(_SECONDS):
            return await check
    except StoreError as error:
        return problem(name, str(error), "scan again when the API server answers")


async def _namespaces(access: Access) -> Check:
    missing, unknown = [], []
    for namespace in (DEVICE_INFO_NAMESPACE, NODE_INFO_NAMESPACE):
        there = await access.has_namespace(namespace, _PROBE)
        if there is None:
            unknown.append(namespace)
        elif not there:
            missing.append(namespace)
    if missing:
        advice = "; ".join(f"kubectl create namespace {one}" for one in missing)
        return problem(
            NAMESPACES, f"missing: {', '.join(missing)}", advice, facts={"missing": missing}
        )
    if unknown:
        # An account without the right to create a document there cannot see it, nor needs it.
        return not_applicable(NAMESPACES, f"not known, for want of rights: {', '.join(unknown)}")
    return ok(NAMESPACES, f"{DEVICE_INFO_NAMESPACE} and {NODE_INFO_NAMESPACE} are there")


async def _own_node_only(access: Access, configuration: AgentConfiguration) -> Check:
    """Check by dry runs whether the API server refuses writes of this agent to other nodes."""
    if configuration.shadow:
        return not_applicable(OWN_NODE_ONLY, "in shadow nothing is written")
    is_in_force = await access.is_own_node_only(configuration.node_name)
    if is_in_force is None:
        return not_applicable(OWN_NODE_ONLY, "no answer to a dry run of a write shows it")
    if not is_in_force:
        return problem(OWN_NODE_ONLY, MISSING, ADVICE)
    return ok(OWN_NODE_ONLY, "the API server refuses writes to what belongs to other nodes")


async def _rights(access: Access, configuration: AgentConfiguration, deletes: bool) -> Check:
    from vigil.scan.rights import rights_of

    wanted = rights_of(configuration, deletes_device_info=deletes)
    missing = await access.missing(wanted)
    if missing:
        listed = [f"{right} ({wanted[right]})" for right in missing]
        advice = (
            "apply the roles of daemonset/base; what a missing right is for does not happen, and "
            "everything else does"
        )
        return problem(RIGHTS, f"missing: {'; '.join(listed)}", advice, facts={"missing": listed})
    return ok(
        RIGHTS, f"all {len(wanted)} that this configuration needs", facts={"rights": len(wanted)}
    )
