"""Collects the content of the pages from all parts of the agent, at one instant."""

from __future__ import annotations

from importlib import metadata
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


def version() -> str:
    """Return the version of this package."""
    try:
        return metadata.version("npu-vigil")
    except metadata.PackageNotFoundError:
        return "unpackaged"


def cards(parts: AgentParts) -> Cards:
    """Return the source of the metrics with NPU exporter's names."""
    device_info = parts.device_info
    faults = status.fault_statuses(parts.fault_state.state, device_info.device_type)
    pods = () if parts.allocation is None else parts.allocation.pods
    return Cards(device_info.inventory, parts.names, faults, parts.readings, pods)


def collect_status(parts: AgentParts) -> AgentStatus:
    """Return the status for the status page, ``/readyz`` and the metrics."""
    root = parts.configuration.driver_root or DEFAULT_DRIVER_ROOT
    state = parts.fault_state.state
    driver = status.driver_status(
        str(root),
        parts.device_info.inventory,
        parts.driver.trouble,
        parts.driver.polling_reason,
        parts.gaps.total() - parts.gaps[KERNEL_LOG],
        parts.driver.stuck_calls(),
    )
    publications = parts.documents.statuses()
    shadow = None if parts.documents.shadow is None else parts.documents.shadow.status()
    chips = status.chip_statuses(
        state, parts.device_info.device_type, parts.readings, parts.device_info.missing()
    )
    heartbeat_status = status.heartbeat_status(parts.heartbeat, parts.old_readers)
    node, usage = state.of(NODE), parts.allocation
    at_ms = parts.wall_clock()
    unseen = () if usage is None or usage.blind is None else (usage.blind,)
    return AgentStatus(
        node=parts.configuration.node_name,
        version=version(),
        at_ms=at_ms,
        started_at_ms=parts.started_at_ms,
        revision=state.revision,
        not_ready=status.not_ready(
            publications,
            chips,
            driver,
            heartbeat_status,
            shadow,
            blind=parts.blindness.check(),
            at_ms=at_ms,
        ),
        stalled=parts.progress.stalled(),
        chips=chips,
        faults=status.fault_statuses(state, parts.device_info.device_type),
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
        events=None if parts.events is None else parts.events.status(),
        node_object=None if parts.node_object is None else parts.node_object.status(),
        own_node_only=None if parts.own_node_only is None else parts.own_node_only.is_in_force,
        serial_number=None if parts.serial_number is None else parts.serial_number.status(),
        shadow=shadow,
        fault_service=None if parts.fault_service is None else parts.fault_service.status(),
        list_period_seconds=parts.readings.get((NODE, LIST_PERIOD)),
        bmc_failed_readings=parts.readings.get((NODE, FAILED_READINGS)),
        gauges=status.gauges_of(parts.readings),
        kernel_log_gaps=parts.gaps[KERNEL_LOG],
        kernel_log_pipe=(
            parts.configuration.settings_of(KernelLogSection).device
            if parts.readings.get((NODE, READS_PIPE))
            else None
        ),
        episodes=None if parts.forwarder is None else parts.forwarder.status(),
        missed_changes=parts.store.missed_changes,
    )
