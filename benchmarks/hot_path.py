"""Which modules and types a driver event passes through until the API server is sent its write.

``python -m benchmarks.hot_path [--json] [--events 5]`` starts a kube-apiserver, an emulated server
and an agent whose calls are recorded. It raises one fault after the other, and prints in the order
of the first call:

* modules of the product that run between the message of the driver's process and the first byte
  that is sent to the API server, without pages, metrics and the log;
* forms: types of the product of which that interval makes new values, and ``bytes``, ``str`` and
  ``dict`` where a function of the product returns them.

This is more than the path of the event: what else is notified of the change, such as the Kubernetes
Events, and what is compared with it, such as the unchanged switch document, runs in the same time.
What runs in the driver's process before that message is not recorded. Only what every event has is
printed, so that a timer that fires meanwhile is not counted.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.state_dir import SOCKET_NAME
from benchmarks.cluster import Cluster

if TYPE_CHECKING:
    from types import BuiltinFunctionType, CodeType, FrameType

PRODUCT = ("agent", "collectors", "contract", "dcmi_shim", "pacing", "service", "stores")
_ENTRY = ("dcmi_shim.worker.supervisor", "_on_message")
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


class Recorder:
    """Records the calls of this process from the next event of the driver to its write."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._modules: dict[str, None] = {}
        self._forms: dict[str, None] = {}
        self._previous: frozenset[int] = frozenset()
        self._has_begun = False
        self._kept: list[object] = []

    def begin(self, *_: object) -> None:
        """Record the next event."""
        self._modules, self._forms, self._has_begun = {}, {}, False
        # A value that ended would leave its address, by which it is recognised, to a new one.
        self._kept = gc.get_objects()
        self._previous = frozenset(map(id, self._kept))
        sys.setprofile(self._on_call)

    def _on_call(self, frame: FrameType, kind: str, argument: Any) -> None:
        if kind == "c_call":
            if self._has_begun and _is_request(argument):
                sys.setprofile(None)
                self._save()
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(PRODUCT) or module.startswith(_ASIDE):
            return
        self._has_begun = self._has_begun or (module, frame.f_code.co_name) == _ENTRY
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

    def _add_form(self, value: object) -> None:
        kind = type(value)
        is_ours = kind.__module__.startswith(PRODUCT)
        if is_ours and id(value) not in self._previous and not _is_machinery(kind):
            self._forms[f"{kind.__module__}.{kind.__qualname__}"] = None

    def _save(self) -> None:
        record = {"modules": list(self._modules), "forms": list(self._forms)}
        draft = self._output.with_suffix(".new")
        draft.write_text(json.dumps(record))
        draft.rename(self._output)


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
    common = {kind: _common(records, kind) for kind in ("modules", "forms")}
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
