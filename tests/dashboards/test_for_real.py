"""Each query of the files on a real Prometheus that scrapes a real agent and aggregator.

Grafana itself cannot be had here, so the variables are replaced as Grafana does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from contract.codes.reference import describe_code
from dcmi_shim.emulator.bmc import BmcAlarm
from stores.address import open_store
from stores.base import Beat
from tests.aggregator.nodes import with_switch
from tests.aggregator.public_faults.messages import document, fault_message, one
from tests.alerts.cases import promtool
from tests.alerts.cluster import Cluster as WatchedCluster
from tests.dashboards.cases import (
    AHEAD,
    CALL,
    CASES,
    CHIP,
    DROPPED_CHIP,
    HANGING_CHIP,
    LATE_CHIP,
    LINK_CHIP,
    OTHER,
    SEPARATING,
    Cause,
)
from tests.dashboards.files import CONFIG_MAPS, FOLDER, all_dashboards
from tests.dashboards.grafana import LANGUAGES, TITLE
from tests.parts import pods
from tests.parts.api_proxy import ApiProxy, Rule
from tests.parts.deadlines import time_passes, wait_until
from tests.parts.fault_config import link_rule
from tests.parts.places import Proxied
from tests.parts.prometheus import Prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dashboards.cases import Case
    from tests.parts.controlplane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.daemon, pytest.mark.timeout(180)]

_JOBS = "npu-vigil-agent|npu-vigil-aggregator"
_DEVICES = "cluster-info-device-0"
_NODES = "cluster-info-node-cm"
_CONFIGURATION = "mindx-dl-node-fault-config"
_FILE_BYTES = 8192
_HOUR_MS = 3_600_000
_UNAVAILABLE = 500
_LATE_SECONDS = 3
_FACTOR = 60
"""Divides the durations of the rules."""
_STEP_SECONDS = 0.2
_WRITE_SECONDS = 0.5
_FANS = BmcAlarm("06000025", "Fan", 1), BmcAlarm("06000025", "Fan", 2)


class Asked(NamedTuple):
    """A query of a file: its dashboard, panel and letter, and its expression in one language."""

    dashboard: str
    panel: str
    letter: str
    expression: str

    @property
    def case(self) -> Case:
        """Return what changes its answer."""
        return CASES[self.dashboard, self.panel, self.letter]


def content(dashboard: str) -> Any:
    """Return a file as Grafana reads it."""
    return json.loads((FOLDER / f"{dashboard}.json").read_text(encoding="utf-8"))


def replaced(text: str, language: str, node: str) -> str:
    """Replace the variables as Grafana does it before it asks Prometheus."""
    values = {"job": _JOBS, "node": node, "lang": language, "__rate_interval": "4s"}
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], text)


def queries(*languages: str) -> list[Asked]:
    """Return all queries, in each of ``languages`` where they differ."""
    asked = []
    for file in sorted(FOLDER.glob("*.json")):
        node = "node-1" if file.stem == "node" else ".+"
        for panel in content(file.stem)["panels"]:
            key = panel["title"].removeprefix(f"${{{TITLE}").removesuffix("}")
            for target in panel["targets"]:
                for text in {replaced(target["expr"], name, node) for name in languages}:
                    asked.append(Asked(file.stem, key, target["refId"], text))
    return asked


class Cluster:
    """The cluster of the alerts on an API server behind a proxy, and what each cause does to it."""

    def __init__(self, directory: Path, built: Path, plane: ControlPlane, proxy: ApiProxy) -> None:
        self.plane = plane
        self.proxy = proxy
        self._watched = WatchedCluster(directory, built, Proxied(plane, proxy))
        self.node, self.aggregator = self._watched.node, self._watched.aggregator
        self.node.give_bmc(directory)
        self.node.environment["VIGIL_BMC_ENABLED"] = "true"
        for period in ("LINKS_PERIOD", "DRIVER_PROBE_PERIOD", "CHIP_FAULTS_AUDIT_PERIOD"):
            self.node.environment[f"VIGIL_{period}_SECONDS"] = "1"
        self.node.environment |= link_rule(directory / "fault-config", 0, 60)
        self.aggregator.program = "tests.end_to_end.impatient"
        self._ended = threading.Event()
        self._others = threading.Thread(target=self._write, daemon=True)
        self._clock_is_off = threading.Event()
        self._stranger_writes = threading.Event()

    def start(self) -> None:
        """Start all, and wait until Prometheus scrapes both daemons."""
        self._watched.start(_FACTOR)
        self.node.healthy()
        self._others.start()

    def answer(self, expression: str) -> list[Any]:
        """Return the samples of an expression now."""
        return self._watched.watcher.ask(expression)

    def shows(self, asked: Asked) -> bool:
        """Return whether a query has the sample that its cause makes."""
        case = asked.case
        return any(
            case.labels.items() <= sample["metric"].items()
            and case.low <= float(sample["value"][1]) <= case.high
            for sample in self.answer(asked.expression)
        )

    def shows_label(self, asked: Asked, label: str, value: str) -> bool:
        """Return whether a sample of a query has a label with this value."""
        return any(s["metric"].get(label) == value for s in self.answer(asked.expression))

    def show_all_of(self, watched: list[Asked]) -> None:
        """Wait until each query has had the sample that its cause makes."""
        left = list(watched)

        def all_changed() -> bool:
            left[:] = [query for query in left if not self.shows(query)]
            return not left

        def answers() -> str:
            return "\n".join(f"{query}: {self.answer(query.expression)}" for query in left)

        wait_until(all_changed, answers, 30, _STEP_SECONDS)

    def show_none_of(self, watched: list[Asked]) -> None:
        """Wait until no query has the sample that its cause makes."""
        wait_until(
            lambda: not any(map(self.shows, watched)),
            lambda: f"none changed: {[query[:3] for query in watched if self.shows(query)]}",
            30,
            _STEP_SECONDS,
        )

    def cause(self, cause: Cause) -> None:
        """Make a cause."""
        emulator, plane, place = self.node.emulator, self.plane, self.node.place
        match cause:
            case Cause.FAULT:
                emulator.occur(CHIP, SEPARATING)
            case Cause.POD:
                owner = pods.owned_by("11111111-2222-3333-4444-555555555555", "training")
                pods.make(plane, "rank-0", self.node.name, f"Ascend910-{CHIP}", owner=owner)
            case Cause.LINK:
                emulator.link(LINK_CHIP, up=False)
            case Cause.HANG:
                emulator.hang(CALL, HANGING_CHIP)
            case Cause.DROP:
                emulator.drop(DROPPED_CHIP, hard=True)
            case Cause.BMC:
                emulator.bmc.alarms(_FANS[:1])
            case Cause.SWITCH | Cause.PUBLIC:
                asyncio.run(self._put(cause))
            case Cause.CONFIGURATION:
                place.write(_CONFIGURATION, {"NodeDConfiguration.json": "{"})
            case Cause.CLOCK:
                self._clock_is_off.set()
            case Cause.JOURNAL:
                process, limit = self.node.process.pid, resource.RLIMIT_FSIZE
                before = resource.prlimit(process, limit)
                resource.prlimit(process, limit, (_FILE_BYTES, before[1]))
            case Cause.STRANGER:
                self._stranger_writes.set()
            case Cause.REFUSED:
                for name in (_DEVICES, f"mindx-dl-nodeinfo-{self.node.name}"):
                    self.proxy.refuse(_UNAVAILABLE, Rule(name=name))
                emulator.occur(LATE_CHIP, SEPARATING)
                emulator.bmc.alarms(_FANS)
            case Cause.SLOW:
                self.proxy.delay(_LATE_SECONDS, Rule(name=_DEVICES))
                emulator.occur(LATE_CHIP, SEPARATING)
            case Cause.AWAY:
                self.proxy.refuse_connections()
            case Cause.KILLED:
                self.node.kill()
            case Cause.NO_LEADER:
                self.aggregator.stop()

    def end(self, cause: Cause) -> bool:
        """End a cause that would be in the way of the next; return whether it is one."""
        match cause:
            case Cause.REFUSED:
                # Nothing is left to write, so nobody waits for the next attempt.
                self.node.emulator.recover(LATE_CHIP, SEPARATING)
                self.node.emulator.bmc.alarms(_FANS[:1])
                self.proxy.relent()
            case Cause.SLOW:
                self.proxy.relent()
            case Cause.AWAY:
                self.proxy.accept_connections()
            case _:
                return False
        return True

    async def _put(self, cause: Cause) -> None:
        store = open_store("kubernetes:", self.plane.kubeconfig)
        if cause is Cause.SWITCH:
            await store.put(with_switch(OTHER, "Separate", "UnHealthy"))
        else:
            await store.put(document("sent", fault_message(one(node=self.node.name))))
        await store.close()

    def _write(self) -> None:
        asyncio.run(self._keep_writing())

    async def _keep_writing(self) -> None:
        """Be other programs: heartbeats of another time, and writes of a foreign document."""
        store = open_store("kubernetes:", self.plane.kubeconfig)
        while not self._ended.is_set():
            if self._clock_is_off.is_set():
                ahead_ms = int(time.time() * 1000) + _HOUR_MS
                await store.beat(Beat(AHEAD, "its host", 1, ahead_ms))
            if self._stranger_writes.is_set():
                self.node.place.write(_NODES, {_NODES: "{}"})
            await time_passes(_WRITE_SECONDS)
        await store.close()

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        if self._others.ident is not None:
            self._others.join()
        self._watched.close()


@pytest.fixture
def cluster(tmp_path: Path, built: Path, control_plane: ControlPlane) -> Iterator[Cluster]:
    with ApiProxy(control_plane) as proxy:
        cluster = Cluster(tmp_path, built, control_plane, proxy)
        with contextlib.closing(cluster):
            cluster.start()
            yield cluster


_TOGETHER = tuple(Cause)[: tuple(Cause).index(Cause.REFUSED)]
_STEPS = (_TOGETHER, *((cause,) for cause in Cause if cause not in _TOGETHER))


def test_each_query_changes_its_answer_when_its_cause_is_made(cluster: Cluster) -> None:
    asked = queries(*LANGUAGES)
    assert {query[:3] for query in asked} == CASES.keys()
    for causes in _STEPS:
        watched = [query for query in asked if query.case.cause in causes]
        assert {query.case.cause for query in watched} == {*causes}
        cluster.show_none_of(watched)
        for cause in causes:
            cluster.cause(cause)
        cluster.show_all_of(watched)
        if causes is _TOGETHER:
            assert_names_and_variables(cluster)
        if cluster.end(causes[-1]):
            cluster.show_none_of(watched)


def test_an_api_server_takes_the_config_maps(control_plane: ControlPlane) -> None:
    control_plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    for item in yaml.safe_load_all(CONFIG_MAPS.read_text(encoding="utf-8")):
        control_plane.apply(item)


def assert_names_and_variables(cluster: Cluster) -> None:
    """Check names of codes in each language, and that each list has what can be chosen."""
    reference = describe_code(SEPARATING)
    assert reference is not None
    for language in LANGUAGES:
        (query,) = (q for q in queries(language) if q[:2] == ("fleet", "faults"))
        shows_name = partial(cluster.shows_label, query, f"name_{language}")
        # A scrape that times out ends all samples until the next one.
        wait_until(partial(shows_name, reference.name(language)), f"the name in {language}")
    lists = {
        variable["query"]: variable["name"]
        for file in FOLDER.glob("*.json")
        for variable in content(file.stem)["templating"]["list"]
        if variable["type"] == "query" and not variable.get("hide")
    }

    def choices() -> dict[str, set[str]]:
        shown: dict[str, set[str]] = {}
        for query, name in lists.items():
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", replaced(query, "en", ".+"))
            assert match is not None, query
            samples = cluster.answer(f"count by ({match[2]}) ({match[1]})")
            shown[name] = {sample["metric"][match[2]] for sample in samples}
        return shown

    expected = {"job": {*_JOBS.split("|")}, "node": {cluster.node.name}}
    wait_until(lambda: choices() == expected, lambda: f"each list is complete: {choices()}")


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path, "{}")
    yield prometheus
    prometheus.stop()


def test_each_title_follows_the_language(prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.ask("query", query="vector(1)"), "Prometheus answers", 30)
    for dashboard in all_dashboards():
        file = content(dashboard.name)
        variables = {v["name"]: v for v in file["templating"]["list"]}
        for panel, shown in zip(dashboard.panels, file["panels"], strict=True):
            variable = variables[shown["title"].removeprefix("${").removesuffix("}")]
            query = variable["query"].removeprefix("query_result(").removesuffix(")")
            (sample,) = prometheus.ask("query", query=query)["result"]
            # Grafana makes such a text of a sample, and the expression takes the value from it.
            labels = ",".join(f'{name}="{value}"' for name, value in sample["metric"].items())
            for language, title in zip(LANGUAGES, (panel.english, panel.chinese), strict=True):
                expression = replaced(variable["regex"], language, "").strip("/")
                match = re.search(expression, f"{{{labels}}} 1 1795927949553")
                assert match is not None
                assert match[1] == title


@pytest.mark.parametrize(("leads", "expected"), [("b", 7), ("", 3)])
def test_the_leader_counts_and_without_one_the_aggregator_that_read_last(
    leads: str, expected: int, tmp_path: Path
) -> None:
    lost = {"a": 3, "b": 7}
    series = {}
    for name, value in lost.items():
        labels = f'instance="{name}:9821",job="npu-vigil-aggregator"'
        read = f'npu_vigil_heartbeats_last_read_age_seconds{{{labels},place="s"}}'
        series[f'npu_vigil_heartbeats{{{labels},state="lost"}}'] = value
        series[f"npu_vigil_aggregator_leader{{{labels}}}"] = int(name == leads)
        series[read] = {"a": 1, "b": 2}[name]
    (query,) = (query for query in queries("en") if query[:2] == ("fleet", "lost"))
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": f"{v}x4"} for name, v in series.items()],
        "promql_expr_test": [
            {
                "expr": query.expression,
                "eval_time": "1m",
                "exp_samples": [{"labels": "{}", "value": expected}],
            }
        ],
    }
    status, output = promtool(tmp_path, test, rules=None)
    assert status == 0, output
