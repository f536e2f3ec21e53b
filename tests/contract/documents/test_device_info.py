"""The device-info document, against complete documents of the real device plugin."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from contract.codes.families import FAMILIES
from contract.documents import device_info
from contract.documents.device_info import DeviceFault, DeviceInfo, TimeAndLevel
from contract.errors import CheckCodeMismatch, DocumentError
from contract.go import encode as go_json
from tests.vectors import VECTORS

FULL = dict(
    line.split(" ", 1)
    for line in (VECTORS / "device-plugin/full-documents.txt").read_text().splitlines()
)
FAMILY = {"V5": "Ascend910A5", "V6": "Ascend310P", "V7": "Ascend310P", "V8": "Ascend310"}


def fault(kind: str, name: str, level: str, codes: dict[str, tuple[int, str]]) -> DeviceFault:
    return DeviceFault(
        fault_type=kind,
        npu_name=name,
        large_model_fault_level=level,
        fault_level=level,
        fault_handling=level,
        fault_code=",".join(codes),
        fault_time_and_level_map={c: TimeAndLevel(t, lv) for c, (t, lv) in codes.items()},
    )


def document(**changes: Any) -> DeviceInfo:
    values: dict[str, Any] = {
        "device_type": "Ascend910",
        "free": (),
        "unhealthy": (),
        "network_unhealthy": (),
        "recovering": (),
        "faults": (),
        "update_time": 1700000100,
    }
    return DeviceInfo(**values | changes)


T = 1700000000000
WRITTEN = {
    "V1": document(free=("Ascend910-0", "Ascend910-1")),
    "V2": document(
        free=("Ascend910-1",),
        unhealthy=("Ascend910-0",),
        faults=(
            fault(
                "CardUnhealthy",
                "Ascend910-0",
                "SeparateNPU",
                {"80E3A201": (T + 123, "SeparateNPU")},
            ),
        ),
    ),
    "V3": document(
        unhealthy=("Ascend910-0",),
        faults=(
            fault(
                "CardUnhealthy",
                "Ascend910-0",
                "RestartNPU",
                {"80C98008": (T, "RestartRequest"), "80CD8008": (T + 1, "RestartNPU")},
            ),
        ),
    ),
    "V4": document(
        free=("Ascend910-0",),
        unhealthy=("Ascend910-1",),
        faults=(
            fault(
                "CardNetworkUnhealthy",
                "Ascend910-1",
                "NotHandleFault",
                {"81078603": (T, "NotHandleFault")},
            ),
            fault(
                "CardUnhealthy",
                "Ascend910-1",
                "RestartBusiness",
                {"8C204E00": (T + 10, "RestartBusiness")},
            ),
        ),
    ),
    "V5": document(
        device_type="npu", free=("npu-0", "npu-1"), super_pod_id=7, server_index=2, rack_id=3
    ),
    "V6": document(device_type="Ascend310P", free=("Ascend310P-0", "Ascend310P-1")),
    "V7": document(
        device_type="Ascend310P",
        unhealthy=("Ascend310P-0",),
        faults=(fault("CardUnhealthy", "Ascend310P-0", "NormalNPU", {}),),
    ),
    "V8": document(device_type="Ascend310", free=("Ascend310-0",)),
}


@pytest.mark.parametrize("name", FULL)
def test_full_document_is_written_byte_for_byte_and_read_back(name: str) -> None:
    family = FAMILIES[FAMILY.get(name, "Ascend910B")]
    assert device_info.encode(WRITTEN[name], family)["DeviceInfoCfg"] == FULL[name]
    read = device_info.verify_published({"DeviceInfoCfg": FULL[name]}, name)
    assert read == WRITTEN[name]


def test_other_keys_of_each_family() -> None:
    a2 = device_info.encode(document(), FAMILIES["Ascend910B"])
    assert sorted(a2) == [
        "Description",
        "DeviceInfoCfg",
        "ManuallySeparateNPU",
        "UpgradeFaultReason",
    ]
    assert (a2["ManuallySeparateNPU"], a2["UpgradeFaultReason"]) == ("", "{}")
    assert (
        hashlib.sha256(a2["Description"].encode()).hexdigest()
        == "8b5bc57cd647509eef270775cc55438af42758fb1cc002de209d1553350f0141"
    )
    assert device_info.clean_switch_info(FAMILIES["Ascend910B"], 7) is None
    assert (
        device_info.clean_switch_info(FAMILIES["Ascend910A3"], 1700000100)
        == '{"FaultCode":[],"FaultLevel":"","UpdateTime":1700000100,"NodeStatus":"Healthy",'
        '"FaultTimeAndLevelMap":{}}'
    )
    assert (
        device_info.clean_switch_info(FAMILIES["Ascend910A5"], 7)
        == '{"FaultCode":null,"FaultLevel":"","UpdateTime":0,"NodeStatus":"",'
        '"FaultTimeAndLevelMap":null}'
    )


EIGHT = ",".join(f"Ascend910-{n}" for n in range(8))
HASHES = [
    (None, 0, "aaa60c794e2dbec298a2f3c18ea64dea9a1fd2ccdb0cc577b8dfe2c3c5966965"),
    (
        {
            "huawei.com/Ascend910": EIGHT,
            "huawei.com/Ascend910-NetworkUnhealthy": "",
            "huawei.com/Ascend910-Unhealthy": "",
        },
        1657527526,
        "6b8de396fd9945be231d24720ca66ed950baf0a5972717f335aad7571cb6457a",
    ),
    (
        {"huawei.com/Ascend910": "Ascend910-1", "huawei.com/Ascend910-Fault": '[{"a":"<&>"}]'},
        1700000100,
        "9960e25ef2efc89b7dece15cdbc5eb294c2db8f464140fec07072a24371f700e",
    ),
    (None, 1760000000, "431ea6d8e8a82629aae2a427de00222bdd5f7ae81219a743a3f9be4940b9fc0b"),
]


@pytest.mark.parametrize(("devices", "time", "expected"), HASHES)
def test_check_code_vectors(devices: dict[str, str] | None, time: int, expected: str) -> None:
    """EX-42 is the one with an angle bracket: it is escaped before it is hashed."""
    inner = {"DeviceList": devices, "UpdateTime": time}
    assert go_json.check_code(inner) == expected
    text = json.dumps({"DeviceInfo": inner, "CheckCode": expected})
    assert device_info.decode({"DeviceInfoCfg": text}, "vector").update_time == time


def cfg(inner: str) -> dict[str, str]:
    """Return a document whose check code fits what a reader decodes from ``inner``."""
    value = json.loads(inner)
    code = go_json.check_code(
        {"DeviceList": go_json.sorted_map(value["DeviceList"]), "UpdateTime": value["UpdateTime"]}
    )
    return {"DeviceInfoCfg": f'{{"DeviceInfo":{inner},"CheckCode":"{code}"}}'}


def test_document_that_go_accepts_is_accepted() -> None:
    text = (
        FULL["V2"].replace('"DeviceInfo":', '"deviceinfo":').replace('"UpdateTime"', '"uPdateTime"')
    )
    text = text.replace('"SuperPodID":-2', '"SuperPodID":null,"Extra":{"x":[1.5]}')
    read = device_info.decode({"DeviceInfoCfg": text}, "V2")
    assert read.faults == WRITTEN["V2"].faults
    assert read.super_pod_id == 0


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            ('"UpdateTime":1700000100', '"UpdateTime":1700000100.0'),
            "DeviceInfoCfg.DeviceInfo.UpdateTime",
        ),
        (('"UpdateTime":1700000100', '"UpdateTime":17e8'), "DeviceInfoCfg.DeviceInfo.UpdateTime"),
        (('"SuperPodID":-2', '"SuperPodID":2147483648'), "DeviceInfoCfg.SuperPodID"),
        (('"ServerIndex":-2', '"serverindex":"0"'), "DeviceInfoCfg.ServerIndex"),
        (('"Ascend910-1"', "7"), "DeviceInfoCfg.DeviceInfo.DeviceList['huawei.com/Ascend910']"),
        (('"CheckCode":"', '"CheckCode":["'), "DeviceInfoCfg"),
        (("{", ""), "DeviceInfoCfg"),
    ],
)
def test_document_that_go_refuses_is_refused_with_its_place(
    change: tuple[str, str], where: str
) -> None:
    with pytest.raises(DocumentError) as refused:
        device_info.decode({"DeviceInfoCfg": FULL["V2"].replace(*change)}, "node-1")
    assert (refused.value.document, refused.value.where) == ("node-1", where)


@pytest.mark.parametrize(
    "change",
    [
        ("1700000100", "1700000101"),
        ("Ascend910-1", "Ascend910-2"),
        ("677e1bd8", "677E1BD8"),
        ('"CheckCode":"677e1bd8cdaaef0a6699501a57cfa44dd914ca5d69e6c2c90e6880735e06748c"', '"a":1'),
    ],
)
def test_wrong_check_code_is_distinguished_from_broken_text(change: tuple[str, str]) -> None:
    assert change[0] in FULL["V2"]
    with pytest.raises(CheckCodeMismatch):
        device_info.decode({"DeviceInfoCfg": FULL["V2"].replace(*change)}, "node-1")


def test_document_without_its_key_is_refused() -> None:
    with pytest.raises(DocumentError, match="is missing"):
        device_info.decode({"SwitchInfoCfg": "{}"}, "node-1")


def test_unreadable_fault_list_leaves_the_lists() -> None:
    data = cfg(
        '{"DeviceList":{"huawei.com/Ascend910-Unhealthy":"Ascend910-0",'
        '"huawei.com/Ascend910-Fault":"[{]"},"UpdateTime":1}'
    )
    read = device_info.decode(data, "node-1")
    assert (read.unhealthy, read.faults) == (("Ascend910-0",), ())
    assert read.faults_problem is not None
    assert "-Fault" in read.faults_problem
    with pytest.raises(DocumentError):
        device_info.verify_published(data, "node-1")


@pytest.mark.parametrize("names", ["Ascend910-0, Ascend910-1", "Ascend910-0,", "Ascend310-0"])
def test_lists_a_reader_would_misread_are_never_published(names: str) -> None:
    data = cfg(f'{{"DeviceList":{{"huawei.com/Ascend910":"{names}"}},"UpdateTime":1}}')
    with pytest.raises(DocumentError, match="is not a valid device name"):
        device_info.verify_published(data, "node-1")


@pytest.mark.parametrize(
    ("devices", "what"),
    [
        ({"": "Ascend910-0", "-Unhealthy": "Ascend910-0"}, "are free and unhealthy"),
        (
            {"-Fault": '[{"npu_name":"Ascend910-0","fault_level":"Bad"}]'},
            "'Bad' is not a valid level",
        ),
        (
            {"-Fault": '[{"npu_name":"0","fault_level":"NormalNPU"}]'},
            "'0' is not a valid device name",
        ),
    ],
)
def test_contradictions_are_never_published(devices: dict[str, str], what: str) -> None:
    resource = "huawei.com/Ascend910"
    keys = {resource: ""} | {f"{resource}{key}": value for key, value in devices.items()}
    data = cfg(json.dumps({"DeviceList": keys, "UpdateTime": 1}))
    with pytest.raises(DocumentError, match=what):
        device_info.verify_published(data, "node-1")
