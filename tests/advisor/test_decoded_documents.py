"""Documents that are followed from version to version are merged as if each was read anew."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.cluster_cache import ClusterCache, DecodedDocuments
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import StoredConfigMap
from tests.parts.examples import examples

_KINDS = {"device": "mindx-dl-deviceinfo-", "switch": "mindx-dl-switchinfo-"}
_NAMES = [f"cluster-info-{kind}-{number}" for kind in _KINDS for number in range(2)]
_CONTENTS = st.one_of(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 3), max_size=3),
    st.just("no JSON"),
    st.just("two keys of one node"),
)
_WRITES = st.lists(st.tuples(st.sampled_from(_NAMES), st.none() | _CONTENTS), max_size=4)
"""What is written before a session; ``None`` deletes a document."""
Writes = list[tuple[str, Any]]


def _entry(kind: str, stamp: int) -> dict[str, Any]:
    if kind == "device":
        return {"DeviceList": {"huawei.com/Ascend910": ""}, "UpdateTime": stamp}
    return {"FaultCode": [], "FaultLevel": "", "UpdateTime": stamp, "NodeStatus": "Healthy"}


def _text(name: str, content: Any) -> str:
    kind = name.split("-")[2]
    if content == "no JSON":
        return "{"
    if isinstance(content, str):
        return json.dumps({"a": _entry(kind, 1), f"{_KINDS[kind]}a": _entry(kind, 2)})
    return json.dumps({f"{_KINDS[kind]}{node}": _entry(kind, n) for node, n in content.items()})


def _merged(
    state: SchedulerState,
    maps: list[StoredConfigMap],
    profile: Profile,
    documents: DecodedDocuments,
) -> tuple[SchedulerState, Any]:
    cache = ClusterCache(state, AdvisorOptions(profile), documents)
    cache.read(maps)
    documents.keep(maps)
    after = SchedulerState(
        configmaps=cache.seen, devices=cache.devices, switches=cache.switches, nodes=cache.nodes
    )
    return after, (cache.changed, cache.findings)


_BOTH = [("cluster-info-device-0", {"a": 1}), ("cluster-info-device-1", {"b": 1})]
_FIRST = [("cluster-info-device-0", {"c": 1}), ("cluster-info-device-1", {"a": 2})]
_GONE: Writes = [("cluster-info-switch-0", None)]
_SWITCH = ("cluster-info-switch-1", {"a": 2})
_SAME = ("cluster-info-device-1", {"a": 2, "b": 1})


@examples(300)
@given(st.lists(st.tuples(_WRITES, st.booleans()), min_size=2, max_size=8))
@example([(_BOTH, True), ([_SAME], True), ([_BOTH[0]], True)])
@example([([*_BOTH, _SAME], True), ([("cluster-info-device-0", None), _SAME], True)])
@example([(_FIRST, True), ([("cluster-info-device-0", {"c": 1, "a": 3}), _FIRST[1]], True)])
@example([([_BOTH[0], _SAME], True), ([("cluster-info-device-0", {"a": 3}), _SAME], True)])
@example([([("cluster-info-switch-0", {"a": 1}), _SWITCH], True), (_GONE, True), ([_SWITCH], True)])
@example([([_SAME, _BOTH[0]], True), ([("cluster-info-device-0", {})], True), ([_SAME], True)])
def test_each_session_is_as_if_all_was_read_anew(sessions: list[tuple[Writes, bool]]) -> None:
    """Some sessions come to nothing: the next one begins with the same state."""
    documents = DecodedDocuments()
    states = dict.fromkeys(Profile, SchedulerState())
    stored: dict[str, StoredConfigMap] = {}
    version = 0
    for writes, comes in sessions:
        for name, content in writes:
            before = stored.pop(name, None)
            if content is not None:
                version += 1
                stored[name] = StoredConfigMap(
                    "mindx-dl",
                    name,
                    {name: _text(name, content)},
                    {"mx-consumer-volcano": "true"},
                    uid=name if before is None else before.uid,
                    resource_version=str(version),
                )
        maps = list(stored.values())
        for profile, state in states.items():
            after, rest = _merged(state, maps, profile, documents)
            expected, anew = _merged(state, maps, profile, DecodedDocuments())
            assert (after, rest) == (expected, anew)
            if comes:
                states[profile] = msgspec.structs.replace(after)
