"""The buckets in which a ``Persistent`` plugin has its state for the next leader.

Plugins differ in what a bucket has: some render it on demand, others keep the texts. The names of
the buckets, what has changed, and how texts are read are the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import msgspec

from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

K = TypeVar("K", str, msgspec.Raw)
T = TypeVar("T")


def bucket_of(name: str, buckets: int, form: str = "02x") -> str:
    """Return the bucket of a name, one of ``buckets``.

    It follows from the name alone, so a change rewrites a small part, and every process finds it.
    ``form`` is how its number is written: documents that are kept already have that name.
    """
    return format(crc32(name.encode()) % buckets, form)


class ChangedBuckets:
    """The buckets that changed since the last ``pop``; ``names`` are the first ones."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = set(names)

    def add(self, *names: str) -> None:
        """Record that these have changed."""
        self._names.update(names)

    def pop(self) -> frozenset[str]:
        """Return and remove the changed buckets."""
        changed, self._names = frozenset(self._names), set()
        return changed


def decoded(texts: Mapping[str, K], decode: Callable[[K], T]) -> tuple[dict[str, T], list[str]]:
    """Decode what is kept by name, in their order; also return which make no sense and why.

    ``decode`` raises ``msgspec.MsgspecError``, ``ValueError`` and ``RecursionError``.
    """
    values: dict[str, T] = {}
    problems = []
    for name, text in sorted(texts.items()):
        try:
            values[name] = decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problems.append(f"{name}: {decode_text(error)}")
    return values, problems
