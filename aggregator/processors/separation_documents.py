"""The documents by which operators control manual separation: their form, read and shown.

``clusterd-config-cm`` has the policy, ``clusterd-manual-info-cm`` the separated chips, a key for
each node. Source: ``clusterd#2.7``, E27. Unlike there, a change counts at once, a value that cannot
be read releases no chip, and ``clusterd-manual-info-cm`` as it is read at the start is completed by
the persistent state.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.plugin import View
from aggregator.processors.frequent_fault_separation import NEVER, Codes, SeparationPolicy
from contract.codes.levels import ChipLevel
from contract.documents.cluster_info import VALUE_LIMIT
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int64, decode
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.processors.frequent_fault_separation import ManualSeparation, Separated
    from stores.base import WatchEvent

POLICY_NAME = "clusterd-config-cm"
POLICY_KEY = "manually_separate_policy.conf"
# The policy is a switch and three numbers (clusterd#2.7), so a longer text is an error or an
# attack.
_MAX_POLICY_CHARACTERS = 8 * 1024
_MAX_BRACKETS = 16
"""A reader of YAML needs a second for a thousand brackets within each other."""


def read_policy(data: Mapping[str, str]) -> SeparationPolicy:
    """Return the policy of the document; raises ``DocumentError`` for one that upstream refuses.

    A member that is missing is false or 0, as in Go, and 0 is out of every range.
    """
    text = data.get(POLICY_KEY)
    if text is None:
        raise DocumentError(POLICY_NAME, POLICY_KEY, "the data key is missing")
    if len(text) > _MAX_POLICY_CHARACTERS:
        raise DocumentError(
            POLICY_NAME, POLICY_KEY, f"has {len(text)} characters, at most {_MAX_POLICY_CHARACTERS}"
        )
    # Counted before the text is parsed, since the parsing itself is what takes long.
    if text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise DocumentError(POLICY_NAME, POLICY_KEY, f"has more than {_MAX_BRACKETS} brackets")
    tree = _section(_parsed(text), POLICY_KEY)
    separate = _section(tree.get("separate"), "separate")
    release = _section(tree.get("release"), "release")
    enabled = tree.get("enabled")
    # YAML 1.1 makes booleans of ``on`` and ``yes`` as well; any other value is refused.
    if enabled is not None and not isinstance(enabled, bool):
        raise DocumentError(POLICY_NAME, f"{POLICY_KEY}.enabled", "is neither true nor false")
    free = _number(release, "release", "fault_free_hours", NEVER, 240)
    # The range -1 to 240 has this gap: 0 would release a chip in the moment of its separation.
    if free == 0:
        raise DocumentError(
            POLICY_NAME, f"{POLICY_KEY}.release.fault_free_hours", "is 0: neither -1 nor 1..240"
        )
    return SeparationPolicy(
        enabled=bool(enabled),
        window_hours=_number(separate, "separate", "fault_window_hours", 1, 720),
        threshold=_number(separate, "separate", "fault_threshold", 1, 50),
        free_hours=free,
    )


def _parsed(text: str) -> Any:
    import yaml

    try:
        # Never the full loader: the document may come from whoever may write the ConfigMap.
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
    except Exception as error:  # what the library makes of a tag that does not fit its value
        reason = f"a value does not match its tag: {error!r}"
    raise DocumentError(POLICY_NAME, POLICY_KEY, f"is not valid YAML: {reason}")


def _section(tree: Any, name: str) -> dict[Any, Any]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise DocumentError(
            POLICY_NAME,
            POLICY_KEY if name == POLICY_KEY else f"{POLICY_KEY}.{name}",
            "is not a mapping",
        )
    return tree


def _number(section: dict[Any, Any], name: str, member: str, least: int, most: int) -> int:
    value = section.get(member)
    value = 0 if value is None else value
    where = f"{POLICY_KEY}.{name}.{member}"
    # ``bool`` is a subclass of ``int`` in Python: ``true`` would count as 1.
    if not isinstance(value, int) or isinstance(value, bool):
        raise DocumentError(POLICY_NAME, where, "is not a whole number")
    if not least <= value <= most:
        raise DocumentError(POLICY_NAME, where, f"is not between {least} and {most}")
    return value


CHIPS_NAME = "clusterd-manual-info-cm"
NAMESPACE = "cluster-system"
_LEVEL = ChipLevel.MANUALLY_SEPARATE_NPU.value


class _SeparatedFault(GoStruct, frozen=True):
    code: str = msgspec.field(default="", name="FaultCode")
    level: str = msgspec.field(default="", name="FaultLevel")
    separated_at_ms: Int64 = msgspec.field(default=0, name="LastSeparateTime")


class _Node(GoStruct, frozen=True):
    total: list[str] | None = msgspec.field(default=None, name="Total")
    detail: dict[str, list[_SeparatedFault] | None] | None = msgspec.field(
        default=None, name="Detail"
    )


def read_chips(node: str, text: str) -> dict[str, Codes]:
    """Return the separated chips of a node's value, and why; raises ``DocumentError``.

    ``Total`` decides. A chip with other levels only is none of ours.
    """
    node_info = decode(text, _Node, CHIPS_NAME, f"$['{node}']")
    chips: dict[str, Codes] = {}
    for chip in node_info.total or ():
        faults = (node_info.detail or {}).get(chip) or []
        # A detail with another level does not belong to this mechanism.
        codes = {fault.code: fault.separated_at_ms for fault in faults if fault.level == _LEVEL}
        # Chips in ``Total`` without details were shown without their codes, for lack of room
        # (``rendered``).
        if chip and (codes or not faults):
            chips[chip] = codes
    return chips


def render_chips(chips: dict[str, Codes]) -> str:
    """Return the value of a node."""
    return go_json.encode(
        {
            "Total": sorted(chips),
            "Detail": {
                chip: [
                    {"FaultCode": code, "FaultLevel": _LEVEL, "LastSeparateTime": at_ms}
                    for code, at_ms in sorted(chips[chip].items())
                ]
                for chip in sorted(chips)
                if chips[chip]
            },
        }
    )


_log = logging.getLogger(__name__)

# Bounded, since who writes the document could name new chips all the time; the oldest go first.
_MAX_RELEASED = 10_000
"""Chips that left a document and are remembered."""

# As long as the first publication waits for a store that is away (``daemon._FIRST_LIST_SECONDS``).
_STORE_TIMEOUT_MS = 30_000
"""How long the list of separated chips waits for a store that does not answer."""

_POLICY = Selection(namespace=NAMESPACE, name=POLICY_NAME)
_CHIPS = Selection(namespace=NAMESPACE, name=CHIPS_NAME)


class SeparationDocuments:
    """``clusterd-config-cm`` and ``clusterd-manual-info-cm`` of all stores that are read."""

    inputs = (_POLICY, _CHIPS)

    def __init__(self, separation: ManualSeparation, stores: int) -> None:
        self.problems: dict[tuple[int, str], str] = {}
        """Store and place of what cannot be read, and why. What was in force stays."""
        self._waits_for_stores = True
        """Whether ``views`` waits until every store was listed."""
        self._began_ms: int | None = None
        self._stores = stores
        self._separation = separation
        self._policies: dict[int, SeparationPolicy] = {}
        self._unlisted = {
            (store, selection) for store in range(stores) for selection in self.inputs
        }
        self._reported: dict[int, dict[str, dict[str, Codes]]] = {}
        self._left: dict[tuple[str, str], int] = {}
        """Node and chip to the wall time at which the chip left a document or was missing there."""

    @property
    def listed(self) -> bool:
        """Whether every store has listed both documents."""
        return not self._unlisted

    @property
    def policy(self) -> SeparationPolicy | None:
        """The policy in the document of the first store that has one; ``None`` where none has."""
        # Stores are numbered in the order of the configuration, and the first one counts.
        return self._policies[min(self._policies)] if self._policies else None

    def observe_document(
        self, source: int, selection: Selection, event: WatchEvent, now_ms: int
    ) -> frozenset[str]:
        """Apply an event of the store with this number; return nodes to be judged again."""
        match event:
            case DocumentsListed(documents):
                document = next(
                    (document for document in documents if document.name == selection.name), None
                )
            case Changed(document) if document.name == selection.name:
                pass
            case Deleted(_, name) if name == selection.name:
                document = None
            case Changed() | Deleted() | Interrupted():
                return frozenset()
        is_first = isinstance(event, DocumentsListed) and (source, selection) in self._unlisted
        if is_first:
            self._unlisted.discard((source, selection))
        if selection == _POLICY:
            return self._read_policy(source, document)
        return self._read_chips(source, document, is_first, now_ms)

    def _read_policy(self, source: int, document: Document | None) -> frozenset[str]:
        """Apply a policy document; one that goes or is refused leaves the policy in force. Return
        nodes to be judged again.
        """
        if document is None:
            # Without a document the policy in force stays: ``policy`` is None then and nothing is
            # set.
            self._policies.pop(source, None)
        else:
            try:
                self._policies[source] = read_policy(document.data)
            except DocumentError as error:
                self._problem(source, POLICY_NAME, error)
                return frozenset()
        self._problem(source, POLICY_NAME, None)
        policy = self.policy
        return frozenset() if policy is None else self._separation.set_policy(policy)

    def _read_chips(
        self, source: int, document: Document | None, is_first: bool, now_ms: int
    ) -> frozenset[str]:
        before = self._reported.get(source, {})
        reported, unread = {}, set()
        for node, text in ({} if document is None else document.data).items():
            try:
                reported[node] = read_chips(node, text)
            except DocumentError as error:
                unread.add(node)
                self._problem(source, node, error)
                # The last good value stays, so a misspelled value releases no chip.
                if node in before:
                    reported[node] = before[node]
        self._reported[source] = reported
        for node, chips in before.items():
            for chip in chips.keys() - reported.get(node, {}).keys():
                # Kept for a takeover: ``follow_up`` compares the restored state with it.
                self._left[node, chip] = now_ms
        nodes = self._adopt(reported) if is_first else frozenset[str]()
        released = self._separation.compare(source, reported, unread)
        # What was kept is read again when we begin to lead, and has them still.
        self._left.update(dict.fromkeys(released, now_ms))
        while len(self._left) > _MAX_RELEASED:
            del self._left[next(iter(self._left))]
        for store, node in tuple(self.problems):
            if store == source and node != POLICY_NAME and node not in unread:
                self._problem(source, node, None)
        return nodes | {node for node, _ in released}

    def _adopt(self, reported: dict[str, dict[str, Codes]]) -> frozenset[str]:
        if self.policy is not None and not self.policy.enabled:
            return frozenset()
        return self._separation.adopt(reported)

    def follow_up(self, *, is_news: bool) -> None:
        """Compare the restored state of an earlier leader with the document as it is since.

        A chip that left the document after it was separated last was released meanwhile. Without
        ``is_news`` no replica led since the document was read: what it has besides still counts.
        """
        if not is_news:
            for reported in self._reported.values():
                self._adopt(reported)
        for node, chips in tuple(self._separation.chips.items()):
            for chip, separated in tuple(chips.items()):
                left_ms = self._left.get((node, chip))
                if left_ms is not None and max(separated.codes.values(), default=0) <= left_ms:
                    self._separation.drop(node, chip)
        self._left.clear()
        for source, reported in self._reported.items():
            self._separation.mark_shown(source, reported)

    def _problem(self, source: int, place: str, error: DocumentError | None) -> None:
        """Log once that something cannot be read, and once that it can."""
        key = source, place
        if error is None:
            if self.problems.pop(key, None) is not None:
                _log.info("%s of store %d can be read again", place, source)
        elif self.problems.get(key) != str(error):
            self.problems[key] = str(error)
            _log.warning("refused, what was known stays: %s", error)

    def advance(self, now_ms: int) -> None:
        """Set the steady time; from the first on, ``views`` waits so long for stores."""
        if self._began_ms is None:
            self._began_ms = now_ms
        self._waits_for_stores = now_ms < self._began_ms + _STORE_TIMEOUT_MS

    def views(self) -> tuple[View, ...]:
        """Return the list of separated chips, once it is known what every store has of it.

        The list of a store that is away for long is taken over when it is back.
        """
        silent = sum(selection == _CHIPS for _, selection in self._unlisted)
        # A view that lacks the chips of a store would be written there, and look like a release of
        # all of them.
        if silent and (self._waits_for_stores or silent == self._stores):
            return ()
        return (View(NAMESPACE, CHIPS_NAME, rendered(self._separation.chips) or None),)


def rendered(nodes: Mapping[str, Mapping[str, Separated]]) -> dict[str, str]:
    """Return the data of the document.

    What has no room is left out, but never what was shown before: that would be taken for an
    operator's release. If need be, it is shown without its codes.
    """
    # All chips with all codes, the usual case.
    whole = {
        node: render_chips({chip: separated.codes for chip, separated in chips.items()})
        for node, chips in sorted(nodes.items())
    }
    room = VALUE_LIMIT - sum(_size(node, text) for node, text in whole.items())
    if room >= 0:
        return whole
    # Nodes that readers have seen come first and never go, even without the codes of their chips.
    shown = [node for node in whole if _is_shown(nodes[node])]
    data = {node: render_chips({chip: {} for chip in nodes[node]}) for node in shown}
    room = VALUE_LIMIT - sum(_size(node, text) for node, text in data.items())
    for node in (*shown, *(node for node in whole if node not in data)):
        more = _size(node, whole[node]) - (_size(node, data[node]) if node in data else 0)
        if more <= room:
            room -= more
            data[node] = whole[node]
    return dict(sorted(data.items()))


def _size(node: str, text: str) -> int:
    # Names of nodes are ASCII (RFC 1123), so characters are bytes.
    return len(node) + len(text.encode())


def _is_shown(chips: Mapping[str, Separated]) -> bool:
    return any(separated.shown for separated in chips.values())
