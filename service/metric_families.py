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


def fault_info(codes: Iterable[str]) -> Metric:
    """Return the names of each of ``codes``, for a join in a rule; a series a code."""
    rows = []
    sorted_codes = sorted(set(codes))
    if sorted_codes:
        # The tables of names are large: an agent without a fault never loads them.
        from contract.codes.reference import describe_code
    for code in sorted_codes:
        reference = describe_code(code)
        names = ("", "") if reference is None else (reference.name("en"), reference.name("zh"))
        rows.append(((code, *names), 1))
    return gauge(
        "npu_vigil_fault_info",
        "Names of a code that holds now (1); empty for a code without a name.",
        ["code", "name_en", "name_zh"],
        rows,
    )


def single_gauge(name: str, about: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, about, value=value)


def single_counter(name: str, about: str, value: float) -> Metric:
    """Return a counter without labels; ``_total`` is added to its name."""
    return CounterMetricFamily(name, about, value=value)
