"""What the next leader needs to know of conditions, taints and rules (``aggregator.plugin``).

Which nodes were tainted and which rules were made, and which of these a person or another program
has removed: the next leader obeys a removal, too, also one that no leader has seen. Whether
conditions were written: if the option is off then, they are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

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

Row = TypeVar("Row")


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


class RuleRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The chip whose fault a rule is for. ``is_deleted``: by another one than the aggregator."""

    node: str
    chip: int
    is_deleted: bool = False


class _Options(msgspec.Struct, frozen=True):
    has_conditions: bool = False


_decode_taints = msgspec.json.Decoder(dict[str, TaintRow]).decode
_decode_rules = msgspec.json.Decoder(dict[str, RuleRow]).decode
_decode_options = msgspec.json.Decoder(_Options).decode


class _RowMemory(Persistent, Generic[Row]):
    """Rows by key, in buckets; ``changed`` is called when there is something to store.

    ``is_key`` refuses keys of an earlier leader: whoever may write its document must not make up
    names for pages and logs.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        decode: Callable[[str], dict[str, Row]],
        is_key: Callable[[str], bool],
    ) -> None:
        self._on_change = changed
        self._decode = decode
        self._is_key = is_key
        self._rows: dict[str, dict[str, Row]] = {}
        self._changed = ChangedBuckets()

    def items(self) -> list[tuple[str, Row]]:
        """Return all keys with their rows."""
        return [item for rows in self._rows.values() for item in rows.items()]

    def get(self, key: str) -> Row | None:
        """Return the row of a key; ``None`` where there is none."""
        return self._rows.get(bucket_of(key, _BUCKETS), {}).get(key)

    def put(self, key: str, row: Row | None) -> None:
        """Replace the row of a key; ``None`` removes it."""
        if self.get(key) == row:
            return
        bucket = bucket_of(key, _BUCKETS)
        rows = self._rows.setdefault(bucket, {})
        if row is None:
            del rows[key]
        else:
            rows[key] = row
        self._changed.add(bucket)
        self._on_change()

    @override
    def pop_changed(self) -> frozenset[str]:
        return self._changed.pop()

    @override
    def text(self, bucket: str) -> str | None:
        rows = self._rows.get(bucket)
        return msgspec.json.encode(dict(sorted(rows.items()))).decode() if rows else None

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        restored, problems = decoded(texts, self._decode)
        self._rows = {}
        self._changed.pop()
        for rows in restored.values():
            for key, row in rows.items():
                if self._is_key(key):
                    self._rows.setdefault(bucket_of(key, _BUCKETS), {})[key] = row
        return problems


class SignalMemory(_RowMemory[TaintRow]):
    """A row for each node that was tainted, and whether Nodes may have conditions of ours."""

    name = "scheduler-signals"

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed, _decode_taints, lambda node: node_name_problem(node) is None)
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

    @override
    def text(self, bucket: str) -> str | None:
        if bucket == _OPTIONS:
            return '{"has_conditions":true}' if self._has_conditions else None
        return super().text(bucket)

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        rows_of = {bucket: text for bucket, text in texts.items() if bucket != _OPTIONS}
        options, problems = decoded(
            {bucket: text for bucket, text in texts.items() if bucket == _OPTIONS}, _decode_options
        )
        # What cannot be read may have been true: to look once too often does no harm.
        self._has_conditions = bool(problems) or any(o.has_conditions for o in options.values())
        return [*super().restore(rows_of, now), *problems]


class RuleMemory(_RowMemory[RuleRow]):
    """A row for each rule, by its name."""

    name = "device-taints"

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed, _decode_rules, lambda name: name.startswith(RULE_PREFIX))
