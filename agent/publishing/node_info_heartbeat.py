"""Node-info with the heartbeat in it, for readers of releases 5.0.1.1 to 6.0.RC.

It always exists and is written every interval. Seconds only grow: two beats of one second differ,
and so do those of a clock that was set back. While a root task makes no progress the beat does not
change; faults are published all the same. Source: ``docs/spec/noded.md#7.3``, 7.4 and 7.8.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from agent.publishing.node_info import NodeInfoDocument, generation_of, node_status
from agent.publishing.publisher import DesiredDocument
from contract.documents.node_info import (
    Generation,
    NodeBeat,
    decode_node_info,
    encode_beating_node_info,
    encode_node_beat,
)
from contract.errors import DocumentError
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.policy.state import PolicyState
    from stores.base import Document

JITTER = 0.1
"""Share of the interval: nodes that start together do not write together for ever."""


class NodeInfoBeat(Record, frozen=True):
    """The heartbeat in node-info; ``is_withheld`` is whether a root task makes no progress."""

    generation: Generation
    interval_seconds: float
    is_withheld: Callable[[], bool]


def whole_seconds(interval_seconds: float) -> int:
    """Return an interval in whole seconds, as old readers know it: no shorter than the real one."""
    return math.ceil(interval_seconds)


class NodeInfoHeartbeat(NodeInfoDocument):
    """The document of generation B or C. What upstream blanks at each start is never blanked."""

    def __init__(
        self,
        node: str,
        state: Callable[[], PolicyState],
        beating: NodeInfoBeat,
        own_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__(node, state, own_key)
        self._beating = beating
        self._pause_seconds = self._next_pause()
        self._beaten: int | None = None

    def observe_stored(self, existing: Document | None) -> None:
        """Take over the stored document, as ``NodeInfoDocument`` does, with its beat as the last
        one.
        """
        super().observe_stored(existing)
        record = self._read(existing)
        if record is not None and record.beat is not None:
            self._beaten = record.beat.at_seconds

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish now, without waiting for the BMC, as upstream did."""
        has_parts = self._beating.generation is Generation.C
        parts = self.known_parts() if has_parts else ()
        own_key = self._own_key()

        def stamped(stamp: int) -> Document:
            beat = NodeBeat(self._beat(stamp), whole_seconds(self._beating.interval_seconds))
            data = (
                encode_beating_node_info(parts, node_status(parts), beat)
                if has_parts
                else encode_node_beat(beat)
            )
            return self._document(data, own_key)

        return DesiredDocument(
            self._state().revision, (parts, own_key), stamped, self._pause_seconds
        )

    def _beat(self, stamp: int) -> int:
        self._pause_seconds = self._next_pause()
        # Readers see a stall by a beat that does not change, while faults are written (decision 8).
        if self._beaten is None or not self._beating.is_withheld():
            self._beaten = stamp
        return self._beaten

    def _next_pause(self) -> float:
        return self._beating.interval_seconds * random.uniform(1 - JITTER, 1 + JITTER)

    def blocks_updates(self, shown: Document) -> bool:
        """Return whether ``shown`` is of another generation: its readers must see it deleted
        (noded#7.10).
        """
        return generation_of(shown) is not self._beating.generation

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse ``document``."""
        record = decode_node_info(self.name, document.data)
        if record.generation is not self._beating.generation:
            raise DocumentError(self.name, "NodeInfo", "has not the members of its generation")
