"""Messages of the services from and to the values of the aggregator (``clusterd#5.3``)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from aggregator.grpc.interfaces import NORMAL
from contract.wire import fault_pb2
from pacing.cooperative import all_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.grpc.interfaces import DeviceFaultInfo, FaultMsgSignal, NodeFaultInfo


_MANY = 100
"""Nodes after which others have their turn."""


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
