"""Plays a recording of the real aggregator's fault service through the job view, in virtual time.

What the documents of nodes say is published as it is; Node objects and pods are taken as recorded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aggregator.facts import Job, NodeState, Pod
from aggregator.jobs.board import Board
from aggregator.jobs.signals import CLUSTER, NORMAL, FaultMsgSignal
from aggregator.moment import Moment
from contract.cluster_device import device_record
from contract.device_info import decode
from contract.names import DEVICE_INFO_PREFIX, NODE_INFO_PREFIX
from contract.node_info import decode_node_info
from contract.switch_info import decode_switch_info
from tests.jobs.scene import Told, World
from tests.vectors import VECTORS

SUBSCRIBED = "fault.Fault/SubscribeFaultMsgSignal"
ASKED = "fault.Fault/GetFaultMsgSignal"
ROUND_MS = 1000


@dataclass
class Stage:
    """Our job view, and what clients have heard of it."""

    recording: dict[str, Any]
    heard: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World()
        self.told: dict[str, Told] = {}
        self.board = Board(self.world, self.told.get)
        self.listening: set[str] = set()
        self.sent: dict[str, FaultMsgSignal] = {}

    def step(self, step: dict[str, Any]) -> None:
        thing = step.get("object", {})
        match step["do"]:
            case "put-configmap" | "delete-configmap":
                self._tell(thing)
            case "put-node":
                self.world.nodes[thing["name"]] = _node(thing)
            case "put-pod":
                pod = _pod(thing)
                self.world.pods.setdefault(pod.node, {})[pod.name] = pod
                self.world.all_jobs.setdefault(pod.job, Job(pod.job, pod.namespace))
            case "subscribe-fault-stream":
                self.listening.add(thing["jobId"] or CLUSTER)
            case "get-fault":
                self._ask(step["at_ms"], thing)
        at_ms = step["at_ms"]
        now = Moment(self.recording["unix_ms_at_0"] + at_ms, at_ms)
        self.board.changed(self.world.nodes, now)
        self._send(at_ms)

    def _tell(self, document: dict[str, Any]) -> None:
        name, data = document["name"], document.get("data")
        if name.startswith(NODE_INFO_PREFIX):
            node = name.removeprefix(NODE_INFO_PREFIX)
            record = None if data is None else decode_node_info(name, data)
            told = msgspec.structs.replace(self.told.get(node, Told()), node=record)
        else:
            node = name.removeprefix(DEVICE_INFO_PREFIX)
            assert node != name, "no other document is recorded"
            assert data is not None, "none of these is deleted"
            device, switch = device_record(decode(data, name)), decode_switch_info(name, data)
            old = self.told.get(node, Told())
            told = msgspec.structs.replace(old, device=device, switch=switch)
        self.told[node] = told

    def _ask(self, at_ms: int, client: dict[str, str]) -> None:
        said = self.board.message(client["jobId"]) if client["jobId"] else self.board.cluster()
        self.heard.setdefault(f"query {client['jobId'] or CLUSTER} at {at_ms}", []).append(
            None if said is None else shown(said)
        )

    def _send(self, at_ms: int) -> None:
        """What the fault service does: tells who listens of what changed."""
        for job in sorted(self.board.take_changed_jobs()):
            said = self.board.message(job)
            assert said is not None
            if said.signal_type == NORMAL and job not in self.sent:
                continue
            self.sent[job] = said
            for client in {job, CLUSTER} & self.listening:
                about = {"after_ms": _round(self.recording, at_ms), **shown(said)}
                told = self.heard.setdefault(f"stream {client}", [])
                if told and all(told[-1][name] == about[name] for name in ("after_ms", "jobId")):
                    told.pop()  # upstream, which looks once a second, never saw it
                told.append(about)
        for label in self.board.labels():
            pod = next(
                pod
                for pods in self.world.pods.values()
                for pod in pods.values()
                if pod.uid == label.uid
            )
            labels = pod.labels | {"fault-type": label.value}
            self.world.pods[pod.node][pod.name] = msgspec.structs.replace(pod, labels=labels)
            self.heard.setdefault(f"label {label.name}", []).append(label.value)


def _node(thing: dict[str, Any]) -> NodeState:
    status = thing["status"]
    return NodeState(
        thing["name"],
        next(one["address"] for one in status["addresses"] if one["type"] == "InternalIP"),
        thing["annotations"]["product-serial-number"],
        any(one["type"] == "Ready" and one["status"] == "True" for one in status["conditions"]),
    )


def _pod(thing: dict[str, Any]) -> Pod:
    metadata = thing["metadata"]
    chips = metadata["annotations"].get("huawei.com/AscendReal", "")
    return Pod(
        thing["name"],
        thing["spec"]["nodeName"],
        thing["namespace"],
        thing["name"],
        metadata["ownerReferences"][0]["uid"],
        tuple(chip for chip in chips.split(",") if chip),
        metadata["annotations"],
        metadata["labels"],
    )


def shown(said: FaultMsgSignal) -> dict[str, Any]:
    """As protobuf's JSON has it, without the uuid."""
    return {
        "jobId": said.job_id,
        "signalType": said.signal_type,
        "nodeFaultInfo": [
            {
                "nodeName": node.node_name,
                "nodeIP": node.node_ip,
                "nodeSN": node.node_sn,
                "faultLevel": node.fault_level,
                "faultDevice": [
                    {
                        "deviceId": device.device_id,
                        "deviceType": device.device_type,
                        "faultCodes": list(device.fault_codes),
                        "faultLevel": device.fault_level,
                        "faultLevels": list(device.fault_levels),
                        "faultType": list(device.fault_types),
                        "faultReason": list(device.fault_reasons),
                        "switchFaultInfos": [
                            {
                                "faultCode": one.fault_code,
                                "switchChipId": one.switch_chip_id,
                                "switchPortId": one.switch_port_id,
                                "faultTime": one.fault_time,
                                "faultLevel": one.fault_level,
                            }
                            for one in device.switch_faults
                        ],
                    }
                    for device in node.devices
                ],
            }
            for node in said.nodes
        ],
    }


def upstream(recording: dict[str, Any]) -> dict[str, list[Any]]:
    """What the clients of the real aggregator heard, as ``Stage.heard`` has it.

    A message belongs to the steps before it: upstream looks once a second.
    """
    heard: dict[str, list[Any]] = {}
    for one in recording["observed"]:
        if one.get("kind") == "Pod":
            heard.setdefault(f"label {one['name']}", []).append(one["labels"]["fault-type"])
        stream = one.get("stream")
        if stream == ASKED:
            key = f"query {one['client']['jobId'] or CLUSTER} at {one['at_ms']}"
            signal = one.get("message", {}).get("faultSignal")
            heard.setdefault(key, []).append(None if signal is None else _told_of(signal))
        elif stream == SUBSCRIBED:
            key = f"stream {one['client']['jobId'] or CLUSTER}"
            heard.setdefault(key, []).append(
                {"after_ms": _round(recording, one["at_ms"]), **_told_of(one["message"])}
            )
    return heard


def _told_of(signal: dict[str, Any]) -> dict[str, Any]:
    ordered = json.loads(json.dumps(signal))
    del ordered["uuid"]
    for node in ordered["nodeFaultInfo"]:
        for device in node["faultDevice"]:
            for name in ("faultLevels", "faultType", "faultReason", "switchFaultInfos"):
                device[name] = device.pop(name)
    return dict(ordered)


def _round(recording: dict[str, Any], at_ms: int) -> int:
    """The first of the steps that a message followed; those within a second are one round."""
    began_ms = before_ms = -ROUND_MS
    for step in recording["steps"]:
        if step["at_ms"] > at_ms:
            break
        if step["at_ms"] - before_ms >= ROUND_MS:
            began_ms = step["at_ms"]
        before_ms = step["at_ms"]
    return began_ms


def play(name: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """What upstream's clients heard, and ours."""
    recording = json.loads((VECTORS / f"clusterd/{name}.json").read_text())
    stage = Stage(recording)
    for step in recording["steps"]:
        stage.step(step)
    return upstream(recording), stage.heard
