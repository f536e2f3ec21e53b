"""Worked examples of the specification of ClusterD: node and data of device-info, by name."""

from __future__ import annotations

import json

from tests.contract.documents.node_documents import config, fault
from tests.vectors import VECTORS

EXAMPLES: dict[str, dict[str, str]] = json.loads((VECTORS / "clusterd/examples.json").read_text())
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "E2": ("node1", config(chips=16, SuperPodID=4, ServerIndex=7, RackID=3)),
    "E3": (
        "node1",
        config(
            [
                fault(
                    5,
                    "SeparateNPU",
                    "8C084E00, 80E3A201",
                    {
                        "80E3A201": (1760000001000, "SeparateNPU"),
                        "8C084E00": (1760000002000, "RestartNPU"),
                    },
                )
            ],
            unhealthy=(5,),
        ),
    ),
    "E4": (
        "node1",
        config(
            [
                fault(
                    0,
                    "SeparateNPU",
                    "ZZ000001,AA000002,MM000003",
                    {
                        "ZZ000001": (3, "NotHandleFault"),
                        "AA000002": (2, "SeparateNPU"),
                        "MM000003": (1, "FreeRestartNPU"),
                    },
                )
            ],
            unhealthy=(0,),
        ),
    ),
    "E5": ("node1", config([fault(2, "RestartBusiness", "AAAAAAAA", {})], unhealthy=(2,))),
    "E6": ("node1", config([fault(2, "ManuallySeparateNPU", "", {})], unhealthy=(2,))),
    "E7": (
        "node1",
        config(
            [
                fault(
                    2,
                    "ManuallySeparateNPU",
                    "8C084E00,80C98000",
                    {
                        "8C084E00": (1760000000000, "ManuallySeparateNPU"),
                        "80C98000": (1760000000000, "RestartRequest"),
                    },
                )
            ],
            unhealthy=(2,),
        ),
    ),
    "E8": (
        "node1",
        config(
            [
                fault(
                    2, "NotHandleFault", "80818C00", {"80818C00": (1760000000600, "NotHandleFault")}
                ),
                fault(10, "RestartNPU", "80C98000", {"80C98000": (1760000000500, "RestartNPU")}),
                fault(10, "PreSeparateNPU", "81078603", kind="CardNetwork"),
            ],
            chips=16,
            unhealthy=(10,),
            network=(10,),
            SuperPodID=0,
            ServerIndex=1,
        ),
    ),
    "E9": (
        "node1",
        config(
            [fault(0, "RestartNPU", "80C98000,80C98000", {"80C98000": (1, "RestartNPU")})],
            unhealthy=(0,),
        ),
    ),
    "E11": ("node1", config("{oops", unhealthy=(3,))),
    "E12": (
        "n5",
        config(
            devices={
                "huawei.com/npu": "npu-0,npu-1",
                "huawei.com/npu-DpuUnhealthy": "x",
                "huawei.com/npu-Recovering": "npu-2",
            },
            SuperPodID=1,
            ServerIndex=2,
            RackID=3,
        ),
    ),
    "E1": ("node1", {"DeviceInfoCfg": EXAMPLES["E1"]["input"]}),
    "E14": ("node1", {"DeviceInfoCfg": EXAMPLES["E14"]["input"]}),
}
