"""Two whole aggregators in virtual time: what the next leader knows, publishes and does
not repeat.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from aggregator.notify.history_file import FILE_NAME
from aggregator.processors import separation_documents
from contract.names import LEADER_LEASE
from tests.aggregator.processors.cases import SHIPPED_POLICY
from tests.cluster import wire
from tests.cluster.grpc_server import Refused
from tests.cluster.playing import KEY, broken, public_message, put_job
from tests.cluster.replicas import EITHER_END, LEASE_SECONDS, begin_two, end_leader, replicas
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config, fault, node_data

if TYPE_CHECKING:
    from pathlib import Path

    from pacing.cooperative import Work
    from stores.base import Document
    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"


def lease(site: Replicas) -> dict[str, Any]:
    """Return the current Lease."""
    status, found = site.api.ask("GET", f"{LEASES}/{LEADER_LEASE}")
    assert status == 200
    return dict(found)


def give(site: Replicas, replica: Replica) -> None:
    """Give the Lease to a replica by hand."""
    holder = replica.made.queries.leadership._identity  # type: ignore[attr-defined]
    spec = lease(site)["spec"] | {"holderIdentity": holder}
    status, _ = site.api.ask("PATCH", f"{LEASES}/{LEADER_LEASE}", {"spec": spec})
    assert status == 200


def stamps_grow(site: Replicas, node: str = "n1") -> bool:
    """Return whether the stamps of this node never decrease over all documents."""
    stamps = [entry["UpdateTime"] for entry in site.shown_entries(node) if entry is not None]
    return stamps == sorted(stamps)


@pytest.mark.slow
@EITHER_END
async def test_public_faults_outlive_their_leader(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one, other = await begin_two(site)
        await site.public("p1", public_message("occur"))
        message = public_message("occur", number=2, chips=(1,))
        assert (await one.services.call(wire.SEND, message))["code"] == 0
        # At once: what was answered is kept by then.
        await end_leader(site, one, other, killed=killed)
        assert site.unhealthy("n1") == "Ascend910-0,Ascend910-1"
        assert (await other.services.call(wire.SEND, message))["code"] == 0
        again = public_message("recover", number=2)
        assert (await other.services.call(wire.SEND, again))["code"] == 0
        await site.pass_time(6)
        assert site.unhealthy("n1") == "Ascend910-0"
        assert stamps_grow(site)


@pytest.mark.slow
async def test_a_public_fault_that_cannot_be_kept_is_no_success(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one, _ = await begin_two(site)
        site.api.refuses = lambda method, place: (
            method in ("PUT", "POST")
            and "state-public-faults" in (place.name or "state-public-faults")
        )
        began = site.at_ms
        with pytest.raises(Refused, match="UNAVAILABLE: it could not be stored in time"):
            await one.services.call(wire.SEND, public_message("occur"))
        assert 4000 < site.at_ms - began < 5000, "senders wait 5 s"
        site.api.refuses = lambda *_: False
        await site.pass_time(6)
        assert (await one.services.call(wire.SEND, public_message("occur")))["code"] == 0


@pytest.mark.slow
async def test_one_sender_is_not_held_up_by_the_pace_of_what_is_kept(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one = await site.begin("one", 3)
        began = site.at_ms
        for number in range(20):
            message = public_message("occur", number=number, chips=(number % 8,))
            assert (await one.services.call(wire.SEND, message))["code"] == 0
        assert site.at_ms - began < 20 * 100


@pytest.mark.slow
async def test_a_call_that_waits_while_the_leadership_ends_is_refused(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one, other = await begin_two(site)
        site.api.refuses = lambda method, place: "state-public" in (place.name or "state-public")
        call = asyncio.create_task(one.services.call(wire.SEND, public_message("occur")))
        await site.pass_time(0.5)
        # An operator gave the Lease to the other one by hand.
        give(site, other)
        site.api.refuses = lambda *_: False
        with pytest.raises(Refused, match="another aggregator leads"):
            await call
        await site.pass_time(2)
        assert other.leads
        assert not one.leads
        assert site.unhealthy("n1") == ""


async def flap(site: Replicas, seconds: float) -> None:
    """Publish a fault on a chip of a job, and its recovery."""
    faults = [fault(0, "RestartNPU", "80C98000")]
    await site.device("n1", config(faults, unhealthy=(0,)), 2)
    await site.device("n1", config(), seconds)


async def counted(site: Replicas) -> None:
    """Enable manual separation, with a job that uses the chip."""
    thing = {"namespace": "cluster-system", "name": "clusterd-config-cm"}
    data = {separation_documents.POLICY_KEY: SHIPPED_POLICY}
    await site.do({"do": "put-configmap", "object": thing | {"data": data}})
    await site.device("n1", config())
    await put_job(site)


def separated(site: Replicas) -> bool:
    """Return whether the chip is separated."""
    return "Ascend910-0" in site.unhealthy("n1")


def manual_info(site: Replicas) -> dict[str, str]:
    """Return the document of separated chips that operators see."""
    return site.outputs.get("clusterd-manual-info-cm", {})


@pytest.mark.slow
@EITHER_END
async def test_the_third_occurrence_counts_after_two_of_another_leader(
    tmp_path: Path, *, killed: bool
) -> None:
    async with replicas(tmp_path) as site:
        await counted(site)
        one, other = await begin_two(site)
        await flap(site, 40)
        await flap(site, 40)
        await end_leader(site, one, other, killed=killed)
        await site.pass_time(60)
        assert not separated(site), "nothing counts twice"
        await flap(site, 40)
        assert separated(site)
        assert "n1" in manual_info(site)
        assert stamps_grow(site)


@pytest.mark.slow
async def test_an_occurrence_that_was_not_kept_yet_counts_once(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await counted(site)
        one, other = await begin_two(site)
        await flap(site, 40)
        await flap(site, 40)
        # Nothing of the third one is kept, and it is over before anybody leads again.
        site.api.refuses = lambda method, place: "npu-vigil-state" in (place.name or "")
        await flap(site, 0)
        await site.killed(one)
        site.api.refuses = lambda *_: False
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert not separated(site)
        await site.pass_time(30)
        assert separated(site)
        text = json.loads(manual_info(site)["n1"])
        assert text["Total"] == ["Ascend910-0"]


@pytest.mark.slow
async def test_a_release_by_an_operator_while_no_replica_leads(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await counted(site)
        one, other = await begin_two(site)
        for _ in range(3):
            await flap(site, 40)
        assert separated(site)
        await site.killed(one)
        thing = {"namespace": "cluster-system", "name": "clusterd-manual-info-cm"}
        await site.do({"do": "edit-output", "object": thing | {"data": {}}})
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert not separated(site)
        await site.pass_time(60)
        assert not separated(site)
        assert manual_info(site).get("n1") is None
        for _ in range(2):
            await flap(site, 40)
        assert not separated(site), "what was counted is forgotten with it"


@pytest.mark.slow
@EITHER_END
async def test_a_release_by_an_operator_while_no_agent_runs(
    tmp_path: Path, *, killed: bool
) -> None:
    async with replicas(tmp_path) as site:
        await counted(site)
        one = await site.begin("one", 3)
        for _ in range(3):
            await flap(site, 40)
        assert separated(site)
        await (site.killed(one) if killed else site.stop(one))
        thing = {"namespace": "cluster-system", "name": "clusterd-manual-info-cm"}
        await site.do({"do": "edit-output", "object": thing | {"delete": True}})
        again = await site.begin("again", 3 + LEASE_SECONDS + 2)
        assert again.leads
        assert not separated(site), "what was kept is read twice: at the start, and to lead"
        assert manual_info(site) == {}


@pytest.mark.slow
@EITHER_END
async def test_a_filter_hides_as_long_as_it_would_have(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as site:
        await put_job(site, **{"huawei.com/schedule.filter.faultCode": "80C98000:60"})
        await site.device("n1", config())
        one, other = await begin_two(site)
        began = site.at_ms
        faults = [fault(0, "RestartNPU", "80C98000")]
        await site.device("n1", config(faults, unhealthy=(0,)))
        await site.pass_time(0.5)
        await end_leader(site, one, other, killed=killed)
        assert site.unhealthy("n1") == ""
        await site.pass_time(59.5 - (site.at_ms - began) / 1000)
        assert site.unhealthy("n1") == ""
        await site.pass_time(1)
        assert site.unhealthy("n1") == "Ascend910-0"


@pytest.mark.slow
async def test_a_filter_counts_from_when_the_follower_saw_it_where_nothing_was_kept(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as site:
        await put_job(site, **{"huawei.com/schedule.filter.faultCode": "80C98000:60"})
        await site.device("n1", config())
        one, other = await begin_two(site)
        site.api.refuses = lambda method, place: "npu-vigil-state" in (place.name or "")
        faults = [fault(0, "RestartNPU", "80C98000")]
        await site.device("n1", config(faults, unhealthy=(0,)), 0.5)
        await site.killed(one)
        site.api.refuses = lambda *_: False
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert site.unhealthy("n1") == ""
        await site.pass_time(61 - 0.5 - LEASE_SECONDS - 2)
        assert site.unhealthy("n1") == "Ascend910-0"


@EITHER_END
async def test_a_uce_window_goes_on(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as site:
        await site.device("n1", config())
        one, other = await begin_two(site)
        began = site.at_ms
        now = site.wall_ms
        faults = [fault(0, "RestartRequest", "80CB8009", {"80CB8009": (now, "RestartRequest")})]
        await site.device("n1", config(faults), 0.2)
        first = site.devices["n1"]["DeviceList"][f"{KEY}-Fault"]
        assert "80CB8009" not in first
        await site.stop(one) if not killed else await site.killed(one)
        await site.pass_time(4)
        if not killed:
            assert other.leads
            assert "80CB8009" not in site.devices["n1"]["DeviceList"][f"{KEY}-Fault"]
        await site.pass_time(LEASE_SECONDS + 2 - (site.at_ms - began) / 1000)
        assert "80CB8009" in site.devices["n1"]["DeviceList"][f"{KEY}-Fault"]


def labels(site: Replicas) -> list[Any]:
    """Return the labels that the pod was given, one after the other."""
    shown = [one.data for one in site.played.shown if one.name == "Pod default/train-0"]
    return [one["labels"] for one in shown if one is not None]


async def relation(site: Replicas) -> None:
    """Publish a link that is down; after 300 s the trigger makes it a reason to separate."""
    link = fault(1, "PreSeparateNPU", "81078603", kind="CardNetwork")
    trigger = fault(0, "NotHandleFault", "8C1F8608")
    await site.device("n1", config([link, trigger], SuperPodID=0, ServerIndex=0), 1)


@pytest.mark.slow
@EITHER_END
async def test_a_relation_fault_waits_on_and_labels_once(tmp_path: Path, *, killed: bool) -> None:
    async with replicas(tmp_path) as site:
        await put_job(site)
        await site.device("n1", config())
        one, other = await begin_two(site)
        await relation(site)
        await site.pass_time(200)
        assert labels(site) == []
        await end_leader(site, one, other, killed=killed)
        await site.pass_time(60)
        assert labels(site) == []
        await site.pass_time(60)
        assert labels(site) == ["Separate"]
        third = await site.begin("third", 3)
        await end_leader(site, other, third, killed=killed)
        await site.pass_time(30)
        assert labels(site) == ["Separate"]


@pytest.mark.slow
async def test_a_label_that_the_leader_could_not_set_is_set_by_the_next_one(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await put_job(site)
        await site.device("n1", config())
        one, other = await begin_two(site)
        site.api.refuses = lambda method, place: method == "PATCH" and "pods" in place.resource
        await relation(site)
        await site.pass_time(310)
        await site.killed(one)
        site.api.refuses = lambda *_: False
        assert labels(site) == []
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert labels(site) == ["Separate"]


@pytest.mark.slow
async def test_the_lease_is_let_go_at_once_however_slow_the_disk_and_the_store_are(
    tmp_path: Path,
) -> None:
    async def slow(work: Any, *arguments: Any) -> Any:
        await asyncio.sleep(1.75)
        return work(*arguments)

    async with replicas(tmp_path) as site:
        # Undone before what the cluster replaced for itself.
        with pytest.MonkeyPatch.context() as patch:
            await site.node("n1", serial_number="SN-1")
            await site.device("n1", config())
            one, other = await begin_two(site)
            patch.setattr("asyncio.to_thread", slow)
            await site.device("n1", broken(3, update_time=1_760_000_100), 0.5)
            site.api.seconds = 0.25
            # Something is under way, and more is to be kept.
            for number in range(40):
                await site.public(
                    f"p{number}", public_message("occur", number=number, chips=(number % 8,))
                )
            await site.pass_time(0.3)
            began = site.at_ms
            ending = asyncio.create_task(site.stop(one))
            holder = one.made.queries.leadership._identity  # type: ignore[attr-defined]
            while lease(site)["spec"]["holderIdentity"] == holder:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert site.at_ms - began < 1000
            await ending
            site.api.seconds = 2**-8
            await site.pass_time(2)
            assert other.leads
            chips = site.unhealthy("n1").split(",")
            assert chips == [f"Ascend910-{chip}" for chip in range(8)]


@pytest.mark.slow
async def test_state_read_for_a_takeover_is_discarded_once_another_replica_has_led(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one, other = await begin_two(site)
        third = await site.begin("third", 3)
        publisher = other.made.publication.publishers[0]
        listed = publisher.list

        async def slowly() -> tuple[Document, ...]:
            found = await listed()
            publisher.list = listed  # type: ignore[method-assign]
            await asyncio.sleep(20)
            return found

        publisher.list = slowly  # type: ignore[method-assign]
        known: list[str] = []
        began = other.made.publication.takeover._on_lead

        def begins() -> Work[None]:
            work = began()
            entry = json.loads(other.made.pipeline.device.entries["n1"].text)
            known.append(entry["DeviceList"][f"{KEY}-Unhealthy"])
            return work

        other.made.publication.takeover._on_lead = begins
        give(site, other)
        await site.pass_time(2)
        assert other.made.queries.leadership.leads
        assert not other.leads
        give(site, third)
        await site.pass_time(5)
        assert third.leads
        assert (await third.services.call(wire.SEND, public_message("occur")))["code"] == 0
        assert site.shown_unhealthy("n1") == ["", "Ascend910-0"]
        give(site, other)
        await site.pass_time(20)
        assert site.unhealthy("n1") == "Ascend910-0"
        assert site.shown_unhealthy("n1") == ["", "Ascend910-0"]
        assert known == ["Ascend910-0"], "it never sets out to write what it had read before"
        assert (other.leads, third.leads, one.leads) == (True, False, False)


@pytest.mark.slow
async def test_a_term_that_ends_while_a_leader_informs_is_handed_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as site:
        one, other = await begin_two(site)
        takeover = other.made.publication.takeover
        began, set_leading = takeover._on_lead, takeover._plugins.set_leading
        led_while_informing, plugins_lead = list[bool](), list[bool]()

        def begins() -> Work[None]:
            yield from began()
            give(site, one)
            for _ in range(10):
                yield 1
                led_while_informing.append(other.leads)

        async def run_slowly(work: Work[None], _size: int) -> None:
            for _ in work:
                await asyncio.sleep(1)

        async def set_and_noted(leading: bool) -> None:
            plugins_lead.append(leading)
            await set_leading(leading)

        monkeypatch.setattr("aggregator.failover.takeover.run_in_slices", run_slowly)
        takeover._on_lead = begins
        takeover._plugins.set_leading = set_and_noted  # type: ignore[method-assign]
        give(site, other)
        await site.pass_time(20)
        assert led_while_informing == [False] * 10
        assert plugins_lead == [False], "clients of the new leader's services come to it alone"
        assert (one.leads, other.leads) == (True, False)


def published(place: Path, name: str) -> list[tuple[str, str | None, str | None]]:
    """Return the history of a replica: code or, of a status, subject, and its level before and
    then."""
    with sqlite3.connect(f"file:{place / name / FILE_NAME}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT body FROM events ORDER BY number").fetchall()
    bodies = [json.loads(row[0]) for row in rows]
    return [(one["code"], one.get("was"), one.get("level")) for one in bodies]


@pytest.mark.slow
@EITHER_END
async def test_nothing_is_reported_as_new_that_the_leader_before_had_published(
    tmp_path: Path, *, killed: bool
) -> None:
    switch = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
    cpu = {"DeviceType": "CPU", "DeviceId": 1, "FaultCode": ["00000001"]}
    server = node_data([cpu | {"FaultLevel": "SeparateFault"}], "UnHealthy")
    faults = [fault(3, "RestartNPU", "80C98000")]
    async with replicas(tmp_path) as site:
        await site.node("n1", serial_number="SN-1")
        await site.device("n1", config())
        one, other = await begin_two(site)
        await site.device("n1", config(faults, unhealthy=(3,)) | switch, 0.5)
        await site.server("n1", server, 0.5)
        await one.services.call(wire.SEND, public_message("occur"))
        await site.pass_time(1.5)  # changes are committed once a second
        first = published(tmp_path, "one")
        assert ("80C98000", None, "RestartNPU") in first
        assert ("220001001", None, "SeparateNPU") in first
        assert {code for code, _, _ in first} >= {"00000001", "status"}
        assert published(tmp_path, "other") == first, "a follower tells what its leader publishes"
        await end_leader(site, one, other, killed=killed)
        assert published(tmp_path, "other") == first
        await site.begin("one", 3)
        assert published(tmp_path, "one") == first
        await other.services.call(wire.SEND, public_message("recover"))
        await site.pass_time(7)
        over = [*first, ("220001001", "SeparateNPU", None)]
        assert published(tmp_path, "other") == over
        assert published(tmp_path, "one") == over


@pytest.mark.slow
async def test_change_without_a_leader_is_reported_when_it_is_published(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as site:
        await site.device("n1", config())
        one, other = await begin_two(site)
        await site.killed(one)
        faults = [fault(3, "RestartNPU", "80C98000")]
        await site.device("n1", config(faults, unhealthy=(3,)), LEASE_SECONDS / 2)
        assert published(tmp_path, "other") == []
        await site.pass_time(LEASE_SECONDS)
        assert other.leads
        assert published(tmp_path, "other") == [("80C98000", None, "RestartNPU")]
