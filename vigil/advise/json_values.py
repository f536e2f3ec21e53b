"""Cuts a dump into its objects without reading them, and names the line of one.

A dump of a large cluster has hundreds of megabytes: objects stay bytes until each is read. YAML is
parsed as a whole and becomes JSON, so its size is limited.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from contract.errors import ConfigurationError, Problem
from contract.validation_texts import CUT_OFF, decode_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTE = re.compile(r" at byte (\d+)$")
_SOLID = re.compile(rb"\S")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


MAX_YAML_BYTES = 64 << 20
"""YAML takes some ten times as long as JSON, and memory for all of its values at once."""
KUBECTL = (
    "kubectl get nodes,pods,podgroups.scheduling.volcano.sh,jobs.batch.volcano.sh,ascendjobs,"
    "replicasets,configmaps,deployments,statefulsets,leaderworkersets,stormservices,rolesets,"
    "podsets,inferenceservices.ome.io -A -o json"
)
"""What makes a dump. ``kubectl`` refuses kinds that a cluster does not have: leave these out."""
INSTEAD = f"write a dump with: {KUBECTL} > cluster.json"

_LAST_MS = 253_402_300_799_999
"""The end of the year 9999: dates go no further."""


class JsonEnvelope(msgspec.Struct):
    """A List as ``kubectl`` prints it, a session of JSON Lines, or one object.

    ``items`` is ``None`` where there is no such member.
    """

    kind: str = ""
    now_ms: Annotated[int, msgspec.Meta(ge=0, le=_LAST_MS)] | None = None
    first_session: bool = False
    items: list[msgspec.Raw] | None = None


class JsonValue(msgspec.Struct):
    """One JSON value of a source. ``text`` is the value, ``line`` the number of its first line.

    ``item_lines`` are those of the items where ``text`` was made of YAML.
    """

    source: str
    line: int
    text: bytes
    outer: JsonEnvelope
    item_lines: tuple[int, ...] = ()

    def lines(self, wanted: set[int]) -> dict[int, int]:
        """Return the line of each of these items."""
        if self.item_lines:
            return {index: self.item_lines[index] for index in wanted}
        counts: dict[int, int] = {}
        place, line = 0, self.line
        for index, item in enumerate(self.outer.items or ()):
            text = bytes(item)
            # From the end of the item before: the same text may stand earlier, too.
            begin = self.text.index(text, place)
            line += self.text.count(b"\n", place, begin)
            if index in wanted:
                counts[index] = line
                if len(counts) == len(wanted):
                    break
            place = begin + len(text)
            line += text.count(b"\n")
        return counts


_outer = msgspec.json.Decoder(JsonEnvelope)


def parts_of(content: bytes, source: str) -> Iterator[JsonValue]:
    """Yield the values in ``content``: one JSON value, one on each line, or those of YAML.

    Raises ``ConfigurationError`` with the line of what is neither.
    """
    content = content.removeprefix(_BYTE_ORDER_MARK)
    if _SOLID.search(content) is None:
        raise ConfigurationError(source, [Problem("line 1", "is empty: no object is in it")])
    # Each JSON value of a dump is an object, so anything else is read as YAML.
    if content.lstrip()[:1] != b"{":
        yield from _yaml_parts(content, source)
        return
    if not _is_lines(content):
        yield JsonValue(source, 1, content, _decoded(content, source, 1))
        return
    begin, line = 0, 0
    while begin < len(content):
        end = content.find(b"\n", begin)
        end = len(content) if end < 0 else end
        line += 1
        text = content[begin:end].strip()
        begin = end + 1
        if text:
            yield JsonValue(source, line, text, _decoded(text, source, line))


def _is_lines(content: bytes) -> bool:
    """Return whether the first line is a whole value and another follows; copy no other line."""
    begin = _SOLID.search(content)
    end = content.find(b"\n", begin.start()) if begin is not None else -1
    following = _SOLID.search(content, end) if end >= 0 else None
    if begin is None or following is None:
        return False
    first = content[begin.start() : end].rstrip()
    try:
        msgspec.json.decode(first, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        # A first line that is cut off looks like the first line of an indented value.
        return first[:1] == b"{" and len(first) > 1 and following[0] == b"{"
    return True


def _decoded(text: bytes, source: str, line: int) -> JsonEnvelope:
    try:
        return _outer.decode(text)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ConfigurationError(source, [_problem(text, line, error)]) from None


def _problem(text: bytes, line: int, error: Exception) -> Problem:
    message = decode_text(error)
    if isinstance(error, msgspec.ValidationError):
        return Problem(f"line {line}", f"is neither a List nor a session: {message}; {INSTEAD}")
    at = _BYTE.search(message)
    if at is not None:
        line += text.count(b"\n", 0, int(at[1]))
    elif message == CUT_OFF:
        line += text.rstrip().count(b"\n")
    return Problem(f"line {line}", message)


def _yaml_parts(content: bytes, source: str) -> Iterator[JsonValue]:
    """Yield the documents of YAML as JSON values: Lists, or single objects."""
    if len(content) > MAX_YAML_BYTES:
        text = f"is YAML of {len(content) >> 20} MiB, and {MAX_YAML_BYTES >> 20} MiB are read"
        raise ConfigurationError(source, [Problem("file", f"{text}; {INSTEAD}")])
    # Its import takes as long as reading a small dump.
    from vigil.advise.yaml_values import UnreadableYaml, documents_of

    try:
        for item in documents_of(content):
            outer = _decoded(item.text, source, item.line)
            yield JsonValue(source, item.line, item.text, outer, item.item_lines)
    except UnreadableYaml as error:
        text = f"is neither JSON nor YAML of objects: {error}; {INSTEAD}"
        raise ConfigurationError(source, [Problem(f"line {error.line}", text)]) from None
