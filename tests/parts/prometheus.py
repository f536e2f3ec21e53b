"""A real Prometheus for tests, with its configuration in a folder of its own."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.parts.deadlines import patience
from tests.parts.processes import Running, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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


def with_short_for(rules: str) -> str:
    """Return ``rules`` with each ``for`` as 1 s: a rule that uses a window or a time keeps it."""
    return re.sub(r"^( +for: )(?!0s).*$", r"\g<1>1s", rules, flags=re.MULTILINE)


def configuration_of(
    agents: Mapping[str, str],
    aggregators: Sequence[str],
    elastic: Sequence[str] = (),
    *,
    every_ms: int,
    timeout_ms: int,
) -> dict[str, Any]:
    """Return the configuration with ``rules.yml`` and addresses of daemons, agents by node."""
    targets: dict[str, list[dict[str, object]]] = {
        "npu-vigil-agent": [
            {"targets": [address], "labels": {"node": node}} for node, address in agents.items()
        ],
        "npu-vigil-aggregator": [{"targets": [*aggregators]}],
        "npu-vigil-elastic": [{"targets": [*elastic]}],
    }
    return {
        "global": {
            "scrape_interval": f"{every_ms}ms",
            "scrape_timeout": f"{timeout_ms}ms",
            "evaluation_interval": f"{every_ms}ms",
        },
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": static} for job, static in targets.items()
        ],
    }
