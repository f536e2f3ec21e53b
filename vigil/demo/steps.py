"""What can happen in the demo, to hardware and by the operator, and what is expected then.

A role is a node of the story. With fewer nodes than roles several roles share a node, which works
because no two roles use the same chip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Occur:
    """A fault begins."""

    role: int
    chip: int
    code: str


@dataclass(frozen=True)
class Recover:
    """A fault ends."""

    role: int
    chip: int
    code: str


@dataclass(frozen=True)
class Drop:
    """A card falls off the bus."""

    role: int
    chip: int


@dataclass(frozen=True)
class Return:
    """A dropped card is back."""

    role: int
    chip: int


@dataclass(frozen=True)
class Hang:
    """A driver call on one chip does not return any more."""

    role: int
    chip: int


@dataclass(frozen=True)
class Unhang:
    """The hanging driver call returns again."""

    role: int
    chip: int


@dataclass(frozen=True)
class KillAgent:
    """SIGKILL for the agent of a node."""

    role: int


@dataclass(frozen=True)
class StartAgent:
    """The agent of a node is started again."""

    role: int


@dataclass(frozen=True)
class LoseNext:
    """The emulator loses the next event and its entry in the list: the demo must notice."""

    role: int


@dataclass(frozen=True)
class Link:
    """The network link of a chip goes down or comes back."""

    role: int
    chip: int
    up: bool


@dataclass(frozen=True)
class Alarm:
    """The BMC raises an alarm about a part of the server, or takes it back."""

    role: int
    part: str
    index: int
    code: str
    active: bool


@dataclass(frozen=True)
class LockUp:
    """The kernel of a node says that a processor is stuck; it never says that one is free again."""

    role: int


@dataclass(frozen=True)
class Dpc:
    """The process of a node's storage client DPC dies or works again."""

    role: int
    works: bool


@dataclass(frozen=True)
class Port:
    """A port of the on-board switch fails or recovers; ``peer`` is what it leads to."""

    role: int
    switch: int
    port: int
    code: str
    active: bool


@dataclass(frozen=True)
class Once:
    """Something happens at a moment: the driver tells of it once, and lists nothing."""

    role: int
    chip: int
    code: str


@dataclass(frozen=True)
class Isolate:
    """The operator's policy for the cluster: who has ``code`` so many times is isolated.

    One that is ``cut_off`` arrives as half a text.
    """

    code: str
    times: int
    cut_off: bool = False


@dataclass(frozen=True)
class Judge:
    """The operator's levels for alarms of servers: ``code`` has ``level``, and no other has any."""

    code: str
    level: str


@dataclass(frozen=True)
class Release:
    """The operator releases an isolated chip by editing its node's document."""

    role: int
    chip: int


@dataclass(frozen=True)
class Tell:
    """The operator tells of a public fault of a chip, or that it is over."""

    role: int
    chip: int
    code: str
    stands: bool


Deed: TypeAlias = Isolate | Judge | Release | Tell
"""What the operator does."""

Action: TypeAlias = (
    Occur
    | Recover
    | Once
    | Drop
    | Return
    | Hang
    | Unhang
    | KillAgent
    | StartAgent
    | LoseNext
    | Link
    | Alarm
    | LockUp
    | Dpc
    | Port
)
"""What happens to hardware and processes."""

Levels: TypeAlias = dict[str, str]
"""Fault code to handling level of one chip; empty for a healthy chip."""


@dataclass(frozen=True)
class Step:
    """One thing that happens. ``expect`` tells what changes in the documents because of it.

    ``soon`` is what time alone makes of a chip: from here on either is right, until a later step
    expects it. ``parts`` and ``ports`` are levels of the server's parts and of switch ports, by
    role and name; ``None`` where one is well again. ``public`` are levels of public faults by role,
    chip (``None``: every one of the node) and code: told in messages, and in cluster-info only with
    a level; ``None`` where one is over. ``lost``
    is the node that must be published as lost, ``back`` the one that must no longer be. ``blind``
    is the chip that must be reported blind from here on, ``sighted`` the one that must no longer
    be. ``policy`` is what every agent must say of the operator's. ``holds_seconds`` is for how long
    of real time, since the step before began, what was expected then must stay; ``takes_seconds``
    how long what is expected now may take by itself.
    """

    title: str
    meaning: str
    pause_seconds: float = 2.5
    actions: tuple[Action | Deed, ...] = ()
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
