"""Collects the content of the pages from all parts of the agent, at one instant."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.pages import status
from agent.pages.npu_exporter import Cards
from collectors.bmc import FAILED_READINGS
from collectors.chip_faults.collector import LIST_PERIOD
from collectors.kernel_log.collector import READS_PIPE, KernelLogSection
from contract.codes.host_codes import KERNEL_LOG
from contract.observation import NODE
from contract.pages.agent_status import AgentStatus
from dcmi_shim.library.discovery import DEFAULT_DRIVER_ROOT

if TYPE_CHECKING:
    from agent.wiring import AgentParts
    from stores.base import PodUsage

_METADATA, _METADATA_SUFFIX = "npu_vigil-", ".dist-info"
"""Begin and end of the name of the folder that an installer writes; the version is in between."""


def version() -> str:
    """Return the version of this package, from the name of the folder with its metadata.

    ``importlib.metadata`` imports parsers of mail, CSV and ZIP files, which an agent does not need.
    """
    for place in map(Path, sys.path):
        # An entry may lie in a folder that this user may not search.
        with contextlib.suppress(OSError):
            for folder in place.glob(f"{_METADATA}*{_METADATA_SUFFIX}"):
                return folder.name.removeprefix(_METADATA).removesuffix(_METADATA_SUFFIX)
    return "unpackaged"


def pods_with_chips(parts: AgentParts) -> tuple[PodUsage, ...]:
    """Return the pods of this node that have chips; none where the store knows nothing of pods."""
    return () if parts.cluster.allocation is None else parts.cluster.allocation.pods


def cards(parts: AgentParts) -> Cards:
    """Return the source of the metrics with NPU exporter's names."""
    device_info = parts.documents.device_info
    faults = status.fault_statuses(parts.fault_state.state, device_info.device_type)
    pods = pods_with_chips(parts)
    return Cards(device_info.inventory, parts.chips.names, faults, parts.collecting.readings, pods)


def collect_status(parts: AgentParts) -> AgentStatus:
    """Return the status for the status page, ``/readyz`` and the metrics."""
    context, cluster, collecting = parts.context, parts.cluster, parts.collecting
    device_info = parts.documents.device_info
    root = context.configuration.driver_root or DEFAULT_DRIVER_ROOT
    state = parts.fault_state.state
    driver = status.driver_status(
        str(root),
        device_info.inventory,
        context.driver.trouble,
        context.driver.polling_reason,
        collecting.gaps.total() - collecting.gaps[KERNEL_LOG],
        context.driver.stuck_calls(),
    )
    publications = parts.documents.statuses()
    shadow = None if parts.documents.shadow is None else parts.documents.shadow.status()
    chips = status.chip_statuses(
        state,
        device_info.device_type,
        collecting.readings,
        device_info.missing(),
    )
    heartbeat_status = status.heartbeat_status(parts.heartbeat, parts.old_readers)
    node, usage = state.of(NODE), cluster.allocation
    at_ms = context.wall_clock()
    unseen = () if usage is None or usage.blind is None else (usage.blind,)
    return AgentStatus(
        node=context.configuration.node_name,
        version=version(),
        at_ms=at_ms,
        started_at_ms=context.started_at_ms,
        revision=state.revision,
        not_ready=status.not_ready(
            publications,
            chips,
            driver,
            heartbeat_status,
            shadow,
            blind=parts.chips.blindness.check(),
            at_ms=at_ms,
        ),
        stalled=context.stalls.stalled(),
        chips=chips,
        faults=status.fault_statuses(state, device_info.device_type),
        answered=node.answered,
        blind=(*status.blind_about_node(state), *unseen),
        driver=driver,
        publications=publications,
        fault_configuration=status.fault_configuration_status(
            parts.fault_configuration.judged, parts.fault_configuration.trouble
        ),
        heartbeat=heartbeat_status,
        journal=parts.journal.status(),
        usage=None if usage is None else usage.status,
        events=None if cluster.events is None else cluster.events.status(),
        node_object=None if cluster.node_object is None else cluster.node_object.status(),
        own_node_only=None if cluster.own_node_only is None else cluster.own_node_only.is_in_force,
        serial_number=None if cluster.serial_number is None else cluster.serial_number.status(),
        shadow=shadow,
        fault_service=None if cluster.fault_service is None else cluster.fault_service.status(),
        list_period_seconds=collecting.readings.get((NODE, LIST_PERIOD)),
        bmc_failed_readings=collecting.readings.get((NODE, FAILED_READINGS)),
        gauges=status.gauges_of(collecting.readings),
        kernel_log_gaps=collecting.gaps[KERNEL_LOG],
        kernel_log_pipe=(
            context.configuration.settings_of(KernelLogSection).device
            if collecting.readings.get((NODE, READS_PIPE))
            else None
        ),
        episodes=None if cluster.forwarder is None else cluster.forwarder.status(),
        store=context.store.url,
        missed_changes=context.store.missed_changes,
        certificates={**context.store.certificate_ends_ms, **parts.certificates.ends_ms},
    )
