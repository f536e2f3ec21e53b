"""``docs/metrics.md`` against two daemons in trouble, and against a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aggregator.processors import separation_documents
from aggregator.processors.separation_documents import POLICY_KEY, POLICY_NAME
from contract.documents.node_info import FaultDevice
from contract.names import CLUSTER_NAMESPACE
from service.pages.exposition import ExpositionFormat
from stores.address import open_store
from stores.base import Beat, Document
from stores.directory.beats import DirectoryHeartbeats
from stores.directory.owner import OwnerCheck
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import healthy, node_report, report, with_switch
from tests.aggregator.public_faults.messages import document, fault_message, one
from tests.aggregator.rank_tables.rings import rings
from tests.end_to_end.node import Node
from tests.parts.deadlines import patience, wait_until
from tests.parts.exposition import (
    AGENT,
    AGGREGATOR,
    EXPORTER,
    EXPORTER_TOOL,
    OPEN_METRICS,
    Kind,
    exporter,
    listed,
    scraped,
    series_of,
)
from tests.parts.fault_config import link_rule
from tests.parts.places import Folder
from tests.parts.prometheus import Prometheus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The driver is built and much has to go wrong before the first of them.
pytestmark = pytest.mark.timeout(120)

SHIPPED = Path(__file__).parents[2] / "monitoring" / "prometheus.yml"
CODES = (
    *("80E01801", "80C98008", "80E18402", "80CD8809", "8C204E00"),
    *("80F38008", "80F3A008", "8C1F8609", "81078603", "80E3A201"),
)
_INTERVAL_SECONDS = 0.5
_MAX_INCOMPLETE = 16
IMPATIENT = "tests.end_to_end.impatient"
POLICY = {
    POLICY_KEY: "enabled: true\n"
    "separate: {fault_window_hours: 24, fault_threshold: 3}\n"
    "release: {fault_free_hours: 48}\n"
}
"""The policy that upstream ships."""


def without_logins(section: str) -> dict[str, Kind]:
    """Return the metrics of a section that daemons without ``pages.users_file`` show.

    ``tests/service/login/test_check.py`` has the metric of logins.
    """
    return {n: k for n, k in listed(section).items() if n != "npu_vigil_http_logins_total"}


class Troubled:
    """An agent and an aggregator to whom everything happens that has a metric."""

    def __init__(self, directory: Path, built: Path) -> None:
        self._root = directory / "store"
        self.node = Node(directory / "node", built, Folder(self._root))
        self.node.environment["VIGIL_METRICS_NPU_EXPORTER_NAMES"] = "true"
        self.node.environment["VIGIL_LINKS_PERIOD_SECONDS"] = "1"
        self.node.environment |= link_rule(directory / "fault-config", 0, 60)
        self.node.options = ["--listen", "127.0.0.1:0"]
        self.aggregator = Daemon(directory / "aggregator", "--store", f"directory:{self._root}")
        self.aggregator.program = IMPATIENT
        self._lock = contextlib.ExitStack()
        self._ended = threading.Event()
        self._stranger = threading.Thread(target=self._overwrite, daemon=True)

    def start(self) -> None:
        """Start the node and the aggregator, and cause everything that the metrics count."""
        self.node.options += ["--heartbeat-generation", "cm-v6rc"]
        self.node.start((sys.executable, "-m", IMPATIENT))
        self.node.healthy()
        self._others()
        self.aggregator.start()
        self._fall_silent()
        for code in CODES:
            self.node.emulator.occur(2, code)
        self.node.emulator.hang("dcmi_get_device_errorcode_v2", 3)
        self.node.wait(lambda: "npu_vigil_blind{" in self.agent(), "a chip is blind", 30)
        self.node.wait(lambda: "npu_vigil_driver_stuck_calls{" in self.agent(), "it hangs", 30)
        self.node.wait(lambda: "npu_vigil_cluster_faults{" in self.cluster(), "it is merged", 30)
        for url in ((self.node.state_dir / "listen").read_text().strip(), self.aggregator.url):
            self._send_incomplete_requests(url)
        self._stranger.start()
        self.node.wait(lambda: "npu_vigil_foreign_writer{" in self.agent(), "a conflict", 30)
        self.node.wait(lambda: "npu_vigil_foreign_writer{" in self.cluster(), "a conflict", 30)
        # The aggregator stalls: it cannot write while another process has the lock.
        lock = (self._root / CLUSTER_NAMESPACE / ".lock").open()
        self._lock.enter_context(lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.node.emulator.occur(4, CODES[0])

    def _others(self) -> None:
        """Make another node's switches and server faulty, and send a public fault."""

        async def put() -> None:
            store = open_store(f"directory:{self._root}")
            await store.put(with_switch("other", "Separate", "UnHealthy"))
            await store.put(node_report("other", [FaultDevice("Fan", 4, ["06000025"], "x")], "x"))
            await store.put(document("sent", fault_message(one(node="other"))))
            # Heartbeats of this node will be of a clock that is an hour ahead.
            await store.put(report("ahead", healthy(int(time.time()))))
            await store.put(rings())
            await store.put(Document(separation_documents.NAMESPACE, POLICY_NAME, POLICY))
            await store.close()

        asyncio.run(put())

    def _fall_silent(self) -> None:
        """Send heartbeats of another node, then stop them; wait until the node is lost."""
        beats = DirectoryHeartbeats(self._root, OwnerCheck(self._root, others_may_write=False))
        beats.beat(Beat("gone", "its host", _INTERVAL_SECONDS, 1))
        self.node.wait(lambda: 'heartbeats{state="alive"} 1.0' in self.cluster(), "it beats", 10)
        beats.beat(Beat("gone", "its host", _INTERVAL_SECONDS, 2))
        self.node.wait(lambda: "npu_vigil_node_lost{" in self.cluster(), "it is lost", 20)

    def _send_incomplete_requests(self, url: str) -> None:
        """Open one connection more than an address may have incomplete requests."""
        host, _, port = url.removeprefix("http://").rpartition(":")
        for _ in range(_MAX_INCOMPLETE + 1):
            connection = socket.create_connection((host, int(port)), patience(5))
            self._lock.enter_context(connection)
            connection.sendall(b"GET / HTTP/1.1\r\n")

    def _overwrite(self) -> None:
        """Overwrite a document of each of the two, and send heartbeats of a clock that is an hour
        ahead, again and again.
        """
        beats = DirectoryHeartbeats(self._root, OwnerCheck(self._root, others_may_write=False))
        while not self._ended.wait(0.5):
            ahead_ms = int(time.time() * 1000) + 3_600_000
            beats.beat(Beat("ahead", "its host", _INTERVAL_SECONDS, ahead_ms))
            self.node.place.write(self.node.document, {"DeviceInfoCfg": "{}"})
            self.node.place.write("cluster-info-node-cm", {"cluster-info-node-cm": "{}"})

    def agent(self) -> str:
        """Return a scrape of the agent."""
        text = self.node.ask("/metrics")[1]
        assert isinstance(text, str)
        return text

    def cluster(self) -> str:
        """Return a scrape of the aggregator."""
        text = self.aggregator.ask("/metrics")[1]
        assert isinstance(text, str)
        return text

    def close(self) -> None:
        """End both."""
        self._ended.set()
        self._stranger.join()
        self._lock.close()
        self.aggregator.stop()
        self.node.close()


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[Troubled]:
    troubled = Troubled(tmp_path_factory.mktemp("troubled"), built)
    with contextlib.closing(troubled):
        troubled.start()
        yield troubled


def assert_lists(scrape: Callable[[], str], expected: dict[str, Kind]) -> None:
    """Scrape until all expected metrics occurred; check that no other or different ones did."""
    seen: dict[str, Kind] = {}

    def have_all_occurred() -> bool:
        seen.update(scraped(scrape()))
        return expected.keys() <= seen.keys()

    wait_until(have_all_occurred, lambda: f"missing: {expected.keys() - seen.keys()}", 15, 0.1)
    assert seen == expected


def all_of_the_agent() -> dict[str, Kind]:
    """Return all metrics that an agent with NPU exporter's names can show."""
    return without_logins(AGENT) | without_logins(EXPORTER) | without_logins(EXPORTER_TOOL)


def test_everything_that_an_agent_shows_is_listed_and_shown(troubled: Troubled) -> None:
    assert_lists(troubled.agent, all_of_the_agent())


def test_everything_that_an_aggregator_shows_is_listed_and_shown(troubled: Troubled) -> None:
    assert_lists(troubled.cluster, without_logins(AGGREGATOR))


def test_promtool_reports_nothing(troubled: Troubled) -> None:
    assert checked("metrics", stdin=troubled.agent()) == (0, "")
    assert checked("metrics", stdin=troubled.cluster()) == (0, "")
    status, output = checked("config", str(SHIPPED))
    assert (status, "SUCCESS" in output) == (0, True)


def test_both_forms_have_the_same_series_and_open_metrics_is_valid(troubled: Troubled) -> None:
    """Compare both forms, and check OpenMetrics by the parser of the library, which is strict.

    ``promtool check metrics`` cannot read OpenMetrics: it parses the text form only, and ends with
    'unknown metric type "info"'. A real Prometheus reads it below.
    """
    agent = (troubled.node.state_dir / "listen").read_text().strip()
    for url in (agent, troubled.aggregator.url):
        wait_until(partial(are_the_same, url), f"both forms of {url} have the same series", 20)
        text = exposition(url, OPEN_METRICS)
        assert text.count("# EOF") == 1
        assert text.endswith("\n# EOF\n")
        assert not re.search(r"^\S+_created[ {]", text, re.MULTILINE)
        assert not re.search(r"^# (HELP|TYPE) \S+_total ", text, re.MULTILINE)


def are_the_same(url: str) -> bool:
    """Return whether both forms have the same series now: one may begin or end between them."""
    return series_of(exposition(url, OPEN_METRICS)) == series_of(exposition(url, "text/plain"))


def exposition(url: str, accept: str) -> str:
    """Return the metrics of a daemon in the form that ``accept`` asks for."""
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=patience(5)) as response:
        text: str = response.read().decode()
    return text


def checked(what: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
    """Exit status and words of ``promtool check``."""
    done = subprocess.run(
        ["promtool", "check", what, *arguments],
        input=stdin,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("form", [ExpositionFormat.OPEN_METRICS, ExpositionFormat.TEXT])
def test_a_real_prometheus_finds_every_listed_metric(
    troubled: Troubled, tmp_path: Path, form: ExpositionFormat
) -> None:
    agent = (troubled.node.state_dir / "listen").read_text().strip()
    aggregator = troubled.aggregator.url
    with relay(agent, form) as agent, relay(aggregator, form) as aggregator:
        assert_scraped(agent, aggregator, tmp_path)


@contextlib.contextmanager
def relay(url: str, form: ExpositionFormat) -> Iterator[str]:
    """Serve the metrics of ``url``, and return the address.

    Prometheus itself asks for OpenMetrics: its request is passed on as it is, or without its
    ``Accept``.
    """

    def answer(path: str, accept: str) -> tuple[bytes, str]:
        asked = accept if form is ExpositionFormat.OPEN_METRICS else "text/plain"
        request = urllib.request.Request(url + path, headers={"Accept": asked})
        with urllib.request.urlopen(request, timeout=patience(5)) as response:
            body, content_type = response.read(), response.headers["Content-Type"]
        assert content_type == form.value
        return body, content_type

    with exporter(answer) as address:
        yield f"http://{address}"


def assert_scraped(agent: str, aggregator: str, tmp_path: Path) -> None:
    """Assert that Prometheus stores exactly the listed metrics of both addresses."""
    text = SHIPPED.read_text()
    for shipped, real in (("localhost:9820", agent), ("localhost:9821", aggregator)):
        assert text.count(shipped) == 1
        text = text.replace(shipped, real.removeprefix("http://"))
    prometheus = Prometheus(
        tmp_path,
        f"global: {{scrape_interval: {_ms(0.5)}, scrape_timeout: {_ms(0.4)}}}\n{text}",
    )
    expected = {
        "npu-vigil-agent": in_prometheus(all_of_the_agent()),
        "npu-vigil-aggregator": in_prometheus(without_logins(AGGREGATOR)),
    }
    try:
        running = prometheus.running
        running.wait_until(lambda: names_in(prometheus, "npu-vigil-agent") != set(), 20)
        for job, names in expected.items():
            running.wait_until(partial(has, prometheus, job, names), 20)
    finally:
        prometheus.stop()


def _ms(seconds: float) -> str:
    """Return the duration of a scrape as Prometheus reads it; a busy machine needs longer."""
    return f"{round(1000 * patience(seconds))}ms"


def in_prometheus(metrics: dict[str, Kind]) -> set[str]:
    """Return the names of the series that Prometheus stores for these metrics."""
    names = set()
    for name, kind in metrics.items():
        suffixes = ("_bucket", "_sum", "_count") if kind.type == "histogram" else ("",)
        names |= {f"{name}{suffix}" for suffix in suffixes}
    return names


def has(prometheus: Prometheus, job: str, names: set[str]) -> bool:
    """Return whether Prometheus has exactly these metrics from a job."""
    return names_in(prometheus, job) == names


def names_in(prometheus: Prometheus, job: str) -> set[str]:
    """Return the names of a job's metrics in Prometheus, except its own about the scrape."""
    names = prometheus.ask("label/__name__/values", **{"match[]": f'{{job="{job}"}}'})
    return {name for name in names or () if not name.startswith(("scrape_", "up"))}
