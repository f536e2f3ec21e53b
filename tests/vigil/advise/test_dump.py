"""Dumps: Lists and sessions, what is made of them, and errors for bad ones."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import ConfigurationError
from tests.vigil.advise.cluster import (
    as_list,
    configmap,
    named,
    node,
    two_pods_on_two_of_three_nodes,
)
from vigil.advise.dump import sessions

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.snapshot import ClusterSnapshot


def read(tmp_path: Path, *texts: str | bytes) -> list[ClusterSnapshot]:
    """Return the sessions in files with these texts."""
    files = []
    for index, text in enumerate(texts):
        file = tmp_path / f"{index}.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        files.append(str(file))
    return list(sessions(files))


def session(now_ms: int, items: list[Any], **members: Any) -> str:
    """Return one line of JSON Lines."""
    return json.dumps({"now_ms": now_ms, **members, "items": items})


def test_a_list_is_one_session_at_its_newest_time(tmp_path: Path) -> None:
    (found,) = read(tmp_path, as_list(two_pods_on_two_of_three_nodes()))
    assert [one.name for one in found.nodes] == ["n1", "n2", "n3"]
    assert [one.name for one in found.pods] == ["j-0", "j-1"]
    assert found.pods[0].group == "j"
    assert [one.name for one in found.podgroups] == ["j"]
    assert found.now_ms == 1_795_453_200_000  # 2026-11-23T17:00:00Z
    assert not found.first_session


def test_lists_of_several_files_are_one_session(tmp_path: Path) -> None:
    items = two_pods_on_two_of_three_nodes()
    whole = read(tmp_path, as_list(items))
    assert read(tmp_path, as_list(items[:4]), as_list(items[4:])) == whole


def test_a_list_of_one_kind_names_it_once(tmp_path: Path) -> None:
    """As ``kubectl get --raw`` gives it."""
    item = {key: value for key, value in node("n1").items() if key not in ("kind", "apiVersion")}
    text = json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [item]})
    (found,) = read(tmp_path, text)
    assert [one.name for one in found.nodes] == ["n1"]


def test_one_object_is_a_dump(tmp_path: Path) -> None:
    (found,) = read(tmp_path, json.dumps(node("n1"), indent=2))
    assert [one.name for one in found.nodes] == ["n1"]


def test_lines_are_sessions(tmp_path: Path) -> None:
    first, second = session(1000, [node("n1")], first_session=True), session(2000, [])
    found = read(tmp_path, f"{first}\n\n{second}\n")
    assert [(one.now_ms, one.first_session, len(one.nodes)) for one in found] == [
        (1000, True, 1),
        (2000, False, 0),
    ]
    assert read(tmp_path, first, second) == found
    assert read(tmp_path, json.dumps(json.loads(first), indent=1)) == found[:1]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO(session(5, [node("n1")]).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
    (found,) = sessions(["-"])
    assert found.now_ms == 5


def test_configmaps_come_in_the_order_of_their_writes(tmp_path: Path) -> None:
    items = [configmap("ns", name, "", version) for name, version in (("a", 10), ("b", 9))]
    (found,) = read(tmp_path, as_list(items))
    assert [one.name for one in found.configmaps] == ["b", "a"]


@pytest.mark.parametrize("version", ["apps/v1", "batch/v1", "scheduling.x-k8s.io/v1alpha1"])
def test_objects_of_other_kinds_are_left_out(tmp_path: Path, version: str) -> None:
    kinds = {"apps/v1": "Deployment", "batch/v1": "Job"}
    other = named(kinds.get(version, "PodGroup"), "x", "ns", version)
    (found,) = read(tmp_path, as_list([other, node("n1")]))
    assert (found.vcjobs, found.podgroups, len(found.nodes)) == ((), (), 1)


def problems(tmp_path: Path, *texts: str | bytes) -> str:
    """Return the error for the dump."""
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, *texts)
    return str(raised.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "line 1: is empty"),
        (b" \n\n", "line 1: is empty"),
        (b"hello", "is neither JSON nor YAML of objects: it is not an object; write a dump"),
        (b"[1]", "line 1: is neither JSON nor YAML of objects: it is not an object"),
        (b'{"items": 3}', "$.items: must be an array or null, is an integer"),
        (b'{\n "items": [\n  {"a":\n   nope}]}', "line 4: is not JSON: invalid character at byte"),
        (b'{\n "items": [\n  {"kind": "Node"', "line 3: is not JSON: it is cut off"),
        (b'{"items": [{"kind": "No\xffde"}]}', "line 1: item 0: is not a valid object"),
        (b'{"a":' * 100_000, "line 1: is nested too deeply"),
        (b'{"now_ms": 1.5, "items": []}', "$.now_ms"),
        (b'{"now_ms": -1, "items": []}', "$.now_ms"),
        (b'{"now_ms": 253402300800000, "items": []}', "$.now_ms"),
        (b'{"now_ms": 1, "first_session": "yes", "items": []}', "$.first_session"),
        (b'{"now_ms": 2, "items": []}\n{"now_ms": 1, "items": []}', "line 2: now_ms 1 is before"),
        (b'{"now_ms": 2, "items": []}\n{"now_ms": 1, ', "line 2: is not JSON: it is cut off"),
        (b'{"items": [3]}', "line 1: item 0: is not a valid object"),
        (b'{"items": [{"metadata": {}}]}', "line 1: item 0: has no kind"),
        (b'{"items": [{"kind": "Pod", "metadata": {}}]}', "Pod without a name: $.metadata"),
    ],
)
def test_a_file_that_is_no_dump_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    found = problems(tmp_path, content)
    assert expected in found
    assert found.startswith("/0.json: ")


def test_all_bad_objects_are_named_with_their_lines(tmp_path: Path) -> None:
    items = [node("n1"), node("n2"), node("n3")]
    items[0]["metadata"]["labels"]["a"] = 1
    items[2]["metadata"]["labels"] = ["b"]
    text = as_list(items)
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines, 1) if line == " " * 8 + "{"]
    found = problems(tmp_path, text)
    assert f"line {begins[0]}: Node n1: $.metadata.labels" in found
    assert f"line {begins[2]}: Node n3: $.metadata.labels" in found
    assert "n2" not in found


def test_two_objects_of_one_uid(tmp_path: Path) -> None:
    items = [node("n1"), node("n2")]
    items[1]["metadata"]["uid"] = items[0]["metadata"]["uid"]
    found = problems(tmp_path, as_list(items))
    assert "Node n2: uid Node--n1 is also that of Node n1 (/0.json line 4)" in found


def test_an_object_that_is_there_twice(tmp_path: Path) -> None:
    items = [node("n1"), node("n1")]
    items[1]["metadata"]["uid"] = "other"
    assert "Node n1: is there twice" in problems(tmp_path, as_list(items))
    again = problems(tmp_path, as_list([node("n1")]), as_list([node("n1")]))
    assert again.startswith("/1.json: ")


def test_lists_and_sessions_do_not_mix(tmp_path: Path) -> None:
    for texts in ((as_list([]), session(1, [])), (session(1, []), as_list([]))):
        assert "is a List, and sessions were given too" in problems(tmp_path, *texts)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        list(sessions([str(tmp_path / "none.json")]))


def test_many_bad_objects_are_not_all_named(tmp_path: Path) -> None:
    items = [node(f"n{index}") for index in range(100)]
    for item in items:
        item["metadata"]["labels"] = 1
    assert problems(tmp_path, as_list(items)).count("Node n") == 20
