"""All objects of a kind on an API server, as the texts of its pages; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from contract.errors import StoreUnavailable
from contract.validation_texts import decode_text
from stores.kubernetes_api import wire
from stores.kubernetes_api.client.connection import ApiConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_OK = 200
_PAGE = 500
_MOST_PAGES = 1000


class _Metadata(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _Page(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class ObjectPages:
    """Reads what the caller may read. Raises ``StoreError``."""

    def __init__(self, kubeconfig: str | None) -> None:
        self.connection = ApiConnection(kubeconfig)

    async def pages(self, path: str) -> AsyncIterator[bytes]:
        """Return the pages of the list at ``path``, a page at a time."""
        token = ""
        for _ in range(_MOST_PAGES):
            behind = f"&continue={quote(token, safe='')}" if token else ""
            page = await self.get(f"{path}?limit={_PAGE}{behind}")
            yield page
            try:
                token = msgspec.json.decode(page, type=_Page).metadata.token
            except msgspec.DecodeError as error:
                raise StoreUnavailable(
                    f"the list at {path} makes no sense: {decode_text(error)}"
                ) from error
            if not token:
                return

    async def get(self, path: str) -> bytes:
        """Return what is at ``path``."""
        status, body = await self.connection.request("GET", path)
        if status != _OK:
            raise wire.refusal(status, body, f"read {path.partition('?')[0]}")
        return body

    async def close(self) -> None:
        """Give the connection back."""
        await self.connection.close()
