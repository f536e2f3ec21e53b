"""A real Prometheus with the shipped rules, a real Alertmanager, and what it sends.

Durations of the rules are divided by one factor: ``for``, windows, ages, and how long a
publication may wait. Scrapes and what the product needs to notice a cause keep their time.
"""

from __future__ import annotations

import http.server
import json
import math
import re
import threading
import time
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from tests.alerts.files import MONITORING, RULES
from tests.parts.deadlines import patience, wait_until
from tests.parts.processes import Running, free_ports
from tests.parts.prometheus import Prometheus, configuration_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCRAPE_SECONDS = 1.0
"""A scrape that takes longer ends alerts, as if their causes had ended."""
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DURATIONS = re.compile(
    r"""(?P<before>
        ^\s+for:[ ] | \[ | time\(\)[ ]-[ ] |
        npu_vigil_publication_lag_seconds[^>\n]*[ ]>[ ]
    )(?P<number>\d+)(?P<unit>[smh]?)""",
    re.VERBOSE | re.MULTILINE,
)
"""Durations in the file of rules. A number without a unit is seconds, within an expression."""


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration in Prometheus' form, or of a number of seconds."""
    number, unit = (duration[:-1], duration[-1]) if duration[-1] in _UNITS else (duration, "s")
    return float(number) * _UNITS[unit]


def divided(text: str, factor: float) -> str:
    """Return rules with all their durations divided by ``factor``."""

    def shorter(match: re.Match[str]) -> str:
        seconds = seconds_of(match["number"] + match["unit"]) / factor
        shown = f"{seconds * 1000:.0f}ms" if match["unit"] else f"{seconds:g}"
        return f"{match['before']}{shown}"

    return _DURATIONS.sub(shorter, text)


def windows(expression: str) -> float:
    """Return how long the rule of an expression looks back, in seconds; 0 for one that does not."""
    durations = (
        seconds_of(match["number"] + match["unit"])
        for match in _DURATIONS.finditer(expression)
        if "lag_seconds" not in match["before"]
    )
    return max(durations, default=0)


class Notice(NamedTuple):
    """An alert in a message of Alertmanager; ``at`` is when it came, by ``time.monotonic``."""

    at: float
    status: str
    labels: Mapping[str, str]
    receiver: str


class Receiver:
    """Takes the messages of Alertmanager; the path of a message is the name of its receiver."""

    def __init__(self) -> None:
        notices: list[Notice] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                at, receiver = time.monotonic(), self.path.strip("/")
                notices.extend(
                    Notice(at, alert["status"], alert["labels"], receiver)
                    for alert in message["alerts"]
                )
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.notices = notices
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Alertmanager:
    """A real Alertmanager with the shipped routes; only its pauses and addresses are others."""

    def __init__(self, directory: Path, receiver: str) -> None:
        text = (MONITORING / "alertmanager.yml").read_text(encoding="utf-8")
        configuration = yaml.safe_load(text.replace("http://bridge.example:8060", receiver))
        configuration["route"] |= {"group_wait": "0s", "group_interval": "1s"}
        file = directory / "alertmanager.yml"
        file.write_text(json.dumps(configuration))
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._running = Running(
            [
                *("prometheus-alertmanager", f"--config.file={file}", "--log.level=warn"),
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={self.address}",
                "--cluster.listen-address=",
            ],
            directory / "alertmanager.log",
        )

    def is_ready(self) -> bool:
        """Return whether it takes alerts."""
        try:
            urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=patience(5)).close()
        except OSError:
            return False
        return True

    def post(self, labels: Mapping[str, str], *, is_over: bool = False) -> None:
        """Post an alert with ``labels`` as Prometheus does, or its end."""
        at = datetime.now(UTC)
        times = {"startsAt": at.isoformat()} | ({"endsAt": at.isoformat()} if is_over else {})
        urllib.request.urlopen(
            urllib.request.Request(
                f"http://{self.address}/api/v2/alerts",
                json.dumps([{"labels": labels, **times}]).encode(),
                {"Content-Type": "application/json"},
            ),
            timeout=patience(5),
        ).close()

    def stop(self) -> None:
        """End it."""
        self._running.stop()


class Targets(NamedTuple):
    """Addresses of agents, by the names of their nodes, and of the other daemons."""

    agents: Mapping[str, str]
    aggregators: tuple[str, ...]
    elastic: tuple[str, ...] = ()


class Watcher:
    """Prometheus and Alertmanager on ``targets``; runs from its creation until ``close``.

    ``factor`` divides the durations of the rules; with 1 the shipped file is used as it is.
    """

    def __init__(
        self,
        directory: Path,
        targets: Targets,
        factor: float,
        scrape_seconds: float = SCRAPE_SECONDS,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._targets = targets
        self.scrape_seconds = scrape_seconds
        rules = RULES.read_text(encoding="utf-8")
        (directory / "rules.yml").write_text(rules if factor == 1 else divided(rules, factor))
        self._receiver = Receiver()
        self._alertmanager = Alertmanager(directory, self._receiver.url)
        self._start_prometheus()
        number = sum(map(len, targets))
        wait_until(lambda: len(self.ask("up == 1")) == number, "Prometheus scrapes all", 60, 0.2)

    def _start_prometheus(self) -> None:
        self._prometheus = Prometheus(self._directory, json.dumps(self._configuration()))

    def restart_prometheus(self) -> None:
        """End Prometheus and start it on its data; wait until it answers."""
        self._prometheus.stop()
        self._start_prometheus()
        wait_until(lambda: self._prometheus.ask("alerts") is not None, "it answers", 60, 0.1)

    def _configuration(self) -> dict[str, Any]:
        every_ms = round(self.scrape_seconds * 1000)
        return {
            **configuration_of(*self._targets, every_ms=every_ms, timeout_ms=every_ms),
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [self._alertmanager.address]}]}]
            },
        }

    def ask(self, query: str) -> list[Any]:
        """Return the series of an instant query; none while Prometheus gives no answer."""
        answer = self._prometheus.ask("query", query=query)
        return [] if answer is None else list(answer["result"])

    def alerts(self, *states: str) -> dict[str, dict[str, Any]]:
        """Return the alerts of Prometheus in one of ``states``, by name."""
        answer = self._prometheus.ask("alerts")
        assert answer is not None, "Prometheus must answer, or no alert would mean nothing"
        alerts = answer["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] in states}

    def fire(self, *names: str, seconds: float = 30.0) -> dict[str, dict[str, Any]]:
        """Wait until the alerts ``names`` fire, and return all that do."""
        wait_until(
            lambda: self.alerts("firing").keys() >= {*names},
            lambda: f"{names} fire; these do: {sorted(self.alerts('firing'))}",
            seconds,
            0.2,
        )
        return self.alerts("firing")

    def resolve(self, seconds: float = 60.0) -> None:
        """Wait until no alert is pending or fires."""
        wait_until(
            lambda: not self.alerts("firing", "pending"),
            lambda: f"all are resolved; these are not: {sorted(self.alerts('firing', 'pending'))}",
            seconds,
            0.2,
        )

    def notices(self, since: Mapping[str, float], status: str) -> dict[str, Notice]:
        """Return the first notice with ``status`` of each alert after its time in ``since``."""
        first: dict[str, Notice] = {}
        for notice in [*self._receiver.notices]:
            name = notice.labels["alertname"]
            if notice.status == status and notice.at >= since.get(name, math.inf):
                first.setdefault(name, notice)
        return first

    def close(self) -> None:
        """End all of it."""
        self._prometheus.stop()
        self._alertmanager.stop()
        self._receiver.close()
