"""Device-info becomes a member of cluster-info-device: clusterd#E1 to E14, to the byte."""

from __future__ import annotations

import pytest

from contract.documents import device_info
from contract.documents.cluster_device import device_record, healed, render_device_entry
from contract.documents.cluster_info import member, value_of
from contract.errors import CheckCodeMismatch, DocumentError
from contract.names import device_info_name
from tests.contract.documents.clusterd_examples import CASES, EXAMPLES
from tests.contract.documents.node_documents import KEY, config, fault, names


def output(data: dict[str, str], node: str = "node1") -> str:
    """Return the value of a cluster with this one node."""
    name = device_info_name(node)
    record = device_record(device_info.decode(data, name))
    return value_of([member(name, render_device_entry(node, record, record.update_time))])


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
