"""A step of the demo: what happens, and what the documents must show then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from vigil.demo.actions import Action


Levels: TypeAlias = dict[str, str]
"""Fault code to handling level of one chip; empty for a healthy chip."""


@dataclass(frozen=True)
class DemoStep:
    """One thing that happens. ``expect`` is what changes in the documents because of it.

    ``soon`` is what time alone makes of a chip: from here on either is right, until a later step
    expects it. ``parts`` and ``ports`` are levels of the server's parts and of switch ports, by
    role and name; ``None`` where one is well again. ``public`` are levels of public faults by role,
    chip (``None``: every one of the node) and code: in messages, and in cluster-info only with
    a level; ``None`` where one is over. ``lost`` is the node that must be published as lost,
    ``back`` the one that must no longer be. ``blind`` is the chip that must be reported blind from
    here on, ``sighted`` the one that must no longer be. ``policy`` is what every agent must report
    of the operator's. ``holds_seconds`` is for how long of real time, since the step before began,
    what was expected then must stay; ``takes_seconds`` how long what is expected now may take by
    itself.
    """

    title: str
    meaning: str
    pause_seconds: float = 2.5
    actions: tuple[Action, ...] = ()
    expect: dict[tuple[int, int], Levels] = field(default_factory=dict)
    soon: dict[tuple[int, int], Levels] = field(default_factory=dict)
    parts: dict[tuple[int, str], str | None] = field(default_factory=dict)
    ports: dict[tuple[int, str], str | None] = field(default_factory=dict)
    public: dict[tuple[int, int | None, str], str | None] = field(default_factory=dict)
    lost: int | None = None
    back: int | None = None
    blind: tuple[int, int] | None = None
    sighted: tuple[int, int] | None = None
    policy: Literal["in force", "refused"] | None = None
    holds_seconds: float = 0.0
    takes_seconds: float = 0.0
    unchanged: bool = False
    """The documents must stay as they are: there is no time of arrival to show."""
