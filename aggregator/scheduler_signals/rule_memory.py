"""Which rules were made, and which ones a person or another program has deleted.

The next leader obeys a deletion, too, also one that no leader has seen (``aggregator.plugin``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from aggregator.plugin import Persistent
from aggregator.state_buckets import ChangedBuckets, bucket_of, decoded
from contract.documents.device_taints import RULE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from service.clock import Instant

_BUCKETS = 16


class RuleRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The chip whose fault a rule is for. ``is_deleted``: by another one than the aggregator."""

    node: str
    chip: int
    is_deleted: bool = False


_decode = msgspec.json.Decoder(dict[str, RuleRow]).decode


class RuleMemory(Persistent):
    """A row for each rule; ``changed`` is called when there is one to store."""

    name = "device-taints"

    def __init__(self, changed: Callable[[], None]) -> None:
        self._on_change = changed
        self._rows: dict[str, RuleRow] = {}
        self._changed = ChangedBuckets()

    def items(self) -> Iterable[tuple[str, RuleRow]]:
        """Return all rules by name with their rows."""
        return tuple(self._rows.items())

    def put(self, name: str, row: RuleRow | None) -> None:
        """Replace the row of a rule; ``None`` removes it."""
        if self._rows.get(name) == row:
            return
        if row is None:
            del self._rows[name]
        else:
            self._rows[name] = row
        self._changed.add(bucket_of(name, _BUCKETS))
        self._on_change()

    @override
    def pop_changed(self) -> frozenset[str]:
        return self._changed.pop()

    @override
    def text(self, bucket: str) -> str | None:
        rows = {n: row for n, row in self._rows.items() if bucket_of(n, _BUCKETS) == bucket}
        return msgspec.json.encode(dict(sorted(rows.items()))).decode() if rows else None

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        restored, problems = decoded(texts, _decode)
        self._changed.pop()
        # Whoever may write the document must not make up names for pages and logs.
        self._rows = {
            name: row
            for rows in restored.values()
            for name, row in rows.items()
            if name.startswith(RULE_PREFIX)
        }
        return problems
