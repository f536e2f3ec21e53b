"""``vigil advise`` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import ConfigurationError, StoreUnavailable
from tests.elastic.jobs import vcjob
from tests.vigil.advise.cluster import (
    as_list,
    configmap,
    named,
    two_pods_on_two_of_three_nodes,
)
from tests.vigil.advise.running import sessions_of, vigil

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Return the small cluster, without a fault."""
    file = tmp_path / "dump.json"
    file.write_text(as_list(two_pods_on_two_of_three_nodes()))
    return file


def test_a_cluster_at_rest(dump: Path) -> None:
    result = vigil("--dump", dump)
    assert result.exit_code == 0
    first, second, third, unknown, basis, *differences = result.stdout.splitlines()
    assert first == "2026-11-23 17:00:00 UTC  profile upstream and corrected"
    assert second == "  nothing happens, and nothing waits: no pod is at fault"
    assert third == "  not known"
    assert "pending count" in unknown
    assert "22bb3d98" in basis
    assert any("v26.1.0 is tag 9e132e21" in one for one in differences)


def test_an_assumed_fault_shows_its_changes(dump: Path) -> None:
    result = vigil("--dump", dump, "--what-if", "chip 3 of n2 SeparateNPU")
    assert result.exit_code == 1
    assert "deletes with 0 s: j-0, j-1" in result.stdout
    assert "at fault j-1 on n2: CardUnhealthy Ascend910-3" in result.stdout
    changed = result.stdout.partition("what this changes:")[2]
    assert "+ deletion of default/j-0 with 0 s" in changed
    assert "+ deletion of default/j-1 with 0 s" in changed


def test_json_has_one_object_per_profile(dump: Path) -> None:
    result = vigil("--dump", dump, "--json", "--what-if", "n1 UnHealthy")
    assert result.exit_code == 1
    found = sessions_of(result)
    assert [one["profile"] for one in found] == ["upstream", "corrected"]
    for one in found:
        assert {"now_ms", "node_verdicts", "decisions", "create_advice", "elastic_advice"} < set(
            one
        )
        assert {"findings", "deletions", "placement", "gangs"} < set(one)
        assert (
            one["deletions"]
            == one["what_if"]["adds"]["deletions"]
            == [
                {
                    "namespace": "default",
                    "name": f"j-{n}",
                    "uid": f"Pod-default-j-{n}",
                    "grace_seconds": 0,
                }
                for n in (0, 1)
            ]
        )
        assert one["what_if"]["takes_away"]["deletions"] == []


def test_a_fault_that_is_healed_is_taken_away(tmp_path: Path, dump: Path) -> None:
    items = json.loads(dump.read_text())["items"]
    text = {"mindx-dl-nodeinfo-n1": {"NodeStatus": "UnHealthy", "FaultDevList": None}}
    items[-1] = configmap("mindx-dl", "cluster-info-node-cm", json.dumps(text), 13)
    ill = tmp_path / "ill.json"
    ill.write_text(as_list(items))
    assert vigil("--dump", ill, "--json").exit_code == 1
    result = vigil("--dump", ill, "--json", "--what-if", "heal n1")
    assert result.exit_code == 0
    for one in sessions_of(result):
        assert one["deletions"] == []
        assert len(one["what_if"]["takes_away"]["deletions"]) == 2


@pytest.mark.parametrize(("profile", "shown"), [("upstream", 1), ("corrected", 1), ("both", 2)])
def test_profiles(dump: Path, profile: str, shown: int) -> None:
    found = sessions_of(vigil("--dump", dump, "--json", "--profile", profile))
    assert len(found) == shown
    assert profile in ("both", found[0]["profile"])


def lines(*sessions: tuple[int, list[dict[str, Any]]]) -> str:
    """Return sessions as JSON Lines."""
    return "".join(
        json.dumps({"now_ms": now_ms, "first_session": index == 0, "items": items}) + "\n"
        for index, (now_ms, items) in enumerate(sessions)
    )


def ill_cluster() -> list[dict[str, Any]]:
    """Return the small cluster with an unhealthy node n1, under grace."""
    items = two_pods_on_two_of_three_nodes({"fault-scheduling": "grace"})
    text = {"mindx-dl-nodeinfo-n1": {"NodeStatus": "UnHealthy", "FaultDevList": None}}
    items[-1] = configmap("mindx-dl", "cluster-info-node-cm", json.dumps(text), 13)
    return items


@pytest.mark.slow
def test_state_goes_from_line_to_line_and_from_run_to_run(tmp_path: Path) -> None:
    """A job that was acted on is not acted on again; without the state it would be."""
    items = ill_cluster()
    begin = 1_795_453_200_000
    both = tmp_path / "both.jsonl"
    both.write_text(lines((begin, items), (begin + 1000, items)))
    counts = [len(one["deletions"]) for one in sessions_of(vigil("--dump", both, "--json"))]
    assert counts == [2, 2, 0, 0]

    first, second, state = (tmp_path / name for name in ("1.jsonl", "2.jsonl", "state.json"))
    first.write_text(lines((begin, items)))
    second.write_text(json.dumps({"now_ms": begin + 1000, "items": items}))
    assert vigil("--dump", first, "--state", state).exit_code == 1
    kept = state.read_bytes()
    assert vigil("--dump", second, "--state", state, "--what-if", "n2 gone").exit_code in (0, 1)
    state.write_bytes(kept)
    assert vigil("--dump", second, "--state", state).exit_code == 0
    assert vigil("--dump", second).exit_code == 1
    again = vigil("--dump", first, "--state", state)
    assert isinstance(again.exception, ConfigurationError)
    assert "after the session of" in str(again.exception)


def test_assumptions_are_not_in_the_state(tmp_path: Path, dump: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    vigil("--dump", dump, "--state", one)
    vigil("--dump", dump, "--state", other, "--what-if", "n1 UnHealthy")
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not a valid state"),
        ("[]", "is not a valid state"),
        ('{"version": 9}', "is 9, this release reads 1"),
        (
            '{"version": 1, "profiles": {"upstream": {"jobs": {"default/j": {"uid": "u",'
            ' "first_seen": 1, "pods": [{"name": "p", "uid": "v", "type": "x"}]}}}}}',
            "there is no fault type 'x'",
        ),
    ],
)
def test_a_state_that_is_none(tmp_path: Path, dump: Path, content: str, expected: str) -> None:
    state = tmp_path / "state.json"
    state.write_text(content)
    result = vigil("--dump", dump, "--state", state)
    assert isinstance(result.exception, ConfigurationError)
    assert expected in str(result.exception)
    assert state.read_text() == content


def test_options_come_from_the_scheduler(tmp_path: Path) -> None:
    """After ``grace-over-time`` of the ConfigMap what is left is deleted by force."""
    text = (
        'actions: "enqueue, allocate"\nconfigurations:\n- name: init-params\n'
        '  arguments: {"grace-over-time": "5"}\n'
    )
    scheduler = configmap(
        "volcano-system", "volcano-scheduler-configmap", text, 1, "volcano-scheduler.conf"
    )
    begin = 1_795_453_200_000
    for items, graces in (
        ([*ill_cluster(), scheduler], [[30, 30], [], [0, 0]]),
        (ill_cluster(), [[30, 30], [], []]),
    ):
        file = tmp_path / "lines.jsonl"
        file.write_text(lines(*((begin + at, items) for at in (0, 5000, 6000))))
        found = sessions_of(vigil("--dump", file, "--json", "--profile", "upstream"))
        assert [[pod["grace_seconds"] for pod in one["deletions"]] for one in found] == graces


def test_one_job_of_two(tmp_path: Path) -> None:
    items = two_pods_on_two_of_three_nodes()
    items.append(named("Job", "owner", "default", "batch.volcano.sh/v1alpha1", spec={}))
    reference = {"kind": "Job", "name": "owner", "uid": "Job-default-owner", "controller": True}
    items[3]["metadata"]["ownerReferences"] = [reference]
    file = tmp_path / "dump.json"
    file.write_text(as_list(items))
    what_if = ("--what-if", "n1 UnHealthy")
    for job in ("default/j", "default/owner"):
        result = vigil("--dump", file, "--job", job, *what_if)
        assert result.exit_code == 1
        assert "n1 NodeUnhealthy" in result.stdout or "deletes with 0 s" in result.stdout
    missing = vigil("--dump", file, "--job", "default/other", *what_if)
    assert isinstance(missing.exception, ConfigurationError)


def test_a_deployment_owns_the_podgroups_of_its_replica_sets(tmp_path: Path) -> None:
    items = two_pods_on_two_of_three_nodes()
    deployment = {"kind": "Deployment", "name": "d", "uid": "u", "controller": True}
    made = named("ReplicaSet", "d-1", "default", "apps/v1", spec={"replicas": 2})
    made["metadata"]["ownerReferences"] = [deployment]
    owner = {"kind": "ReplicaSet", "name": "d-1", "uid": made["metadata"]["uid"]}
    for one in items:
        if one["kind"] in ("Pod", "PodGroup"):
            one["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    file = tmp_path / "dump.json"
    file.write_text(as_list([*items, made]))
    result = vigil("--dump", file, "--job", "default/d", "--what-if", "n1 UnHealthy")
    assert result.exit_code == 1


def test_one_node_of_three(dump: Path) -> None:
    what_if = ("--what-if", "n1 UnHealthy")
    assert vigil("--dump", dump, "--node", "n2", *what_if).exit_code == 1
    assert vigil("--dump", dump, "--node", "n3", *what_if).exit_code == 0
    assert isinstance(vigil("--dump", dump, "--node", "n9").exception, ConfigurationError)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--profile", "other"),
        ("--job", "j"),
        ("--job", "a/b/c"),
        ("--what-if", "x"),
        ("--watch",),
        ("--server", "http://127.0.0.1:1"),
    ],
)
def test_wrong_use(dump: Path, options: tuple[str, ...]) -> None:
    given: tuple[str, ...] = () if not options else ("--dump", str(dump))
    result = vigil(*given, *options)
    assert result.exit_code == 2 or isinstance(result.exception, ConfigurationError)


def test_options_of_elastic_training_change_the_advice(tmp_path: Path) -> None:
    """Only with its option: the scheduler ends no job for a link that is down."""
    items = two_pods_on_two_of_three_nodes()
    job = vcjob("j", 2, phase="Running")
    owner = {"kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    for one in items:
        if one["kind"] == "Pod":
            one["metadata"]["ownerReferences"] = [owner]
        if one["metadata"]["name"] == "cluster-info-device-0":
            devices = json.loads(one["data"]["cluster-info-device-0"])
            lists = devices["mindx-dl-deviceinfo-n1"]["DeviceList"]
            lists["huawei.com/Ascend910-NetworkUnhealthy"] = "Ascend910-0"
            one["data"]["cluster-info-device-0"] = json.dumps(devices)
    file = tmp_path / "cut.json"
    file.write_text(as_list([*items, job]))
    assert "ELASTIC_COMMAND" not in vigil("--dump", file).stdout
    found = [
        finding["object"]
        for one in sessions_of(vigil("--dump", file, "--network-faults", "--json"))
        for finding in one["findings"]
        if finding["code"] == "ELASTIC_COMMAND"
    ]
    assert found == ["Job default/j"] * 2, "in each profile"


@pytest.mark.daemon
@pytest.mark.parametrize(
    "options",
    [
        ("--watch", "--what-if", "heal n1"),
        ("--state", "file"),
        ("--network-faults",),
        ("--dead-nodes",),
        ("--what-if", "heal"),
    ],
)
def test_wrong_use_of_a_server(options: tuple[str, ...]) -> None:
    result = vigil("--server", "http://127.0.0.1:1", *options)
    assert isinstance(result.exception, ConfigurationError)


@pytest.mark.slow
def test_a_wrong_dump_ends_a_whole_process_with_2(dump: Path) -> None:
    dump.write_text("{")
    command = [sys.executable, "-m", "vigil", "advise", "--dump", str(dump), "--json"]
    wrong = subprocess.run(command, capture_output=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert f"{dump}: 1 problem\n  line 1: is not JSON".encode() in wrong.stderr


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "unix:/nowhere", "https://127.0.0.1:1"])
def test_a_server_that_does_not_answer(server: str) -> None:
    result = vigil("--server", server)
    assert isinstance(result.exception, StoreUnavailable)
    assert str(result.exception).startswith(server)


@pytest.mark.parametrize("server", ["127.0.0.1:9821", "ftp://x", "http://h:x", "http://h/page", ""])
def test_an_address_that_is_none(server: str) -> None:
    result = vigil("--server", server)
    assert isinstance(result.exception, ConfigurationError)
