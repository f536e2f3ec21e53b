"""Two whole aggregators in virtual time: what the next leader knows, says and does not repeat."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from aggregator.notify.history_file import FILE_NAME
from aggregator.processors import separation_policy
from contract.names import LEADER_LEASE
from tests.aggregator.processors.test_separation_documents import SHIPPED
from tests.aggregator.test_where_clusterd_is_wrong import job, public
from tests.cluster import wire
from tests.cluster.grpc_server import Refused
from tests.cluster.playing import KEY, broken
from tests.cluster.replicas import LEASE_SECONDS, replicas
from tests.contract.documents.test_cluster_device import EXAMPLES, config, fault
from tests.contract.documents.test_cluster_node import node_data

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Document
    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

EITHER_END = pytest.mark.parametrize("killed", [True, False], ids=["killed", "told to end"])
DEVICE = "cluster-info-device-0"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"


async def two(world: Replicas) -> tuple[Replica, Replica]:
    """The first one leads, the other one follows."""
    one = await world.begin("one", 3)
    other = await world.begin("other", 3)
    assert one.leads
    assert not other.leads
    return one, other


def lease(world: Replicas) -> dict[str, Any]:
    """The Lease as it is."""
    status, found = world.api.ask("GET", f"{LEASES}/{LEADER_LEASE}")
    assert status == 200
    return dict(found)


def give(world: Replicas, replica: Replica) -> None:
    """Somebody gives the Lease to it by hand."""
    holder = replica.made.leadership._identity  # type: ignore[attr-defined]
    spec = lease(world)["spec"] | {"holderIdentity": holder}
    status, _ = world.api.ask("PATCH", f"{LEASES}/{LEADER_LEASE}", {"spec": spec})
    assert status == 200


async def end(world: Replicas, leader: Replica, other: Replica, *, killed: bool) -> None:
    """The leader ends; the other one leads then."""
    await (world.killed(leader) if killed else world.told_to_end(leader))
    await world.pass_time(LEASE_SECONDS + 2 if killed else 1)
    assert other.leads


def stamps_grow(world: Replicas, node: str = "n1") -> bool:
    """Whether no document ever had an older stamp of this node than the one before."""
    texts = [one.data[DEVICE] for one in world.played.shown if one.name == DEVICE and one.data]
    shown = [json.loads(text or "{}") for text in texts]
    key = f"mindx-dl-deviceinfo-{node}"
    stamps = [entries[key]["UpdateTime"] for entries in shown if key in entries]
    return stamps == sorted(stamps)


@pytest.mark.slow
@EITHER_END
async def test_public_faults_outlive_their_leader(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one, other = await two(world)
        await world.public("p1", public("occur"))
        said = public("occur", number=2, chips=(1,))
        assert (await one.services.call(wire.SEND, said))["code"] == 0
        # At once: what was answered is kept by then.
        await end(world, one, other, killed=killed)
        assert world.unhealthy("n1") == "Ascend910-0,Ascend910-1"
        assert (await other.services.call(wire.SEND, said))["code"] == 0
        again = public("recover", number=2)
        assert (await other.services.call(wire.SEND, again))["code"] == 0
        await world.pass_time(6)
        assert world.unhealthy("n1") == "Ascend910-0"
        assert stamps_grow(world)


@pytest.mark.slow
async def test_a_public_fault_that_cannot_be_kept_is_no_success(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one, _ = await two(world)
        world.api.refuses = lambda method, place: (
            method in ("PUT", "POST")
            and "state-public-faults" in (place.name or "state-public-faults")
        )
        began = world.at_ms
        with pytest.raises(Refused, match="UNAVAILABLE: it could not be kept in time"):
            await one.services.call(wire.SEND, public("occur"))
        assert 4000 < world.at_ms - began < 5000, "senders wait 5 s"
        world.api.refuses = lambda *_: False
        await world.pass_time(6)
        assert (await one.services.call(wire.SEND, public("occur")))["code"] == 0


@pytest.mark.slow
async def test_one_sender_is_not_held_up_by_the_pace_of_what_is_kept(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one = await world.begin("one", 3)
        began = world.at_ms
        for number in range(20):
            said = public("occur", number=number, chips=(number % 8,))
            assert (await one.services.call(wire.SEND, said))["code"] == 0
        assert world.at_ms - began < 20 * 100


@pytest.mark.slow
async def test_a_call_that_waits_while_the_leadership_ends_is_refused(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one, other = await two(world)
        world.api.refuses = lambda method, place: "state-public" in (place.name or "state-public")
        call = asyncio.create_task(one.services.call(wire.SEND, public("occur")))
        await world.pass_time(0.5)
        # Somebody gave the Lease to the other one by hand.
        give(world, other)
        world.api.refuses = lambda *_: False
        with pytest.raises(Refused, match="another aggregator leads"):
            await call
        await world.pass_time(2)
        assert other.leads
        assert not one.leads
        assert world.unhealthy("n1") == ""


async def flap(world: Replicas, seconds: float) -> None:
    """A fault on a chip of a job comes and goes."""
    faults = [fault(0, "RestartNPU", "80C98000")]
    await world.device("n1", config(faults, unhealthy=(0,)), 2)
    await world.device("n1", config(), seconds)


async def counted(world: Replicas) -> None:
    """Manual separation is on, and a job uses the chip."""
    thing = {"namespace": "cluster-system", "name": "clusterd-config-cm"}
    data = {separation_policy.KEY: SHIPPED}
    await world.do({"do": "put-configmap", "object": thing | {"data": data}})
    await world.device("n1", config())
    await job(world)


def separated(world: Replicas) -> bool:
    """Whether the chip is."""
    return "Ascend910-0" in world.unhealthy("n1")


def manual_info(world: Replicas) -> dict[str, str]:
    """What operators see."""
    return world.outputs.get("clusterd-manual-info-cm", {})


@pytest.mark.slow
@EITHER_END
async def test_the_third_occurrence_counts_after_two_of_another_leader(
    tmp_path: Path, *, killed: bool
) -> None:
    async with replicas(tmp_path) as world:
        await counted(world)
        one, other = await two(world)
        await flap(world, 40)
        await flap(world, 40)
        await end(world, one, other, killed=killed)
        await world.pass_time(60)
        assert not separated(world), "nothing counts twice"
        await flap(world, 40)
        assert separated(world)
        assert "n1" in manual_info(world)
        assert stamps_grow(world)


@pytest.mark.slow
async def test_an_occurrence_that_was_not_kept_yet_counts_once(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await counted(world)
        one, other = await two(world)
        await flap(world, 40)
        await flap(world, 40)
        # Nothing of the third one is kept, and it is over before anybody leads again.
        world.api.refuses = lambda method, place: "npu-vigil-state" in (place.name or "")
        await flap(world, 0)
        await world.killed(one)
        world.api.refuses = lambda *_: False
        await world.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert not separated(world)
        await world.pass_time(30)
        assert separated(world)
        text = json.loads(manual_info(world)["n1"])
        assert text["Total"] == ["Ascend910-0"]


@pytest.mark.slow
async def test_a_release_by_an_operator_while_nobody_leads(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await counted(world)
        one, other = await two(world)
        for _ in range(3):
            await flap(world, 40)
        assert separated(world)
        await world.killed(one)
        thing = {"namespace": "cluster-system", "name": "clusterd-manual-info-cm"}
        await world.do({"do": "edit-output", "object": thing | {"data": {}}})
        await world.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert not separated(world)
        await world.pass_time(60)
        assert not separated(world)
        assert manual_info(world).get("n1") is None
        for _ in range(2):
            await flap(world, 40)
        assert not separated(world), "what was counted is forgotten with it"


@pytest.mark.slow
@EITHER_END
async def test_a_release_by_an_operator_while_nobody_runs(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as world:
        await counted(world)
        one = await world.begin("one", 3)
        for _ in range(3):
            await flap(world, 40)
        assert separated(world)
        await (world.killed(one) if killed else world.told_to_end(one))
        thing = {"namespace": "cluster-system", "name": "clusterd-manual-info-cm"}
        await world.do({"do": "edit-output", "object": thing | {"delete": True}})
        again = await world.begin("again", 3 + LEASE_SECONDS + 2)
        assert again.leads
        assert not separated(world), "what was kept is read twice: at the start, and to lead"
        assert manual_info(world) == {}


@pytest.mark.slow
@EITHER_END
async def test_a_filter_hides_as_long_as_it_would_have(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as world:
        await job(world, **{"huawei.com/schedule.filter.faultCode": "80C98000:60"})
        await world.device("n1", config())
        one, other = await two(world)
        began = world.at_ms
        faults = [fault(0, "RestartNPU", "80C98000")]
        await world.device("n1", config(faults, unhealthy=(0,)))
        await world.pass_time(0.5)
        await end(world, one, other, killed=killed)
        assert world.unhealthy("n1") == ""
        await world.pass_time(59.5 - (world.at_ms - began) / 1000)
        assert world.unhealthy("n1") == ""
        await world.pass_time(1)
        assert world.unhealthy("n1") == "Ascend910-0"


@pytest.mark.slow
async def test_a_filter_counts_from_when_the_follower_saw_it_where_nothing_was_kept(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as world:
        await job(world, **{"huawei.com/schedule.filter.faultCode": "80C98000:60"})
        await world.device("n1", config())
        one, other = await two(world)
        world.api.refuses = lambda method, place: "npu-vigil-state" in (place.name or "")
        faults = [fault(0, "RestartNPU", "80C98000")]
        await world.device("n1", config(faults, unhealthy=(0,)), 0.5)
        await world.killed(one)
        world.api.refuses = lambda *_: False
        await world.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert world.unhealthy("n1") == ""
        await world.pass_time(61 - 0.5 - LEASE_SECONDS - 2)
        assert world.unhealthy("n1") == "Ascend910-0"


@EITHER_END
async def test_a_uce_window_goes_on(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as world:
        await world.device("n1", config())
        one, other = await two(world)
        began = world.at_ms
        now = world.wall_ms
        faults = [fault(0, "RestartRequest", "80CB8009", {"80CB8009": (now, "RestartRequest")})]
        await world.device("n1", config(faults), 0.2)
        first = world.devices["n1"]["DeviceList"][f"{KEY}-Fault"]
        assert "80CB8009" not in first
        await world.told_to_end(one) if not killed else await world.killed(one)
        await world.pass_time(4)
        if not killed:
            assert other.leads
            assert "80CB8009" not in world.devices["n1"]["DeviceList"][f"{KEY}-Fault"]
        await world.pass_time(LEASE_SECONDS + 2 - (world.at_ms - began) / 1000)
        assert "80CB8009" in world.devices["n1"]["DeviceList"][f"{KEY}-Fault"]


def labels(world: Replicas) -> list[Any]:
    """The labels that the pod was given, one after the other."""
    shown = [one.data for one in world.played.shown if one.name == "Pod default/train-0"]
    return [one["labels"] for one in shown if one is not None]


async def relation(world: Replicas) -> None:
    """A link is down; at the end of 300 s the trigger makes it a reason to separate."""
    link = fault(1, "PreSeparateNPU", "81078603", kind="CardNetwork")
    trigger = fault(0, "NotHandleFault", "8C1F8608")
    await world.device("n1", config([link, trigger], SuperPodID=0, ServerIndex=0), 1)


@pytest.mark.slow
@EITHER_END
async def test_a_relation_fault_waits_on_and_labels_once(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as world:
        await job(world)
        await world.device("n1", config())
        one, other = await two(world)
        await relation(world)
        await world.pass_time(200)
        assert labels(world) == []
        await end(world, one, other, killed=killed)
        await world.pass_time(60)
        assert labels(world) == []
        await world.pass_time(60)
        assert labels(world) == ["Separate"]
        third = await world.begin("third", 3)
        await end(world, other, third, killed=killed)
        await world.pass_time(30)
        assert labels(world) == ["Separate"]


@pytest.mark.slow
async def test_a_label_that_the_leader_could_not_set_is_set_by_the_next_one(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await job(world)
        await world.device("n1", config())
        one, other = await two(world)
        world.api.refuses = lambda method, place: method == "PATCH" and "pods" in place.resource
        await relation(world)
        await world.pass_time(310)
        await world.killed(one)
        world.api.refuses = lambda *_: False
        assert labels(world) == []
        await world.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert labels(world) == ["Separate"]


async def test_the_lease_is_let_go_at_once_however_slow_the_disk_and_the_store_are(
    tmp_path: Path,
) -> None:
    async def slow(work: Any, *arguments: Any) -> Any:
        await asyncio.sleep(1.75)
        return work(*arguments)

    async with replicas(tmp_path) as world:
        # Undone before what the cluster replaced for itself.
        with pytest.MonkeyPatch.context() as patch:
            await world.node("n1", serial_number="SN-1")
            await world.device("n1", config())
            one, other = await two(world)
            patch.setattr("asyncio.to_thread", slow)
            await world.device("n1", broken(3, update_time=1_760_000_100), 0.5)
            world.api.seconds = 0.25
            # Something is under way, and more is to be kept.
            for number in range(40):
                await world.public(
                    f"p{number}", public("occur", number=number, chips=(number % 8,))
                )
            await world.pass_time(0.3)
            began = world.at_ms
            ending = asyncio.create_task(world.told_to_end(one))
            holder = one.made.leadership._identity  # type: ignore[attr-defined]
            while lease(world)["spec"]["holderIdentity"] == holder:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert world.at_ms - began < 1000
            await ending
            world.api.seconds = 2**-8
            await world.pass_time(2)
            assert other.leads
            chips = world.unhealthy("n1").split(",")
            assert chips == [f"Ascend910-{chip}" for chip in range(8)]


async def test_what_was_read_to_take_over_is_of_no_use_once_somebody_else_has_led(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one, other = await two(world)
        third = await world.begin("third", 3)
        publisher = other.made.publishers[0]
        listed = publisher.list

        async def slowly() -> tuple[Document, ...]:
            found = await listed()
            publisher.list = listed  # type: ignore[method-assign]
            await asyncio.sleep(20)
            return found

        publisher.list = slowly  # type: ignore[method-assign]
        known: list[str] = []
        began = other.made.succession._began

        def begins() -> None:
            began()
            entry = json.loads(other.made.pipeline.device.entries["n1"].text)
            known.append(entry["DeviceList"][f"{KEY}-Unhealthy"])

        other.made.succession._began = begins
        give(world, other)
        await world.pass_time(2)
        assert other.made.leadership.leads
        assert not other.leads
        give(world, third)
        await world.pass_time(5)
        assert third.leads
        assert (await third.services.call(wire.SEND, public("occur")))["code"] == 0
        assert unhealthy_ever(world) == ["", "Ascend910-0"]
        give(world, other)
        await world.pass_time(20)
        assert world.unhealthy("n1") == "Ascend910-0"
        assert unhealthy_ever(world) == ["", "Ascend910-0"]
        assert known == ["Ascend910-0"], "it never sets out to write what it had read before"
        assert (other.leads, third.leads, one.leads) == (True, False, False)


def unhealthy_ever(world: Replicas) -> list[str]:
    """What was published of the chips of n1, one after the other, without repetitions."""
    found: list[str] = []
    for one in world.played.shown:
        if one.name == DEVICE and one.data and one.data[DEVICE]:
            entry = json.loads(one.data[DEVICE])["mindx-dl-deviceinfo-n1"]
            text = entry["DeviceList"][f"{KEY}-Unhealthy"]
            if found[-1:] != [text]:
                found.append(text)
    return found


def told(place: Path, name: str) -> list[tuple[str, str | None, str | None]]:
    """What the history of a replica has: code or, of a status, subject, and its level before and
    then."""
    with sqlite3.connect(f"file:{place / name / FILE_NAME}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT body FROM events ORDER BY number").fetchall()
    bodies = [json.loads(row[0]) for row in rows]
    return [(one["code"], one.get("was"), one.get("level")) for one in bodies]


@EITHER_END
async def test_nothing_is_told_as_new_that_the_leader_before_had_published(
    tmp_path: Path, *, killed: bool
) -> None:
    switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
    cpu = {"DeviceType": "CPU", "DeviceId": 1, "FaultCode": ["00000001"]}
    server = node_data([cpu | {"FaultLevel": "SeparateFault"}], "UnHealthy")
    faults = [fault(3, "RestartNPU", "80C98000")]
    async with replicas(tmp_path) as world:
        await world.node("n1", serial_number="SN-1")
        await world.device("n1", config())
        one, other = await two(world)
        await world.device("n1", config(faults, unhealthy=(3,)) | switch, 0.5)
        await world.server("n1", server, 0.5)
        await one.services.call(wire.SEND, public("occur"))
        await world.pass_time(1.5)  # what is told is committed once a second
        first = told(tmp_path, "one")
        assert ("80C98000", None, "RestartNPU") in first
        assert ("220001001", None, "SeparateNPU") in first
        assert {code for code, _, _ in first} >= {"00000001", "status"}
        assert told(tmp_path, "other") == first, "a follower tells what its leader publishes"
        await end(world, one, other, killed=killed)
        assert told(tmp_path, "other") == first
        await world.begin("one", 3)
        assert told(tmp_path, "one") == first
        await other.services.call(wire.SEND, public("recover"))
        await world.pass_time(7)
        over = [*first, ("220001001", "SeparateNPU", None)]
        assert told(tmp_path, "other") == over
        assert told(tmp_path, "one") == over


async def test_what_changed_while_nobody_led_is_told_when_it_is_published(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await world.device("n1", config())
        one, other = await two(world)
        await world.killed(one)
        faults = [fault(3, "RestartNPU", "80C98000")]
        await world.device("n1", config(faults, unhealthy=(3,)), LEASE_SECONDS / 2)
        assert told(tmp_path, "other") == []
        await world.pass_time(LEASE_SECONDS)
        assert other.leads
        assert told(tmp_path, "other") == [("80C98000", None, "RestartNPU")]
