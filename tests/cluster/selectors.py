"""Label and field selectors as an API server reads them, of the kinds that clients use."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMA = re.compile(r",(?![^(]*\))")
_TERM = re.compile(r"(?P<key>[^=!]+?)(?P<sign>==|!=|=)(?P<value>.*)")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<sign>in|notin)\s+\((?P<values>[^)]*)\)")


def selects(query: Mapping[str, str], item: dict[str, Any]) -> bool:
    """Return whether the selectors of a request's query select the object."""
    labels = item["metadata"].get("labels") or {}
    return all(
        _label_holds(term, labels) for term in _terms(query.get("labelSelector", ""))
    ) and all(_field_holds(term, item) for term in _terms(query.get("fieldSelector", "")))


@functools.lru_cache(maxsize=256)
def _terms(text: str) -> tuple[str, ...]:
    return tuple(term for term in _COMMA.split(text) if term)


def _label_holds(term: str, labels: Mapping[str, str]) -> bool:
    if found := _SET.fullmatch(term):
        values = [value.strip() for value in found["values"].split(",")]
        return (labels.get(found["key"]) in values) == (found["sign"] == "in")
    if found := _TERM.fullmatch(term):
        return (labels.get(found["key"]) == found["value"]) == (found["sign"] != "!=")
    return term[1:] not in labels if term.startswith("!") else term in labels


def _field_holds(term: str, item: dict[str, Any]) -> bool:
    found = _TERM.fullmatch(term)
    assert found is not None, f"no field selector: {term}"
    value: Any = item
    for key in found["key"].split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return ((value or "") == found["value"]) == (found["sign"] != "!=")
