"""Public faults to and from their protobuf message: an agent sends them, an aggregator reads them.

Importing this module imports protobuf; a daemon that neither sends nor serves them does not.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from contract.documents.public_fault import (
    MAX_DEVICES,
    MAX_FAULTS,
    MAX_INFLUENCES,
    MAX_LOCATIONS,
    Influence,
    PublicFault,
    PublicFaultEntry,
)
from contract.wire import pubfault_pb2 as wire

if TYPE_CHECKING:
    from pacing.cooperative import Work


def encode(message: PublicFault) -> wire.PublicFaultRequest:
    """Return ``message`` as protobuf."""
    return wire.PublicFaultRequest(
        id=message.id,
        timestamp=message.timestamp,
        version=message.version,
        resource=message.resource,
        faults=[
            wire.Fault(
                faultId=fault.fault_id,
                faultType=fault.fault_type,
                faultCode=fault.fault_code,
                faultTime=fault.fault_time,
                assertion=fault.assertion,
                faultLocation=fault.fault_location,
                influence=[
                    wire.PubFaultInfo(
                        nodeName=about.node_name, nodeSN=about.node_sn, deviceIds=about.device_ids
                    )
                    for about in fault.influence or ()
                ],
                description=fault.description,
            )
            for fault in message.faults or ()
        ],
    )


def decode(request: wire.PublicFaultRequest) -> Work[PublicFault]:
    """Return a client's message in the form of one from a ConfigMap; count its influences as work.

    Of a message with too many members to be accepted only one more than that is read.
    """
    faults = []
    # One member too many is enough for the refusal, and bounds what a hostile message costs.
    for fault in request.faults[: MAX_FAULTS + 1]:
        faults.append(_fault(fault))
        yield len(fault.influence)
    return PublicFault(
        id=request.id,
        timestamp=request.timestamp,
        version=request.version,
        resource=request.resource,
        faults=faults,
    )


def _fault(fault: wire.Fault) -> PublicFaultEntry:
    return PublicFaultEntry(
        fault_id=fault.faultId,
        fault_type=fault.faultType,
        fault_code=fault.faultCode,
        fault_time=fault.faultTime,
        assertion=fault.assertion,
        fault_location=dict(islice(fault.faultLocation.items(), MAX_LOCATIONS + 1)),
        influence=[
            Influence(
                node_name=about.nodeName,
                node_sn=about.nodeSN,
                device_ids=about.deviceIds[: MAX_DEVICES + 1],
            )
            for about in fault.influence[: MAX_INFLUENCES + 1]
        ],
        description=fault.description,
    )
