"""Recordings of the real NodeD: kept small in ``tests/vectors/noded/recordings``, read here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from contract.documents.node_info import decode_node_info
from tests.compatibility import ABSENT
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from stores.base import Document

RECORDINGS = sorted(path.stem for path in (VECTORS / "noded/recordings").glob("*.json"))
SERIAL_NUMBER = "product-serial-number"
SNAPSHOT = "host_snapshot_finish_flag"
WITH_RECORDED_PERIOD = {"bmc-hangs-during-poll", "flapping-between-polls"}
"""About what happens between two polls, so the polls are where they were."""
RECORDED_PERIOD_SECONDS = 60.0
_USUAL = {"report_interval_s": 5, "monitor_period_s": 60}
_NOT_NEEDED = ("exited_after_ms", "note")


def recorded_node(name: str) -> dict[str, Any]:
    """Return the recording called ``name``."""
    return read(VECTORS / f"noded/recordings/{name}.json")


def read(file: Path) -> dict[str, Any]:
    """Return the recording in ``file``, compact or in the form in which it was recorded."""
    recording: dict[str, Any] = json.loads(file.read_text())
    return compact(recording) if isinstance(recording["observed"], dict) else recording


def is_of_noded(recording: dict[str, Any]) -> bool:
    """Return whether a recording is of NodeD, compact or in its original form."""
    return isinstance(recording.get("observed"), dict) or "end_ms" in recording


def compact(recording: dict[str, Any]) -> dict[str, Any]:
    """Reduce a recording to what is needed: the steps and the observed results.

    Alarms become ``[code, type, index, severity]``; ``serial`` has each value of the Node's
    annotation, ``pods`` each of those about snapshots, ``public_faults`` the messages, and
    ``observed`` the states of node-info.
    """
    observed = recording["observed"]
    found = {key: recording[key] for key in ("name", "about", "source")}
    found["steps"] = [_step(step) for step in recording["steps"]]
    found["observed"] = [
        {key: row[key] for key in ("at_ms", "data", "labels") if key in row}
        for row in observed["node_info"]
    ]
    found["serial"] = list(_serials(observed["node"]))
    found["public_faults"] = observed.get("public_faults", [])
    found["pods"] = [
        {"at_ms": row["at_ms"], "name": row["name"], "value": row["annotations"][SNAPSHOT]}
        for row in observed.get("pods", ())
        if SNAPSHOT in row["annotations"]
    ]
    found["end_ms"] = observed["end_ms"]
    return found


def _step(step: dict[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in step.items() if (key, value) not in _USUAL.items()}
    for key in _NOT_NEEDED:
        small.pop(key, None)
    if step["do"] == "node":
        small.pop("labels", None)
    if "alarms" in step:
        small["alarms"] = [
            alarm
            if isinstance(alarm, list)
            else [alarm["code"], alarm["type"], alarm["index"], alarm["severity"]]
            for alarm in step["alarms"]
        ]
    return small


def _serials(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    before = None
    for row in rows:
        now = row.get("annotations", {}).get(SERIAL_NUMBER)
        if now != before:
            yield {"at_ms": row["at_ms"], "value": now}
        before = now


def parsed(data: dict[str, str], labels: dict[str, str]) -> Any:
    """Return the document as one tree, without what varies from run to run.

    The varying parts are the time, except its offset, the order of the devices, and the check code.
    ``decode_node_info`` has verified the check code.
    """
    tree: dict[str, Any] = {"labels": labels} | dict(sorted(data.items()))
    tree["updateTime"] = f"a time{data['updateTime'][19:]}"
    if data["NodeInfo"] == "{}":
        return tree  # an operator's nonsense
    assert decode_node_info("recording", data).update_time_ms
    tree["NodeInfo"] = outer = json.loads(data["NodeInfo"])
    outer["CheckCode"] = "right"
    outer["NodeInfo"]["FaultDevList"].sort(key=lambda one: (one["DeviceType"], one["DeviceId"]))
    return tree


def tree_of(document: Document | None) -> Any:
    """Return the tree of a stored document; ``ABSENT`` if there is none."""
    return ABSENT if document is None else parsed(document.data, document.labels)


def upstream_at(recording: dict[str, Any], at_ms: int) -> Any:
    """Return the tree of the real program's document at ``at_ms``; ``ABSENT`` if there was none."""
    shown = [row for row in recording["observed"] if row["at_ms"] <= at_ms]
    if not shown or "data" not in shown[-1]:
        return ABSENT
    return parsed(shown[-1]["data"], shown[-1]["labels"])


def serial_upstream(recording: dict[str, Any]) -> str | None:
    """Return the last serial number on the Node; upstream writes it up to 19 s after its start."""
    values = [row["value"] for row in recording.get("serial", ())]
    return values[-1] if values else None


def public_faults_upstream(recording: dict[str, Any], at_ms: int) -> list[str]:
    """Return the codes of storage faults that hold at ``at_ms`` for a reader of all messages."""
    rows = recording.get("public_faults", ())
    return standing(row["message"] for row in rows if row["at_ms"] <= at_ms)


def standing(messages: Iterable[dict[str, Any]]) -> list[str]:
    """Return the sorted codes whose newest assertion is ``occur``."""
    newest = {fault["faultCode"]: fault["assertion"] for one in messages for fault in one["faults"]}
    return sorted(code for code, assertion in newest.items() if assertion == "occur")


def snapshots_upstream(recording: dict[str, Any]) -> dict[str, str]:
    """Return the last snapshot for pods that asked for one."""
    return {row["name"]: row["value"] for row in recording.get("pods", ())}
