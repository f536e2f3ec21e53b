"""A real Prometheus for tests, with its configuration in a folder of its own."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.parts.deadlines import patience, wait_until
from tests.parts.processes import Running, free_ports

if TYPE_CHECKING:
    from pathlib import Path


class Prometheus:
    """Runs from its creation until ``stop``; ``configuration`` is the text of its file."""

    def __init__(self, directory: Path, configuration: str) -> None:
        file = directory / "prometheus.yml"
        file.write_text(configuration)
        (self._port,) = free_ports(1)
        self.running = Running(
            [
                *("prometheus", f"--config.file={file}", "--log.level=warn"),
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            directory / "prometheus.log",
        )

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API; ``None`` where it gives none yet."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=patience(5)) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def stop(self) -> None:
        """End it."""
        self.running.stop()


def start_with_rules(
    directory: Path, rules: str, node: str, agent_url: str, aggregator_url: str
) -> Prometheus:
    """Return one that has scraped the agent of ``node`` and an aggregator, with the alert rules.

    Only ``for`` is shortened, to 1 s: a rule that uses a window or a time keeps it.
    """
    quick = re.sub(r"^( +for: )(?!0s).*$", r"\g<1>1s", rules, flags=re.MULTILINE)
    (directory / "rules.yml").write_text(quick)
    targets: dict[str, dict[str, object]] = {
        "npu-vigil-agent": {"targets": [_address(agent_url)], "labels": {"node": node}},
        "npu-vigil-aggregator": {"targets": [_address(aggregator_url)]},
    }
    configuration = {
        "global": {
            "scrape_interval": "500ms",
            "scrape_timeout": "400ms",
            "evaluation_interval": "500ms",
        },
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [target]} for job, target in targets.items()
        ],
    }
    prometheus = Prometheus(directory, json.dumps(configuration))

    def scraped() -> bool:
        answer = prometheus.ask("query", query="up == 1")
        return answer is not None and len(answer["result"]) == len(targets)

    try:
        wait_until(scraped, "Prometheus scrapes both", 30, 0.2)
    except BaseException:
        prometheus.stop()
        raise
    return prometheus


def _address(url: str) -> str:
    return url.strip().removeprefix("http://")
