"""The operator's fault configuration in a real agent, on both stores."""

from __future__ import annotations

import json
import shutil
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from tests.fault_texts import recorded_texts
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

NAME = "mindx-dl-fault-config"
CODES, RULES = "faultCode.json", "faultCustomization.json"
CODE, CHIP = "80E21007", 3


@pytest.fixture(autouse=True)
def _leave_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete the ConfigMap of the test, because all tests share the API server."""
    if request.node.get_closest_marker("apiserver") is None:
        yield
        return
    plane = request.getfixturevalue("control_plane")
    yield
    plane.ask("DELETE", f"/api/v1/namespaces/kube-system/configmaps/{NAME}")


def table(level: str) -> dict[str, str]:
    """Return the data of a ConfigMap that gives one code of a chip a level."""
    lists = {f"{level}Codes": [CODE], "NotHandleFaultNetworkCodes": ["81078603"]}
    lists["NotHandleFaultCodes"] = ["81078603"]
    return {CODES: json.dumps(lists), "PollInterval": "300"}


def shows(node: Node, level: str, seconds: float = 5.0) -> float:
    """Wait until the document shows the level of the code; the seconds it took."""
    name = f"Ascend910-{CHIP}"
    return node.until(lambda now: now.faults.get(name) == {CODE: level}, f"it is {level}", seconds)


@pytest.mark.timeout(90)
def test_changes_are_in_force_at_once(node: Node) -> None:
    node.start()
    node.healthy()
    node.emulator.occur(CHIP, CODE)
    shows(node, "NotHandleFault")
    node.place.write(NAME, table("SeparateNPU"))
    assert shows(node, "SeparateNPU") < patience(2)
    node.place.write(NAME, table("RestartRequest"))
    shows(node, "RestartRequest")
    malformed = recorded_texts(CODES)[-1]
    node.place.write(NAME, {CODES: malformed, "PollInterval": "soon"})
    node.wait(lambda: len(node.status()["fault_configuration"]["problems"]) == 2, "two problems")
    configuration = node.status()["fault_configuration"]
    assert configuration["documents"][0] == {"document": CODES, "source": "configmap", "kept": True}
    metrics = node.ask("/metrics")[1]
    assert f'npu_vigil_fault_configuration_problems{{document="{CODES}"}} 1.0' in metrics
    assert (
        f'npu_vigil_fault_configuration_source{{document="{CODES}",source="kept"}} 1.0' in metrics
    )
    shows(node, "RestartRequest")
    node.kill()
    node.start()
    node.up()
    node.wait(lambda: len(node.status()["fault_configuration"]["problems"]) == 2, "still there")
    shows(node, "RestartRequest")
    node.place.delete(NAME)
    assert shows(node, "NotHandleFault") < patience(2)
    assert node.status()["fault_configuration"]["problems"] == []

    def in_order() -> list[str | None]:
        texts = [row.get("fault_code") for row in node.journal("fault-configuration")]
        # Again after each trouble of the journal, which a busy machine may see.
        changes = [text for text, _ in groupby(texts)]
        # The first trouble may come before the first table.
        return changes[1:] if changes[:1] == [None] else changes

    # The journal commits beside the publication.
    tables = [table("SeparateNPU")[CODES], table("RestartRequest")[CODES], None]
    node.wait(lambda: in_order() == tables, "each table is journaled")


@pytest.mark.timeout(60)
def test_malformed_at_the_very_first_start(folder_node: Node) -> None:
    node = folder_node
    (rules,) = (text for text in recorded_texts(RULES) if '"Times": "2"' in text)
    node.place.write(NAME, {CODES: recorded_texts(CODES)[-1], RULES: rules})
    node.start()
    node.emulator.occur(CHIP, CODE)
    shows(node, "NotHandleFault", 20)
    sources = node.status()["fault_configuration"]["documents"]
    assert [one["source"] for one in sources] == ["shipped"] * 4
    node.place.write(NAME, table("SeparateNPU"))
    shows(node, "SeparateNPU")


@pytest.mark.timeout(60)
def test_no_difference_with_the_shipped_tables(node: Node) -> None:
    """Neither the first start nor a later one shows a level that is not configured."""
    node.place.write(NAME, table("SeparateNPU"))
    node.emulator.occur(CHIP, CODE)
    node.start()
    shows(node, "SeparateNPU", 20)
    node.kill()
    shutil.rmtree(node.state_dir)
    node.start()
    node.up()
    node.wait(lambda: node.journal("publication") != [], "it has published")
    levels = {change.get("new_level") for change in node.changes()}
    assert levels <= {"SeparateNPU"}


@pytest.mark.apiserver
@pytest.mark.timeout(90)
@pytest.mark.parametrize("lost", ["journal.sqlite", "fault-config.json"])
def test_kill_9_and_a_start_without_an_api_server(
    cluster_node: Node, cluster: Cluster, lost: str
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    node.place.write(NAME, table("SeparateNPU"))
    node.emulator.occur(CHIP, CODE)
    shows(node, "SeparateNPU")
    cluster.plane.kill_apiserver()
    node.kill()
    node.emulator.recover(CHIP, CODE)
    node.emulator.occur(CHIP + 1, CODE)
    _starts_with_what_it_kept(node, CHIP + 1)
    node.kill()
    for file in node.state_dir.glob(f"{lost}*"):
        file.unlink()
    node.emulator.recover(CHIP + 1, CODE)
    node.emulator.occur(CHIP + 2, CODE)
    _starts_with_what_it_kept(node, CHIP + 2)
    cluster.plane.start_apiserver()
    published = {f"Ascend910-{CHIP + 2}": {CODE: "SeparateNPU"}}
    node.until(lambda now: now.faults == published, "it is published")
    node.wait(lambda: not node.status()["fault_configuration"]["trouble"], "it is watched", 20)


def _starts_with_what_it_kept(node: Node, chip: int) -> None:
    """Start the agent; wait until it has the fault of ``chip`` alone, at the kept level."""
    node.start()
    node.up()
    expected = [(chip, "SeparateNPU")]
    node.wait(
        lambda: [(held["chip"], held["level"]) for held in node.status()["faults"]] == expected,
        "the fault is known",
    )
    configuration = node.status()["fault_configuration"]
    assert configuration["documents"][0] == {"document": CODES, "source": "configmap", "kept": True}
    node.wait(lambda: bool(node.status()["fault_configuration"]["trouble"]), "it is not watched")


@pytest.mark.timeout(60)
def test_files_on_bare_metal(folder_node: Node) -> None:
    node = folder_node
    directory = node.state_dir.parent / "fault-config"
    node.environment["VIGIL_FAULT_CONFIG_DIR"] = str(directory)
    node.start()
    node.healthy()
    node.emulator.occur(CHIP, CODE)
    shows(node, "NotHandleFault")
    directory.mkdir()
    (directory / CODES).write_text(table("SubHealthFault")[CODES])
    assert shows(node, "SubHealthFault") < patience(2)
    node.place.write(NAME, table("SeparateNPU"))
    shows(node, "SeparateNPU")
    node.place.delete(NAME)
    shows(node, "SubHealthFault")
    shutil.rmtree(directory)
    shows(node, "NotHandleFault")


@pytest.mark.apiserver
@pytest.mark.timeout(60)
def test_an_event_on_the_config_map(cluster_node: Node, cluster: Cluster) -> None:
    """One for each version of it, however often agents start."""
    node = cluster_node
    names: set[str] = set()

    def events() -> list[dict[str, Any]]:
        """Return the Events that no earlier call has returned."""
        query = f"fieldSelector=involvedObject.name={NAME}"
        found = cluster.plane.request("GET", f"/api/v1/namespaces/kube-system/events?{query}")
        return [item for item in found["items"] if item["metadata"]["name"] not in names]

    names |= {event["metadata"]["name"] for event in events()}
    node.place.write(NAME, table("SeparateNPU") | {"PollInterval": "5m"})
    node.start()
    node.healthy()
    node.wait(lambda: events() != [], "there is an Event")
    (event,) = events()
    assert (event["type"], event["reason"]) == ("Warning", "FaultConfigurationProblem")
    assert event["involvedObject"]["kind"] == "ConfigMap"
    assert event["source"] == {"component": "npu-vigil", "host": node.name}
    assert event["message"].startswith("1 problem: PollInterval: $: '5m' is not a valid number")
    names.add(event["metadata"]["name"])
    node.kill()
    node.start()
    node.up()
    node.place.write(NAME, table("SeparateNPU") | {CODES: "{"})
    node.wait(lambda: events() != [], "there is another one")
    (event,) = events()
    assert "faultCode.json: $: is not JSON" in event["message"]
