"""Reads documents of nodes by name, or lists them where they are many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.errors import StoreForbidden, StoreRefused
from pacing.waiting import gather_results

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stores.base import Document, Selection, Store

_MAX_CONCURRENT = 8


async def read_by_name(
    store: Store, selection: Selection, names: Mapping[str, str], few: int
) -> dict[str, Document | None]:
    """Return the document of each node, ``None`` where there is none.

    ``names`` has the name of each; more than ``few`` are listed by ``selection``. Raises
    ``StoreError``.
    """
    if len(names) > few:
        listed = {document.name: document for document in await store.list(selection)}
        return {node: listed.get(name) for node, name in names.items()}
    gate = asyncio.Semaphore(_MAX_CONCURRENT)

    async def read(name: str) -> Document | None:
        async with gate:
            # The right to watch documents includes their list, but perhaps no read by name.
            try:
                documents = await store.list(replace(selection, name=name))
            except StoreForbidden:
                # A missing right shows nothing about the document, so it is not taken as absent.
                raise
            except StoreRefused:
                return None  # no document can have this name
            return documents[0] if documents else None

    results = await gather_results(map(read, names.values()))
    return dict(zip(names, results, strict=True))
