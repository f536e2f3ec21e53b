"""Measures ``vigil prove`` on a fleet: one program answers as all agents and as the aggregator.

::

    python -m benchmarks.prove [--nodes N] [--faults N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from contract.names import device_info_name
from contract.pages.aggregator_status import LeaderPage, LeaderStatus, LivenessPage, LivenessStatus
from contract.pages.changes import FaultChange
from contract.pages.faults import FaultsPage, FaultStatus
from contract.pages.history import (
    HistoryEvent,
    HistoryPage,
    HistoryRow,
    HistorySubject,
    PublishedPage,
    RecordedSpan,
)
from contract.pages.journal import DocumentWrite, JournalEntry, JournalPage
from contract.pages.readiness import ReadinessPage

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

_CODE, _LEVEL = "80E18402", "SeparateNPU"
_EPISODE_MS = 60_000
_DAY_MS = 86_400_000


def _name(number: int) -> str:
    """Return a name that is an address of this machine: each agent has one of its own."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


class Fleet:
    """Agents with ``faults`` episodes each in the last day, the last of which holds."""

    def __init__(self, nodes: int, faults: int) -> None:
        self._nodes = [_name(number) for number in range(nodes)]
        self._faults = faults
        self._now_ms = time.time_ns() // 1_000_000
        self._journals = {node: self._journal(node) for node in self._nodes}
        self._history = self._rows()

    def _times(self, number: int) -> tuple[int, int | None]:
        begin_ms = self._now_ms - _DAY_MS + number * (_DAY_MS // self._faults)
        return begin_ms, None if number == self._faults - 1 else begin_ms + _EPISODE_MS

    def _journal(self, node: str) -> bytes:
        entries = [JournalEntry(1, self._now_ms - _DAY_MS - 1000, "snapshot")]

        def append(at_ms: int, kind: str, level: str | None, episode: str) -> None:
            sequence = len(entries) + 1
            subject = HistorySubject("chip", 3)
            event = HistoryEvent(
                *(sequence, 0, episode, kind, subject, _CODE, at_ms), new_level=level
            )
            write = DocumentWrite(device_info_name(node), "kubernetes:", sequence)
            entries.append(JournalEntry(sequence, at_ms, "changes", changes=(event,)))
            entries.append(JournalEntry(sequence + 1, at_ms + 15, "publication", write=write))

        for number in range(self._faults):
            begin_ms, end_ms = self._times(number)
            append(begin_ms, "began", _LEVEL, f"{node}-{number}")
            if end_ms is not None:
                append(end_ms, "ended", None, f"{node}-{number}")
        page = JournalPage(
            *(node, f"journal of {node}", self._now_ms, False, tuple(entries), len(entries), False)
        )
        return msgspec.json.encode(page)

    def _rows(self) -> list[bytes]:
        rows: list[HistoryRow] = []
        for node in self._nodes:
            was: str | None = None
            for number in range(self._faults):
                for at_ms, level in zip(self._times(number), (_LEVEL, None), strict=True):
                    if at_ms is not None:
                        at_ms += 25
                        change = FaultChange(
                            *(node, at_ms, "Ascend910-3", _CODE), was=was, level=level
                        )
                        rows.append(HistoryRow(len(rows), node, "", at_ms, published=change))
                        was = level
        return [
            msgspec.json.encode(
                HistoryPage(
                    *(tuple(rows[first : first + 10_000]), first + 10_000 - 1),
                    first + 10_000 < len(rows),
                )
            )
            for first in range(0, len(rows), 10_000)
        ]

    def application(self) -> web.Application:
        """Return the pages of the agents, below their names, and those of the aggregator."""
        application = web.Application()
        get = application.router.add_get
        get("/api/v1/journal", self._of_agent)
        get("/api/v1/history", self._of_history)
        at_ms = self._now_ms
        faults = tuple(
            FaultStatus(node=node, subject="Ascend910-3", kind="chip", code=_CODE, level=_LEVEL)
            for node in self._nodes
        )
        leader = LeaderStatus("leader", True, "here", None, 1)
        liveness = LivenessStatus(False, True, len(self._nodes), (), (), {})
        answers: dict[str, object] = {
            "/api/v1/nodes": {
                "at_ms": at_ms,
                "stream": "",
                "nodes": [_node(node) for node in self._nodes],
            },
            "/api/v1/faults": FaultsPage(at_ms, faults),
            "/api/v1/leader": LeaderPage(at_ms, leader, ()),
            "/api/v1/liveness": LivenessPage(at_ms, liveness),
            "/readyz": ReadinessPage(ready=True, reasons=()),
            "/api/v1/published": PublishedPage(
                *(at_ms, True, 0, (), {}), recorded=(RecordedSpan(0, at_ms + _DAY_MS),)
            ),
        }
        for path, answer in answers.items():
            get(path, _fixed(msgspec.json.encode(answer)))
        return application

    async def _of_agent(self, request: web.Request) -> web.Response:
        return _json(self._journals[request.host.partition(":")[0]])

    async def _of_history(self, request: web.Request) -> web.Response:
        page = (int(request.query.get("after", -1)) + 1) // 10_000
        return _json(self._history[page])


def _node(name: str) -> dict[str, object]:
    absent = dict.fromkeys(
        (
            *("document", "update_time", "reported_update_time", "report_age_seconds"),
            *("faults_problem", "heartbeat_age_seconds", "heartbeat_interval_seconds"),
            *("clock_skew_seconds", "switch_status", "node_status"),
        )
    )
    return absent | {
        "node": name,
        "state": "reported",
        "faults": 1,
        "heartbeat": "alive",
        "rejected": [],
    }


def _fixed(body: bytes) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return _json(body)

    return answer


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


async def measure(nodes: int, faults: int) -> dict[str, object]:
    """Return seconds and memory of ``vigil prove``, and what it found."""
    runner = web.AppRunner(Fleet(nodes, faults).application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)
    await site.start()
    port = runner.addresses[0][1]
    options = ("--server", f"http://127.0.0.1:{port}", "--agents", f"http://{{node}}:{port}")
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vigil", "prove", "--json", *options),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    seconds = time.monotonic() - began
    await runner.cleanup()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    proof = json.loads(output)
    return {
        "nodes": proof["nodes"],
        "episodes": proof["episodes"],
        "proved": proof["proved"],
        "gaps": len(proof["gaps"]),
        "seconds": round(seconds, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--faults", type=int, default=5, help="episodes of each node")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.nodes, given.faults)), indent=1))
