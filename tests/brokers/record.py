"""The results of ``make test-brokers``, and the table that ``docs/stores.md`` has of them."""

from __future__ import annotations

from pathlib import Path

import msgspec

FILE = Path(__file__).parent / "record.json"


class Result(msgspec.Struct, frozen=True, order=True):
    """What one broker serves; ``agent`` and ``aggregator`` are ``yes``, or begin with ``no``."""

    broker: str
    version: str
    protocol: str
    agent: str
    aggregator: str
    tried: str
    """The day, in ISO 8601."""


def read() -> tuple[Result, ...]:
    """Return the results of the last run."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[Result, ...])


def write(results: list[Result]) -> None:
    """Replace the results."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(sorted(results)), indent=2) + b"\n")


def table(results: tuple[Result, ...]) -> list[str]:
    """Return the lines of the table in ``docs/stores.md``."""
    rows = (msgspec.structs.astuple(one) for one in results)
    return [
        "| broker | version | MQTT | an agent is served | an aggregator is served | tried |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
