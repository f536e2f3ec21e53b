"""Whole cluster-info values: joined, read back, and refused where a reader would refuse them."""

from __future__ import annotations

import msgspec
import pytest

from contract.documents import device_info
from contract.documents.cluster_device import device_record, render_device_entry
from contract.documents.cluster_info import (
    VALUE_LIMIT,
    cluster_device_index,
    cluster_device_name,
    entry_texts,
    member,
    read_device_entry,
    record_of,
    value_of,
    verify_device_value,
)
from contract.errors import DocumentError
from contract.names import device_info_name
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config, fault

KEY = device_info_name("n1")
RECORD = device_record(
    device_info.decode(config([fault(1, "RestartNPU", "80E18402")], unhealthy=(1,)), KEY)
)
TEXT = render_device_entry("n1", RECORD, 7)


def test_e25_a_deleted_node_is_gone_and_without_nodes_the_value_is_empty() -> None:
    node2 = device_record(device_info.decode(config(), "x"))
    entry = member(device_info_name("node2"), render_device_entry("node2", node2, 1760000000))
    assert value_of([entry]) == EXAMPLES["E25"]["output"]
    assert value_of([]) == ""


def test_names_and_numbers() -> None:
    assert cluster_device_index(cluster_device_name(12)) == 12
    for name in (
        "cluster-info-device-",
        "cluster-info-device-x",
        "cluster-info-device-01",
        "a",
        "3",
    ):
        assert cluster_device_index(name) is None


def test_entries_come_back_as_they_were_written() -> None:
    value = value_of([member(KEY, TEXT)])
    assert entry_texts(value, "d") == {KEY: TEXT}
    assert entry_texts("", "d") == {}
    node, entry = read_device_entry(KEY, TEXT, "d")
    assert (node, entry.UpdateTime) == ("n1", 7)
    again = record_of(entry)
    assert again.available == RECORD.available
    assert again.chip_type == "Ascend910"
    assert again.super_pod_id == -2
    assert again.faults == ()
    assert again.unhealthy == ()
    verify_device_value(value, "d", 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"UpdateTime":7', '"UpdateTime":7.0'),
        ('"UpdateTime":7', '"UpdateTime":"7"'),
        ('"SuperPodID":-2', '"SuperPodID":2147483648'),
        ('"CmName":"mindx-dl-deviceinfo-n1"', '"CmName":"mindx-dl-deviceinfo-n2"'),
        ("huawei.com/Ascend910-Recovering", "huawei.com/Ascend910-Other"),
        ('"huawei.com/Ascend910-Recovering":"",', ""),
        ("Ascend910-0,Ascend910-2", "Ascend910-0, Ascend910-2"),
        ("Ascend910-0,Ascend910-2", "Ascend910-0,,Ascend910-2"),
        ('"[{', '"[x{'),
    ],
)
def test_an_entry_that_a_reader_would_not_understand(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(DocumentError):
        read_device_entry(KEY, TEXT.replace(old, new), "d")


def test_a_key_that_names_no_node() -> None:
    with pytest.raises(DocumentError):
        read_device_entry("other", TEXT, "d")


@pytest.mark.parametrize("value", ["[]", "{", '{"a":1}', '{"a":{"UpdateTime":"x"}}'])
def test_a_value_that_is_refused_before_it_is_written(value: str) -> None:
    with pytest.raises(DocumentError):
        verify_device_value(value, "d", 1)


def test_a_value_with_too_few_nodes_or_too_many_bytes_is_refused() -> None:
    value = value_of([member(KEY, TEXT)])
    with pytest.raises(DocumentError, match="has 1 node and must have 2"):
        verify_device_value(value, "d", 2)
    with pytest.raises(DocumentError, match="is empty"):
        verify_device_value("", "d", 1)
    verify_device_value("", "d", 0)
    long = value_of(member(f"{KEY}-{n:04}", TEXT) for n in range(1 + VALUE_LIMIT // len(TEXT)))
    with pytest.raises(DocumentError, match="at most 819200"):
        verify_device_value(long, "d", len(msgspec.json.decode(long)))


@pytest.mark.parametrize("value", ["[]", "{", "nothing"])
def test_a_foreign_value_is_reported_as_unreadable(value: str) -> None:
    with pytest.raises(DocumentError, match="cluster-info-device-0"):
        entry_texts(value, "cluster-info-device-0")
