"""Which modules and types a driver event passes through until the API server is sent its write.

``python -m benchmarks.hot_path [--json] [--events 5]`` starts a kube-apiserver, an emulated server
and an agent whose calls are recorded. It raises one fault after the other, and prints two answers.

The chain carries the event: the functions on the stack when the first byte of the document is sent,
then those on the stack when the callback was scheduled that sends it, and so on back to the message
of the driver's process. Where a thread woke a task, such as the journal's, its step before is
followed instead. The chain has

* hops: the functions between two waits, in the order of the calls;
* modules: those of these functions;
* forms: types of the product of which these functions hold new values.

It is a lower bound of what a reader follows: a function that has returned its value to the chain,
such as a decision of the policy or the text of a document, is on no stack when a hop ends.

The interval is an upper bound: all modules of the product that run between the message and the
first byte, without pages, metrics and the log, and all forms that they get or return. What else is
notified of the change, such as the Kubernetes Events, and what is compared with it, such as the
unchanged switch document, runs in the same time.

What runs in the driver's process before that message is not recorded. Only what every event has is
printed, so that a timer that fires meanwhile is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.state_dir import SOCKET_NAME
from benchmarks.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import BuiltinFunctionType, CodeType, FrameType

PRODUCT = ("agent", "collectors", "contract", "dcmi_shim", "pacing", "service", "stores")
_ENTRY = "dcmi_shim.worker.supervisor.Supervisor._on_message"
_PUBLISHER = "agent.publishing.publisher"
_ASIDE = ("agent.pages", "service.log", "service.pages", "service.metric_families")
_CODE = "80E01801"
_OUTPUT = "VIGIL_HOT_PATH"
_BEGIN = signal.SIGWINCH
"""A daemon ignores SIGUSR1 and SIGUSR2 (``vigil/daemon_process.py``), and not this signal."""
_START_SECONDS = 30.0
_SETTLE_SECONDS = 8.0
"""After the start of an agent: its sources have been polled for the first time."""
_QUIET_SECONDS = 1.0
_WRITE_SECONDS = 30.0


class Hop(NamedTuple):
    """The functions of the product on the stack at one moment, the outermost first.

    ``forms`` are the types of the new values that they hold.
    """

    functions: list[str]
    forms: list[str]


class Scheduled(NamedTuple):
    """A callback of the loop: where it was scheduled, ``None`` for a thread or an earlier time."""

    hop: Hop | None
    by: int | None
    """The number of the callback that scheduled it."""
    previous: int | None
    """The number of the previous step of its task."""


class Recorder:
    """Records the calls of this process from the next event of the driver to its write."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._modules: dict[str, None] = {}
        self._forms: dict[str, None] = {}
        self._previous: frozenset[int] = frozenset()
        self._has_begun = False
        self._kept: list[object] = []
        self._handles: dict[int, tuple[asyncio.Handle, Hop, int | None]] = {}
        """By id: with where, and by which callback, it was scheduled."""
        self._callbacks: list[Scheduled] = []
        self._running: int | None = None
        self._steps: dict[asyncio.Task[Any], int] = {}
        """The number of the last step of each task."""

    def begin(self, *_: object) -> None:
        """Record the next event."""
        self._modules, self._forms, self._has_begun = {}, {}, False
        self._handles, self._callbacks, self._steps, self._running = {}, [], {}, None
        # A value that ended would leave its address, by which it is recognised, to a new one.
        self._kept = gc.get_objects()
        self._previous = frozenset(map(id, self._kept))
        sys.setprofile(self._on_call)

    def _on_call(self, frame: FrameType, kind: str, argument: Any) -> None:
        if kind == "c_call":
            if self._has_begun and _is_request(argument):
                chain = self._chain(self._running, (self._hop(frame),))
                # A heartbeat or a Kubernetes Event may be sent before the document of the event.
                if chain is not None and _PUBLISHER in _modules_of(chain):
                    sys.setprofile(None)
                    self._save(chain)
            return
        module = frame.f_globals.get("__name__", "")
        if module == "asyncio.events":
            self._follow(frame, kind)
            return
        if not module.startswith(PRODUCT) or module.startswith(_ASIDE):
            return
        self._has_begun = self._has_begun or f"{module}.{frame.f_code.co_qualname}" == _ENTRY
        if not self._has_begun:
            return
        if kind == "call":
            self._modules[module] = None
            for value in _arguments(frame):
                self._add_form(value)
        elif kind == "return":
            self._add_form(argument)
            if type(argument) in (bytes, str, dict) and argument and _is_document(argument):
                self._forms[type(argument).__name__] = None

    def _follow(self, frame: FrameType, kind: str) -> None:
        """Follow which callback of the loop schedules which other one, and which one runs."""
        handle = frame.f_locals.get("self")
        if not isinstance(handle, asyncio.Handle):
            return
        name = frame.f_code.co_name
        if name == "__init__" and kind == "call" and self._has_begun:
            # The handle is kept, so that no other one gets its id.
            self._handles[id(handle)] = handle, self._hop(frame), self._running
        elif name == "_run" and kind == "call":
            _, hop, by = self._handles.get(id(handle), (None, None, None))
            # A step of a task is a method of it.
            owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
            task = owner if isinstance(owner, asyncio.Task) else None
            self._running = len(self._callbacks)
            previous = None if task is None else self._steps.get(task)
            self._callbacks.append(Scheduled(hop, by, previous))
            if task is not None:
                self._steps[task] = self._running
        elif name == "_run" and kind == "return":
            self._running = None

    def _hop(self, frame: FrameType | None) -> Hop:
        functions, forms = [], dict[str, None]()
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith(PRODUCT):
                functions.append(f"{module}.{frame.f_code.co_qualname}")
                forms |= dict.fromkeys(filter(None, map(self._form, frame.f_locals.values())))
            frame = frame.f_back
        return Hop(functions[::-1], list(forms))

    def _chain(self, callback: int | None, hops: tuple[Hop, ...]) -> tuple[Hop, ...] | None:
        """Return the hops from the driver's message to ``hops``, of which ``callback`` ran the
        first; ``None`` where no message led to it.
        """
        if _ENTRY in hops[0].functions:
            return hops
        if callback is None:
            return None
        by, previous = self._callbacks[callback].by, self._callbacks[callback].previous
        hop = self._callbacks[callback].hop
        # The step before counts where it was a thread that woke the task, such as the journal's.
        woken = None if hop is None else self._chain(by, (hop, *hops))
        return woken or (None if previous is None else self._chain(previous, hops))

    def _form(self, value: object) -> str | None:
        """Return the type of a new value of the product, ``None`` for any other value."""
        kind = type(value)
        is_ours = kind.__module__.startswith(PRODUCT)
        if is_ours and id(value) not in self._previous and not _is_machinery(kind):
            return f"{kind.__module__}.{kind.__qualname__}"
        return None

    def _add_form(self, value: object) -> None:
        if (form := self._form(value)) is not None:
            self._forms[form] = None

    def _save(self, chain: tuple[Hop, ...]) -> None:
        record = {
            "hops": [" > ".join(hop.functions) for hop in chain],
            "chain modules": _modules_of(chain),
            "chain forms": list(dict.fromkeys(form for hop in chain for form in hop.forms)),
            "modules": list(self._modules),
            "forms": list(self._forms),
        }
        draft = self._output.with_suffix(".new")
        draft.write_text(json.dumps(record))
        draft.rename(self._output)


def _modules_of(chain: tuple[Hop, ...]) -> list[str]:
    """Return the modules of the functions of a chain, each once, in the order of the calls."""
    functions = (name for hop in chain for name in hop.functions)
    # A function's name has its class in it, so the longest part that is a module counts.
    loaded = sys.modules.keys()
    return list(
        dict.fromkeys(
            next(module for module in _prefixes(name) if module in loaded) for name in functions
        )
    )


def _prefixes(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _is_request(function: BuiltinFunctionType) -> bool:
    """Return whether a call of ``function`` sends bytes over the network."""
    endpoint = getattr(function, "__self__", None)  # a method called through its class has none
    return (
        function.__name__ in {"send", "sendmsg"}
        and isinstance(endpoint, socket.socket)
        and endpoint.family is not socket.AF_UNIX
    )


def _arguments(frame: FrameType) -> list[object]:
    code: CodeType = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]


def _is_document(value: bytes | str | dict[Any, Any]) -> bool:
    """Return whether ``value`` is large enough for a document: keys and names are no forms."""
    return len(value) > (3 if isinstance(value, dict) else 200)


def _is_machinery(kind: type) -> bool:
    """Return whether ``kind`` runs something, such as a context manager, and holds no data."""
    return any(hasattr(kind, name) for name in ("__enter__", "__aenter__", "__await__"))


def record_agent() -> None:
    """Run ``vigil`` with this process' arguments; record an event after each signal."""
    from vigil.main import main

    recorder = Recorder(Path(os.environ[_OUTPUT]))
    signal.signal(_BEGIN, recorder.begin)
    main()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.hot_path", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--events", type=int, default=5, help="how many events are recorded")
    arguments = parser.parse_args()
    records: list[dict[str, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        node, output = cluster.nodes[0], Path(folder) / "record.json"
        agent = cluster.start_agent(node, "benchmarks.hot_path", {_OUTPUT: str(output)})
        agent.wait_until((node.directory / "state" / SOCKET_NAME).exists, _START_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        for chip in range(arguments.events):
            output.unlink(missing_ok=True)
            os.kill(agent.pid, _BEGIN)
            time.sleep(_QUIET_SECONDS)  # the recorder begins, and the event before it is over
            node.emulator.occur(chip, _CODE)
            agent.wait_until(output.exists, _WRITE_SECONDS)
            records.append(json.loads(output.read_text()))
    common = {kind: _common(records, kind) for kind in records[0]}
    if arguments.json:
        print(json.dumps(common, indent=2))
    else:
        for kind, names in common.items():
            print(f"{len(names)} {kind}")
            for name in names:
                print(f"  {name}")


def _common(records: list[dict[str, list[str]]], kind: str) -> list[str]:
    """Return the names that every record has, in the order of the first."""
    return [name for name in records[0][kind] if all(name in record[kind] for record in records)]


if __name__ == "__main__":
    if _OUTPUT in os.environ:
        record_agent()
    else:
        main()
