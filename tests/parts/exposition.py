"""Metrics as they are scraped, and as ``docs/metrics.md`` lists them."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from typing_extensions import override

from service.metric_families import single_gauge
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

RECORDED: dict[str, Any] = json.loads((VECTORS / "npu-exporter" / "a2.json").read_text())
"""Two scrapes of a real NPU exporter: what its metrics are, and values by metric and chip."""

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
AGENT, AGGREGATOR = "Agent", "Aggregator"
ON_KUBERNETES = "Agent on Kubernetes"
IN_SHADOW = "Agent in shadow"
AGENT_ON_MQTT = "Agent on MQTT"
KUBERNETES, GRPC = "Aggregator on Kubernetes", "Aggregator that serves gRPC"
ADVISING = "Aggregator that advises"
ELASTIC = "Elastic training"
CERTIFICATES = "Certificates"
EXPORTER = "NPU exporter's names"
EXPORTER_TOOL = "NPU exporter's names, from `hccn_tool`"

_CARD = frozenset(
    ("id", "model_name", "vdie_id", "pcie_bus_info", "namespace", "pod_name", "container_name")
)
_WORDS = {
    "card": _CARD,
    "card, with `name` for `model_name`": (_CARD - {"model_name"}) | {"name"},
}
_MADE_BY_HISTOGRAMS = ("le",)


OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""The header ``Accept`` of a client that prefers OpenMetrics, as Prometheus does."""


@contextlib.contextmanager
def exporter(answer: Callable[[str, str], tuple[bytes, str]]) -> Iterator[str]:
    """Serve what ``answer`` returns; yield ``HOST:PORT``.

    It gets the path and the header ``Accept``, and returns the body and its content type.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, content_type = answer(self.path, self.headers["Accept"])
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class OneGauge(Collector):
    """A collector with the gauge ``up``, whose value is ``value``."""

    def __init__(self, value: float = 1) -> None:
        self.value = value

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge."""
        yield single_gauge("up", "Whether it is up.", self.value)


def series_of(text: str) -> set[tuple[str, ...]]:
    """Return all series of a scrape in either form; each may occur once."""
    is_open = text.endswith("# EOF\n")
    parse = open_metrics_families if is_open else text_string_to_metric_families
    samples = [sample for family in parse(text) for sample in family.samples]
    series = {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items())))
        for sample in samples
    }
    assert len(series) == len(samples), "a series occurs twice"
    return series


class Kind(NamedTuple):
    """What a metric is."""

    type: str
    labels: frozenset[str]


def listed(section: str) -> dict[str, Kind]:
    """Return the metrics in the table of a section."""
    text = DOCUMENT.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found: dict[str, Kind] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            name, kind, labels, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            named = _WORDS.get(labels, frozenset(re.findall(r"`(\w+)`", labels)))
            found |= dict.fromkeys(_names(name), Kind(kind, named))
    return found


def _names(cell: str) -> list[str]:
    first, *last = re.findall(r"`(\w+)`", cell)
    if not last:
        return [first]
    begin, end = (int(name.rpartition("_")[2]) for name in (first, *last))
    return [f"{first.rpartition('_')[0]}_{number}" for number in range(begin, end + 1)]


def scraped(text: str) -> dict[str, Kind]:
    """Return the metrics that have a sample; each series may occur once.

    All series of one kind must have the same labels.
    """
    found: dict[str, Kind] = {}
    series = set()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            one = (sample.name, *sorted(sample.labels.items()))
            assert one not in series, f"twice: {one}"
            series.add(one)
            labels = frozenset(sample.labels) - frozenset(_MADE_BY_HISTOGRAMS)
            assert found.setdefault(name, Kind(family.type, labels)).labels == labels, name
    return found
