"""A report as one line of JSON, in pieces: placement pod by pod is large in a large cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.report import flat
from advisor.report_filter import changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.report import AdviceReport, Placement, PodRef

_encode = msgspec.json.Encoder().encode


def json_line(report: AdviceReport, base: AdviceReport | None) -> Iterator[bytes]:
    """Yield the line of ``report``; with ``base``, what assumptions change is in it too."""
    members = flat(msgspec.structs.replace(report, placement=()))
    if base is not None:
        members["what_if"] = changes(report, base)
    separator = b"{"
    for name, value in members.items():
        yield separator + _encode(name) + b":"
        if name == "placement":
            yield from _placement(report.placement)
        else:
            yield _encode(value)
        separator = b","
    yield b"}\n"


def _placement(groups: tuple[Placement, ...]) -> Iterator[bytes]:
    """Yield one object per pod, by namespace and name. The nodes of a group are encoded once."""
    pods: list[tuple[PodRef, int]] = []
    nodes: list[bytes] = []
    for index, group in enumerate(groups):
        pods += ((pod, index) for pod in group.pods)
        nodes.append(
            b',"accepts":' + _encode(group.accepts) + b',"refuses":' + _encode(group.refuses) + b"}"
        )
    pods.sort(key=lambda item: (item[0].namespace, item[0].name, item[0].uid))
    yield b"["
    separator = b""
    for pod, index in pods:
        # Without its closing brace: the encoded members of its group follow.
        yield separator + _encode(pod)[:-1] + nodes[index]
        separator = b","
    yield b"]"
