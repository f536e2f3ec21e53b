"""Device-info becomes a member of cluster-info-device: clusterd#E1 to E14, to the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.documents import device_info
from contract.documents.cluster_device import device_record, healed, render_device_entry
from contract.documents.cluster_info import member, value_of
from contract.errors import CheckCodeMismatch, DocumentError
from contract.go import encode as go_json
from contract.names import device_info_name
from tests.vectors import VECTORS

EXAMPLES: dict[str, dict[str, str]] = json.loads((VECTORS / "clusterd/examples.json").read_text())
KEY = "huawei.com/Ascend910"


def fault(
    chip: int, level: str, codes: str, times: dict[str, Any] | None = None, kind: str = "Card"
) -> dict[str, Any]:
    """Return a fault object as a device plugin writes it."""
    times = {codes: (1760000000000, level)} if times is None else times
    return {
        "fault_type": f"{kind}Unhealthy",
        "npu_name": f"Ascend910-{chip}",
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": codes,
        "fault_time_and_level_map": {
            code: {"fault_time": time, "fault_level": own} for code, (time, own) in times.items()
        },
    }


def names(chips: Any) -> str:
    """Return a comma list of chips."""
    return ",".join(f"Ascend910-{chip}" for chip in chips)


def config(
    faults: Any = (),
    *,
    chips: int = 8,
    unhealthy: tuple[int, ...] = (),
    network: tuple[int, ...] = (),
    devices: dict[str, str] | None = None,
    update_time: Any = 1760000000,
    **outer: Any,
) -> dict[str, str]:
    """Return the data of a device-info ConfigMap, check code included."""
    if devices is None:
        away = {*unhealthy, *network}
        devices = {
            KEY: names(chip for chip in range(chips) if chip not in away),
            f"{KEY}-Fault": faults if isinstance(faults, str) else go_json.encode(list(faults)),
            f"{KEY}-NetworkUnhealthy": names(network),
            f"{KEY}-Recovering": "",
            f"{KEY}-Unhealthy": names(unhealthy),
        }
    inner = {"DeviceList": devices, "UpdateTime": update_time}
    text = {
        "DeviceInfo": inner,
        "SuperPodID": -2,
        "ServerIndex": -2,
        "CheckCode": go_json.check_code(inner),
        **outer,
    }
    return {"DeviceInfoCfg": go_json.encode(text)}


def output(data: dict[str, str], node: str = "node1") -> str:
    """Return the value of a cluster with this one node."""
    name = device_info_name(node)
    record = device_record(device_info.decode(data, name))
    return value_of([member(name, render_device_entry(node, record, record.update_time))])


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


@pytest.mark.parametrize("example", sorted(CASES))
def test_example(example: str) -> None:
    node, data = CASES[example]
    assert output(data, node) == EXAMPLES[example]["output"]


def test_the_examples_own_documents_are_what_we_make() -> None:
    assert config()["DeviceInfoCfg"] == EXAMPLES["E1"]["input"]


def test_e13_null_device_list() -> None:
    text = (
        '{"DeviceInfo":{"DeviceList":null,"UpdateTime":1760000000},"SuperPodID":-2,"ServerIndex":-2,'
        '"CheckCode":"431ea6d8e8a82629aae2a427de00222bdd5f7ae81219a743a3f9be4940b9fc0b"}'
    )
    assert output({"DeviceInfoCfg": text}) == EXAMPLES["E13"]["output"]


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (config(CheckCode="x"), CheckCodeMismatch),
        (config(CheckCode=""), CheckCodeMismatch),
        ({"DeviceInfoCfg": EXAMPLES["E1"]["input"].replace("88c1", "88c12")}, CheckCodeMismatch),
        ({}, DocumentError),
        ({"DeviceInfoCfg": EXAMPLES["E1"]["input"][:-5]}, DocumentError),
        (
            {"DeviceInfoCfg": EXAMPLES["E1"]["input"].replace("1760000000", "1760000000.0")},
            DocumentError,
        ),
    ],
)
def test_e10_refused(data: dict[str, str], refused: type[DocumentError]) -> None:
    with pytest.raises(refused):
        output(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"DeviceInfo"', '"deviceinfo"'),
        ('"UpdateTime":1760000000', '"UpdateTime":1760000000,"X":1'),
    ],
)
def test_e10_accepted(old: str, new: str) -> None:
    text = EXAMPLES["E1"]["input"]
    assert old in text
    assert output({"DeviceInfoCfg": text.replace(old, new)}) == EXAMPLES["E1"]["output"]


def test_lists_are_trimmed() -> None:
    devices = {KEY: "Ascend910-1, Ascend910-0,", f"{KEY}-Unhealthy": " "}
    text = output(config(devices=devices))
    assert f'"{KEY}":"Ascend910-0,Ascend910-1"' in text
    assert f'"{KEY}-Unhealthy":""' in text


def test_healed_keeps_the_free_list_and_loses_every_fault() -> None:
    data = config([fault(2, "SeparateNPU", "80E21007")], unhealthy=(2,), network=(3,))
    record = healed(device_record(device_info.decode(data, "x")))
    free = ",".join(record.available)
    assert free == names((0, 1, 4, 5, 6, 7))
    assert render_device_entry("n", record, 5) == (
        f'{{"DeviceList":{{"{KEY}":"{free}","{KEY}-Fault":"[]","{KEY}-NetworkUnhealthy":"",'
        f'"{KEY}-Recovering":"","{KEY}-Unhealthy":""}},"UpdateTime":5,'
        '"CmName":"mindx-dl-deviceinfo-n","SuperPodID":-2,"RackID":0,"ServerIndex":-2}'
    )
