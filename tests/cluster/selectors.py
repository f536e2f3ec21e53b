"""Label and field selectors as an API server reads them, of the kinds that clients use."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_COMMA = re.compile(r",(?![^(]*\))")
_TERM = re.compile(r"(?P<key>[^=!]+?)(?P<sign>==|!=|=)(?P<value>.*)")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<sign>in|notin)\s+\((?P<values>[^)]*)\)")


def selects(query: Mapping[str, str], item: dict[str, Any]) -> bool:
    """Return whether the selectors of a request's query select the object."""
    # Most requests have at most one of both, and a virtual day judges half a million objects.
    if text := query.get("labelSelector"):
        labels = item["metadata"].get("labels") or {}
        for holds in _label_terms(text):
            if not holds(labels):
                return False
    if text := query.get("fieldSelector"):
        for fits in _field_terms(text):
            if not fits(item):
                return False
    return True


def _terms(text: str) -> Iterator[str]:
    return (term for term in _COMMA.split(text) if term)


@functools.lru_cache(maxsize=256)
def _label_terms(text: str) -> tuple[Callable[[Mapping[str, str]], bool], ...]:
    return tuple(_label_term(term) for term in _terms(text))


@functools.lru_cache(maxsize=256)
def _field_terms(text: str) -> tuple[Callable[[dict[str, Any]], bool], ...]:
    return tuple(_field_term(term) for term in _terms(text))


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.fullmatch(term):
        key, is_in = match["key"], match["sign"] == "in"
        values = {value.strip() for value in match["values"].split(",")}
        return lambda labels: (labels.get(key) in values) == is_in
    if match := _TERM.fullmatch(term):
        key, value, is_equal = match["key"], match["value"], match["sign"] != "!="
        return lambda labels: (labels.get(key) == value) == is_equal
    if term.startswith("!"):
        return lambda labels: term[1:] not in labels
    return lambda labels: term in labels


def _field_term(term: str) -> Callable[[dict[str, Any]], bool]:
    match = _TERM.fullmatch(term)
    assert match is not None, f"no field selector: {term}"
    keys, expected, is_equal = match["key"].split("."), match["value"], match["sign"] != "!="

    def holds(item: dict[str, Any]) -> bool:
        value: Any = item
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return ((value or "") == expected) == is_equal

    return holds
