"""Worked examples in which something is judged: public faults, processors, jobs."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.script import JOB, Script
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config, fault

_DEVICES = "cluster-info-device-0"
_STATISTIC = "statistic-fault-info"


def _public(
    number: int,
    code: str,
    chips: list[int],
    seconds: int,
    assertion: str = "occur",
    node: str = "node1",
) -> dict[str, Any]:
    return {
        "faultId": f"fault-{number:04}",
        "faultType": "NPU",
        "faultCode": code,
        "faultTime": seconds * 1000,
        "assertion": assertion,
        "influence": [{"nodeName": node, "deviceIds": chips}],
    }


def _shows_statistic(script: Script, faults: str, number: str) -> None:
    data = {"FaultNum": number, "PublicFaults": faults}
    labels = {"mc-statistic-fault": "true"}
    script.shows_data(_STATISTIC, data, labels, namespace="cluster-system")


def e20() -> Script:
    script, example = Script("E20").start(), EXAMPLES["E20"]
    script.node("node1")
    script.device("node1", config())
    script.shows(_DEVICES, example["before"])
    script.rest()
    script.public(1, _public(1, "220001001", [0, 1], 1_760_000_100))
    script.shows(_DEVICES, example["output"])
    _shows_statistic(script, example["statistic"], example["number"])
    script.rest()
    script.rest()
    script.public(2, _public(1, "220001001", [0, 1], 1_760_000_100, "recover"))
    script.shows(_DEVICES, example["recovered"])
    _shows_statistic(script, "{}", '{"publicFaultNum":0}')
    script.rest()
    return script


def e21() -> Script:
    script, example = Script("E21", only=_DEVICES).start(), EXAMPLES["E21"]
    script.node("node1")
    hardware = fault(3, "RestartNPU", "80C98000", {"80C98000": (1760000000500, "RestartNPU")})
    script.device("node1", config([hardware], unhealthy=(3,)))
    t = 1_760_000_100
    script.public(
        1,
        _public(1, "010001001", [2], t),
        _public(2, "110001022", [4], t + 1),
        _public(3, "220001001", [3], t + 2),
        _public(4, "220001001", [3], t + 3),
        _public(5, "200001010", [5], t + 4),
        _public(6, "220001002", [30], t + 5),
    )
    script.shows(_DEVICES, example["output"])
    script.rest()
    script.pod("node1", "Ascend910-4")
    both, one = "Ascend910-3,Ascend910-30,Ascend910-4", "Ascend910-3,Ascend910-30"
    script.shows(_DEVICES, example["output"].replace(f'"{both}"', f'"{one}"'))
    script.rest()
    return script


def e22() -> Script:
    script = Script("E22", only=_DEVICES).start()
    script.node("n5")
    devices = {"huawei.com/npu": "npu-0,npu-1", "huawei.com/npu-Fault": "[]"}
    script.device("n5", config(devices=devices, SuperPodID=1, ServerIndex=2))
    script.public(1, _public(1, "010001001", [1], 1_760_000_100, node="n5"))
    script.shows(_DEVICES, EXAMPLES["E22"]["output"])
    script.rest()
    return script


def e26() -> Script:
    script = Script("E26").start()
    t = script.wall_ms
    business, request = "RestartBusiness", "RestartRequest"
    faults = [
        fault(0, business, "80E01801", {"80E01801": (t - 6000, business)}),
        fault(0, request, "80C98009", {"80C98009": (t - 4000, request)}),
        fault(1, request, "80CB8009", {"80CB8009": (t - 1000, request)}),
        fault(2, request, "80CB8009", {"80CB8009": (t - 9000, request)}),
    ]
    script.device("node1", config(faults, unhealthy=(0, 1, 2)))
    text = EXAMPLES["E26"]["output"]
    for ago in (6000, 9000):
        text = text.replace(f"<t-{ago}>", str(t - ago))
    script.shows(_DEVICES, text)
    script.rest(2500)
    script.do("stop-aggregator")  # chip 1 is shown at t + 4000
    return script


def e27() -> Script:
    script, example = Script("E27"), EXAMPLES["E27"]
    policy = (
        "enabled: true\nseparate:\n  fault_window_hours: 24\n  fault_threshold: 3\n"
        "release:\n  fault_free_hours: 48\n"
    )
    held = {"namespace": "cluster-system", "name": "clusterd-config-cm", "labels": {}}
    data = {"manually_separate_policy.conf": policy}
    script.do("put-configmap", object=held | {"data": data})
    manual = {"namespace": "cluster-system", "name": "clusterd-manual-info-cm", "labels": {}}
    cache = {"node1": example["manual"]}
    script.do("edit-output", object=manual | {"data": cache})
    script.shows_data("clusterd-manual-info-cm", cache, {}, namespace="cluster-system")
    script.start()
    given = fault(3, "RestartNPU", "8C084E00", {"8C084E00": (1760000000500, "RestartNPU")})
    script.device("node1", config([given], unhealthy=(3,)))
    script.shows(_DEVICES, example["output"])
    script.rest()
    return script


def e29() -> Script:
    script = Script("E29").start()
    script.job(**{"huawei.com/schedule.filter.faultCode": "80C98000:120"})
    script.pod("node1", "Ascend910-0")
    faults = [fault(chip, "RestartNPU", "80C98000") for chip in (0, 1)]
    script.device("node1", config(faults, unhealthy=(0, 1)))
    script.shows(_DEVICES, EXAMPLES["E29"]["output"])
    script.rest()
    script.do("stop-aggregator")  # chip 0 would be shown after 120 s
    return script


def e31() -> Script:
    """Return example 31: the internal record is hidden, the messages (clusterd#5.4) are not."""
    script = Script("E31", only="fault.Fault/GetFaultMsgSignal").start()
    script.node("node1")
    script.job()
    devices = [{"device_id": str(n), "device_ip": f"10.1.0.{n}"} for n in (0, 1)]
    held = {"pod_name": "job1-node1", "server_id": "10.0.0.1", "host_ip": "10.0.0.1"}
    script.pod(
        "node1",
        "Ascend910-0,Ascend910-1",
        **{
            "hccl/rankIndex": "0",
            "ascend.kubectl.kubernetes.io/ascend-910-configuration": json.dumps(
                held | {"devices": devices}
            ),
        },
    )
    script.device("node1", config([fault(0, "SubHealthFault", "80CD8003")]))
    client = {"jobId": JOB, "role": "examples"}
    chip = _device_fault("0", "NPU", "SubHealthy", {"80CD8003": "SubHealthFault"})
    script.rest()
    script.rest()
    script.answers(client, _job_message("SubHealthy", chip))
    server = {"NodeInfo": EXAMPLES["E15"]["input"], "updateTime": "2026-01-02T03:04:05+08:00"}
    script.server("node1", server)
    script.rest()
    codes = {"00000001": "SeparateFault", "0000001D": "SeparateFault"}
    cpu = _device_fault("1", "CPU", "UnHealthy", codes)
    script.answers(client, _job_message("UnHealthy", chip, cpu))
    script.rest()
    return script


def _device_fault(number: str, kind: str, level: str, codes: dict[str, str]) -> dict[str, Any]:
    return {
        "deviceId": number,
        "deviceType": kind,
        "faultLevel": level,
        "faultCodes": list(codes),
        "faultLevels": list(codes.values()),
        "faultType": [],
        "faultReason": [],
        "switchFaultInfos": [],
    }


def _job_message(level: str, *devices: dict[str, Any]) -> dict[str, Any]:
    node = {"nodeName": "node1", "nodeIP": "10.0.0.1", "nodeSN": "SN-node1", "faultLevel": level}
    sent = {"jobId": JOB, "signalType": "fault"}
    nodes = {"nodeFaultInfo": [node | {"faultDevice": list(devices)}]}
    return {"code": 200, "info": "all info returned", "faultSignal": sent | nodes}


MAKERS = (e20, e21, e22, e26, e27, e29, e31)
