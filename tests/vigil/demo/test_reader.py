"""The demo's reader against documents of the real programs."""

from __future__ import annotations

from hashlib import sha256

import pytest

from vigil.demo.reader import (
    ChipsView,
    read_cluster_info,
    read_device_info,
    read_public_faults,
)

# docs/spec/device-plugin.md#8.3, V2
V2 = (
    '{"DeviceInfo":{"DeviceList":{"huawei.com/Ascend910":"Ascend910-1",'
    '"huawei.com/Ascend910-Fault":"[{\\"fault_type\\":\\"CardUnhealthy\\",'
    '\\"npu_name\\":\\"Ascend910-0\\",\\"large_model_fault_level\\":\\"SeparateNPU\\",'
    '\\"fault_level\\":\\"SeparateNPU\\",\\"fault_handling\\":\\"SeparateNPU\\",'
    '\\"fault_code\\":\\"80E3A201\\",\\"fault_time_and_level_map\\":{\\"80E3A201\\":'
    '{\\"fault_time\\":1700000000123,\\"fault_level\\":\\"SeparateNPU\\"}}}]",'
    '"huawei.com/Ascend910-NetworkUnhealthy":"","huawei.com/Ascend910-Recovering":"",'
    '"huawei.com/Ascend910-Unhealthy":"Ascend910-0"},"UpdateTime":1700000100},'
    '"SuperPodID":-2,"ServerIndex":-2,'
    '"CheckCode":"677e1bd8cdaaef0a6699501a57cfa44dd914ca5d69e6c2c90e6880735e06748c"}'
)
EXPECTED = ChipsView(frozenset({1}), frozenset({0}), frozenset(), {0: {"80E3A201": "SeparateNPU"}})


def test_device_info_is_read() -> None:
    assert read_device_info(V2) == EXPECTED
    assert ChipsView.expected(range(2), {0: {"80E3A201": "SeparateNPU"}, 1: {}}) == EXPECTED


def test_wrong_check_code_is_refused() -> None:
    with pytest.raises(ValueError, match="check code"):
        read_device_info(V2.replace("1700000100", "1700000101"))


def test_harmless_levels_leave_a_chip_free() -> None:
    view = ChipsView.expected(range(2), {0: {"80E21007": "NotHandleFault"}})
    assert view.free == {0, 1}
    assert view.faults == {0: {"80E21007": "NotHandleFault"}}


def test_cluster_info_is_read() -> None:
    device_list = V2[len('{"DeviceInfo":{"DeviceList":') : V2.index(',"UpdateTime"')]
    text = f'{{"mindx-dl-deviceinfo-n1":{{"DeviceList":{device_list},"UpdateTime":1}}}}'
    assert read_cluster_info(text) == {"n1": EXPECTED}
    assert read_cluster_info("") == {}


# What a real NodeD reported of a storage client, without its times (docs/spec/noded.md#4.3).
STORAGE = (
    '{"id":"cf38ca0f-c586-4f64-b4f6-a6fa73ef374b","version":"1.0","resource":"dpcStorage",'
    '"faults":[{"faultId":"2dff","faultType":"Node","faultCode":"110001020","assertion":"occur",'
    '"influence":[{"nodeName":"n1","deviceIds":[0,1]}]},'
    '{"faultId":"6b60","faultType":"Node","faultCode":"110001021","assertion":"recover",'
    '"influence":[{"nodeName":"n1","deviceIds":[0,1]}]}]}'
)


def test_a_message_about_public_faults_is_read() -> None:
    assert read_public_faults(STORAGE) == {"n1": {"110001020"}}
    assert read_public_faults(STORAGE.replace("occur", "recover")) == {"n1": frozenset()}
    with pytest.raises(ValueError, match="not a valid message of version"):
        read_public_faults(STORAGE.replace('"version":"1.0"', '"version":"2.0"'))


def test_an_isolated_chip_is_known_in_both_documents() -> None:
    """docs/spec/clusterd.md#2.1: the merged map leaves out the codes that isolate."""
    levels = {"80E3A201": "ManuallySeparateNPU", "80E18401": "NotHandleFault"}
    own = ChipsView.expected(range(2), {0: levels})
    assert own.isolated == own.unhealthy == {0}
    assert own.faults == {0: levels}
    assert own.merged().faults == {0: {"80E18401": "NotHandleFault"}}
    assert own.merged().isolated == {0}
    isolated = V2.replace('\\"SeparateNPU\\"', '\\"ManuallySeparateNPU\\"')
    content = isolated[len('{"DeviceInfo":') : isolated.index(',"SuperPodID"')]
    signed = f'{{"DeviceInfo":{content},"CheckCode":"{sha256(content.encode()).hexdigest()}"}}'
    assert read_device_info(signed) == ChipsView.expected(
        range(2), {0: {"80E3A201": "ManuallySeparateNPU"}}
    )
