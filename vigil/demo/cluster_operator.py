"""The operator of the demo's cluster: writes policies and public faults, and releases chips."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from contract.codes.catalogue import read_table
from contract.codes.policies import PolicyTables
from contract.errors import StoreConflict
from contract.operator_rules.customization import CUSTOMIZATION_KEY
from contract.operator_rules.fault_configuration import (
    FAULT_CONFIG_NAME,
    FAULT_CONFIG_NAMESPACE,
    NODE_FAULT_CONFIG_NAME,
    NODE_FAULT_CONFIG_NAMESPACE,
)
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY
from stores.base import Document

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store

_ISOLATED = "ManuallySeparateNPU"
_DAY_SECONDS = 86_400
PUBLIC_FAULT_NAME = "demo-public-fault"


def customization(speed: float, isolating: tuple[str, int] | None = None) -> str:
    """Return the shipped rules, with times of waiting divided by ``speed``.

    ``isolating`` is a code, and how often in a day a chip has it before it is isolated.
    """
    shipped = read_table("policies.json", PolicyTables)
    durations = [
        replace(
            entry,
            fault_timeout=round(entry.fault_timeout / speed),
            recover_timeout=round(entry.recover_timeout / speed),
        )
        for entry in shipped.duration
    ]
    frequencies = msgspec.to_builtins(shipped.frequency)
    if isolating is not None:
        code, times = isolating
        rule = {
            "EventId": [code],
            "TimeWindow": _DAY_SECONDS,
            "Times": times,
            "FaultHandling": _ISOLATED,
        }
        frequencies = [rule, *frequencies]
    return json.dumps(
        {"FaultFrequency": frequencies, "FaultDuration": msgspec.to_builtins(durations)}
    )


class Operator:
    """A person with the right to write ConfigMaps."""

    def __init__(self, store: Store, speed: float) -> None:
        self._store = store
        self._speed = speed

    def write_rules(self, directory: Path) -> None:
        """Write the rules that hold from the start, as a file: the ConfigMap comes later."""
        (directory / CUSTOMIZATION_KEY).write_text(customization(self._speed))

    async def configure(self, code: str, times: int, *, cut_off: bool) -> None:
        """Write the ConfigMap; one that is cut off ends in its middle."""
        text = customization(self._speed, (code, times))
        if cut_off:
            text = text[: len(text) // 2]
        data = {CUSTOMIZATION_KEY: text}
        await self._store.put(Document(FAULT_CONFIG_NAMESPACE, FAULT_CONFIG_NAME, data))

    async def configure_level(self, code: str, level: str) -> None:
        """Write the ConfigMap with the levels of servers' alarms."""
        text = json.dumps({"FaultTypeCode": {f"{level}Codes": [code]}})
        data = {NODE_CONFIGURATION_KEY: text}
        document = Document(NODE_FAULT_CONFIG_NAMESPACE, NODE_FAULT_CONFIG_NAME, data)
        await self._store.put(document)

    async def report(self, node: str, chip: int, code: str, *, is_over: bool) -> None:
        """Write the message that a program which watches the network would."""
        now_ms = time.time_ns() // 1_000_000
        fault = {
            "faultId": f"npu-vigil-demo-{chip}",
            "faultType": "NPU",
            "faultCode": code,
            "faultTime": now_ms,
            "assertion": "recover" if is_over else "occur",
            "influence": [{"nodeName": node, "deviceIds": [chip]}],
        }
        message = {
            "id": f"npu-vigil-demo-{now_ms}",
            "timestamp": now_ms,
            "version": "1.0",
            "resource": "CCAE",
            "faults": [fault],
        }
        data = {"PublicFault": json.dumps(message)}
        labels = {"mc-consumer-publicfault": "true"}
        await self._store.put(Document("mindx-dl", PUBLIC_FAULT_NAME, data, labels))

    async def release(self, document: str, chip: int) -> None:
        """Take a chip's name out of the isolated ones, as ``kubectl edit`` would."""
        while True:
            there = await self._store.get(FAULT_CONFIG_NAMESPACE, document)
            assert there is not None, document
            names = there.data[_ISOLATED].split(",")
            others = [name for name in names if not name.endswith(f"-{chip}")]
            assert others != names, f"chip {chip} is not isolated"
            edited = replace(there, data=there.data | {_ISOLATED: ",".join(others)})
            try:
                # The agent writes the document as well; what it wrote meanwhile must stay.
                await self._store.put(edited, expected=there.version)
            except StoreConflict:
                continue
            return
