"""The player of recordings sees what it must: what differs, what it cannot play, what works now."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.cluster import steps, wire
from tests.cluster.apiserver import ApiServer, place_of
from tests.cluster.comparison import compared
from tests.cluster.grpc_server import MemoryServer, Refused
from tests.cluster.judged import judge
from tests.cluster.player import InMemory, Player
from tests.cluster.recorded import recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.cluster.comparison import Found

NAME = "fault-appears-and-clears"
DEVICE = "cluster-info-device-0"


async def played(recording: dict[str, Any], place: Path) -> list[Found]:
    player = Player(place, recording["unix_ms_at_0"])
    with player.replaced():
        return list(compared(recording, await player.play(recording)))


def _edit_text(recording: dict[str, Any]) -> None:
    state = next(one for one in recording["observed"] if one["name"] == DEVICE)
    state["data"][DEVICE] = state["data"][DEVICE].replace("-2", "-3", 1)


def _order_members(recording: dict[str, Any]) -> None:
    for state in recording["observed"]:
        if state["name"] == DEVICE:
            old = '"SuperPodID":-2,"RackID":0'
            assert old in state["data"][DEVICE]
            text = state["data"][DEVICE].replace(old, '"RackID":0,"SuperPodID":-2')
            state["data"][DEVICE] = text


def _blanks(recording: dict[str, Any]) -> None:
    for state in recording["observed"]:
        if state["name"] == DEVICE:
            state["data"][DEVICE] = state["data"][DEVICE].replace('"RackID":0', '"RackID": 0')


def _label(recording: dict[str, Any]) -> None:
    for state in recording["observed"]:
        state["labels"] = {"mx-consumer-volcano": "false"}


def _more(recording: dict[str, Any]) -> None:
    state = {"at_ms": 7000, "namespace": "cluster-system", "name": "statistic-fault-info"}
    recording["observed"].append(state | {"labels": {}, "data": {"FaultNum": "{}"}})


def _less(recording: dict[str, Any]) -> None:
    recording["observed"] = [one for one in recording["observed"] if one["name"] != DEVICE]


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize(
    "change",
    [_edit_text, _order_members, _blanks, _label, _more, _less],
    ids=lambda one: one.__name__,
)
async def test_whatever_upstream_shows_otherwise_is_found(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    recording = copy.deepcopy(recorded(NAME))
    judge(NAME, await played(recording, tmp_path / "same"))
    change(recording)
    with pytest.raises(AssertionError, match="not in"):
        judge(NAME, await played(recording, tmp_path / "other"))


@pytest.mark.looptime(resolution=2**-20)
async def test_a_step_that_is_unknown_is_not_skipped(tmp_path: Path) -> None:
    recording = copy.deepcopy(recorded(NAME))
    recording["steps"].append({"at_ms": 20_000, "do": "put-daemonset", "object": {"name": "x"}})
    with pytest.raises(steps.CannotPlay, match="put-daemonset"):
        await played(recording, tmp_path)


def test_repeated_steps_are_written_as_in_recordings() -> None:
    cap = recorded("public-fault-detail-cap")["steps"]
    messages = [one for step in cap if "repeat" in step for one in steps.objects_of(step)]
    assert [len(one["faults"]) for one in messages] == [100] * 48
    occurred = {fault["faultId"] for one in messages[:46] for fault in one["faults"]}
    assert occurred == {f"fault-{number:04}" for number in range(4600)}
    assert messages[0]["faults"][:2] == cap[2]["object"]["faults"]
    assert messages[0]["id"] == cap[2]["object"]["id"]
    shards = recorded("two-shards")["steps"]
    names = [one["name"] for one in steps.objects_of(shards[-1])]
    assert (names[0][-4:], names[-1][-4:], len(names)) == ("1800", "2099", 300)


async def test_services_are_asked_by_the_bytes_of_upstreams_numbers() -> None:
    """Handlers that know nothing of our classes, only of bytes."""

    async def unary(request: bytes, context: Any) -> bytes:
        assert request == b"\n\x03job\x12\x04role"
        if context.invocation_metadata():
            await context.abort(grpc.StatusCode.INTERNAL, "never")
        return b"\x08\x07\x12\x02no"

    async def stream(request: bytes, _: Any) -> AsyncIterator[bytes]:
        yield b"\n\x01u\x12\x03job"

    async def refused(_: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNKNOWN, "job is invalid")
        return b""

    server = MemoryServer()
    plain: dict[str, Any] = {
        "Register": grpc.unary_unary_rpc_method_handler(unary, bytes, bytes),
        "SubscribeFaultMsgSignal": grpc.unary_stream_rpc_method_handler(stream, bytes, bytes),
        "GetFaultMsgSignal": grpc.unary_unary_rpc_method_handler(refused, bytes, bytes),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fault.Fault", plain),))
    await server.start()
    services, client = InMemory(server), {"jobId": "job", "role": "role"}
    assert await services.call(wire.REGISTER, client) == {"code": 7, "info": "no"}
    sent = [one async for one in services.subscribe(wire.SUBSCRIBE, client)]
    assert sent == [{"uuid": "u", "jobId": "job", "signalType": "", "nodeFaultInfo": []}]
    with pytest.raises(Refused, match="job is invalid"):
        await services.call(wire.GET, client)
    with pytest.raises(Refused, match="UNIMPLEMENTED"):
        await services.call(wire.SEND, {"id": "x"})


ASKED: list[tuple[str, str, Any]] = [
    ("GET", "/api/v1/namespaces/default/configmaps/a", None),
    ("PUT", "/api/v1/namespaces/default/configmaps/a", {"metadata": {"name": "a"}}),
    (
        "POST",
        "/api/v1/namespaces/default/configmaps",
        {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}},
    ),
    ("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}}),
    ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=x%3D1", None),
    ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=x%3D2", None),
    ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=x+in+(1,2)", None),
    ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=x", None),
    (
        "PUT",
        "/api/v1/namespaces/default/configmaps/a",
        {"metadata": {"name": "a", "resourceVersion": "1"}, "data": {}},
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/a",
        {"metadata": {"annotations": {"t": "1"}}, "data": {"k": None, "l": "w"}},
    ),
    ("GET", "/api/v1/namespaces/default/configmaps/a", None),
    (
        "PUT",
        "/api/v1/namespaces/default/configmaps/a",
        {"metadata": {"name": "a"}, "data": {"k": "v"}},
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/p/binding",
        {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}},
    ),
    ("PATCH", "/api/v1/namespaces/default/pods/p/status", {"status": {"phase": "Running"}}),
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", None),
    ("GET", "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cspec.nodeName%21%3D", None),
    ("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0", None),
    ("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0", None),
    ("DELETE", "/api/v1/namespaces/default/configmaps/a", None),
    ("GET", "/apis/nobody.has/v1/these", None),
]


@pytest.mark.apiserver
def test_the_api_server_in_memory_answers_as_a_real_one(control_plane: Any) -> None:
    memory = ApiServer(without=("these",))
    for method, path, body in ASKED:
        real, answer = control_plane.ask(method, path, body)
        status, ours = memory.ask(method, path, body)
        assert status == real, (method, path, answer)
        if status < 300:
            assert _content(ours) == _content(answer), (method, path)


def _content(answer: dict[str, Any]) -> Any:
    if "items" in answer:
        return [_content(one) for one in answer["items"] if one["metadata"]["name"] in ("a", "p")]
    if answer.get("kind") == "Status":
        return None
    metadata = {key: answer["metadata"].get(key) for key in ("name", "labels", "annotations")}
    spec = answer.get("spec", {}).get("nodeName")
    return metadata, answer.get("data") or {}, spec, (answer.get("status") or {}).get("phase")


def test_places() -> None:
    assert place_of("/api/v1/namespaces/a/pods/b/status").subresource == "status"
    assert place_of("/api/v1/namespaces").resource == "api/v1/namespaces"
    assert place_of("/apis/x.y/v1/z").name is None
