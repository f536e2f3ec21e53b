"""What the real ClusterD and Device Plugins write for 16,000 nodes, as the verbs read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    REPORT_LABEL,
    device_info_name,
)
from tests.parts.verbs import run_verb
from tests.vigil.sources.recorded_documents import inputs, recorded_cluster_info

if TYPE_CHECKING:
    from pathlib import Path

_NODES = 16_000
_IN_ONE = 1000
_RECORDING = "every-fault-level"
_NAME = "cluster-info-device-"


def _document(folder: Path, name: str, label: tuple[str, str], data: dict[str, str]) -> None:
    text = json.dumps({"labels": dict([label]), "data": data})
    (folder / f"{name}.json").write_text(text)


def _fill(place: Path) -> None:
    """Write the one recorded node so often under other names: one in 1,000 as it was, with faults.

    The others are as another recording has a node without any.
    """
    quiet = inputs("three-nodes-one-faulty")[device_info_name("n1")]
    ill = inputs(_RECORDING)[device_info_name("n1")]
    quiet_entry, ill_entry = (
        json.loads(recorded_cluster_info(recording, f"{_NAME}0").data[f"{_NAME}0"])[
            device_info_name("n1")
        ]
        for recording in ("three-nodes-one-faulty", _RECORDING)
    )
    reports, cluster = place / DEVICE_INFO_NAMESPACE, place / CLUSTER_NAMESPACE
    reports.mkdir(parents=True)
    cluster.mkdir()
    for first in range(0, _NODES, _IN_ONE):
        entries = {}
        for number in range(first, first + _IN_ONE):
            name = device_info_name(f"node-{number:05}")
            is_ill = number == first
            _document(reports, name, REPORT_LABEL, (ill if is_ill else quiet).data)
            entries[name] = (ill_entry if is_ill else quiet_entry) | {"CmName": name}
        value = json.dumps(entries, separators=(",", ":"))
        name = f"{_NAME}{first // _IN_ONE}"
        _document(cluster, name, CLUSTER_LABEL, {name: value})


@pytest.mark.slow
def test_documents_of_16000_nodes_are_shown(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _fill(store)
    where = ("--store", f"directory:{store}", "--state-dir", str(tmp_path / "none"))
    status, output, errors = run_verb("status", "--json", *where)
    assert (status, errors) == (1, "")
    report = json.loads(output)
    assert report["counts"]["nodes"] == {"reported": _NODES}
    assert {row["node"] for row in report["faults"]} == {
        f"node-{number:05}" for number in range(0, _NODES, _IN_ONE)
    }
    assert not any(row["withheld"] for row in report["faults"])
    status, output, errors = run_verb("explain", "node-03000/5", *where, COLUMNS="40")
    assert (status, errors) == (1, "")
    assert b"RestartNPU" in output
    assert max(map(len, output.decode().splitlines())) <= 40
    assert run_verb("status", "node-16000", *where)[0] == 2
