"""Checks of the store: a directory or an API server, the rights there, and other writers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from agent.node.own_node_only import ADVICE, MISSING
from agent.publishing.ownership import other_program, owned_by
from collectors.bmc import BmcSection
from contract.errors import ConfigurationError, StoreError, StoreForbidden, StoreRefused
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    HEARTBEAT_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    heartbeat_name,
    node_info_name,
)
from contract.node_signals import TAINT_KEY
from contract.operator_rules.fault_configuration import (
    CONFIG_MAPS,
)
from contract.sentences import joined, message, sentence
from pacing.abandonable_thread import AbandonableThread
from stores.deadline import answered_within
from stores.directory.files import BEATS, document_path
from stores.directory.owner import shared_problem
from vigil.exit_status import ExitStatus
from vigil.scan.findings import CheckState, no_answer, not_applicable, ok, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from agent.config import AgentConfiguration
    from stores.base import Store
    from stores.kubernetes_api.access import Access, Right
    from vigil.scan.findings import Check

DIRECTORY = "directory"
# As long as the directory store itself gives a mount that hangs (decision 19).
_DIRECTORY_SECONDS = 10.0
_FREE_BYTES = 16 << 20
# inotify shows changes by this kernel only (decision 19).
_OF_A_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "lustre", "fuse.")
SERVER, NAMESPACES = "api-server", "namespaces"
RIGHTS, OWN_NODE_ONLY = "rights", "own-node-only"
TOLERATIONS = "taint-tolerations"
_SERVER_SECONDS = 15.0
_PROBE = "npu-vigil-scan"
"""A name that no document has; nothing of this name is ever made."""
_EVERYWHERE = ""
_CORE = ""
_LEASES = "coordination.k8s.io"
WRITERS = "other-writers"
_WRITERS_SECONDS = 10.0


async def check_directory(url: str, node: str, *, others_may_write: bool) -> Check:
    """Check whether the documents of ``node`` can be written in ``directory:PATH``."""
    place = url.removeprefix("directory:")
    try:
        # A mount that hangs holds the thread, not the scan.
        return await AbandonableThread(
            lambda: _directory(Path(place).expanduser().absolute(), node, others_may_write), "scan"
        ).result(_DIRECTORY_SECONDS)
    except TimeoutError:
        advice = sentence("a mounted file system whose server is away? see dmesg and mount")
        finding = no_answer(place, _DIRECTORY_SECONDS)
        return problem(DIRECTORY, finding, advice, ExitStatus.OUTSIDE)
    except OSError as error:
        advice = sentence("see ls -ld and mount of this path")
        finding = sentence("{place} cannot be used: {reason}", place=place, reason=error.strerror)
        return problem(DIRECTORY, finding, advice, ExitStatus.OUTSIDE)


def _directory(place: Path, node: str, others_may_write: bool) -> Check:
    there = place
    # The agent makes missing directories, so the nearest one that exists decides.
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        advice = sentence("remove {there}, or name another directory", there=there)
        return problem(
            DIRECTORY,
            sentence("{there} is not a directory", there=there),
            advice,
            ExitStatus.OUTSIDE,
        )
    if place.is_dir() and not others_may_write and (shared := shared_problem(place)):
        advice = sentence(
            "chown root and chmod go-w {place}, or name a directory of the agent's own", place=place
        )
        return problem(DIRECTORY, shared, advice, ExitStatus.WRONG_USE)
    written = (
        document_path(place, DEVICE_INFO_NAMESPACE, device_info_name(node)),
        document_path(place, NODE_INFO_NAMESPACE, node_info_name(node)),
        document_path(place, BEATS, node),
    )
    for folder in (there, *(file.parent for file in written)):
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            finding = sentence(
                "{folder} cannot be read and written by user {user}",
                folder=folder,
                user=os.geteuid(),
            )
            advice = sentence(
                "chown or remount {folder}; the agent must be able to write there", folder=folder
            )
            return problem(DIRECTORY, finding, advice, ExitStatus.OUTSIDE)
    # ``rename`` replaces a file only within one file system.
    apart = [str(file) for file in written if file.exists() and _lies_apart(file)]
    if apart:
        finding = sentence(
            "on another file system than its directory: {apart}",
            apart=joined("{before}, {part}", apart),
        )
        advice = sentence("mount directories, not files: a file that is a mount cannot be replaced")
        return problem(DIRECTORY, finding, advice, ExitStatus.OUTSIDE)
    room = os.statvfs(there)
    # What users other than root may use, unlike ``f_bfree``.
    free = room.f_bavail * room.f_frsize
    if free < _FREE_BYTES:
        finding = sentence("{place} has {free} MiB left", place=place, free=free >> 20)
        return problem(
            DIRECTORY,
            finding,
            sentence("make room on this file system"),
            facts={"free_bytes": free},
        )
    kind = _file_system(there)
    facts: dict[str, object] = {"free_bytes": free, "file_system": kind}
    finding = sentence("{place} ({kind}), {free} MiB free", place=place, kind=kind, free=free >> 20)
    if there != place:
        finding = sentence("{finding}; the agent will make it", finding=finding)
    advice = ""
    if kind.startswith(_OF_A_NETWORK):
        advice = sentence(
            "{kind} does not notify an aggregator on another machine of changes here: "
            "between machines use a broker",
            kind=kind,
        )
    return ok(DIRECTORY, finding, advice, facts)


def _file_system(place: Path) -> str:
    """Return the kind of file system of ``place``; the last mount over a directory counts."""
    # Later mounts over a directory replace earlier ones in this dictionary.
    mounts = {
        Path(disk_partition.mountpoint): disk_partition.fstype
        for disk_partition in psutil.disk_partitions(all=True)
    }
    real = place.resolve()
    return next((mounts[part] for part in (real, *real.parents) if part in mounts), "unknown")


def _lies_apart(file: Path) -> bool:
    return file.is_mount() or file.stat().st_dev != file.parent.stat().st_dev


async def check_cluster(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check what of the API server the agent could use."""
    # The client costs 0.4 s, which who uses another store does not pay.
    from stores.address import kubeconfig_files
    from stores.kubernetes_api.access import Access

    try:
        access = Access(kubeconfig_files(configuration.kubeconfig))
    except ConfigurationError as error:
        finding = "; ".join(str(problem) for problem in error.problems)
        return _left_out(
            problem(SERVER, finding, sentence("give --kubeconfig"), ExitStatus.WRONG_USE)
        )
    try:
        async with answered_within(_SERVER_SECONDS):
            server = ok(SERVER, sentence("Kubernetes {version}", version=await access.version()))
    except ConfigurationError as error:
        finding = "; ".join(str(problem) for problem in error.problems)
        advice = sentence("see kubectl --kubeconfig ... version")
        return _left_out(problem(SERVER, finding, advice, ExitStatus.WRONG_USE))
    except StoreError as error:
        finding = str(error)
        advice = sentence(
            "see kubectl --kubeconfig ... version; a firewall, a proxy, a certificate?"
        )
        return _left_out(problem(SERVER, finding, advice, ExitStatus.OUTSIDE))
    else:
        namespaces = await _answered(NAMESPACES, _namespaces(access))
        # Before the rights: whether device-info may be deleted depends on it.
        own_node_only = await _answered(OWN_NODE_ONLY, _own_node_only(access, configuration))
        deletes = own_node_only.state is CheckState.OK
        rights = await _answered(RIGHTS, _rights(access, configuration, deletes))
        tolerations = await _answered(TOLERATIONS, _tolerations(access, configuration.node_name))
        return (server, namespaces, rights, own_node_only, tolerations)
    finally:
        await access.close()


def _left_out(check: Check) -> tuple[Check, ...]:
    return (
        check,
        *(
            not_applicable(name, sentence("no API server"))
            for name in (NAMESPACES, RIGHTS, OWN_NODE_ONLY, TOLERATIONS)
        ),
    )


async def _answered(name: str, check: Awaitable[Check]) -> Check:
    try:
        async with answered_within(_SERVER_SECONDS):
            return await check
    except StoreError as error:
        return problem(name, str(error), sentence("scan again when the API server answers"))


async def _namespaces(access: Access) -> Check:
    missing, unknown = [], []
    for namespace in (DEVICE_INFO_NAMESPACE, NODE_INFO_NAMESPACE):
        there = await access.has_namespace(namespace, _PROBE)
        if there is None:
            unknown.append(namespace)
        elif not there:
            missing.append(namespace)
    if missing:
        advice = "; ".join(f"kubectl create namespace {item}" for item in missing)
        return problem(
            NAMESPACES,
            sentence("missing: {missing}", missing=joined("{before}, {part}", missing)),
            advice,
            facts={"missing": missing},
        )
    if unknown:
        # An account without the right to create a document there cannot see it, nor needs it.
        return not_applicable(
            NAMESPACES,
            sentence(
                "not known, for want of rights: {unknown}",
                unknown=joined("{before}, {part}", unknown),
            ),
        )
    return ok(
        NAMESPACES,
        sentence(
            "{namespace} and {other} are there",
            namespace=DEVICE_INFO_NAMESPACE,
            other=NODE_INFO_NAMESPACE,
        ),
    )


async def _own_node_only(access: Access, configuration: AgentConfiguration) -> Check:
    """Check by dry runs whether the API server refuses writes of this agent to other nodes."""
    if configuration.shadow:
        return not_applicable(OWN_NODE_ONLY, sentence("in shadow nothing is written"))
    is_in_force = await access.is_own_node_only(configuration.node_name)
    if is_in_force is None:
        return not_applicable(OWN_NODE_ONLY, sentence("no answer to a dry run of a write shows it"))
    if not is_in_force:
        return problem(OWN_NODE_ONLY, sentence(MISSING), sentence(ADVICE))
    return ok(
        OWN_NODE_ONLY, sentence("the API server refuses writes to what belongs to other nodes")
    )


async def _tolerations(access: Access, node: str) -> Check:
    """Check whether pods with drivers of chips tolerate the taint that the aggregator may write."""
    from aggregator.scheduler_signals.driver_pods import KIND

    try:
        pods = [KIND.read(item) for item in await access.pods_on(node)]
    except StoreForbidden as error:
        return not_applicable(TOLERATIONS, str(error))
    lacking = {pod.daemon_set: pod for pod in pods if pod is not None}
    if lacking:
        finding = sentence(
            "{key} is not tolerated by DaemonSet {lacking}",
            key=TAINT_KEY,
            lacking=joined("{before}, {part}", sorted(lacking)),
        )
        # Only an aggregator with node_taints writes it, and does not while this is so.
        patches = "; ".join(pod.patch for _, pod in sorted(lacking.items()))
        advice = sentence("before you switch node_taints on: {patches}", patches=patches)
        return ok(TOLERATIONS, finding, advice, {"daemon_sets": sorted(lacking)})
    return ok(TOLERATIONS, sentence("pods with drivers of chips tolerate {key}", key=TAINT_KEY))


async def _rights(access: Access, configuration: AgentConfiguration, deletes: bool) -> Check:
    wanted = rights_of(configuration, deletes_device_info=deletes)
    missing = await access.missing(wanted)
    if missing:
        listed = [
            sentence("{right} ({purpose})", right=right, purpose=sentence(wanted[right]))
            for right in missing
        ]
        advice = sentence(
            "apply the roles of daemonset/base; what a missing right is for does not "
            "happen, and everything else does"
        )
        return problem(
            RIGHTS,
            sentence("missing: {rights}", rights=joined("{before}; {part}", listed)),
            advice,
            facts={"missing": listed},
        )
    return ok(
        RIGHTS,
        sentence("all {wanted} that this configuration needs", wanted=len(wanted)),
        facts={"rights": len(wanted)},
    )


def rights_of(
    configuration: AgentConfiguration, *, deletes_device_info: bool = True
) -> dict[Right, str]:
    """Return every right that an agent with this configuration asks for, and what for.

    It may delete device-info only where own-node-only is in force.
    """
    return dict(_wanted_rights(configuration, deletes_device_info))


def _wanted_rights(
    configuration: AgentConfiguration, deletes_device_info: bool
) -> Iterator[tuple[Right, str]]:
    from stores.kubernetes_api.access import Right

    node, documents = configuration.node_name, configuration.documents
    writes = not configuration.shadow
    for config_map in CONFIG_MAPS:
        for verb in ("list", "watch"):
            right = Right(config_map.namespace, _CORE, "configmaps", verb, config_map.name)
            yield right, message("the fault configuration")
    if "device-info" in documents:
        name = device_info_name(node)
        changes = ("update", "delete") if deletes_device_info else ("update",)
        yield from _document_rights(DEVICE_INFO_NAMESPACE, name, "device-info", writes, changes)
        for verb in ("list", "watch"):
            yield Right(_EVERYWHERE, _CORE, "pods", verb), message("chips in use")
        if writes:
            yield (
                Right(DEVICE_INFO_NAMESPACE, _CORE, "events", "create"),
                message("Events about chips"),
            )
            purpose = message("Events about the node's fault configuration")
            yield Right(NODE_INFO_NAMESPACE, _CORE, "events", "create"), purpose
    if "node-info" in documents and writes:
        name = node_info_name(node)
        yield from _document_rights(
            NODE_INFO_NAMESPACE, name, "node-info", writes, ("update", "delete")
        )
    if not writes:
        return
    beat = heartbeat_name(node)
    yield Right(HEARTBEAT_NAMESPACE, _LEASES, "leases", "create"), message("the heartbeat")
    for verb in ("get", "patch"):
        yield Right(HEARTBEAT_NAMESPACE, _LEASES, "leases", verb, beat), message("the heartbeat")
    serial_number = "node-info" in documents and configuration.settings_of(BmcSection).enabled
    keeps = configuration.node_labels.enabled and ("device-info" in documents or serial_number)
    generation = configuration.heartbeat.generation
    if keeps or generation != "lease":
        for verb in ("list", "watch"):
            yield Right(_EVERYWHERE, _CORE, "nodes", verb, node), message("what its Node has")
    if keeps or generation == "annotation":
        purpose = message("labels and annotations of the Node")
        yield Right(_EVERYWHERE, _CORE, "nodes/status", "patch", node), purpose


def _document_rights(
    namespace: str, name: str, kind: str, writes: bool, changes: tuple[str, ...]
) -> Iterator[tuple[Right, str]]:
    from stores.kubernetes_api.access import Right

    reads = ("get", "list", "watch") if writes else ("list", "watch")
    for verb in (*reads, *(changes if writes else ())):
        yield Right(namespace, _CORE, "configmaps", verb, name), kind
    if writes:
        # Who creates has no name yet, by which it could be allowed.
        yield Right(namespace, _CORE, "configmaps", "create"), kind


async def check_writers(configuration: AgentConfiguration, store: Store) -> Check:
    """Check whether a Device Plugin or NodeD writes what this agent is to write."""
    if configuration.shadow:
        return not_applicable(
            WRITERS, sentence("in shadow nothing is written, others are expected")
        )
    owned = owned_by(configuration.node_name, configuration.documents)
    now_ms = time.time_ns() // 1_000_000
    try:
        async with answered_within(_WRITERS_SECONDS):
            programs = [
                other_program(own, await store.writer(own.namespace, own.name), now_ms)
                for own in owned
            ]
    except StoreRefused as error:
        text = sentence("who writes is not known: {reason}", reason=str(error))
        return not_applicable(WRITERS, text)
    except StoreError as error:
        return problem(
            WRITERS, str(error), sentence("scan again when the store answers"), ExitStatus.OUTSIDE
        )
    others = [other.text for other in programs if other is not None]
    if others:
        advice = sentence("one of the two must stop, see above: until then this agent is not ready")
        return problem(WRITERS, joined("{before}; {part}", others), advice)
    return ok(
        WRITERS,
        sentence(
            "no other program writes {owned}",
            owned=joined("{before} or {part}", (own.kind for own in owned)),
        ),
    )
