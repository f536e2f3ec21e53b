"""Metric families made at a scrape from rows of label values and a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.core import Metric


def gauge(
    name: str, about: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a gauge."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counter(
    name: str, about: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a counter; ``_total`` is added to its name."""
    family = CounterMetricFamily(name, about, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def single_gauge(name: str, about: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, about, value=value)


def single_counter(name: str, about: str, value: float) -> Metric:
    """Return a counter without labels; ``_total`` is added to its name."""
    return CounterMetricFamily(name, about, value=value)
