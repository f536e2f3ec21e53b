"""Wrong products, by which the judge is judged: each must be called wrong, the right one never.

The launcher puts a mutant in the place of a function within a block. The product has no switch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from agent.fault_state import FaultState
from agent.publishing.device_info import DeviceInfoDocument
from agent.publishing.publisher import DocumentPublisher
from contract.observation import Assertion, Observation
from stores.base import DocumentsListed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

_apply, _desired, _watched = (
    FaultState.apply_inputs,
    DeviceInfoDocument.desired,
    DocumentPublisher._watched,
)
_ENDS = (Assertion.RECOVER, Assertion.ABSENT)


def _apply_without_ends(state: FaultState, inputs: Any, event_ms: int | None = None) -> None:
    kept = [
        item for item in inputs if not (isinstance(item, Observation) and item.assertion in _ENDS)
    ]
    _apply(state, kept, event_ms)


def _desire_the_one_before(document: DeviceInfoDocument) -> Any:
    """Return the document before the present one."""
    members: Any = document
    made = _desired(document)
    history = members.__dict__.setdefault("made_before", [])
    if made is not None and (not history or history[-1] is not made):
        history.append(made)
    return made if len(history) < 2 else history[-2]


def _watch_lists_alone(publisher: DocumentPublisher, event: Any) -> None:
    if isinstance(event, DocumentsListed):
        _watched(publisher, event)


MUTANTS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "recovery dropped": partial(mock.patch.object, FaultState, "apply_inputs", _apply_without_ends),
    "stale write": partial(
        mock.patch.object, DeviceInfoDocument, "desired", _desire_the_one_before
    ),
    "no repair": partial(mock.patch.object, DocumentPublisher, "_watched", _watch_lists_alone),
}
