"""``/api/v1/fleet``: the state of all nodes for pages that stay open, made once for all of them.

A rendering is good for a second. Its ``ETag`` is an id that costs nothing to compute, so a page
that asks again with ``If-None-Match`` makes no rows ([decision
61](../../docs/decisions/061-a-page-that-stays-open.md)).
"""

from __future__ import annotations

import asyncio
import heapq
import zlib
from importlib.metadata import version
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
from aiohttp import hdrs, web

from contract.pages.aggregator_status import NodeStatus
from contract.pages.faults import FaultStatus
from contract.pages.fleet import LEVEL_WEIGHTS, FleetNode, FleetPage, FleetRows, StoreAway, rank
from pacing.cooperative import all_of
from service.http.connection import free_place
from service.pages.compression import packed, packed_answer
from service.pages.daemon_pages import is_kept, json_response
from service.pages.page_rows import SLICE_ROWS
from service.pages.shared_rendering import SharedRendering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from aggregator.api.collect_status import StatusQueries
    from contract.documents.cluster_device import DeviceRecord

_ID_MS = 60_000
"""What no event shows, such as a new chip without a fault, is in an answer after this time."""


def fleet_rows(
    nodes: Iterable[NodeStatus],
    faults: Iterable[FaultStatus],
    records: dict[str, DeviceRecord],
) -> Iterator[FleetNode]:
    """Yield a row for each node that is in ``nodes`` or has ``faults``; both are sorted by node.

    ``records`` are the published records of chips.
    """
    published = (fault for fault in faults if fault.hidden is None)
    sorted_parts: tuple[Iterable[NodeStatus | FaultStatus], ...] = (nodes, published)
    for node, group in groupby(heapq.merge(*sorted_parts, key=_node_of), key=_node_of):
        parts = tuple(group)
        # Of a node that only the plugin of its NICs reports there are faults alone.
        status = next((part for part in parts if isinstance(part, NodeStatus)), None)
        fault_parts = tuple(part for part in parts if isinstance(part, FaultStatus))
        yield _row(node, status, fault_parts, records)


def _node_of(part: NodeStatus | FaultStatus) -> str:
    return part.node


def _row(
    node: str,
    status: NodeStatus | None,
    faults: tuple[FaultStatus, ...],
    records: dict[str, DeviceRecord],
) -> FleetNode:
    record = records.get(node)
    worst: dict[str, str] = {}
    for fault in faults:
        if fault.kind == "chip":
            before = worst.get(fault.subject, fault.level)
            worst[fault.subject] = min(before, fault.level, key=rank)
    levels: dict[str, int] = {}
    for level in sorted(worst.values(), key=rank):
        levels[level] = levels.get(level, 0) + 1
    standing = [fault.level for fault in faults]
    if status is not None:
        words = (status.switch_status, status.node_status)
        standing += [word for word in words if word not in (None, "", "Healthy")]
    blind: int | None = None
    if status is not None and status.blind is not None:
        blind = len(status.blind) + status.blind_left_out
    return FleetNode(
        node=node,
        level=min(standing, key=rank, default=""),
        chips=0 if record is None else len(record.chips),
        levels=levels,
        kinds=tuple(sorted({fault.kind for fault in faults})),
        codes=tuple(sorted({fault.code for fault in faults})),
        blind=blind,
        heartbeat="unknown" if status is None else status.heartbeat,
        super_pod=None if record is None or record.super_pod_id < 0 else record.super_pod_id,
        rack=None if record is None or record.rack_id <= 0 else record.rack_id,
    )


class Rendering(msgspec.Struct, frozen=True):
    """One answer, plain and packed, and its id."""

    tag: str
    plain: bytes
    packed: bytes


class FleetPages:
    """Serves the page. ``queries`` are read anew for each rendering."""

    def __init__(self, queries: StatusQueries) -> None:
        self._queries = queries
        self._version = version("npu-vigil")
        self._shared = SharedRendering(
            "fleet", self._rendered, lambda rendering: rendering.tag == self.tag
        )

    async def changed_rows(self, nodes: frozenset[str]) -> FleetRows:
        """Return the rows of ``nodes``, for the clients of the stream."""
        return FleetRows(tuple(sorted(nodes)), await self._page(nodes))

    async def show(self, request: web.Request) -> web.Response:
        """Answer with all nodes or those that are asked for; 503 before the start is over."""
        if not self._queries.readiness.is_past_start():
            # A part of the nodes would look as if the others were gone. To make the rows for the
            # pages that come back after a restart would delay the first publication.
            return json_response({"error": "not everything is read and published yet"}, 503)
        if "node" in request.query:
            return json_response(await self._page(set(request.query.getall("node"))))
        tag = self.tag
        if is_kept(request, tag):
            return web.Response(status=304, headers={hdrs.ETAG: f'W/"{tag}"'})
        # A request that waits for another one's rendering keeps no page from being computed.
        free_place(request)
        rendering = await self._shared.get()
        headers: dict[str, str] = {
            hdrs.ETAG: f'W/"{rendering.tag}"',
            hdrs.CONTENT_TYPE: "application/json",
            hdrs.VARY: hdrs.ACCEPT_ENCODING,
        }
        return packed_answer(request, rendering.plain, rendering.packed, headers)

    @property
    def tag(self) -> str:
        """The id of what is published now; another one wherever an event was sent."""
        queries = self._queries
        verdict = queries.heartbeat_monitor.lost_nodes
        braked = () if verdict.brake is None else verdict.brake.nodes
        standing = (
            tuple(sorted(verdict.lost)),
            tuple(sorted(braked)),
            tuple(len(table.entries) for table in queries.pipeline.tables),
            tuple(source.interrupted for source in queries.pipeline.sources),
            queries.leadership.holder,
            queries.leadership.leads,
            queries.at_ms // _ID_MS,
        )
        return f"{queries.stream.last_id}-{zlib.crc32(repr(standing).encode()):x}"

    async def _rendered(self) -> Rendering:
        # Before the rows: a change while they are made gives the next answer another id.
        tag = self.tag
        page = await self._page(None)
        plain = await asyncio.to_thread(lambda: msgspec.json.encode(page) + b"\n")
        return Rendering(tag, plain, await asyncio.to_thread(packed, plain))

    async def _page(self, nodes: Collection[str] | None) -> FleetPage:
        queries = self._queries
        at_ms, stream = queries.at_ms, queries.stream.last_id
        entries = queries.pipeline.device.entries
        records = {
            node: entries[node].record
            for node in (entries if nodes is None else nodes & entries.keys())
        }
        rows = fleet_rows(queries.node_rows(nodes), queries.fault_rows(nodes), records)
        shown = await all_of(rows, SLICE_ROWS)
        leadership = queries.leadership
        return FleetPage(
            at_ms=at_ms,
            epoch=queries.stream.epoch,
            version=self._version,
            stream=stream,
            role=queries.leader_page().leader.role,
            leads=leadership.leads,
            holder=leadership.holder,
            alarm=queries.heartbeat_monitor.lost_nodes.brake is not None,
            stores_away=tuple(
                StoreAway(source.url, source.interrupted)
                for source in queries.pipeline.sources
                if source.interrupted is not None
            ),
            levels=LEVEL_WEIGHTS,
            nodes=shown,
        )
