"""Messages of the services from and to the values of the aggregator (``clusterd#5.3``)."""

from __future__ import annotations

import asyncio
import uuid
from itertools import islice
from typing import TYPE_CHECKING

from aggregator.grpc.fault_messages import NORMAL
from contract.documents.public_fault import (
    DEVICES_MOST,
    FAULTS_MOST,
    INFLUENCE_MOST,
    LOCATIONS_MOST,
    Influence,
    PublicFault,
    PublicFaultEntry,
)
from contract.wire import fault_pb2, pubfault_pb2
from pacing.cooperative import all_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.grpc.fault_messages import DeviceFaultInfo, FaultMsgSignal, NodeFaultInfo


_MANY = 100
"""Influences, or nodes, after which others have their turn."""


async def public_fault(request: pubfault_pb2.PublicFaultRequest) -> PublicFault:
    """Return a client's message in the form of one from a ConfigMap; gives way to other tasks.

    Of a message with too many members to be accepted only one more than that is read.
    """
    faults = []
    for fault in request.faults[: FAULTS_MOST + 1]:
        faults.append(_fault(fault))
        if len(fault.influence) > _MANY:
            await asyncio.sleep(0)
    return PublicFault(
        id=request.id,
        timestamp=request.timestamp,
        version=request.version,
        resource=request.resource,
        faults=faults,
    )


def _fault(fault: pubfault_pb2.Fault) -> PublicFaultEntry:
    return PublicFaultEntry(
        fault_id=fault.faultId,
        fault_type=fault.faultType,
        fault_code=fault.faultCode,
        fault_time=fault.faultTime,
        assertion=fault.assertion,
        fault_location=dict(islice(fault.faultLocation.items(), LOCATIONS_MOST + 1)),
        influence=[
            Influence(
                node_name=about.nodeName,
                node_sn=about.nodeSN,
                device_ids=about.deviceIds[: DEVICES_MOST + 1],
            )
            for about in fault.influence[: INFLUENCE_MOST + 1]
        ],
        description=fault.description,
    )


def fault_signal(job_id: str, message: FaultMsgSignal | None) -> fault_pb2.FaultMsgSignal:
    """Encode ``message`` under a new uuid; without one: nothing is wrong with this job
    (any more).
    """
    nodes = [] if message is None else [_node(node) for node in message.nodes]
    return _signal(job_id, NORMAL if message is None else message.signal_type, nodes)


async def large_fault_signal(job_id: str, message: FaultMsgSignal) -> fault_pb2.FaultMsgSignal:
    """Encode a message about any number of nodes; give way to other tasks meanwhile."""
    nodes = await all_of(map(_node, message.nodes), _MANY)
    return _signal(job_id, message.signal_type, nodes)


def _signal(
    job_id: str, signal_type: str, nodes: Iterable[fault_pb2.NodeFaultInfo]
) -> fault_pb2.FaultMsgSignal:
    return fault_pb2.FaultMsgSignal(
        uuid=str(uuid.uuid4()), jobId=job_id, signalType=signal_type, nodeFaultInfo=nodes
    )


def _node(node: NodeFaultInfo) -> fault_pb2.NodeFaultInfo:
    return fault_pb2.NodeFaultInfo(
        nodeName=node.node_name,
        nodeIP=node.node_ip,
        nodeSN=node.node_sn,
        faultLevel=node.fault_level,
        faultDevice=[_device(device) for device in node.devices],
    )


def _device(device: DeviceFaultInfo) -> fault_pb2.DeviceFaultInfo:
    return fault_pb2.DeviceFaultInfo(
        deviceId=device.device_id,
        deviceType=device.device_type,
        faultCodes=device.fault_codes,
        faultLevel=device.fault_level,
        faultType=device.fault_types,
        faultReason=device.fault_reasons,
        switchFaultInfos=[
            fault_pb2.SwitchFaultInfo(
                faultCode=fault.fault_code,
                switchChipId=fault.switch_chip_id,
                switchPortId=fault.switch_port_id,
                faultTime=fault.fault_time,
                faultLevel=fault.fault_level,
            )
            for fault in device.switch_faults
        ],
        faultLevels=device.fault_levels,
    )
