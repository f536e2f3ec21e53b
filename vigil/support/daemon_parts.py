"""Parts that daemons, documents and the journal have: what NPU Vigil knows of the faults."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from typing import TYPE_CHECKING

import msgspec

from agent.journal.file import FILE_NAME
from agent.journal.reader import read_rows
from aggregator.notify.history_file import FILE_NAME as HISTORY_NAME
from aggregator.notify.history_file import read_page
from contract.errors import StoreError, VigilError
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    node_info_name,
)
from contract.pages.history import HistoryRange
from contract.sentences import english
from contract.validation_texts import decode_text
from stores.address import open_store
from vigil.daemon_client import OK
from vigil.reports.fault_history import timeline_row
from vigil.sources.daemon import DaemonSource
from vigil.sources.journal import JournalSource, has_journal
from vigil.sources.store_contents import CLUSTER_INFOS, DEVICE_INFOS, NODE_INFOS
from vigil.support.part import MAX_PART_BYTES, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Document
    from vigil.daemon_client import DaemonClient
    from vigil.support.part import PartContents
    from vigil.support.place import SupportPlace

_MAX_HISTORY_ROWS = 60_000
"""Twice as many as ``MAX_PART_BYTES`` has room for: a row takes about 250 bytes."""
DAY_MS = 24 * 3600 * 1000
_HEALTH = ("/healthz", "/readyz")
_METRICS = "/metrics"
_AGENT_PAGES = (*_HEALTH, "/api/v1/status")
_AGGREGATOR_PAGES = (
    *(*_HEALTH, "/api/v1/leader", "/api/v1/liveness", "/api/v1/services", "/api/v1/documents"),
    *("/api/v1/cluster-state", "/api/v1/separation", "/api/v1/public-faults"),
    *("/api/v1/jobs", "/api/v1/nodes"),
)
_TIMES = re.compile(
    r"^(?:# (?:HELP|TYPE) )?npu_vigil_\w*(?:seconds|stuck_calls|stalled)\w*.*$", re.M
)


def of_each_daemon(
    place: SupportPlace, ask: Callable[[str, DaemonClient], None], into: PartContents
) -> None:
    """Ask each daemon; one that gives no answer is a problem of ``into``, and the next is asked."""
    for label, client in place.daemons().items():
        try:
            ask(label, client)
        except (VigilError, OSError) as error:
            into.problems.append(f"{label}: {error}")
        finally:
            client.close()


def collect_status(place: SupportPlace, into: PartContents) -> None:
    """Add what daemons answer about themselves, nodes and jobs."""

    def ask(label: str, client: DaemonClient) -> None:
        for path in _AGENT_PAGES if label == "agent" else _AGGREGATOR_PAGES:
            _add_page(into, f"{label}/{path.rpartition('/')[2]}", client, path)

    of_each_daemon(place, ask, into)


def collect_faults(place: SupportPlace, into: PartContents) -> None:
    """Add every fault that holds."""
    of_each_daemon(
        place,
        lambda label, client: _add_page(into, f"{label}/faults", client, "/api/v1/faults"),
        into,
    )


def _add_page(into: PartContents, name: str, client: DaemonClient, path: str) -> None:
    # Whatever the status is: a daemon that is not ready answers 503 with its reasons.
    status, body = client.fetch(path)
    try:
        answer: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        answer = body[:MAX_PART_BYTES].decode(errors="replace")
    into.json(name, {"path": path, "status": status, "answer": answer})


def collect_metrics(place: SupportPlace, into: PartContents) -> None:
    """Add the metrics of each daemon."""

    def ask(label: str, client: DaemonClient) -> None:
        into.text(f"{label}/metrics", _text(client, client.fetch(_METRICS)))

    of_each_daemon(place, ask, into)


def collect_call_times(place: SupportPlace, into: PartContents) -> None:
    """Add how long calls of the daemons take, from their metrics, and how long they answer us."""

    def ask(label: str, client: DaemonClient) -> None:
        times, answers = {}, {}
        for path in (*_HEALTH, _METRICS):
            begun = time.monotonic()
            answers[path] = client.fetch(path)
            times[path] = round(time.monotonic() - begun, 3)
        into.json(f"{label}/request-seconds", times)
        metrics = _text(client, answers[_METRICS])
        into.text(f"{label}/call-times", "\n".join(_TIMES.findall(metrics)) + "\n")

    of_each_daemon(place, ask, into)


def _text(client: DaemonClient, metrics: tuple[int, bytes]) -> str:
    status, body = metrics
    if status != OK:
        raise client.refused(_METRICS, status, body)
    return body.decode(errors="replace")


def collect_timeline(place: SupportPlace, now_ms: int, into: PartContents) -> None:
    """Add what happened to faults in the last day; of the files of daemons that do not run."""

    def add(label: str, source: DaemonSource | JournalSource) -> None:
        history = source.history(None, "", now_ms - DAY_MS)
        rows = [msgspec.to_builtins(row) for row in history.read()]
        about = msgspec.to_builtins(history.about(), enc_hook=english)
        into.json(f"{label}/timeline-source", about)
        into.lines(f"{label}/timeline", rows)

    has_history = place.has_history_file()
    if has_history:
        _add_history_file(place.aggregator_state_dir / HISTORY_NAME, now_ms - DAY_MS, into)
    if has_journal(place.agent_state_dir):
        add("journal", JournalSource(place.agent_state_dir))
        return
    try:
        of_each_daemon(place, lambda label, client: add(label, DaemonSource(client)), into)
    except StoreError:
        if not has_history:
            raise


def _add_history_file(path: Path, since_ms: int, into: PartContents) -> None:
    """Add the rows of an aggregator's history; of one that is damaged those before the damage."""
    rows: list[object] = []
    # Added while empty: what was read stays where the part runs out of time.
    into.lines("history/timeline", rows)
    after: int | None = None
    more = True
    try:
        while more:
            page = read_page(path, HistoryRange(since_ms=since_ms, after=after))
            rows += [msgspec.to_builtins(timeline_row(entry)) for entry in page.events]
            after, more = page.next, page.more
            if len(rows) > _MAX_HISTORY_ROWS:
                # The newest explain the failure. Half at once, as for the journal.
                del rows[: len(rows) // 2]
                into.problems = ["only the newest rows: the last day has more than fits"]
    except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
        into.problems.append(f"{path}: {decode_text(error)}")


def collect_journal(place: SupportPlace, now_ms: int, into: PartContents) -> None:
    """Add the rows of the last day, up to the first that cannot be read."""
    path = place.agent_state_dir / FILE_NAME
    if not path.exists():
        raise NotApplicable(f"there is no {path}: no agent kept a journal here")
    rows: list[object] = []
    size = 0
    try:
        for row in read_rows(path):
            if row.at_ms < now_ms - DAY_MS:
                continue
            size += len(row.body)
            rows.append(
                {
                    "sequence": row.sequence,
                    "at_ms": row.at_ms,
                    "kind": row.kind,
                    "body": _body(row.body),
                }
            )
            if size > 2 * MAX_PART_BYTES:
                # The newest explain the failure. Half at once, so that it is not done for each row.
                del rows[: len(rows) // 2]
                size //= 2
                into.problems = ["only the newest rows: the last day has more than fits"]
    finally:
        if rows:
            into.lines("journal", rows)


def _body(body: object) -> object:
    try:
        return msgspec.json.decode(body if isinstance(body, str | bytes) else str(body))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return str(body)


def collect_documents(place: SupportPlace, into: PartContents) -> None:
    """Add the documents of the store: those of the cluster, and those of nodes."""
    url = place.store or (None if place.agent is None or not place.is_node else place.agent.store)
    if url is None and place.kubeconfig is not None:
        url = "kubernetes:"
    if url is None:
        raise NotApplicable("no store is given: name one with --store or --kubeconfig")
    asyncio.run(_documents(place, url, into))


async def _documents(place: SupportPlace, url: str, into: PartContents) -> None:
    agent = place.agent
    kubeconfig = place.kubeconfig or (None if agent is None else agent.kubeconfig)
    mqtt = None if agent is None else agent.mqtt
    store = open_store(url, kubeconfig, mqtt=mqtt, others_may_write=True)
    documents: dict[tuple[str, str], Document] = {}
    try:
        for selection in (CLUSTER_INFOS, DEVICE_INFOS, NODE_INFOS):
            try:
                for document in await store.list(selection):
                    documents[document.namespace, document.name] = document
            except StoreError as error:
                into.problems.append(str(error))
        if agent is not None and place.is_node:
            for namespace, name in (
                (DEVICE_INFO_NAMESPACE, device_info_name(agent.node_name)),
                (NODE_INFO_NAMESPACE, node_info_name(agent.node_name)),
            ):
                if (namespace, name) not in documents:
                    own = await store.get(namespace, name)
                    if own is not None:
                        documents[namespace, name] = own
        beats = await store.beats()
    finally:
        # Reversed: lines are cut at the beginning, and those of the cluster come last then.
        rows: list[object] = [_shown(document) for document in documents.values()]
        into.lines("documents", rows[::-1])
        await store.close()
    into.json("heartbeats", [msgspec.to_builtins(beat) for beat in beats])


def _shown(document: Document) -> dict[str, object]:
    """Return what is ours of a document: no annotation, which other programs use for anything."""
    return {
        "namespace": document.namespace,
        "name": document.name,
        "version": document.version,
        "labels": document.labels,
        "problem": document.problem,
        "data": {key: _body(text) for key, text in document.data.items()},
    }
