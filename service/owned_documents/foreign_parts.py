"""What of a document is ours, and what others added to it (``docs/decisions/013``).

Labels, annotations and data keys that others add are theirs: no foreign change, and our writes keep
them. What readers act on is ours whether we write it or not
(``contract/documents/reader_keys.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.documents.reader_keys import is_annotation_ours, is_key_acted_on, is_label_acted_on
from stores.base import ObjectOwner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stores.base import Document

MAX_BYTES = 32 * 1024
"""The most that is kept of others, the smallest first: ours must fit into the store as well."""


class Added(msgspec.Struct, frozen=True):
    """What others added to a document, as far as it is kept. ``left_out`` names what is not.

    ``finalizers`` are kept in any case, ``owners`` where they exist.
    """

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    data: dict[str, str] = {}
    left_out: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    owners: tuple[ObjectOwner, ...] = ()

    def beside(self, document: Document) -> Document:
        """Return ``document`` as it is written: with what others added."""
        if self == NOTHING:
            return document
        return msgspec.structs.replace(
            document,
            labels=self.labels | document.labels,
            annotations=self.annotations | document.annotations,
            data=self.data | document.data,
            finalizers=self.finalizers,
            owners=self.owners,
        )


NOTHING = Added()


def added_by_others(
    shown: Document | None, *, all_keys: bool = False, missing_owners: frozenset[str] = frozenset()
) -> Added:
    """Return what others added to the document of ours that is ``shown``.

    ``all_keys``: readers act on each of its data keys, so all of them are ours. Owners with a uid
    of ``missing_owners`` do not exist, so garbage collection would delete the document.
    """
    if shown is None:
        return NOTHING
    owners = tuple(owner for owner in shown.owners if owner.uid not in missing_owners)
    metadata = NOTHING
    if shown.finalizers or owners:
        metadata = Added(finalizers=shown.finalizers, owners=owners)
    candidates = [("label", key) for key in shown.labels if not is_label_acted_on(key)]
    candidates += [("annotation", key) for key in shown.annotations if not is_annotation_ours(key)]
    if not all_keys:
        candidates += [("key", key) for key in shown.data if not is_key_acted_on(key, shown.name)]
    if not candidates:
        return metadata
    parts = {"label": shown.labels, "annotation": shown.annotations, "key": shown.data}

    def size(part: tuple[str, str]) -> int:
        return len(part[1].encode()) + len(parts[part[0]][part[1]].encode())

    added: dict[str, dict[str, str]] = {"label": {}, "annotation": {}, "key": {}}
    left_out = []
    room = MAX_BYTES
    for kind, key in sorted(candidates, key=size):
        room -= size((kind, key))
        if room < 0:
            left_out.append(f"{kind} {key}")
        else:
            added[kind][key] = parts[kind][key]
    return msgspec.structs.replace(
        metadata,
        labels=added["label"],
        annotations=added["annotation"],
        data=added["key"],
        left_out=tuple(left_out),
    )


def differences(
    shown: Document | None, written: Document | None, *, all_keys: bool = False
) -> tuple[str, ...]:
    """Return the parts of ours that differ between ``shown`` and ``written``.

    Annotations and versions are compared nowhere. ``all_keys`` as above. A document that was
    deleted and that finalizers hold counts as deleted: this side can do nothing more.
    """
    if written is None and shown is not None and shown.is_deleting:
        return ()
    if shown is None or written is None:
        return () if shown is written else ("the whole document",)
    changed = ["immutable"] if shown.immutable != written.immutable else []
    changed += [f"label {key}" for key in _labels(shown.labels, written.labels)]
    name = written.name
    if all_keys:
        keys = (key for key in shown.data if key not in written.data)
    else:
        keys = (key for key in shown.data if key not in written.data and is_key_acted_on(key, name))
    changed += [f"key {key}" for key, text in written.data.items() if shown.data.get(key) != text]
    changed += [f"key {key}" for key in keys]
    return tuple(changed)


def _labels(shown: Mapping[str, str], written: Mapping[str, str]) -> Iterator[str]:
    yield from (key for key, value in written.items() if shown.get(key) != value)
    yield from (key for key in shown if key not in written and is_label_acted_on(key))
