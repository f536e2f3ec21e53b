"""How what we show differs from what the real ClusterD showed, output by output.

Compared are settled states: the content to the byte, labels, which documents there are; of a
stream the last message about each job, of calls every answer. What varies from run to run is not:
``uuid``, the order of the faults in ``statistic-fault-info``, which node is in which shard, and
times that mean the moment of writing (``<now>``).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from contract.documents.cluster_info import cluster_device_index
from tests.cluster import recorded
from tests.cluster.player import AT_LAST_SECONDS, Shown
from tests.cluster.recorded import SUMMARY
from tests.compatibility import ABSENT, PRESENT, Difference, different

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster.player import Played, Sent

NOW = '"<now>"'
_NOW_MS = 2500
_STATISTIC = "statistic-fault-info"
_SHARDS = "cluster-info-device-*"
_SEND = "PubFault/SendPublicFault"
_STREAM = "fault.Fault/SubscribeFaultMsgSignal"
_TIMES = {"UpdateTime": 1000, "LastSeparateTime": 1}


class Found(NamedTuple):
    """How one output differs at one point: ``name`` is the recording with its point."""

    name: str
    output: str
    differences: tuple[Difference, ...]


def compared(
    recording: Mapping[str, Any], played: Played, at_last_seconds: float = AT_LAST_SECONDS
) -> Iterator[Found]:
    """Return every output at every point, those without any difference too.

    ``only`` in a recording names the one output that it has.
    """
    theirs = recorded.shown(recording)
    ours = [one for one in played.shown if recorded.is_ours(one.name) or not one.by_hand]
    in_shards = any(SUMMARY in (one.data or {}) and _is_shard(one.name) for one in theirs)
    sent = recorded.sent(recording)
    only = recording.get("only")
    previous_ms = -1
    for point in recorded.points(recording, at_last_seconds):
        name = f"clusterd/{recording['name']}{point.name}"
        there, here = _last(theirs, point.at_ms), _last(ours, point.at_ms)
        if in_shards:
            there, here = _one_shard(there), _one_shard(here)
        at_0 = recording["unix_ms_at_0"]
        ours_at_0 = at_0 if played.unix_ms_at_0 is None else played.unix_ms_at_0
        walls = [
            [began + one.at_ms for one in states]
            for began, states in ((at_0, theirs), (ours_at_0, ours))
        ]
        for output in sorted(there.keys() | here.keys()):
            if point.output not in (None, output) or only not in (None, output):
                continue
            found = _document(output, there.get(output), here.get(output))
            yield Found(name, output, tuple(_without_now(found, *walls)))
        if point.output is not None:
            continue
        for method in sorted({one.method for one in (*sent, *played.sent)}):
            both = [
                _messages(
                    method, [o for o in which if o.method == method], previous_ms, point.at_ms
                )
                for which in (sent, played.sent)
            ]
            if any(both):
                found = different(*_known(*both), f"$.{method}")
                yield Found(name, method, tuple(found))
        previous_ms = point.at_ms


def _last(states: Sequence[Shown], at_ms: int) -> dict[str, Shown]:
    """Return the documents that exist at this time, by name.

    A state made by hand counts until it is repaired.
    """
    found = {one.name: one for one in states if one.at_ms <= at_ms}
    return {name: one for name, one in found.items() if one.data is not None}


def _document(output: str, there: Shown | None, here: Shown | None) -> Iterator[Difference]:
    path = f"$.{output}"
    if there is None or here is None:
        missing, other = (ABSENT, PRESENT) if there is None else (PRESENT, ABSENT)
        yield Difference(path, missing, other)
        return
    assert there.data is not None
    assert here.data is not None
    summarised = SUMMARY in there.data and SUMMARY not in here.data
    tree = _summary(output, here.data) if summarised else _parsed(output, here.data)
    found = list(different(_parsed(output, there.data), tree, path))
    yield from found
    if not found and not summarised and output != _STATISTIC and there.data != here.data:
        yield Difference(f"{path} (bytes)", json.dumps(there.data), json.dumps(here.data))
    if there.labels != here.labels:
        yield Difference(f"{path} (labels)", json.dumps(there.labels), json.dumps(here.labels))


def _parsed(output: str, data: Mapping[str, str]) -> Any:
    """Return the data as a tree: the value of the document's own key, and the added keys."""
    tree = {key: _value(text) for key, text in sorted(data.items())}
    if SUMMARY in tree:
        return tree[SUMMARY]
    if output in tree:
        entries = tree.pop(output) or {}
        for entry in entries.values():
            devices = entry.get("DeviceList", {})
            for key in devices:
                if key.endswith("-Fault"):
                    devices[key] = json.loads(devices[key])
        tree = entries | tree
    if output == _STATISTIC:
        for faults in (tree.get("PublicFaults") or {}).values():
            faults.sort(key=json.dumps)
    return tree


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _summary(output: str, data: Mapping[str, str]) -> Any:
    """Return large data in the form in which recordings have them."""
    if output != _STATISTIC:
        return _nodes(output, data)
    found: dict[str, Any] = dict(sorted(data.items()))
    text = data.get("PublicFaults", "{}")
    numbers = {node: len(faults) for node, faults in json.loads(text).items()}
    return found | {"PublicFaults": {"bytes": len(text.encode()), "faults": numbers}}


def _nodes(output: str, data: Mapping[str, str]) -> Any:
    if SUMMARY in data:
        return {"nodes": json.loads(data[SUMMARY])[output]["nodes"]}
    return {"nodes": len(json.loads(data[output] or "{}"))}


def _is_shard(name: str) -> bool:
    return cluster_device_index(name) is not None


def _one_shard(states: Mapping[str, Shown]) -> dict[str, Shown]:
    """Return all device documents as one, with the number of nodes in them."""
    number, found, last = 0, {}, 0
    for name, one in states.items():
        assert one.data is not None
        if _is_shard(name):
            number += _nodes(name, one.data)["nodes"]
            last = max(last, one.at_ms)
        else:
            data = {SUMMARY: json.dumps(_nodes(name, one.data))}
            found[name] = Shown(one.at_ms, name, data, one.labels)
    labels = next((one.labels for name, one in states.items() if _is_shard(name)), None)
    if labels is not None:
        data = {SUMMARY: json.dumps({"nodes": number})}
        found[_SHARDS] = Shown(last, _SHARDS, data, labels)
    return found


def _without_now(
    found: Iterator[Difference], theirs: Sequence[int], ours: Sequence[int]
) -> Iterator[Difference]:
    """Yield the differences, but treat times of writing on both sides as the same.

    Where only one side has such a time, it becomes ``<now>``.
    """
    for one in found:
        unit = _TIMES.get(one.path.rpartition(".")[2])
        if unit is None:
            yield one
            continue
        upstream = NOW if _is_now(one.upstream, unit, theirs) else one.upstream
        here = NOW if _is_now(one.ours, unit, ours) else one.ours
        if upstream != here:
            yield Difference(one.path, upstream, here)


def _is_now(value: str, unit: int, walls: Sequence[int]) -> bool:
    if not re.fullmatch(r"\d+", value):
        return False
    return any(-_NOW_MS <= int(value) * unit - wall_ms <= _NOW_MS for wall_ms in walls)


def _messages(method: str, sent: Sequence[Sent], after_ms: int, until_ms: int) -> dict[str, Any]:
    """Return the answers of calls since the point before, and the last messages of streams."""
    if method == _STREAM:
        latest = [one for one in sent if one.at_ms <= until_ms]
        of_jobs = {f"{_client(one)} {one.message.get('jobId', '')}": one for one in latest}
        return {name: _plain(of_jobs[name]) for name in sorted(of_jobs)}
    answers: dict[str, Any] = {}
    for one in (one for one in sent if after_ms < one.at_ms <= until_ms):
        if method == _SEND:
            _count(answers.setdefault(f"step {one.step}", {"codes": Counter(), "infos": {}}), one)
        else:
            answers[f"step {one.step} {_client(one)}"] = _plain(one)
    return answers


def _client(one: Sent) -> str:
    return str(one.client.get("role", ""))


def _plain(one: Sent) -> Any:
    """Return the message without its random part, with sorted members."""
    return _sorted({key: value for key, value in one.message.items() if key != "uuid"})


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value) if key != "uuid"}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _count(step: dict[str, Any], one: Sent) -> None:
    """Replace answers to messages that were sent many times by their numbers."""
    message = one.message
    match message.get("answers"):
        case dict(numbers):
            step["codes"] = Counter(numbers)
        case list(numbers):
            step["codes"] = Counter({str(each["code"]): each["count"] for each in numbers})
        case _:
            code = str(message["code"]) if "code" in message else json.dumps(message)
            step["codes"][code] += 1
            step["infos"].setdefault(code, message.get("info"))


def _known(there: dict[str, Any], here: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both; texts of an answer with a code only where upstream's are in the recording."""
    for step, shown in here.items():
        if "infos" in shown and step in there:
            infos = there[step]["infos"]
            shown["infos"] = {code: shown["infos"].get(code) for code in sorted(infos)}
            there[step]["infos"] = {code: infos[code] for code in sorted(infos)}
    for shown in (*there.values(), *here.values()):
        if "codes" in shown:
            shown["codes"] = {code: shown["codes"][code] for code in sorted(shown["codes"])}
    return there, here
