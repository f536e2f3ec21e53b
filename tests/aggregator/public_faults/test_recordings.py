"""Recordings about public faults, played through the part: settled states are the same.

Where they are not, the defect is told here and in ``docs/compatibility.md``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aggregator.moment import Moment
from aggregator.public_faults.part import MESSAGES, STATISTIC, PublicFaults
from contract import device_info
from contract.cluster_device import device_record, pre_separate_device, render_device_entry
from contract.names import DEVICE_INFO_PREFIX, PUBLIC_FAULT_LABEL
from contract.public_fault import PublicFault
from stores.base import Changed, Document, Listed
from tests.aggregator.public_faults.telling import kept, places
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from aggregator.public_faults.judging import Answer
    from contract.cluster_device import DeviceRecord

SETTLED_MS = 2500


@dataclass
class Replay:
    """Plays the steps of a recording; ``shown`` is what there is to be seen."""

    name: str
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recording = json.loads((VECTORS / f"clusterd/{self.name}.json").read_text())
        self._documents: dict[tuple[str, str], Document] = {}
        self._records: dict[str, DeviceRecord] = {}
        self._places = places(synced=True)
        self._state: dict[str, str] = {}
        self.faults: PublicFaults | None = None

    def moment(self, at_ms: int) -> Moment:
        return Moment(self.recording["unix_ms_at_0"] + at_ms, at_ms)

    def play_until(self, end_ms: int) -> None:
        """Do the steps before ``end_ms``, and what is due by then."""
        while self.recording["steps"] and self.recording["steps"][0]["at_ms"] < end_ms:
            self._step(self.recording["steps"].pop(0))
        self._pass_time(end_ms)

    def _step(self, step: dict[str, Any]) -> None:
        at_ms, thing = step["at_ms"], step.get("object", {})
        self._pass_time(at_ms)
        match step["do"]:
            case "restart-aggregator":
                self._start(at_ms)
            case "stop-aggregator":
                self.faults = None
            case "put-configmap":
                document = Document(
                    thing["namespace"], thing["name"], thing["data"], thing["labels"]
                )
                self._put(document, at_ms)
            case "send-public-fault":
                self._send(step, thing, at_ms)
            case "edit-output":
                pass  # the daemon repairs what it writes
            case other:
                raise AssertionError(other)

    def _start(self, at_ms: int) -> None:
        now = self.moment(at_ms)
        self.faults = PublicFaults()
        self.faults.know(self._places)
        assert not list(self.faults.restore(self._state, now))
        self.faults.observe(0, STATISTIC, Listed(()), now)
        listed = tuple(one for one in self._documents.values() if _is_message(one))
        self.faults.observe(0, MESSAGES, Listed(listed), now)
        self.faults.step(now)

    def _put(self, document: Document, at_ms: int) -> None:
        self._documents[document.namespace, document.name] = document
        if document.name.startswith(DEVICE_INFO_PREFIX):
            node = document.name.removeprefix(DEVICE_INFO_PREFIX)
            info = device_info.decode(document.data, document.name)
            self._records[node] = device_record(info)
            self._places.see_report(node, self._records[node])
        elif self.faults is not None and _is_message(document):
            self.faults.observe(0, MESSAGES, Changed(document), self.moment(at_ms))

    def _send(self, step: dict[str, Any], thing: dict[str, Any], at_ms: int) -> None:
        assert self.faults is not None
        first = int(thing["id"].rpartition("-")[2].replace("NNNN", "0"))
        for number in range(first, first + step.get("repeat", 1)):
            if "of 100 faults each" in step.get("note", ""):
                whole = thing | {"id": f"vector-x-{number:04}", "faults": _hundred(thing, number)}
                text = json.dumps(whole)
            else:
                text = json.dumps(thing).replace("NNNN", f"{number:04}")
            message = msgspec.json.decode(text, type=PublicFault)
            self.answers.append(self.faults.send(message, self.moment(at_ms)))

    def _pass_time(self, at_ms: int) -> None:
        faults = self.faults
        if faults is None:
            return
        while (due_ms := faults.next_due_ms()) is not None and due_ms <= at_ms:
            faults.step(self.moment(max(due_ms, 0)))
        self._state = kept(faults, self._state)

    def statistic(self) -> dict[str, str] | None:
        assert self.faults is not None
        views = self.faults.views()
        return views[0].data if views else None

    def devices(self) -> dict[str, Any]:
        """What cluster-info-device says of each node, without its time."""
        assert self.faults is not None
        now = self.moment(0)
        entries = {}
        for node, record in self._records.items():
            judged = pre_separate_device(self.faults.apply(node, record, now), frozenset())
            entries[DEVICE_INFO_PREFIX + node] = _entry(render_device_entry(node, judged, 0))
        return entries

    def upstream(self, name: str, before_ms: int) -> dict[str, Any]:
        """The last state of a document that was observed before."""
        states = [
            one for one in self.recording["observed"] if one.get("name") == name and "by" not in one
        ]
        found: dict[str, Any] = [one for one in states if one["at_ms"] < before_ms][-1]
        return found


def _hundred(thing: dict[str, Any], message: int) -> list[dict[str, Any]]:
    pattern = thing["faults"][0]
    return [
        pattern
        | {
            "faultId": f"fault-{number:04}",
            "influence": [{"nodeName": "n1", "deviceIds": [number % 8]}],
        }
        for number in range(message * 100, message * 100 + 100)
    ]


def _is_message(document: Document) -> bool:
    return PUBLIC_FAULT_LABEL in document.labels.items()


def _entry(text: str) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(text)
    entry["UpdateTime"] = 0
    return entry


def _upstream_devices(state: dict[str, Any]) -> dict[str, Any]:
    entries = json.loads(state["data"]["cluster-info-device-0"])
    return {key: _entry(json.dumps(entry)) for key, entry in entries.items()}


@pytest.mark.parametrize(
    ("name", "until_ms"),
    [
        ("public-fault-add-and-recover", [12_500, 15_500, 19_500, 40_000]),
        ("public-fault-malformed", [11_500, 40_000]),
        ("public-fault-rate-limit", [9_800, 40_000]),
        ("statistic-and-manual-outputs-edited", [10_500, 26_500, 60_000]),
    ],
)
def test_settled_states_are_the_same(name: str, until_ms: list[int]) -> None:
    replay = Replay(name)
    for end_ms in until_ms:
        replay.play_until(end_ms)
        devices = _upstream_devices(replay.upstream("cluster-info-device-0", end_ms))
        assert replay.devices() == devices
        states = [one for one in replay.recording["observed"] if one["at_ms"] < end_ms]
        if any(one.get("name") == "statistic-fault-info" for one in states):
            theirs = replay.upstream("statistic-fault-info", end_ms)["data"]
            ours = replay.statistic()
            assert ours is not None
            assert ours["FaultNum"] == theirs["FaultNum"]
            assert _sorted(ours["PublicFaults"]) == _sorted(theirs["PublicFaults"])
        else:
            assert replay.statistic() is None


def _sorted(text: str) -> dict[str, list[str]]:
    return {
        node: sorted(json.dumps(one) for one in faults) for node, faults in json.loads(text).items()
    }


def test_bytes_of_the_statistic() -> None:
    replay = Replay("public-fault-add-and-recover")
    for end_ms in (12_500, 19_500, 40_000):
        replay.play_until(end_ms)
        assert replay.statistic() == replay.upstream("statistic-fault-info", end_ms)["data"]


def test_what_upstream_answers() -> None:
    replay = Replay("public-fault-rate-limit")
    replay.play_until(40_000)
    assert [one.code for one in replay.answers] == [0] * 100 + [410] * 4 + [0, 0]
    assert replay.answers[0].info == "public fault send successfully"
    limited = "limiter work by resource failed: node n1: CCAE may say no more of it now"
    assert replay.answers[100].info == limited


def test_a_restart_loses_nothing_and_what_came_meanwhile_is_read() -> None:
    """Defect B10: upstream never reads ``p9``. Defect B22: it keeps the fault of a node that never
    was, which is refused here."""
    replay = Replay("public-fault-survives-restart")
    for end_ms in (12_500, 26_500, 60_000):
        replay.play_until(end_ms)
        theirs = json.loads(replay.upstream("statistic-fault-info", end_ms)["data"]["PublicFaults"])
        assert theirs.pop("ghost")
        statistic = replay.statistic()
        assert statistic is not None
        ours = json.loads(statistic["PublicFaults"])
        if end_ms == 60_000:
            assert ours["n1"].pop()["faultId"] == "fault-0009"
        assert ours == theirs
        assert replay.faults is not None
        if end_ms == 12_500:
            assert "there is no node 'ghost'" in str(replay.faults.status().troubles)


def test_above_4500_faults_the_rest_is_only_counted() -> None:
    replay = Replay("public-fault-detail-cap")
    replay.play_until(12_800)
    for end_ms, number, detailed in ((12_800, 4400, 4400), (20_800, 4600, 4500)):
        replay.play_until(end_ms)
        theirs = replay.upstream("statistic-fault-info", end_ms)["summary"]
        ours = replay.statistic()
        assert ours is not None
        assert ours["FaultNum"] == theirs["FaultNum"] == f'{{"publicFaultNum":{number}}}'
        assert ours.get("Description") == theirs.get("Description")
        assert len(ours["PublicFaults"]) == theirs["PublicFaults"]["bytes"]
        assert len(json.loads(ours["PublicFaults"])["n1"]) == detailed
    replay.play_until(60_000)
    theirs = replay.upstream("statistic-fault-info", 60_000)["summary"]
    ours = replay.statistic()
    assert ours is not None
    assert "Description" not in ours
    assert ours["FaultNum"] == theirs["FaultNum"]
    assert len(ours["PublicFaults"]) == theirs["PublicFaults"]["bytes"]
    state = replay._state
    assert len(state) > 4
    assert max(map(len, state.values())) < 200_000
