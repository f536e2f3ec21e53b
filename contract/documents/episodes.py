"""What happened to a fault, as a node sends it to the aggregator."""

from __future__ import annotations

import msgspec

from contract.codes.levels import Severity
from contract.observation import Subject


class EpisodeEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of an episode: the journal's, with its place in it.

    ``sequence`` is the journal's row, ``place`` the change's number in that row; both together are
    unique in a journal. ``kind`` is a word of ``agent.policy.state.ChangeKind``. Levels are those
    that the code has on its subject, ``None`` where it has none. ``at_ms`` is Unix epoch
    milliseconds of the node's clock; ``because`` is for people. ``device_fault`` is the agent's
    answer; agents of earlier releases do not send it.
    """

    sequence: int
    place: int
    episode: str
    kind: str
    subject: Subject
    code: str
    at_ms: int
    old_level: str | None = None
    new_level: str | None = None
    severity: Severity | None = None
    because: str = ""
    device_fault: bool = False
