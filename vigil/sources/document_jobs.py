"""Which jobs are hit, from the pods of an API server and the documents of its nodes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from contract.codes.reference import CodeKind
from contract.errors import StoreUnavailable
from stores.cluster import Snapshot
from stores.interruption import Interrupted
from vigil.reports.job_report import JobFault, JobReport, JobRow
from vigil.reports.status_report import HARMLESS
from vigil.sources.document_report import SOURCE
from vigil.sources.document_rows import compared_faults
from vigil.sources.store_contents import read_contents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stores.base import Store
    from stores.cluster import PodState
    from vigil.reports.status_report import FaultRow
    from vigil.sources.store_contents import StoreContents

_SUB_HEALTH = frozenset({"SubHealthFault", "SubHealth"})
_WHOLE_NODE = frozenset({CodeKind.NODE, CodeKind.SWITCH})


async def jobs_of_documents(store: Store, address: str) -> JobReport:
    """Return the jobs with a pod on a chip or a node that has a fault.

    Raises ``StoreError`` where the store has no pods, or does not show them.
    """
    pods = await _pods(store, address)
    contents = await read_contents(store, None)
    hits = {name: _hits(contents, name) for name in {pod.node for pod in pods}}
    jobs: dict[str, list[PodState]] = {}
    for pod in pods:
        if pod.job:
            jobs.setdefault(pod.job, []).append(pod)
    rows = (_row(key, members, hits) for key, members in jobs.items())
    return JobReport(
        source=SOURCE,
        server=address,
        at_ms=contents.at_ms,
        not_known=(
            "since when a job is hit, and jobs that are hit by what is in no document",
            "whether these documents are current",
            *contents.unread,
            *contents.problems,
        ),
        jobs=tuple(sorted((row for row in rows if row.faults), key=lambda row: row.job)),
    )


async def _pods(store: Store, address: str) -> list[PodState]:
    if store.cluster is None:
        raise StoreUnavailable(
            f"only an API server has pods, which {address} is not; an aggregator has jobs"
        )
    async with aclosing(store.cluster.pods()) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Interrupted):
                raise StoreUnavailable(f"pods of {address} cannot be read: {event.reason}")
            if isinstance(event, Snapshot):
                return list(event.items.values())
    raise StoreUnavailable(f"pods of {address} cannot be read")


def _hits(contents: StoreContents, node: str) -> list[FaultRow]:
    result = contents.nodes.get(node)
    if result is None:
        return []
    rows = (compared_fault.row for compared_fault in compared_faults(node, result))
    return [row for row in rows if not row.withheld and row.level not in HARMLESS]


def _row(key: str, pods: list[PodState], hits: Mapping[str, list[FaultRow]]) -> JobRow:
    rows = list(_rows(pods, hits))
    is_unhealthy = any(row.level not in _SUB_HEALTH for row in rows)
    names = {pod.job_name for pod in pods if pod.job_name}
    return JobRow(
        job=f"{pods[0].namespace}/{min(names)}" if names else key,
        health="UnHealthy" if is_unhealthy else "SubHealthy",
        since_ms=None,
        faults=tuple(
            JobFault(
                row.node, row.part, row.code, row.name_en, row.name_zh, row.level, row.since_ms
            )
            for row in rows
        ),
    )


def _rows(pods: list[PodState], hits: Mapping[str, list[FaultRow]]) -> Iterator[FaultRow]:
    shown = set()
    for pod in pods:
        for row in hits[pod.node]:
            key = (row.node, row.part, row.code)
            if (row.kind in _WHOLE_NODE or row.part in pod.chips) and key not in shown:
                shown.add(key)
                yield row
