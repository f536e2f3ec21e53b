"""What differs between two runs of the same call is replaced: times, paths, identifiers.

A text that a run prints becomes the same text in each run, so that it can be kept and compared.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_COLUMNS = 140
_MEASURED = re.compile(
    r".*(?:_seconds|_seconds_ago|_bytes|_readings|_total)|seconds|beats|bytes|checked|count|events|gaps|inputs|"
    r"next|number|pid|rows|rows_written|sequence|sum|through|writes"
)
"""Keys of JSON whose numbers depend on how long a run has taken."""
_BY_LOAD = re.compile(r"the journal failed \(a commit takes longer than")
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00| UTC)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d UTC", "<time>"),
        (r"\b20\d\d-\d\d-\d\d\b", "<day>"),
        (r"\bpython -m [\w.]*vigil\b", "vigil"),
        (r"\b1[6-9]\d{11}\b", "<ms>"),
        (r"\b1[6-9]\d{8}\b", "<s>"),
        (r"\b1\.[6-9]\d+e\+09\b", "<s>"),
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\b[0-9a-f]{64}\b", "<sha256>"),
        (r"(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{16}|(?<=_)[0-9a-f]{12})(?![0-9a-f])", "<id>"),
        (r"^[0-9a-f]{11}-\d+$", "<cursor>"),
        (r"^[0-9a-f]{11}$", "<epoch>"),
        (r"\bsubscriber \d+", "subscriber <pid>"),
        (r"\b\d+ inputs in \d+ rows", "<number> inputs in <number> rows"),
        (r"\ball \d+ recorded verdicts", "all <number> recorded verdicts"),
        (r"\b\d+\.\d+ s\b", "<seconds>"),
        (r"[─━]{2,}", "──"),
        (r"\b\d+(?:\.\d+)? (?:ms|s|min|h)(?= (?:ago|old))", "<age>"),
        (r"\b\d+ (?:秒|分钟|小时)(?=前)", "<age>"),
        (r"(?<=\S)  +", "  "),
        (r" +$", ""),
    )
)


def normal(text: str, places: Mapping[str, str]) -> str:
    """Return ``text`` as it is in each run. ``places`` has what to write for a text of this run."""
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    lines = []
    for line in text.splitlines():
        if _BY_LOAD.search(line):
            continue
        for pattern, replacement in _RULES:
            line = pattern.sub(replacement, line)
        lines.append(line)
    return "\n".join(lines)


def normal_json(text: str, places: Mapping[str, str]) -> str:
    """Return one JSON document, or several in lines, as in each run. Keys keep their order."""
    decode, end, lines = json.JSONDecoder().raw_decode, 0, []
    while end < len(text):
        document, end = decode(text, end)
        lines += _lines(_normal_value(document, places))
        end += len(text) - end - len(text[end:].lstrip())
    return "\n".join(lines)


def normal_metrics(text: str, places: Mapping[str, str]) -> str:
    """Return HELP, TYPE and series of metrics, without values; buckets of a histogram in a line."""
    lines: list[str] = []
    for line in normal(text, places).splitlines():
        series = line if line.startswith("#") else line.rpartition(" ")[0]
        bucket = re.search(r',?le="([^"]*)"', series)
        if bucket is not None:
            series = series.replace(bucket[0], "").replace("{,", "{")
            if lines and lines[-1].startswith(f"{series} le "):
                lines[-1] += f" {bucket[1]}"
                continue
            series += f" le {bucket[1]}"
        lines.append(series)
    return "\n".join(lines)


def _normal_value(value: Any, places: Mapping[str, str], key: str = "") -> Any:
    # Before the lines are laid out: what fits into one depends on the length of paths and times.
    match value:
        case dict():
            kept = key if _MEASURED.fullmatch(key) else ""
            return {
                normal(name, places): _normal_value(item, places, kept or name)
                for name, item in value.items()
            }
        case list() if key == "breaks":
            return "<list>"  # a disk that is busy while the recordings are made adds some
        case list() if key == "entries":
            return [_normal_value(item, places) for item in _without_gaps(value)]
        case list():
            return [_normal_value(item, places) for item in value]
        case str():
            return normal(value, places)
        case bool() | None:
            return value
        case _ if value and key.endswith("_ms"):
            return "<ms>"
        case _ if 1_600_000_000 < value < 2_000_000_000:
            return "<s>"
        case _ if _MEASURED.fullmatch(key):
            return "<number>"
    return value


def _without_gaps(entries: list[Any]) -> list[Any]:
    """Return the rows of a journal without its gaps, each with the snapshot that follows.

    A busy disk makes them: a commit that takes longer than 20 ms is one.
    """
    kinds = ["", *(entry.get("kind", "") for entry in entries)]
    return [
        entry
        for before, kind, entry in zip(kinds, kinds[1:], entries, strict=False)
        if kind != "gap" and (before, kind) != ("gap", "snapshot")
    ]


def _lines(value: Any, indent: str = "", head: str = "", tail: str = "") -> list[str]:
    """Return ``value`` in one line, where it fits, else each of its items by itself."""
    whole = f"{indent}{head}{json.dumps(value, ensure_ascii=False)}{tail}"
    if len(whole) <= _MAX_COLUMNS or not value or not isinstance(value, dict | list):
        return [whole]
    if isinstance(value, dict):
        items = [
            (f"{json.dumps(name, ensure_ascii=False)}: ", item) for name, item in value.items()
        ]
    else:
        items = [("", item) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = [f"{indent}{head}{opening}"]
    for number, (name, item) in enumerate(items, 1):
        lines += _lines(item, f"{indent} ", name, "," * (number < len(items)))
    return [*lines, f"{indent}{closing}{tail}"]
