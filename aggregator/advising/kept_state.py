"""The scheduler's memory as persistent state, for the next leader.

Kept is what neither documents nor objects show: cached jobs, remaining retries, judged restarts,
and of nodes the lists and entries that a scheduler that starts would not have. A follower computes
sessions itself, so only an aggregator that starts takes this over. What cannot be read as a whole
is not used at all: then earlier sessions are not known.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import override

from advisor.options import Profile
from advisor.rescheduling.fault_pods import pod_of
from advisor.rescheduling.selection import JOB_STAGE
from advisor.scheduler_view.cluster_cache import has
from advisor.scheduler_view.document_entries import VolcanoDeviceEntry, VolcanoSwitchEntry
from advisor.scheduler_view.state import CachedJob, NodeMemory, SchedulerState, SeenConfigMap
from aggregator.plugin import Persistent
from aggregator.state_buckets import ChangedBuckets, bucket_of
from contract.plural import plural
from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from service.clock import Instant

_log = logging.getLogger(__name__)

_BUCKETS = 32
_MAX_BYTES = 800 * 1024
"""Of one bucket; a document takes 900 KB. A cached job of 8 pods has about 1.5 KB."""
_VERSION = 1
_HEAD = "last-head"
"""The bucket that is written after the others, and names them."""
_TOO_LARGE = "it was too large to be kept"


class _StateHead(msgspec.Struct, forbid_unknown_fields=True):
    """``is_known`` is that of the states, ``too_large`` whether a bucket is empty for its size.

    ``buckets`` are those that have a document.
    """

    version: int = 0
    is_known: dict[Profile, bool] = {}
    buckets: tuple[str, ...] = ()
    too_large: bool = False


class _Part(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The rows of one profile in a bucket, by the names that ``SchedulerState`` has for them."""

    jobs: dict[str, CachedJob] = {}
    retries: dict[str, int] = {}
    judged: dict[str, int] = {}
    memories: dict[str, NodeMemory] = {}
    devices: dict[str, VolcanoDeviceEntry] = {}
    switches: dict[str, VolcanoSwitchEntry] = {}
    configmaps: dict[str, SeenConfigMap] = {}


_ABOUT = {"devices": "device", "switches": "switch"}
_KINDS = _Part.__struct_fields__
_head = msgspec.json.Decoder(_StateHead)
_bucket = msgspec.json.Decoder(dict[Profile, _Part])
_encoder = msgspec.json.Encoder(order="deterministic")


class KeptState(Persistent):
    """The states of both profiles as a ``Persistent`` plugin.

    ``changed`` is called when state has to be stored, ``restored`` receives the restored states.
    """

    name = "advice"

    def __init__(
        self,
        restored: Callable[[Mapping[Profile, SchedulerState]], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._restored = restored
        self._has_begun = False
        self._rows = {kind: dict[Profile, dict[str, Any]]() for kind in _KINDS}
        """What is kept, by kind and profile."""
        self._parts: dict[str, dict[Profile, _Part]] = {}
        self._loose: dict[Profile, tuple[object, dict[str, frozenset[str]]]] = {}
        self._states: object = None
        self._large: set[str] = set()
        self._restored_buckets: set[str] = set()
        """Buckets that were restored and not rendered since."""
        self._texts: dict[str, str] = {}
        self._changed = ChangedBuckets()
        self._on_changed = changed

    def rendered(
        self, states: Mapping[Profile, SchedulerState], apart: Mapping[Profile, frozenset[str]]
    ) -> Mapping[str, str]:
        """Return the texts of the buckets that have changed; may run in a thread.

        ``apart`` are nodes whose lists nothing else shows.
        """
        if states is self._states:
            return {}
        self._states = states
        dirty, self._restored_buckets = self._restored_buckets, set()
        for profile, state in states.items():
            for kind, rows in self._now(profile, state, apart[profile]):
                before = self._rows[kind].get(profile, {})
                self._rows[kind][profile] = rows
                if rows is not before and rows != before:
                    dirty.update(self._moved(kind, profile, before, rows))
        texts = {bucket: self._text(bucket) for bucket in dirty}
        head = _StateHead(
            _VERSION,
            {profile: state.is_known for profile, state in states.items()},
            tuple(sorted({*self._texts, *texts} - {_HEAD})),
            bool(self._large),
        )
        text = _encoder.encode(head).decode()
        if self._texts.get(_HEAD) != text:
            texts[_HEAD] = text
        return texts

    def _text(self, bucket: str) -> str:
        parts = self._parts.get(bucket, {})
        text = _encoder.encode(
            {profile: part for profile, part in parts.items() if part != _Part()}
        )
        if len(text) <= _MAX_BYTES:
            self._large.discard(bucket)
            return text.decode()
        if not self._large:
            _log.error(
                "what the scheduler has in memory is not kept for the next leader:"
                " a document would have %d bytes, at most %d are written",
                *(len(text), _MAX_BYTES),
            )
        self._large.add(bucket)
        return "{}"

    def _now(
        self, profile: Profile, state: SchedulerState, apart: frozenset[str]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "jobs", state.jobs
        yield "retries", state.retries
        yield "judged", state.judged
        yield "memories", {name: state.memories[name] for name in apart if name in state.memories}
        unreadable = {
            key: configmap
            for key, configmap in state.configmaps.items()
            if not configmap.is_readable
        }
        yield "configmaps", unreadable
        seen = [
            (key, configmap.nodes, configmap.is_readable)
            for key, configmap in state.configmaps.items()
        ]
        key = (seen, len(state.devices), len(state.switches))
        loosely_kept = self._loose.get(profile)
        if loosely_kept is None or loosely_kept[0] != key:
            loose = {}
            for kind, entries in (("devices", state.devices), ("switches", state.switches)):
                documents = (
                    nodes
                    for name, nodes, is_readable in seen
                    if is_readable and has(name, _ABOUT[kind])
                )
                loose[kind] = frozenset(entries).difference(*documents)
            loosely_kept = self._loose[profile] = key, loose
        for kind, nodes in loosely_kept[1].items():
            entries = getattr(state, kind)
            yield kind, {node: entries[node] for node in nodes if node in entries}

    def _moved(
        self, kind: str, profile: Profile, before: Mapping[str, Any], now: Mapping[str, Any]
    ) -> Iterable[str]:
        """Replace the rows that changed; yield their buckets."""
        others = [key for key, row in now.items() if before.get(key) is not row]
        keys = [key for key in others if not _is_same(before.get(key), now[key])]
        for key in (*keys, *(before.keys() - now.keys())):
            bucket = _bucket_of(kind, key)
            parts = self._parts.setdefault(bucket, {each: _Part() for each in Profile})
            rows: dict[str, Any] = getattr(parts[profile], kind)
            if key in now:
                rows[key] = now[key]
            else:
                rows.pop(key, None)
            yield bucket

    def keep(self, texts: Mapping[str, str]) -> None:
        """Replace the texts of these buckets by those that ``rendered`` returned."""
        self._has_begun = True
        if texts:
            self._texts |= texts
            self._changed.add(*texts)
            self._on_changed()

    @override
    def pop_changed(self) -> frozenset[str]:
        return self._changed.pop()

    @override
    def text(self, bucket: str) -> str | None:
        return self._texts.get(bucket)

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """See ``Persistent``. A replica that has computed sessions itself ignores the texts."""
        if self._has_begun:
            return ()
        problems: tuple[str, ...] = ()
        states: dict[Profile, SchedulerState] = {}
        try:
            states = _states(texts, now.wall_ms // 1000)
        except ValueError as error:
            problems = (str(error),)
        self._texts = {} if problems else dict(texts)
        self._restored_buckets = self._texts.keys() - {_HEAD}
        self._changed = ChangedBuckets(texts if problems else ())
        self._restored(states)
        return problems


def _states(texts: Mapping[str, str], now: int) -> dict[Profile, SchedulerState]:
    """Decode the states of both profiles; none for no texts. Raises ``ValueError``."""
    if not texts:
        return {}
    try:
        head = _head.decode(texts.get(_HEAD, ""))
        if head.version != _VERSION:
            raise ValueError(f"{_HEAD}: version {head.version} is not {_VERSION}")
        if head.too_large:
            raise ValueError(_TOO_LARGE)
        missing = sorted(set(head.buckets) - texts.keys())
        if missing:
            raise ValueError(
                f"{plural(len(missing), 'document')} missing: the first one is {missing[0]}"
            )
        parts = [_bucket.decode(text) for name, text in sorted(texts.items()) if name != _HEAD]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(decode_text(error)) from None
    states = {}
    for profile in Profile:
        rows: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        for part in parts:
            for kind in _KINDS:
                rows[kind] |= getattr(part.get(profile, _Part()), kind)
        rows = {kind: dict(sorted(entries.items())) for kind, entries in rows.items()}
        is_known = head.is_known.get(profile, False)
        states[profile] = SchedulerState(is_known=is_known, session_at=now, **rows)
    return states


def _bucket_of(kind: str, key: str) -> str:
    name = pod_of(key) if kind == "judged" else key
    return bucket_of(name, _BUCKETS)


def _is_same(before: Any, now: Any) -> bool:
    """Return whether a row need not be written: pending sessions count up to the last stage."""
    if before is now or before == now:
        return True
    if not isinstance(now, CachedJob) or not isinstance(before, CachedJob):
        return False
    if min(before.pending, now.pending) <= JOB_STAGE:
        return False
    return msgspec.structs.replace(before, pending=now.pending) == now
