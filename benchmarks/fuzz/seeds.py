"""Good inputs: what recordings of the real device plugin have, and what tools and servers say."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from contract.device_info import decode
from contract.errors import DocumentError
from contract.fault_configuration import (
    FAULT_CONFIG_NAME,
    POLL_INTERVAL_KEY,
    InForce,
    judge_texts,
)
from tests.fault_texts import recorded_texts, shipped_texts
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRIES = 4

LINKS = ("link status: UP\n", "[devid 2]link status: DOWN\r\n", "warning: slow\nlink status: UP\n")
HISTORIES = (
    "[devid 2]current time        : Tue Aug  1 15:11:50 2022\n"
    "[devid 2]link up count       : 2\n[devid 2]link down count     : 1\n"
    "[devid 2]link change records :\n"
    "[devid 2]    Tue Aug  1 14:43:40 2022    LINK UP\n"
    "[devid 2]    Tue Aug  1 14:43:26 2022    LINK DOWN\n",
    "[device 2]link up count : 7\n[device 2]link change records : NA\n",
)
STATISTICS = (
    "packet statistics:\nmac_tx_mac_pause_num:0\nmac_rx_fcs_err_pkt_num:17\n"
    "roce_ecn_db_num:18446744073709551615\n",
    "[devid 2]crc_error_sum : 4\n",
)
PORTS = (
    "+--------+--------+-------+----------+-------------+\n"
    "| UdieID | PortID | Speed | PortType | Link Status |\n"
    "+--------+--------+-------+----------+-------------+\n"
    "| 0      | 4      | 200   | ETH      | DOWN        |\n"
    "| 1      | 7      | 200   | UB       | UP          |\n"
    "+--------+--------+-------+----------+-------------+\n",
    "port_enable: on\n",
    "speed: 200\nport_enable : off\n",
)
PODS = (
    '{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"uid":"u-1",'
    '"name":"train-0","namespace":"default","resourceVersion":"5","annotations":{'
    '"huawei.com/AscendReal":"Ascend910-0,Ascend910-1","huawei.com/Ascend910":"Ascend910-0"}},'
    '"spec":{"nodeName":"node-1","containers":[{"name":"main","resources":{"limits":{'
    '"huawei.com/Ascend910":"2","cpu":4}}}]}},{"metadata":{"uid":"u-2","resourceVersion":"6"},'
    '"spec":{}}]}',
)
POD_FRAMES = (
    '{"type":"ADDED","object":{"metadata":{"uid":"u-3","resourceVersion":"8","annotations":{'
    '"huawei.com/AscendReal":"Ascend910-4"}},"spec":{"nodeName":"node-1"}}}',
    '{"type":"DELETED","object":{"metadata":{"uid":"u-3","resourceVersion":"9"}}}',
    '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"10"}}}\n'
    '{"type":"MODIFIED","object":{"metadata":{"uid":"u-3","resourceVersion":"11"},"spec":{}}}\n'
    '{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}',
)
NODES = (
    '{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"node-1",'
    '"resourceVersion":"5","labels":{"servertype":"Ascend910B-20"},"annotations":{'
    '"baseDeviceInfos":"{\\"Ascend910-0\\":{\\"IP\\":\\"192.168.100.10\\"}}"}}}]}',
)
NODE_FRAMES = (
    '{"type":"MODIFIED","object":{"metadata":{"name":"node-1","resourceVersion":"8",'
    '"labels":{"a":"b"}}}}',
    '{"type":"DELETED","object":{"metadata":{"name":"node-1","resourceVersion":"9"}}}',
)


@cache
def _recordings() -> tuple[dict[str, Any], ...]:
    directory = VECTORS / "device-plugin/recordings"
    return tuple(json.loads(path.read_text()) for path in sorted(directory.glob("*.json")))


def device_infos() -> tuple[str, ...]:
    """The data of every device-info that the real program wrote, each as one JSON object."""
    observed = (one for recording in _recordings() for one in recording["observed"])
    return _unique(
        json.dumps(one["data"]) for one in observed if one.get("data") and _can_be_read(one["data"])
    )


def _can_be_read(data: dict[str, str]) -> bool:
    """Whether readers take it; what operators made of a document they may not."""
    try:
        decode(data, "device-info")
    except DocumentError:
        return False
    return True


def isolations() -> tuple[str, ...]:
    """The same with no more than the keys of isolated chips."""
    kept = ("ManuallySeparateNPU", "UpgradeFaultReason")
    return _unique(
        json.dumps({key: data[key] for key in kept if key in data})
        for data in map(json.loads, device_infos())
    )


def fault_configurations() -> tuple[str, ...]:
    """The data of every ConfigMap that a recording has and that can be decoded, and the shipped
    tables as one."""
    steps = (step for recording in _recordings() for step in recording["steps"])
    found = (s["data"] for s in steps if s.get("name") == FAULT_CONFIG_NAME and "data" in s)
    shipped = {key: _short(text) for key, text in shipped_texts().items()}
    shipped[POLL_INTERVAL_KEY] = "300"
    return _unique(json.dumps(data) for data in (shipped, *found) if _can_be_decoded(data))


def fault_texts(key: str) -> tuple[str, ...]:
    """The document ``key`` as it is shipped and as the real program was given it."""
    texts = (*recorded_texts(key), _short(shipped_texts()[key]))
    return _unique(text for text in texts if _can_be_decoded({key: text}))


def _short(text: str) -> str:
    """The same document with a few entries in each list: the rest is more of the same."""

    def cut(value: Any) -> Any:
        match value:
            case dict():
                return {key: cut(member) for key, member in value.items()}
            case list():
                return [cut(entry) for entry in value[:_ENTRIES]]
        return value

    return json.dumps(cut(json.loads(text)))


def _can_be_decoded(data: dict[str, str]) -> bool:
    return not judge_texts(data, {}, InForce()).kept


def _unique(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
