"""What parts of the aggregator keep, as the store has it after their changes were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Keeper(Protocol):
    """What keeps texts in buckets."""

    def pop_changed(self) -> Iterable[str]: ...

    def text(self, bucket: str) -> str | None: ...


def kept_texts(keeper: Keeper, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the stored buckets after those that changed were written."""
    changed = {bucket: keeper.text(bucket) for bucket in keeper.pop_changed()}
    after = dict(before or {}) | changed
    return {bucket: text for bucket, text in after.items() if text is not None}
