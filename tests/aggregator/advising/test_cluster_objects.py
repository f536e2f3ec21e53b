"""What the aggregator keeps of Nodes and pods is all that decisions need."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest

from advisor.advise import advise
from advisor.inputs import kubernetes_objects
from advisor.options import Profile
from advisor.scheduler_view.device_lists import base_devices, without_addresses
from advisor.scheduler_view.state import SchedulerState
from aggregator.advising.cluster_objects import KINDS, node_as_decided, pod_as_decided
from tests.advisor.player import RECORDINGS, options_of, play, recorded, snapshot_of
from tests.parts.kubernetes_object import made_of
from tests.vigil.advise import cluster


@pytest.mark.parametrize("name", RECORDINGS[::12])
def test_recordings_are_decided_the_same_without_what_is_dropped(name: str) -> None:
    recording = recorded(name)
    states = dict.fromkeys(Profile, SchedulerState(is_known=True))
    for session in play(recording):
        snapshot = snapshot_of(session, recording)
        kept = msgspec.structs.replace(
            snapshot,
            nodes=tuple(map(node_as_decided, snapshot.nodes)),
            pods=tuple(map(pod_as_decided, snapshot.pods)),
        )
        for profile in Profile:
            options = msgspec.structs.replace(options_of(recording), profile=profile)
            whole, after = advise(snapshot, states[profile], options)
            report, other = advise(kept, states[profile], options)
            assert report == whole
            assert other == after
            states[profile] = after


_CARD = {"IP": "10.0.0.1", "SuperDeviceID": 3}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"Ascend910-0":null}',
        '{"Ascend910-0":{"IP":1}}',
        json.dumps({"Ascend910-1": _CARD, "Ascend910-0": _CARD}),
        json.dumps({"Ascend910-0": {**_CARD, "DeviceID": 7}, "Ascend910-1": {"DeviceID": 0}}),
        json.dumps({"Ascend910-0": {"DeviceID": 7}, "Ascend910-1": _CARD}),
        json.dumps({"Ascend910-2c-100-1": _CARD, "Ascend910-0": _CARD, "x": _CARD}),
    ],
)
def test_cards_without_addresses_mean_the_same(text: str) -> None:
    assert base_devices(without_addresses(text)) == base_devices(text)


def test_nodes_with_equal_cards_have_one_text() -> None:
    texts = [
        json.dumps({"Ascend910-0": {"IP": address}, "Ascend910-1": {"IP": address}})
        for address in ("10.0.0.1", "10.0.0.2")
    ]
    assert without_addresses(texts[0]) is without_addresses(texts[1])


def test_nodes_and_pods_are_kept_without_annotations_that_no_rule_reads() -> None:
    node = cluster.node("n1")
    node["metadata"]["annotations"] |= {"NodeHealthyStatus": "UnHealthy", "of/others": "x"}
    kept: Any = KINDS["nodes"].read(made_of(node))
    assert kept.annotations.keys() == {"NodeHealthyStatus", "baseDeviceInfos"}
    pod = next(one for one in cluster.two_pods_on_two_of_three_nodes() if one["kind"] == "Pod")
    pod["metadata"]["annotations"] |= {"of/others": "x", "huawei.com/long": "x" * 5000}
    before = dict(pod["metadata"]["annotations"])
    kept = KINDS["pods"].read(made_of(pod))
    assert before.keys() - kept.annotations.keys() == {"of/others", "huawei.com/long"}


def _group(name: str, text: str) -> str:
    annotations = {"scheduling.k8s.io/group-name": text}
    raw = {"metadata": {"name": name, "uid": name, "annotations": annotations}}
    return kubernetes_objects.pod(made_of(raw)).group


def test_equal_texts_are_one_value_and_long_ones_are_not_remembered() -> None:
    assert _group("p1", "g") is _group("p2", "g")
    long, own = _group("p3", "long" * 1000), "".join(["long"] * 1000)
    assert sys.getrefcount(long) == sys.getrefcount(own), "nothing else has it"
