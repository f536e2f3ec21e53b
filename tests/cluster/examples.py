"""The worked examples of ``docs/spec/clusterd.md#8`` as recordings: what upstream does.

Inputs follow from the words of each example, outputs are its bytes
(``tests/vectors/clusterd/examples.json``). ``<now>`` in them is the moment of writing.
"""

from __future__ import annotations

from typing import Any

from contract.go import encode as go_json
from tests.cluster.examples_judged import MAKERS
from tests.cluster.script import Script
from tests.contract.documents.clusterd_examples import CASES, EXAMPLES
from tests.contract.documents.node_documents import KEY, config, fault, names

_EXEMPT = "81078603"

NOT_PLAYED = {
    "E28": "its stress tests are begun by the recovery service, which is a documented no",
}
"""Examples that no input of ours can bring about."""

_DEVICES, _NODES, _SWITCHES = (
    "cluster-info-device-0",
    "cluster-info-node-cm",
    "cluster-info-switch-0",
)


def recordings() -> dict[str, dict[str, Any]]:
    """Return all played recordings, by name."""
    made = [_one(name) for name in CASES] + [make() for make in _MAKERS]
    found = {one.recording["name"]: one.recording for one in made}
    return dict(sorted(found.items(), key=lambda one: int(one[0][1:])))


def _one(name: str) -> Script:
    """Return one example with one node: clusterd#E1 to E9, E11, E12 or E14."""
    node, data = CASES[name]
    script = Script(name).start()
    script.device(node, data)
    script.shows(_DEVICES, EXAMPLES[name]["output"])
    return script


def _e10() -> Script:
    script = Script("E10").start()
    good = EXAMPLES["E1"]["input"]
    script.device("node1", {"DeviceInfoCfg": good})
    script.shows(_DEVICES, EXAMPLES["E1"]["output"])
    script.rest()
    bad: list[dict[str, str]] = [
        {"DeviceInfoCfg": good.replace("88c1", "88c12")},
        config(update_time=1_760_000_009, CheckCode=""),
        {},
        {"DeviceInfoCfg": good[:-5]},
        {"DeviceInfoCfg": good.replace("1760000000", "1760000000.0")},
    ]
    for number, data in enumerate(bad):
        script.device("node1", data)
        script.device(f"never-{number}", data)
        script.rest()
    for accepted in (
        good.replace('"DeviceInfo"', '"deviceinfo"'),
        good.replace('"UpdateTime":1760000000', '"UpdateTime":1760000000,"X":1'),
    ):
        script.device("node1", {"DeviceInfoCfg": accepted})
        script.rest()
    return script


def _e13() -> Script:
    script = Script("E13").start()
    inner = '"DeviceInfo":{"DeviceList":null,"UpdateTime":1760000000},"SuperPodID":-2,'
    code = "431ea6d8e8a82629aae2a427de00222bdd5f7ae81219a743a3f9be4940b9fc0b"
    text = f'{{{inner}"ServerIndex":-2,"CheckCode":"{code}"}}'
    script.device("node1", {"DeviceInfoCfg": text})
    script.shows(_DEVICES, EXAMPLES["E13"]["output"])
    return script


def _server(devices: Any, status: str, update_time: str = "") -> dict[str, str]:
    inner = {"FaultDevList": devices, "NodeStatus": status}
    outer: dict[str, Any] = {"NodeInfo": inner, "CheckCode": go_json.check_code(inner)}
    return {"NodeInfo": go_json.encode(outer), "updateTime": update_time}


def _e15() -> Script:
    script = Script("E15").start()
    time = "2026-01-02T03:04:05+08:00"
    script.server("node1", {"NodeInfo": EXAMPLES["E15"]["input"], "updateTime": time})
    script.server("node2", _server(None, "Healthy", "bad"))
    script.server("node3", _server([], "Healthy"))
    script.shows(_NODES, EXAMPLES["E15"]["output"])
    return script


def _part(kind: str, number: int, code: str, level: str) -> dict[str, Any]:
    return {"DeviceType": kind, "DeviceId": number, "FaultCode": [code], "FaultLevel": level}


def _e16() -> Script:
    script = Script("E16").start()
    psu = _part("PSU", 1, "0300000D", "PreSeparateFault")
    script.pod("node2", "Ascend910-0")
    script.server(
        "node1", _server([psu, _part("CPU", 0, "00000001", "NotHandleFault")], "PreSeparate")
    )
    script.server("node2", _server([psu], "PreSeparate"))
    script.shows(_NODES, EXAMPLES["E16"]["output"])
    return script


def _all_healthy(*nodes: str) -> str:
    entry = EXAMPLES["E1"]["output"][1:-1]
    return "{" + ",".join(entry.replace("node1", node) for node in nodes) + "}"


def _e17() -> Script:
    script = Script("E17").start()
    first = EXAMPLES["E17"]["input"]
    healthy = (
        '{"FaultCode":[],"FaultLevel":"","UpdateTime":1760000000,"NodeStatus":"Healthy",'
        '"FaultTimeAndLevelMap":{}}'
    )
    third = first.replace('"FaultLevel":"Separate"', '"FaultLevel":"PreSeparate"')
    script.switch("node1", first)
    script.switch("node2", healthy)
    script.switch("node3", third.replace('"UnHealthy"', '"PreSeparate"'))
    script.shows(_SWITCHES, EXAMPLES["E17"]["output"])
    script.shows(_DEVICES, _all_healthy("node1", "node2", "node3"))
    return script


def _e18() -> Script:
    script = Script("E18").start()
    good = (
        '{"FaultCode":null,"FaultLevel":"NotHandle","UpdateTime":1760000000,"NodeStatus":"Healthy"}'
    )
    script.switch("node2", good)
    script.shows(_SWITCHES, EXAMPLES["E18"]["output"])
    script.shows(_DEVICES, _all_healthy("node2"))
    script.rest()
    script.switch("node2", good.replace("null", '["{\\"EventType\\":-1}"]'))
    return script


def _e19() -> Script:
    script = Script("E19").start()
    pre = "PreSeparateNPU"
    faults = [
        fault(0, pre, "80E21007"),
        fault(1, pre, "80E21007"),
        fault(2, pre, _EXEMPT, kind="CardNetwork"),
    ]
    devices = {
        KEY: names(range(8)),
        f"{KEY}-Fault": go_json.encode(faults),
        f"{KEY}-NetworkUnhealthy": names([2]),
        f"{KEY}-Recovering": "",
        f"{KEY}-Unhealthy": names([0]),
    }
    script.pod("node1", "Ascend910-0")
    script.device("node1", config(devices=devices))
    script.shows(_DEVICES, EXAMPLES["E19"]["output"])
    return script


def _unhealthy(update_time: int, *chips: int) -> dict[str, str]:
    return config(unhealthy=chips, update_time=update_time)


def _e23() -> Script:
    script = Script("E23").start()
    script.device("node1", config())
    script.device("node1", _unhealthy(1_760_000_001, 1))
    script.device("node1", _unhealthy(1_760_000_002, 1, 2))
    script.shows(_DEVICES, EXAMPLES["E23"]["output"])
    script.rest()
    return script


def _e24() -> Script:
    script, example = Script("E24").start(), EXAMPLES["E24"]
    script.device("node1", config())
    script.shows(_DEVICES, example["before"])
    script.rest()
    script.device("node1", config(update_time=1_760_000_060))
    script.rest()
    script.device("node1", _unhealthy(1_760_000_061, 1))
    script.shows(_DEVICES, example["output"])
    script.rest()
    return script


def _e25() -> Script:
    script = Script("E25").start()
    for node in ("node1", "node2"):
        script.device(node, config())
    script.shows(_DEVICES, _all_healthy("node1", "node2"))
    script.rest()
    for node, shown in (("node1", EXAMPLES["E25"]["output"]), ("node2", "")):
        thing = {"namespace": "kube-system", "name": f"mindx-dl-deviceinfo-{node}"}
        script.do("delete-configmap", object=thing)
        script.shows(_DEVICES, shown)
        script.rest()
    return script


def _e30() -> Script:
    script = Script("E30").start()
    devices = {
        KEY: names([0, 1, 2, 3, 4, 5, 7]),
        f"{KEY}-Fault": go_json.encode([fault(7, "SubHealthFault", "80CD8003")]),
        f"{KEY}-NetworkUnhealthy": names([6]),
        f"{KEY}-Recovering": names([5]),
        f"{KEY}-Unhealthy": "",
    }
    script.device("node1", config(devices=devices))
    script.shows(_DEVICES, EXAMPLES["E30"]["output"])
    return script


def _e32() -> Script:
    script = Script("E32")
    script.device("node-NNNN", config(), repeat=3000, note="NNNN counts from 0000")
    script.start()
    script.counts({"cluster-info-device-0": 1909, "cluster-info-device-1": 1091})
    script.rest()
    gone = {"namespace": "kube-system", "name": "mindx-dl-deviceinfo-node-NNNN"}
    note = "node-1500 to node-2999"
    script.do("delete-configmap", object=gone, repeat=1500, note=note)
    script.counts({"cluster-info-device-0": 1500, "cluster-info-device-1": 0})
    return script


def _e33() -> Script:
    script = Script("E33").start()
    script.server("node2", _server(None, "Healthy"))
    script.shows(
        _NODES,
        '{"mindx-dl-nodeinfo-node2":{"FaultDevList":null,"NodeStatus":"Healthy",'
        '"CmName":"mindx-dl-nodeinfo-node2","UpdateTime":0}}',
    )
    script.rest()
    poison = EXAMPLES["E33"]["input"]
    script.server("node1", {"NodeInfo": poison})
    script.shows(_NODES, "")
    script.rest()
    script.server("node1", {"NodeInfo": poison, "updateTime": "2026-01-02T03:04:05+08:00"})
    script.rest()
    return script


_MAKERS = (
    *(_e10, _e13, _e15, _e16, _e17, _e18, _e19, _e23, _e24, _e25, _e30, _e32, _e33),
    *MAKERS,
)
