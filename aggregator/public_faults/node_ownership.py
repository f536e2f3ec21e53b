"""Separates what belongs to a document of one node from the rest: that node, and one resource.

The writer there may be the node alone, with nothing but its own certificate or token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import Problem, quoted
from contract.names import PUBLIC_FAULT_LABEL, owner_of
from contract.refusal import Reason
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.public_faults.values import PublicFaultReport
    from contract.names import DocumentOwner

_SHOWN = 3


class Foreign(msgspec.Struct, frozen=True):
    """The part of a message that does not belong to the place of its document, and the reason."""

    reason: Reason
    problem: Problem


def owner_at(place: str) -> DocumentOwner | None:
    """Return the node that the document at ``place`` (``namespace/name``) belongs to, if any."""
    return owner_of(place.partition("/")[2])


def foreign_kind(owner: DocumentOwner) -> Foreign | None:
    """Return why a document of ``owner`` can carry no message; ``None`` where it can."""
    if owner.resource is not None:
        return None
    what = (
        f"{PUBLIC_FAULT_LABEL[0]} is ignored: by its name this is a document of node "
        f"{_shown(owner.node)} that carries no public faults"
    )
    return Foreign(Reason.OTHER_KIND, Problem("metadata.labels", what))


def foreign_resource(owner: DocumentOwner, resource: str) -> Foreign | None:
    """Return why a message of ``resource`` does not belong to ``owner``; ``None`` where it does."""
    if resource == owner.resource:
        return None
    what = f"is {_shown(resource)}, only {owner.resource!r} is taken from a document of this name"
    return Foreign(Reason.OTHER_RESOURCE, Problem("resource", what))


def split_foreign(
    owner: DocumentOwner, reports: Iterable[PublicFaultReport]
) -> tuple[list[PublicFaultReport], Foreign | None]:
    """Return the reports about the own node, and what names others.

    A serial number counts as another node, because other writers decide to which node it belongs.
    """
    own: list[PublicFaultReport] = []
    others: dict[str, None] = {}
    for one in reports:
        if one.node == owner.node:
            own.append(one)
        else:
            others[one.node or f"serial number {one.serial_number}"] = None
    if not others:
        return own, None
    names = shortened([_shown(one) for one in others], _SHOWN)
    what = f"is about {names}; a document of node {_shown(owner.node)} counts for that node only"
    return own, Foreign(Reason.OTHER_NODE, Problem("influence", what))


def belongs(place: str, report: PublicFaultReport) -> bool:
    """Return whether ``report`` belongs to the document at ``place``."""
    owner = owner_at(place)
    return owner is None or (report.resource == owner.resource and report.node == owner.node)


def _shown(name: str) -> str:
    return quoted(repr(name))
