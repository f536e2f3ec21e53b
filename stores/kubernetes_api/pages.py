"""All objects of a kind on an API server, as the texts of its pages; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from stores.kubernetes_api import wire
from stores.kubernetes_api.client.connection import ApiConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PAGE = 500
# Half a million objects; a server that repeats its token does not keep a verb for ever.
_MAX_PAGES = 1000


class _ListedPage(msgspec.Struct):
    metadata: wire.ListMetadata = msgspec.field(default_factory=wire.ListMetadata)


_page = msgspec.json.Decoder(_ListedPage)


class ObjectPages:
    """Reads what the caller may read. Raises ``StoreError``."""

    def __init__(self, kubeconfig: str | None) -> None:
        self.connection = ApiConnection(kubeconfig)

    async def pages(self, path: str) -> AsyncIterator[bytes]:
        """Return the pages of the list at ``path``, a page at a time."""
        token = ""
        for _ in range(_MAX_PAGES):
            behind = f"&continue={quote(token, safe='')}" if token else ""
            page = await self.get(f"{path}?limit={_PAGE}{behind}")
            yield page
            read = wire.decoded(_page.decode, page, f"the list at {path} makes no sense")
            token = read.metadata.continue_token
            if not token:
                return

    async def get(self, path: str) -> bytes:
        """Return what is at ``path``."""
        answer = await self.connection.request("GET", path)
        return wire.accepted(answer, f"read {path.partition('?')[0]}")

    async def close(self) -> None:
        """Give the connection back."""
        await self.connection.close()
