"""A document for tests of the publisher: it is ours alone, and no other program may change it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.publishing.publisher import DesiredDocument
    from stores.base import Document


class PlainDocument:
    """A ``PublishedDocument``; tests override what they are about."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.is_other_agent_alive = False

    @property
    def has_rival(self) -> bool:
        return self.is_other_agent_alive

    def desired(self) -> DesiredDocument | None:
        raise NotImplementedError

    def stamp_of(self, document: Document) -> int | None:
        return int(document.data["stamp"])

    def verify(self, document: Document) -> None:
        pass

    def blocks_updates(self, shown: Document) -> bool:
        return False

    async def before_write(self) -> None:
        await asyncio.sleep(0)

    async def before_repair(self) -> None:
        await asyncio.sleep(0)

    def on_first_read(self, existing: Document | None) -> None:
        pass

    def on_foreign_write(self, foreign: Document) -> bool:
        return False

    def on_write_of_owner(self, before: Document | None, shown: Document | None) -> None:
        pass

    def on_acknowledged(self, document: Document | None, revision: int, through: int) -> None:
        pass

    def on_shown(self) -> None:
        pass

    def on_reconnected(self) -> None:
        pass
