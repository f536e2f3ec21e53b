"""How long each part of the path takes, from a call of the emulator to ``cluster-info``.

``python -m benchmarks.latency --parts`` starts the agents and the aggregator by way of this module,
which wraps functions of the product. Each wrapper writes the time of a step to one file, by the
clock that all processes of a machine share (``CLOCK_MONOTONIC``).

One change is under way at a time, so the marks of a change are the first ones after it, in the
order of ``STEPS``. Requests that run meanwhile, and carry something else, are listed by their kind.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import os
import re
import sys
from asyncio import selector_events
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.report import quantile_ms
from contract.names import CLUSTER_DEVICE_PREFIX, DEVICE_INFO_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.visibility import Change

OUTPUT = "VIGIL_PARTS"
"""The variable that names the file of the marks."""
MODULE = "benchmarks.parts"
_SENDS = {DEVICE_INFO_PREFIX: "device-info", CLUSTER_DEVICE_PREFIX: "cluster-info"}
_REQUEST = "request"

STEPS = {
    "callback": "call of the emulator, until the library calls back in the driver's process",
    "frame": "copy of the event, frame on the pipe",
    "read": "the agent wakes up and decodes the frame",
    "policy begins": "the collector makes an observation of it",
    "policy ends": "policy, rows of the journal, wake-ups",
    "commit begins": "the publisher's turn comes, first rendering",
    "commit ends": "commit of the journal",
    "write begins": "rendering of the document",
    "device-info begins": "check by the readers' rules, the request's task",
    "device-info sent": "protobuf, headers, TLS, until the bytes are with the kernel",
    "cluster watch": "API server and etcd, watch, decoding in the aggregator",
    "merge ends": "the aggregator's step: merge, chains, wake-ups",
    "attempt begins": "the writer's turn comes",
    "cluster-info begins": "check by the readers' rules",
    "cluster-info sent": "protobuf, headers, TLS, until the bytes are with the kernel",
}
"""The mark that ends each part, and what the part is. The last part ends where a watch shows it."""
_LAST = "API server and etcd, watch, decoding in the reader"
_DEVICE_INFO_STEPS = tuple(STEPS)[: tuple(STEPS).index("device-info sent") + 1]


class Mark(NamedTuple):
    """A step of a process at a time of ``perf_counter``, with what else is noted of it."""

    at: float
    step: str
    detail: str


class Parts(NamedTuple):
    """Seconds that each part took of some changes, and the requests beside them.

    ``device_info`` is what follows ``device-info sent`` where a reader waits for that document.
    """

    seconds: dict[str, list[float]]
    device_info: list[float]
    beside: Counter[str]
    beside_seconds: dict[str, list[float]]
    changes: int
    incomplete: int
    """Changes whose marks are not complete, such as those that a poll saw first."""


def parts_of(marks: Iterable[Mark], changes: Sequence[Change]) -> Parts:
    """Return the parts of ``changes``, which were made one after the other and are all visible."""
    ordered = sorted(marks)
    parts = Parts({step: [] for step in (*STEPS, "")}, [], Counter(), {}, len(changes), 0)
    for change in changes:
        assert change.device_info_at is not None
        assert change.cluster_info_at is not None
        during = [mark for mark in ordered if change.at <= mark.at <= change.cluster_info_at]
        for mark in during:
            if mark.step == _REQUEST:
                name, seconds = mark.detail.rsplit(" ", 1)
                parts.beside[name] += 1
                parts.beside_seconds.setdefault(name, []).append(float(seconds))
        times = _times(during)
        if times is None:
            parts = parts._replace(incomplete=parts.incomplete + 1)
            continue
        before = change.at
        for step, at in zip(STEPS, times, strict=True):
            parts.seconds[step].append(at - before)
            before = at
        parts.seconds[""].append(change.cluster_info_at - before)
        sent = times[len(_DEVICE_INFO_STEPS) - 1]
        parts.device_info.append(change.device_info_at - sent)
    return parts


def _times(during: Sequence[Mark]) -> list[float] | None:
    """Return when each step of ``STEPS`` was, the first one after the step before it."""
    times: list[float] = []
    for step in STEPS:
        since = times[-1] if times else 0.0
        at = next((mark.at for mark in during if mark.step == step and mark.at >= since), None)
        if at is None:
            return None
        times.append(at)
    return times


def read_marks(file: Path) -> list[Mark]:
    """Return the marks that all processes have noted in ``file``."""
    lines = (line.split("\t", 2) for line in file.read_text().splitlines())
    return [Mark(float(at), step, detail) for at, step, detail in lines]


def print_parts(parts: Parts) -> None:
    """Print a table of the parts and one of the requests beside them."""
    console = Console(width=120)
    table = Table("part", "p50 ms", "p99 ms", "share of the sum", title="Parts of a change")
    medians_ms = {
        step: quantile_ms(seconds, 0.5) for step, seconds in parts.seconds.items() if seconds
    }
    sum_ms = sum(medians_ms.values())
    for step, p50_ms in medians_ms.items():
        p99_ms, share = quantile_ms(parts.seconds[step], 0.99), f"{p50_ms / sum_ms:.0%}"
        table.add_row(STEPS.get(step, _LAST), f"{p50_ms:.2f}", f"{p99_ms:.2f}", share)
    table.add_row("sum of the medians", f"{sum_ms:.2f}", "", "")
    console.print(table)
    if parts.device_info:
        p50_ms = quantile_ms(parts.device_info, 0.5)
        console.print(f"device-info sent until a watch of a reader shows it: p50 {p50_ms:.2f} ms")
    measured = parts.changes - parts.incomplete
    console.print(f"{measured} of {parts.changes} changes have all marks")
    beside = Table("request meanwhile", "each change", "p50 ms", title="What else ran")
    for name, count in parts.beside.most_common():
        p50_ms = quantile_ms(parts.beside_seconds[name], 0.5)
        beside.add_row(name, f"{count / parts.changes:.2f}", f"{p50_ms:.2f}")
    console.print(beside)


class _Marks:
    """Notes steps of this process."""

    def __init__(self, file: str) -> None:
        # Each mark is one short write(2) at the end of the file: processes do not mix theirs.
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND)

    def note(self, step: str, detail: str = "", at: float | None = None) -> None:
        at = perf_counter() if at is None else at
        os.write(self._fd, f"{at}\t{step}\t{detail}\n".encode())

    def wrap(self, owner: type, name: str, begins: str | None, ends: str | None = None) -> None:
        """Note the begin and the end of each call of a method; a coroutine ends with its result."""
        call: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(call)
        def marked(*arguments: Any, **options: Any) -> Any:
            with self._noting(begins, ends):
                return call(*arguments, **options)

        @functools.wraps(call)
        async def marked_coroutine(*arguments: Any, **options: Any) -> Any:
            with self._noting(begins, ends):
                return await call(*arguments, **options)

        is_coroutine = inspect.iscoroutinefunction(call)
        setattr(owner, name, marked_coroutine if is_coroutine else marked)

    @contextlib.contextmanager
    def _noting(self, begins: str | None, ends: str | None) -> Iterator[None]:
        if begins is not None:
            self.note(begins)
        try:
            yield
        finally:
            if ends is not None:
                self.note(ends)


_sending: contextvars.ContextVar[str | None] = contextvars.ContextVar("sending", default=None)
"""Which of the two documents the request of this task writes."""


def _mark_requests(marks: _Marks) -> None:
    from stores.kubernetes_api.client.connection import ApiConnection
    from stores.kubernetes_api.store import KubernetesStore

    put, request = KubernetesStore._put, ApiConnection.request
    transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    write = transport.write

    async def marked_put(self: Any, document: Any, *arguments: Any) -> Any:
        sends = next((s for p, s in _SENDS.items() if document.name.startswith(p)), None)
        if sends is None:
            return await put(self, document, *arguments)
        marks.note(f"{sends} begins")
        token = _sending.set(sends)
        try:
            return await put(self, document, *arguments)
        finally:
            _sending.reset(token)

    async def marked_request(self: Any, method: str, path: str, *rest: Any, **options: Any) -> Any:
        if _sending.get() is not None:
            return await request(self, method, path, *rest, **options)
        begun = perf_counter()
        try:
            return await request(self, method, path, *rest, **options)
        finally:
            seconds = perf_counter() - begun
            marks.note(_REQUEST, f"{method} {_kind_of(path)} {seconds}", begun)

    def marked_write(self: Any, data: Any) -> None:
        write(self, data)
        sends = _sending.get()
        if sends is not None:
            marks.note(f"{sends} sent")

    KubernetesStore._put = marked_put  # type: ignore[method-assign, assignment]
    ApiConnection.request = marked_request  # type: ignore[method-assign]
    transport.write = marked_write


def _kind_of(path: str) -> str:
    """Return ``path`` without its parameters and without what names nodes and Events."""
    path = path.partition("?")[0]
    return re.sub(r"(bench-\d)[-.\w]*|(npu-vigil-state)-.*", r"\1\2", path)


def _mark_agent(marks: _Marks) -> None:
    from agent.fault_state import FaultState
    from agent.own_documents import OwnDeviceInfo
    from agent.publishing.publisher import DocumentPublisher
    from dcmi_shim.worker import process
    from dcmi_shim.worker.supervisor import Supervisor

    process._CHILD = Path(__file__).with_name("parts_child.py")
    marks.wrap(Supervisor, "_on_message", "read")
    marks.wrap(FaultState, "apply_inputs", "policy begins", "policy ends")
    marks.wrap(OwnDeviceInfo, "before_write", "commit begins", "commit ends")
    marks.wrap(DocumentPublisher, "_write", "write begins")


def _mark_aggregator(marks: _Marks) -> None:
    from aggregator.daemon import Aggregator
    from aggregator.publish.document_writer import DocumentWriter

    marks.wrap(Aggregator, "_observe", "cluster watch")
    marks.wrap(Aggregator, "_update", None, "merge ends")
    marks.wrap(DocumentWriter, "_attempt", "attempt begins")


def main() -> None:
    """Run ``vigil`` with this process' arguments, with marks in the file that ``OUTPUT`` names."""
    from vigil.main import main as run_vigil

    marks = _Marks(os.environ[OUTPUT])
    _mark_requests(marks)
    (_mark_agent if sys.argv[1] == "agent" else _mark_aggregator)(marks)
    run_vigil()


if __name__ == "__main__":
    main()
