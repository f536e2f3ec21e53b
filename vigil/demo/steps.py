"""What can happen in the demo, to hardware and by the operator, and what is expected then.

A role is a node of the story. With fewer nodes than roles several roles share a node, which works
because no two roles use the same chip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class OccurAction:
    """A fault begins."""

    role: int
    chip: int
    code: str


@dataclass(frozen=True)
class RecoverAction:
    """A fault ends."""

    role: int
    chip: int
    code: str


@dataclass(frozen=True)
class DropAction:
    """A card falls off the bus."""

    role: int
    chip: int


@dataclass(frozen=True)
class ReturnAction:
    """A dropped card is back."""

    role: int
    chip: int


@dataclass(frozen=True)
class HangAction:
    """A driver call on one chip does not return any more."""

    role: int
    chip: int


@dataclass(frozen=True)
class UnhangAction:
    """The hanging driver call returns again."""

    role: int
    chip: int


@dataclass(frozen=True)
class KillAgentAction:
    """SIGKILL for the agent of a node."""

    role: int


@dataclass(frozen=True)
class StartAgentAction:
    """The agent of a node is started again."""

    role: int


@dataclass(frozen=True)
class LoseNextAction:
    """The emulator loses the next event and its entry in the list: the demo must notice."""

    role: int


@dataclass(frozen=True)
class LinkAction:
    """The network link of a chip goes down or comes back."""

    role: int
    chip: int
    up: bool


@dataclass(frozen=True)
class AlarmAction:
    """The BMC raises an alarm about a part of the server, or takes it back."""

    role: int
    part: str
    index: int
    code: str
    active: bool


@dataclass(frozen=True)
class LockUpAction:
    """The kernel of a node reports that a processor is stuck; it never reports that one is free."""

    role: int


@dataclass(frozen=True)
class DpcAction:
    """The process of a node's storage client DPC dies or works again."""

    role: int
    works: bool


@dataclass(frozen=True)
class PortAction:
    """A port of the on-board switch fails or recovers; ``peer`` is what it leads to."""

    role: int
    switch: int
    port: int
    code: str
    active: bool


@dataclass(frozen=True)
class OnceAction:
    """Something happens at a moment: the driver reports it once, and lists nothing."""

    role: int
    chip: int
    code: str


@dataclass(frozen=True)
class IsolateAction:
    """The operator's policy for the cluster: who has ``code`` so many times is isolated.

    One that is ``cut_off`` arrives as half a text.
    """

    code: str
    times: int
    cut_off: bool = False


@dataclass(frozen=True)
class JudgeAction:
    """The operator's levels for alarms of servers: ``code`` has ``level``, and no other has any."""

    code: str
    level: str


@dataclass(frozen=True)
class ReleaseAction:
    """The operator releases an isolated chip by editing its node's document."""

    role: int
    chip: int


@dataclass(frozen=True)
class ReportAction:
    """The operator reports a public fault of a chip, or its end."""

    role: int
    chip: int
    code: str
    stands: bool


Deed: TypeAlias = IsolateAction | JudgeAction | ReleaseAction | ReportAction
"""What the operator does."""

Action: TypeAlias = (
    OccurAction
    | RecoverAction
    | OnceAction
    | DropAction
    | ReturnAction
    | HangAction
    | UnhangAction
    | KillAgentAction
    | StartAgentAction
    | LoseNextAction
    | LinkAction
    | AlarmAction
    | LockUpAction
    | DpcAction
    | PortAction
)
"""What happens to hardware and processes."""

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
