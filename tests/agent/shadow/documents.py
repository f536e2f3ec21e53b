"""Documents as a real Device Plugin writes them, and what can be wrong with one.

A mutation changes the document as a tree and names the place where that is to be found. Its check
code is made right again, as a program with a mistake would.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from contract.documents.device_info import DESCRIPTION
from contract.go import encode as go_json
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

NODE = "node-1"
RESOURCE = "huawei.com/Ascend910"
CHIPS = [f"Ascend910-{chip}" for chip in range(16)]
Tree: TypeAlias = dict[str, Any]
Mutation: TypeAlias = "Callable[[Tree, Random], str]"


def rich_tree(stamp: int = 1_800_000_000) -> Tree:
    """Return the tree of an A3 node in which each kind of content occurs."""
    faults = [
        _fault("Ascend910-1", "CardUnhealthy", {"80C98008": "RestartRequest"}),
        _fault("Ascend910-3", "CardNetworkUnhealthy", {"81078603": "PreSeparateNPU"}),
        _fault(
            "Ascend910-3",
            "CardUnhealthy",
            {"80E18008": "ManuallySeparateNPU", "80E21007": "NotHandleFault"},
        ),
        _fault("Ascend910-7", "CardUnhealthy", {"80E3A201": "NotHandleFault"}),
        _fault("Ascend910-10", "CardUnhealthy", {"80CD8008": "ManuallySeparateNPU"}),
    ]
    unhealthy = ["Ascend910-1", "Ascend910-10", "Ascend910-3"]
    return {
        "DeviceInfoCfg": {
            "DeviceInfo": {
                "DeviceList": {
                    RESOURCE: sorted(set(CHIPS) - set(unhealthy)),
                    f"{RESOURCE}-Fault": faults,
                    f"{RESOURCE}-NetworkUnhealthy": ["Ascend910-3"],
                    f"{RESOURCE}-Recovering": [],
                    f"{RESOURCE}-Unhealthy": unhealthy,
                },
                "UpdateTime": stamp,
            },
            "SuperPodID": 0,
            "ServerIndex": 0,
            "CheckCode": "",
        },
        "ManuallySeparateNPU": ["Ascend910-3", "Ascend910-10"],
        "UpgradeFaultReason": {
            "Ascend910-10": [_reason("80cd8008", "ManuallySeparateNPU", "FaultFrequency")],
            "Ascend910-3": [
                _reason("80e18008", "ManuallySeparateNPU", "FaultFrequency"),
                _reason("81078603", "PreSeparateNPU", "FaultDuration"),
            ],
        },
        "SwitchInfoCfg": {
            "FaultCode": [_event(2, 8, 2), _event(5, 0, 1)],
            "FaultLevel": "Separate",
            "UpdateTime": stamp,
            "NodeStatus": "UnHealthy",
            "FaultTimeAndLevelMap": {
                "[0x00f1fef5,155912,L2,na]_2_8": {"fault_time": 5, "fault_level": "Separate"},
                "[0x00f1fef5,155912,npu,na]_5_0": {"fault_time": 6, "fault_level": "NotHandle"},
            },
        },
    }


def _fault(name: str, kind: str, codes: dict[str, str]) -> Tree:
    level = next(iter(codes.values()))
    return {
        "fault_type": kind,
        "npu_name": name,
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": ",".join(codes),
        "fault_time_and_level_map": {
            code: {"fault_time": 1_799_999_990_000, "fault_level": own}
            for code, own in sorted(codes.items())
        },
    }


def _reason(code: str, level: str, kind: str) -> Tree:
    return {
        "upgrade_time": 1_799_999_991_000,
        "fault_code": code,
        "fault_level": level,
        "upgrade_type": kind,
    }


def _event(chip: int, port: int, peer: int) -> Tree:
    word = {1: "npu", 2: "L2"}[peer]
    return {
        "EventType": 15859445,
        "AssembledFaultCode": f"[0x00f1fef5,155912,{word},na]",
        "PeerPortDevice": peer,
        "PeerPortId": port,
        "SwitchChipId": chip,
        "SwitchPortId": port,
        "Severity": 2,
        "Assertion": 1,
        "AlarmRaisedTime": 5,
    }


def written(tree: Tree) -> Document:
    """Return the ConfigMap of ``tree``, with the check code of its content."""
    outer = tree["DeviceInfoCfg"]
    devices = outer["DeviceInfo"]["DeviceList"]
    texts = {
        key: go_json.encode(value) if key.endswith("-Fault") else ",".join(value)
        for key, value in sorted(devices.items())
    }
    inner = {**outer["DeviceInfo"], "DeviceList": texts}
    switch = tree.get("SwitchInfoCfg")
    data = {
        "Description": DESCRIPTION,
        "DeviceInfoCfg": go_json.encode(
            {**outer, "DeviceInfo": inner, "CheckCode": go_json.check_code(inner)}
        ),
        "ManuallySeparateNPU": ",".join(tree["ManuallySeparateNPU"]),
        "UpgradeFaultReason": go_json.encode(tree["UpgradeFaultReason"]),
    }
    if switch is not None:
        events = [go_json.encode(event) for event in switch["FaultCode"]]
        data["SwitchInfoCfg"] = go_json.encode({**switch, "FaultCode": events})
    return Document(DEVICE_INFO_NAMESPACE, device_info_name(NODE), data, dict([REPORT_LABEL]))


# What can be wrong.


def _faults(tree: Tree) -> list[Tree]:
    listed: list[Tree] = _devices(tree)[f"{RESOURCE}-Fault"]
    return listed


def _devices(tree: Tree) -> dict[str, Any]:
    devices: dict[str, Any] = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]
    return devices


def _wrong_code_level(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    code, entry = chance.choice(list(fault["fault_time_and_level_map"].items()))
    entry["fault_level"] = "SubHealthFault"
    return f"{fault['npu_name']}: fault_level of {code}"


def _wrong_entry_level(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    fault["fault_level"] = "SubHealthFault"
    return f"{fault['npu_name']}: fault_level of the {fault['fault_type']} entry"


def _wrong_handling(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    fault["fault_handling"] = "SubHealthFault"
    return f"{fault['npu_name']}: fault_handling of the {fault['fault_type']} entry"


def _code_missing(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    code = chance.choice(fault["fault_code"].split(","))
    fault["fault_code"] = ",".join(set(fault["fault_code"].split(",")) - {code})
    del fault["fault_time_and_level_map"][code]
    return f"{fault['npu_name']}: fault_code {code}"


def _code_too_much(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    fault["fault_code"] += ",80CB8002"
    fault["fault_time_and_level_map"]["80CB8002"] = {
        "fault_time": 7,
        "fault_level": "NotHandleFault",
    }
    return f"{fault['npu_name']}: fault_code 80CB8002"


def _fault_missing(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    _faults(tree).remove(fault)
    return f"{fault['npu_name']}: fault_code {min(fault['fault_code'].split(','))}"


def _fault_of_another_chip(tree: Tree, chance: Random) -> str:
    fault = chance.choice([one for one in _faults(tree) if one["npu_name"] == "Ascend910-7"])
    fault["npu_name"] = "Ascend910-8"
    return "Ascend910-7: fault_code 80E3A201"


def _wrong_plane(tree: Tree, chance: Random) -> str:
    fault = chance.choice(_faults(tree))
    other = {"CardUnhealthy": "CardNetworkUnhealthy", "CardNetworkUnhealthy": "CardUnhealthy"}
    fault["fault_type"] = other[fault["fault_type"]]
    return f"{fault['npu_name']}: fault_code {min(fault['fault_code'].split(','))}"


def _not_free(tree: Tree, chance: Random) -> str:
    return f"free list: {_taken(_devices(tree)[RESOURCE], chance)}"


def _free_and_unhealthy(tree: Tree, chance: Random) -> str:
    name: str = chance.choice(_devices(tree)[f"{RESOURCE}-Unhealthy"])
    _devices(tree)[RESOURCE] = sorted([*_devices(tree)[RESOURCE], name])
    return f"free list: {name}"


def _not_unhealthy(tree: Tree, chance: Random) -> str:
    return f"unhealthy list: {_taken(_devices(tree)[f'{RESOURCE}-Unhealthy'], chance)}"


def _network_unhealthy(tree: Tree, chance: Random) -> str:
    name = chance.choice(["Ascend910-4", "Ascend910-5"])
    _devices(tree)[f"{RESOURCE}-NetworkUnhealthy"].append(name)
    return f"network-unhealthy list: {name}"


def _recovering(tree: Tree, chance: Random) -> str:
    name = chance.choice(CHIPS)
    _devices(tree)[f"{RESOURCE}-Recovering"].append(name)
    return f"recovering list: {name}"


def _not_named(tree: Tree, chance: Random) -> str:
    return f"ManuallySeparateNPU: {_taken(tree['ManuallySeparateNPU'], chance)}"


def _another_named(tree: Tree, chance: Random) -> str:
    name = chance.choice(["Ascend910-11", "Ascend910-15"])
    tree["ManuallySeparateNPU"].append(name)
    return f"ManuallySeparateNPU: {name}"


def _reason_missing(tree: Tree, chance: Random) -> str:
    name = chance.choice(list(tree["UpgradeFaultReason"]))
    reason = _taken(tree["UpgradeFaultReason"][name], chance)
    return f"{name}: UpgradeFaultReason {_reason_text(reason)}"


def _wrong_kind_of_reason(tree: Tree, chance: Random) -> str:
    name = chance.choice(list(tree["UpgradeFaultReason"]))
    reason = chance.choice(tree["UpgradeFaultReason"][name])
    reason["upgrade_type"] = "FaultAutofill"
    return f"{name}: UpgradeFaultReason {_reason_text(reason)}"


def _wrong_switch_level(tree: Tree, chance: Random) -> str:
    tree["SwitchInfoCfg"]["FaultLevel"] = chance.choice(["NotHandle", "RestartRequest"])
    return "FaultLevel of the switches"


def _wrong_switch_status(tree: Tree, chance: Random) -> str:
    tree["SwitchInfoCfg"]["NodeStatus"] = chance.choice(["Healthy", "PreSeparate"])
    return "NodeStatus of the switches"


def _wrong_switch_code_level(tree: Tree, chance: Random) -> str:
    key, entry = chance.choice(list(tree["SwitchInfoCfg"]["FaultTimeAndLevelMap"].items()))
    entry["fault_level"] = "SubHealthFault"
    return f"fault_level of switch fault {key}"


def _switch_fault_missing(tree: Tree, chance: Random) -> str:
    event = _taken(tree["SwitchInfoCfg"]["FaultCode"], chance)
    return f"switch fault {event['AssembledFaultCode']}"


def _wrong_order(tree: Tree, chance: Random) -> str:
    free = _devices(tree)[RESOURCE]
    one = chance.randrange(len(free) - 1)
    free[one], free[one + 1] = free[one + 1], free[one]
    return "order of the free list"


def _wrong_order_of_faults(tree: Tree, chance: Random) -> str:
    chance.choice(CHIPS)
    _faults(tree).reverse()
    return "order of the fault list"


def _super_pod(tree: Tree, chance: Random) -> str:
    tree["DeviceInfoCfg"]["SuperPodID"] = chance.choice([-1, -2, 7])
    return "SuperPodID"


def _taken(listed: list[Any], chance: Random) -> Any:
    return listed.pop(chance.randrange(len(listed)))


def _reason_text(reason: Tree) -> str:
    return f"{reason['fault_code']} {reason['fault_level']} {reason['upgrade_type']}"


MUTATIONS: dict[str, Mutation] = {
    function.__name__.lstrip("_"): function
    for function in (
        *(_wrong_code_level, _wrong_entry_level, _wrong_handling, _code_missing, _code_too_much),
        *(_fault_missing, _fault_of_another_chip, _wrong_plane, _not_free, _free_and_unhealthy),
        *(_not_unhealthy, _network_unhealthy, _recovering, _not_named, _another_named),
        *(_reason_missing, _wrong_kind_of_reason, _wrong_switch_level, _wrong_switch_status),
        *(_wrong_switch_code_level, _switch_fault_missing, _wrong_order, _wrong_order_of_faults),
        _super_pod,
    )
}


def varied(tree: Tree, chance: Random) -> Tree:
    """Return ``tree`` with random values for all that varies between runs of the real program."""
    other: Tree = json.loads(json.dumps(tree))
    other["DeviceInfoCfg"]["DeviceInfo"]["UpdateTime"] += chance.randrange(1, 300)
    other["SwitchInfoCfg"]["UpdateTime"] += chance.randrange(1, 300)
    for fault in _faults(other):
        codes = fault["fault_code"].split(",")
        chance.shuffle(codes)
        fault["fault_code"] = ",".join(codes)
        for entry in fault["fault_time_and_level_map"].values():
            entry["fault_time"] += chance.randrange(5_000)
    for reasons in other["UpgradeFaultReason"].values():
        chance.shuffle(reasons)
        for reason in reasons:
            reason["upgrade_time"] += chance.randrange(5_000)
    for event in other["SwitchInfoCfg"]["FaultCode"]:
        event["AlarmRaisedTime"] += chance.randrange(5_000)
    return other


def taken_apart(data: dict[str, str]) -> Tree:
    """Return the tree of a recorded document; ``written`` makes the document from it again."""
    tree: Tree = {key: json.loads(data[key]) for key in data if key.endswith(("Cfg", "Reason"))}
    devices = _devices(tree)
    for key, text in devices.items():
        is_list = key.endswith("-Fault")
        devices[key] = json.loads(text) if is_list else list(filter(None, text.split(",")))
    tree["ManuallySeparateNPU"] = list(filter(None, data["ManuallySeparateNPU"].split(",")))
    if "SwitchInfoCfg" in tree:
        switch = tree["SwitchInfoCfg"]
        switch["FaultCode"] = [json.loads(event) for event in switch["FaultCode"]]
    return tree
