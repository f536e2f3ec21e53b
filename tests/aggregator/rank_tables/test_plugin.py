"""Tables for MindIE's controller of a service (``docs/spec/consumers.md#4.1`` to 4.3)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.inputs.node_context import PodState
from aggregator.rank_tables.plugin import RankTables
from service.clock import Instant
from stores.base import Changed, Deleted, Document, DocumentsListed, WatchEvent
from stores.interruption import Interrupted
from tests.aggregator.rank_tables.rings import ME, rings, table

NOW = Instant(1_790_000_000_000, 5_000)


def pod(app: str, number: int = 0, *, ip: str = "10.3.0.1", namespace: str = "mindie") -> PodState:
    return PodState(
        f"uid-{namespace}-{app}-{number}",
        "n1",
        namespace,
        f"{app}-{number}",
        ip=ip,
        host_ip=f"192.168.1.{number}",
        labels={"app": f"mindie-ms-{app}", "jobID": ME},
    )


COORDINATOR, CONTROLLER = pod("coordinator"), pod("controller")


class Service:
    """One store, listed with these documents."""

    def __init__(
        self, *documents: Document, sources: int = 1, namespaces: tuple[str, ...] = ("*",)
    ) -> None:
        self.tables = RankTables(sources, namespaces)
        self.tables.set_pods("n1", [COORDINATOR, CONTROLLER])
        self.see(DocumentsListed(documents))

    def see(self, event: WatchEvent, source: int = 0) -> None:
        [selection] = self.tables.inputs
        assert self.tables.observe(source, selection, event, NOW) == frozenset()

    def now(self, job: str = ME) -> Any:
        self.tables.pop_changed_tables()
        text = self.tables.text(job)
        return None if text is None else json.loads(text)

    def servers(self) -> list[list[str]]:
        """Return the hosts of each group behind the first two."""
        groups = self.now()["server_group_list"][2:]
        return [[server["server_id"] for server in group["server_list"]] for group in groups]


def test_the_table_to_the_letter() -> None:
    super_pod = {
        "version": "1.2",
        "server_list": [
            {
                "device": [
                    {
                        "device_id": "4",
                        "device_ip": "10.1.0.9",
                        "super_device_id": "1048580",
                        "rank_id": "0",
                    }
                ],
                "server_id": "srv-9",
                "host_ip": "192.168.0.9",
                "container_ip": "10.2.0.9",
                "hardware_type": "800I-A3-64G",
            }
        ],
        "super_pod_list": [{"super_pod_id": "3", "server_list": [{"server_id": "srv-9"}]}],
    }
    service = Service(
        rings("server-0", table(**super_pod), deploy={"grt-server/deploy-server": "1"}),
        rings("server-1"),
    )
    assert service.tables.pop_changed_tables() == {ME}
    assert service.tables.text(ME) == (
        '{"version":"1.2","status":"completed","server_group_list":['
        '{"group_id":"0","server_count":"1","server_list":'
        '[{"server_id":"192.168.1.0","server_ip":"10.3.0.1"}]},'
        '{"group_id":"1","server_count":"1","server_list":'
        '[{"server_id":"192.168.1.0","server_ip":"10.3.0.1"}]},'
        '{"group_id":"2","deploy_server":"1","server_count":"1","server_list":[{"device":['
        '{"device_id":"4","device_ip":"10.1.0.9","super_device_id":"1048580",'
        '"device_logical_id":"0","rank_id":"0"}],"server_id":"192.168.0.9",'
        '"server_ip":"10.2.0.9","hardware_type":"800I-A3-64G"}],'
        '"super_pod_list":[{"super_pod_id":"3","server_list":[{"server_id":"192.168.0.9"}]}]},'
        '{"group_id":"3","deploy_server":"0","server_count":"1","server_list":[{"device":['
        '{"device_id":"0","device_ip":"10.1.0.1","device_logical_id":"0","rank_id":"0"},'
        '{"device_id":"1","device_ip":"10.1.0.2","device_logical_id":"1","rank_id":"1"}],'
        '"server_id":"192.168.0.1","server_ip":"10.2.0.1"}]}]}'
    )
    assert service.tables.pop_changed_tables() == frozenset()


def test_an_operator_that_writes_no_host_ip() -> None:
    server = {"device": [], "server_id": "192.168.0.7"}
    pods = [{"super_pod_id": "0", "server_list": [{"server_id": "192.168.0.7"}, {}]}]
    service = Service(rings(text=table(server_list=[server], super_pod_list=pods)))
    group = service.now()["server_group_list"][2]
    assert group["server_list"] == [{"server_id": "192.168.0.7"}]
    assert group["super_pod_list"][0]["server_list"] == [
        {"server_id": "192.168.0.7"},
        {"server_id": ""},
    ]


def test_a_broken_instance_is_left_out_and_comes_back() -> None:
    other = table(server_list=[{"server_id": "x", "host_ip": "192.168.0.2"}])
    service = Service(rings("server-0"), rings("server-1", other))
    assert service.servers() == [["192.168.0.1"], ["192.168.0.2"]]
    service.see(Changed(rings("server-0", '{"status":"initializing"}')))
    assert service.tables.pop_changed_tables() == {ME}
    assert service.servers() == [["192.168.0.2"]]
    service.see(Changed(rings("server-0")))
    assert service.servers() == [["192.168.0.1"], ["192.168.0.2"]]
    service.see(Deleted("mindie", "rings-config-server-1"))
    assert service.servers() == [["192.168.0.1"]]
    service.see(DocumentsListed(()))
    assert service.now() is None


def test_groups_are_in_the_order_of_names_as_people_count() -> None:
    def named(number: int) -> Document:
        server = {"server_id": str(number), "host_ip": f"192.168.0.{number}"}
        return rings(f"server-{number}", table(server_list=[server]))

    service = Service(*(named(number) for number in (10, 2, 1)))
    assert service.servers() == [["192.168.0.1"], ["192.168.0.2"], ["192.168.0.10"]]


@pytest.mark.parametrize(
    "pods",
    [
        [COORDINATOR],
        [CONTROLLER],
        [COORDINATOR, CONTROLLER, pod("controller", 1, ip="")],
        [COORDINATOR, pod("controller", namespace="elsewhere")],
        [COORDINATOR, pod("server")],
    ],
)
def test_nothing_is_reported_before_coordinators_and_controllers_have_addresses(
    pods: list[PodState],
) -> None:
    service = Service(rings())
    service.tables.set_pods("n1", pods)
    assert service.now() is None
    service.tables.set_pods("n2", [pod("controller", 1), pod("coordinator", 1)])
    service.tables.set_pods("n1", [])
    groups = service.now()["server_group_list"]
    assert [one["server_list"][0]["server_id"] for one in groups[:2]] == ["192.168.1.1"] * 2


def test_several_coordinators_are_in_the_order_of_their_names() -> None:
    service = Service(rings())
    service.tables.set_pods("n2", [pod("coordinator", 2), pod("coordinator", 1)])
    group = service.now()["server_group_list"][0]
    assert group["server_count"] == "3"
    hosts = [server["server_id"] for server in group["server_list"]]
    assert hosts == ["192.168.1.0", "192.168.1.1", "192.168.1.2"]
    # A pod that was made anew under its name, while the old one is still there.
    again = PodState("other-uid", "n3", "mindie", "coordinator-1", ip="", labels=COORDINATOR.labels)
    service.tables.set_pods("n3", [again])
    assert service.now() is None


BAD = {
    "no table": rings(text="").data | {"hccl.json": ""},
    "no JSON": {"hccl.json": "{"},
    "no key": {},
    "another type": {"hccl.json": '{"status":"completed","server_list":[{"device":[3]}]}'},
    "a number": {"hccl.json": '{"status":"completed","server_count":1}'},
    "a server without address": {"hccl.json": '{"status":"completed","server_list":[null]}'},
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_one_bad_table_touches_no_other_and_leaves_its_last_content(
    data: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    good = rings("server-0")
    bad = Document("mindie", good.name, data, good.labels)
    service = Service(good, rings("server-1", job="other"))
    before = service.now()
    for _ in range(3):
        service.see(Changed(bad))
    assert service.now() == before
    assert len(service.tables.problems) == 1
    assert good.name in service.tables.problems[0]
    assert caplog.text.count("is refused") == 1
    fresh = Service(bad, rings("server-1"))
    assert fresh.servers() == [["192.168.0.1"]]
    fresh.see(Changed(good))
    assert fresh.tables.problems == ()
    assert fresh.servers() == [["192.168.0.1"]] * 2
    fresh.see(Changed(bad))
    fresh.see(Deleted("mindie", bad.name))
    assert fresh.tables.problems == ()


@pytest.mark.parametrize(
    "deploy", [{}, {"grt-group/deploy-server": "0", "grt-server/deploy-server": "0"}]
)
def test_exactly_one_of_two_labels(deploy: dict[str, str]) -> None:
    service = Service(rings(deploy=deploy), rings("server-1"))
    assert service.servers() == [["192.168.0.1"]]
    assert "deploy-server" in service.tables.problems[0]


def test_configmap_without_rank_table_is_ignored() -> None:
    device_info = Document("mindie", "mindx-dl-deviceinfo-n1", {}, rings().labels)
    service = Service(rings(), device_info)
    assert service.tables.problems == ()
    assert service.servers() == [["192.168.0.1"]]


def test_a_table_may_move_to_another_service() -> None:
    service = Service(rings())
    assert service.tables.pop_changed_tables() == {ME}
    service.see(Changed(rings(job="other")))
    assert service.tables.pop_changed_tables() == {ME}
    assert service.now() is None


def other_service(host: str = "192.168.0.6") -> Document:
    """Return a complete table with our jobID in the namespace ``a`` of another tenant."""
    server = {"server_id": "x", "host_ip": host}
    return rings(text=table(server_list=[server]), namespace="a")


def other_pods() -> list[PodState]:
    """Return a coordinator and a controller with our jobID in that namespace."""
    return [pod("coordinator", 5, namespace="a"), pod("controller", 5, namespace="a")]


def test_a_job_id_that_two_namespaces_use_is_served_from_neither(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    service = Service(other_service(), rings())
    service.tables.set_pods("n2", other_pods())
    for _ in range(3):
        assert service.now() is None
        service.see(Changed(other_service("192.168.0.7")))
        service.see(Changed(other_service("192.168.0.8")))
    assert service.tables.status().shared == {ME: ("a", "mindie")}
    assert caplog.text.count(f"jobID '{ME}' is used by rank tables of several namespaces") == 1
    assert "(a, mindie)" in caplog.text
    assert "rank_tables.namespaces" in caplog.text
    service.see(Deleted("a", "rings-config-server-0"))
    assert service.servers() == [["192.168.0.1"]]
    assert service.tables.status().shared == {}
    assert caplog.text.count("is used by one namespace again") == 1


def test_a_table_that_is_served_stays_while_another_namespace_uses_its_job_id() -> None:
    service = Service(rings())
    before = service.now()
    service.see(Changed(other_service()))
    service.tables.set_pods("n2", other_pods())
    assert service.tables.pop_changed_tables() == frozenset()
    assert service.now() == before
    # What changes meanwhile counts when the other one is gone, also one that moves to another job.
    service.see(Changed(rings(text=table(server_list=[{"server_id": "y", "host_ip": "10.0.0.9"}]))))
    assert service.now() == before
    theirs = other_service()
    labels = theirs.labels | {"jobID": "theirs"}
    service.see(Changed(Document(theirs.namespace, theirs.name, theirs.data, labels)))
    assert service.tables.pop_changed_tables() == {ME}
    assert service.servers() == [["10.0.0.9"]]
    service.see(Changed(other_service()))
    service.see(DocumentsListed((other_service(),)))
    assert service.servers() == [["192.168.0.6"]], "who is left is served"


def test_a_table_that_cannot_be_read_and_pods_alone_share_no_job_id() -> None:
    service = Service(rings())
    theirs = rings(text="{", namespace="a")
    service.see(Changed(theirs))
    service.tables.set_pods("n2", other_pods())
    service.see(Changed(rings(text=table(server_list=[{"server_id": "y", "host_ip": "10.0.0.9"}]))))
    assert service.servers() == [["10.0.0.9"]]
    assert service.tables.status().shared == {}


def test_namespaces_that_are_left_out_share_no_job_id(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(rings(), namespaces=("mindie", "b"))
    for _ in range(3):
        service.see(Changed(other_service()))
    service.see(DocumentsListed((rings(), other_service())))
    assert service.servers() == [["192.168.0.1"]]
    assert service.tables.namespaces.counts[0] == 1
    (left,) = service.tables.namespaces.refused(0)
    assert (left.place, left.reason) == ("a", "namespace")
    assert "rank_tables.namespaces names only mindie, b" in left.what
    assert caplog.text.count("rank tables in namespace a are left out") == 1
    service.see(Deleted("a", "rings-config-server-0"))
    assert service.tables.namespaces.refused(0) == ()


def test_nothing_is_reported_before_every_store_was_listed() -> None:
    service = Service(rings(), sources=2)
    assert service.now() is None
    service.see(Interrupted("away"), source=1)
    assert service.now() is None
    service.see(DocumentsListed((rings("server-1", job="other", namespace="b"),)), source=1)
    assert service.servers() == [["192.168.0.1"]]
    # An interruption changes nothing; a list of one store changes nothing of the other.
    service.see(Interrupted("away"))
    service.see(DocumentsListed(()), source=1)
    assert service.servers() == [["192.168.0.1"]]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.booleans(), st.sampled_from([ME, "other"])),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(False), st.just(ME)),
        st.tuples(st.just("pods"), st.integers(0, 3), st.booleans(), st.just(ME)),
    ),
    max_size=30,
)


@given(steps)
def test_whatever_came_before_only_what_is_there_counts(
    done: list[tuple[str, int, bool, str]],
) -> None:
    service = Service()
    there: dict[str, Document] = {}
    places: dict[str, list[PodState]] = {"n1": [COORDINATOR, CONTROLLER]}
    for what, number, flag, job in done:
        if what == "put":
            text = table() if flag else '{"status":"initializing"}'
            document = rings(f"server-{number}", text, job=job)
            there[document.name] = document
            service.see(Changed(document))
        elif what == "drop":
            there.pop(f"rings-config-server-{number}", None)
            service.see(Deleted("mindie", f"rings-config-server-{number}"))
        else:
            places[f"n{number}"] = [pod("controller", number)] if flag else []
            service.tables.set_pods(f"n{number}", places[f"n{number}"])
        service.tables.pop_changed_tables()
    fresh = Service()
    for node, pods in places.items():
        fresh.tables.set_pods(node, pods)
    fresh.see(DocumentsListed(tuple(there.values())))
    for job in (ME, "other"):
        assert service.now(job) == fresh.now(job)
