"""What the next leader needs to know of conditions, taints and rules (``aggregator.plugin``).

Which nodes were tainted and which rules were made, and which of these a person or another program
has removed: the next leader obeys a removal, too, also one that no leader has seen. Whether
conditions were written: if the option is off then, they are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from aggregator.plugin import Persistent
from aggregator.state_buckets import ChangedBuckets, bucket_of, decoded
from contract.documents.device_taints import RULE_PREFIX
from contract.names import node_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from service.clock import Instant

_BUCKETS = 16
_OPTIONS = "options"
"""The bucket of everything but rows."""


class TaintRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The taint of the Node with this uid, and the keys of the faults that it is for.

    ``removed_at_ms`` is the wall time at which it was removed by another one than the aggregator,
    0 while it stands. ``removed_by`` is the name under which the API server has that writer, empty
    where it is not known.
    """

    uid: str
    faults: tuple[str, ...]
    removed_at_ms: int = 0
    removed_by: str = ""

    @property
    def is_removed(self) -> bool:
        """Whether it was removed by another one."""
        return self.removed_at_ms > 0


class _Options(msgspec.Struct, frozen=True):
    has_conditions: bool = False


_decode = msgspec.json.Decoder(dict[str, TaintRow]).decode
_decode_options = msgspec.json.Decoder(_Options).decode


class SignalMemory(Persistent):
    """A row for each node that was tainted, and more; ``changed`` is called when there is
    something to store.
    """

    name = "scheduler-signals"

    def __init__(self, changed: Callable[[], None]) -> None:
        self._on_change = changed
        self._rows: dict[str, dict[str, TaintRow]] = {}
        self._changed = ChangedBuckets()
        self._has_conditions = False

    @property
    def has_conditions(self) -> bool:
        """Whether Nodes may have conditions of ours."""
        return self._has_conditions

    def note_conditions(self, *, are_there: bool) -> None:
        """Record whether Nodes may have conditions of ours."""
        if self._has_conditions is not are_there:
            self._has_conditions = are_there
            self._changed.add(_OPTIONS)
            self._on_change()

    def get(self, node: str) -> TaintRow | None:
        """Return the row of a node; ``None`` where there is none."""
        return self._rows.get(bucket_of(node, _BUCKETS), {}).get(node)

    def items(self) -> Iterable[tuple[str, TaintRow]]:
        """Return all nodes with their rows."""
        return [item for rows in self._rows.values() for item in rows.items()]

    def put(self, node: str, row: TaintRow | None) -> None:
        """Replace the row of a node; ``None`` removes it."""
        if self.get(node) == row:
            return
        bucket = bucket_of(node, _BUCKETS)
        rows = self._rows.setdefault(bucket, {})
        if row is None:
            del rows[node]
        else:
            rows[node] = row
        self._changed.add(bucket)
        self._on_change()

    @override
    def pop_changed(self) -> frozenset[str]:
        return self._changed.pop()

    @override
    def text(self, bucket: str) -> str | None:
        if bucket == _OPTIONS:
            return '{"has_conditions":true}' if self._has_conditions else None
        rows = self._rows.get(bucket)
        return msgspec.json.encode(dict(sorted(rows.items()))).decode() if rows else None

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        rows_of = {bucket: text for bucket, text in texts.items() if bucket != _OPTIONS}
        restored, problems = decoded(rows_of, _decode)
        options, more = decoded(
            {bucket: text for bucket, text in texts.items() if bucket == _OPTIONS}, _decode_options
        )
        # What cannot be read may have been true: to look once too often does no harm.
        self._has_conditions = bool(more) or any(o.has_conditions for o in options.values())
        self._rows = {}
        self._changed.pop()
        for rows in restored.values():
            for node, row in rows.items():
                # Whoever may write the document must not make up keys for pages and logs.
                if node_name_problem(node) is None:
                    self._rows.setdefault(bucket_of(node, _BUCKETS), {})[node] = row
        return [*problems, *more]


class RuleRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The chip whose fault a rule is for. ``is_deleted``: by another one than the aggregator."""

    node: str
    chip: int
    is_deleted: bool = False


_decode_rule = msgspec.json.Decoder(dict[str, RuleRow]).decode


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
        restored, problems = decoded(texts, _decode_rule)
        self._changed.pop()
        # Whoever may write the document must not make up names for pages and logs.
        self._rows = {
            name: row
            for rows in restored.values()
            for name, row in rows.items()
            if name.startswith(RULE_PREFIX)
        }
        return problems
