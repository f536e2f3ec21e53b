"""Good inputs: what recordings of the real device plugin have, and what tools and servers say."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from contract.customization import CUSTOMIZATION_KEY
from contract.device_info import decode
from contract.errors import DocumentError
from contract.fault_codes import FAULT_CODE_KEY
from contract.fault_configuration import FAULT_CONFIG_NAME, InForce, judge_texts
from contract.switch_levels import SWITCH_FAULT_CODE_KEY
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULT_CODES = (
    '{"NotHandleFaultCodes":["80E21007","0x81078603"],"SubHealthFaultCodes":[],'
    '"RestartRequestCodes":["80C98009"],"RestartBusinessCodes":["80E01801"],'
    '"RestartNPUCodes":null,"FreeRestartNPUCodes":["8C044E00"],"PreSeparateNPUCodes":["8118043C"],'
    '"SeparateNPUCodes":["80E3A201","020001002"]}',
    '{"SeparateNPUNetworkCodes":["81078603"],"SubHealthFaultNetworkCodes":["81078607"],'
    '"NotHandleFaultCodes":["80818200"]}',
)
CUSTOMIZATIONS = (
    '{"FaultFrequency":[{"EventId":["80C98000","80E18005"],"TimeWindow":86400,"Times":2,'
    '"FaultHandling":"ManuallySeparateNPU"},{"EventId":["81078603"],"TimeWindow":86400,"Times":5,'
    '"FaultHandling":"ManuallySeparateNPU","ReleaseTimeWindow":172800}],'
    '"FaultDuration":[{"EventId":["81078603"],"FaultTimeout":20,"RecoverTimeout":60,'
    '"FaultHandling":"PreSeparateNPU"}],"GraceTolerance":{"WaitDeviceResetTime":150,'
    '"WaitFaultSelfHealingTime":15,"WaitProcessReadCMTime":30}}',
)
SWITCH_LEVELS = (
    '{"NotHandleFaultCodes":["[0x00f103b0,155907,na,na]"],"SubHealthFaultCodes":[],'
    '"RestartRequestFaultCodes":["[0x00f1fef5,155912,cpu,na]"],"ResetFaultCodes":[],'
    '"SeparateFaultCodes":["[0x08520003,na,L2,na]"],"PreSeparateFaultCodes":[]}',
)
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
    """The data of every ConfigMap that a recording has and that can be decoded, and an own one."""
    own = {
        FAULT_CODE_KEY: FAULT_CODES[0],
        CUSTOMIZATION_KEY: CUSTOMIZATIONS[0],
        SWITCH_FAULT_CODE_KEY: SWITCH_LEVELS[0],
        "PollInterval": "300",
    }
    steps = (step for recording in _recordings() for step in recording["steps"])
    found = (s["data"] for s in steps if s.get("name") == FAULT_CONFIG_NAME and "data" in s)
    return _unique(
        json.dumps(data) for data in (own, *found) if not judge_texts(data, {}, InForce()).kept
    )


def _unique(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
