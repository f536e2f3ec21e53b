"""Good inputs: documents of recordings of the real device plugin, and outputs of tools
and servers.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from contract.documents.device_info import decode
from contract.documents.node_info import (
    FaultDevice,
    NodeBeat,
    encode_beating_node_info,
    encode_node_beat,
    encode_node_info,
)
from contract.errors import DocumentError
from contract.operator_rules.fault_configuration import (
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
KERNEL_LOGS = (
    "6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=usb\n DEVICE=c189:0\n"
    "0,340,5690716,-,caller=T1;watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [x:1]\n",
    "3,7,1,-;INFO: task a b:77 blocked for more than 120 seconds.\\x0a  Not tainted\n",
    "3,8,2,c;Memory cgroup out of memory: Killed process 9 (a\n3,9,3,+; b) total-vm:1kB\n",
    "2,11,4,-;EXT4-fs (sda1): Remounting filesystem read-only\n",
    "691,12,5,-;[ascend] [ERROR] [devmm] [fault 438] <kworker:1,1> failed. (\\xe4\\xb8\\xad)\n",
)
MOUNTS = (
    "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro\n"
    "23 22 0:21 / /proc rw,nosuid - proc proc rw\n"
    "34 22 253:3 / /with\\040space rw master:1 - ext4 /dev/mapper/vg-data ro,noatime\n",
    "44 22 0:50 / /tank rw - zfs tank rw\n45 22 8:2 /x /x ro - ext4 /dev/sda2 rw\n",
)
LAST_SEEN = (
    '[{"NodeName":"node-1","HeartbeatTime":1710907679,"UpdateTime":1710907680}]',
    '[{"NodeName":"a","HeartbeatTime":0,"UpdateTime":1},'
    '{"NodeName":"b.c","HeartbeatTime":-5,"UpdateTime":2}]',
)
ALARMS = (
    "db 07 00 01 00 01 00 31 00 00 2c 00 00 00 00\t02 2c 00 00 00 00 00\n",
    "db 07 00 00 00 00 00\n",
    "db 07 00 03 00 02 00 17 00 00 01 00 00 00 00 02 01 00 00 00 00 00 17 00 00 01 00 00 00 00 02 "
    "01 01 00 00 00 00\n;db 07 00 03 00 01 00 1d 00 00 00 00 00 00 00 02 00 00 00 00 00 00\n",
)
SERIAL_NUMBERS = (
    "00 32 31 30 32 33 31 33 4c 4e 52 31 30 50 35 30\n 30 30 30 31 32\n",
    "00 20 20 32 31 30 32 33 41 42 43 20 20 00 00 00\n",
    "00\n;00 48 75 61 77 65 69\n",
)
"""What ``ipmitool raw`` prints; a semicolon is between two replies."""
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
    """Return the data of every device-info that the real program wrote, each as one JSON object."""
    observed = (one for recording in _recordings() for one in recording["observed"])
    return _unique(
        json.dumps(one["data"]) for one in observed if one.get("data") and _can_be_read(one["data"])
    )


def _can_be_read(data: dict[str, str]) -> bool:
    """Return whether readers take it; what operators made of a document they may not."""
    try:
        decode(data, "device-info")
    except DocumentError:
        return False
    return True


def isolations() -> tuple[str, ...]:
    """Return the same with no more than the keys of isolated chips."""
    kept = ("ManuallySeparateNPU", "UpgradeFaultReason")
    return _unique(
        json.dumps({key: data[key] for key in kept if key in data})
        for data in map(json.loads, device_infos())
    )


def fault_configurations() -> tuple[str, ...]:
    """Return the data of every ConfigMap of a recording that can be decoded, and the shipped tables
    as one.
    """
    steps = (step for recording in _recordings() for step in recording["steps"])
    found = (s["data"] for s in steps if s.get("name") == FAULT_CONFIG_NAME and "data" in s)
    shipped = {key: _short(text) for key, text in shipped_texts().items()}
    shipped[POLL_INTERVAL_KEY] = "300"
    return _unique(json.dumps(data) for data in (shipped, *found) if _can_be_decoded(data))


def fault_texts(key: str) -> tuple[str, ...]:
    """Return the document ``key`` as it is shipped and as the real program was given it."""
    texts = (*recorded_texts(key), _short(shipped_texts()[key]))
    return _unique(text for text in texts if _can_be_decoded({key: text}))


def _short(text: str) -> str:
    """Return the same document with a few entries in each list: the rest is more of the same."""

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


def node_infos() -> tuple[str, ...]:
    """Return data of node-info documents, two of each generation."""
    part = FaultDevice("CPU", 1, ["00000011"], "SeparateFault")
    beat = NodeBeat(1710907679, 5)
    return tuple(
        json.dumps(data)
        for data in (
            encode_node_info([part], "UnHealthy", "2026-01-01T08:00:00+08:00"),
            encode_node_info([], "Healthy", "2026-01-01T08:00:00Z"),
            encode_beating_node_info([part], "UnHealthy", beat),
            encode_beating_node_info([], "Healthy", beat),
            encode_node_beat(beat),
            encode_node_beat(NodeBeat(0, 300)),
        )
    )
