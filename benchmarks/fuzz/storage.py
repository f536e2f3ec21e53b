"""Status files of storage clients, one after the other, and messages about public faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.storage.status_parser import DPC, DTFS, StorageClient, parse
from collectors.storage.tracker import StorageTracker
from contract.codes.catalogue import shipped, shipped_levels
from contract.documents.public_fault import (
    DATA_KEY,
    PublicFault,
    PublicFaultEntry,
    accepted,
    decode_public_fault,
    encode_public_fault,
)
from contract.errors import VigilError
from contract.observation import Assertion, Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

_PERIOD_SECONDS = 5.0
_NOW_MS = 1_800_000_000_000


def _instance(number: int, client: StorageClient, *values: int) -> str:
    lines = zip(client.flags, values, strict=True)
    return f"[instidx={number}]\n" + "".join(f"{flag.key}: {value}\n" for flag, value in lines)


class StatusFiles:
    """The files of one client; whatever is in them, only a clean reading ends a fault."""

    def __init__(self, client: StorageClient) -> None:
        self.name = f"{client.name.lower()}-status"
        first, second = (flag.bad for flag in client.flags)
        self.seeds: Sequence[str] = (
            _instance(0, client, 0, 0),
            _instance(0, client, first, 0) + _instance(1, client, 0, second),
            _instance(0, client, 0, second).replace("\n", "\r\n"),
            "".join(_instance(number, client, 0, 0) for number in range(30)),
        )
        self._client = client
        self._at = 0.0
        self._tracker = StorageTracker("storage", client, (), {}, 0.0, _NOW_MS)

    def feed(self, text: str) -> None:
        """Read ``text`` in its turn."""
        self._at += _PERIOD_SECONDS
        now_ms = _NOW_MS + round(self._at * 1000)
        try:
            listed = parse(text.encode("utf-8", "replace"), self._client)
        except ValueError as error:
            reports = self._tracker.observe_failure(str(error), now_ms)
            assert not any(isinstance(report, Observation) for report in reports)
            raise VigilError(str(error)) from None
        reports, _ = self._tracker.observe_instances(listed, self._at, now_ms)
        for place, flag in enumerate(self._client.flags):
            raised = [flags[place] for flags in listed.values()]
            for report in reports:
                if isinstance(report, Observation) and report.code == flag.code:
                    is_over = report.assertion is Assertion.ABSENT
                    assert raised
                    assert not any(raised) if is_over else any(raised)
        kept = self._tracker.kept(self._at, now_ms)
        StorageTracker("storage", self._client, (), kept, self._at, now_ms)


def dpc_files() -> StatusFiles:
    """Return status files of DPC."""
    return StatusFiles(DPC)


def dtfs_files() -> StatusFiles:
    """Return status files of DTFS."""
    return StatusFiles(DTFS)


class PublicFaults:
    """Messages about public faults; what is taken of one is taken again when it is written."""

    name = "public-fault"
    seeds: Sequence[str] = (
        '{"id":"6f1c9d3e-0b7a-4e0e","timestamp":1767225600123,"version":"1.0","resource":'
        '"dpcStorage","faults":[{"faultId":"f509db1b08a9","faultType":"Node","faultCode":'
        '"110001020","faultTime":1767225600123,"assertion":"recover","faultLocation":{},'
        '"influence":[{"nodeName":"node-1","nodeSN":"","deviceIds":[0,1,2,3]}],"description":""}]}',
        '{"id":"6f1c9d3e-0b7a-4e0f","timestamp":1767225600789,"version":"1.0","resource":'
        '"pingmesh","faults":[{"faultId":"b69688e13223","faultType":"NPU","faultCode":'
        '"220001001","faultTime":1767225600789,"assertion":"occur","faultLocation":{"a":"b"},'
        '"influence":[{"nodeName":"node-1","nodeSN":"s","deviceIds":[3]}],'
        '"description":"hccsping-mesh fault"}]}',
    )

    def feed(self, text: str) -> None:
        """Judge ``text``."""
        message = decode_public_fault("document", {DATA_KEY: text})
        faults = self._taken(message)
        good = PublicFault(
            message.id, message.timestamp, message.version, message.resource, list(faults)
        )
        assert self._taken(decode_public_fault("document", encode_public_fault(good))) == faults

    def _taken(self, message: PublicFault) -> tuple[PublicFaultEntry, ...]:
        faults, _ = accepted(
            message,
            "document",
            codes=shipped().public_levels,
            resources=shipped_levels().public_resources,
        )
        return faults
