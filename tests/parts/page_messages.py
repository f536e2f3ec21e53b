"""The messages of a page before it is encoded as an answer."""

from __future__ import annotations

import msgspec

from contract.pages.messages import PageMessage, collecting


def messages_of(page: msgspec.Struct) -> dict[str, PageMessage]:
    """Return the sentences in ``page`` by their English text."""
    messages: dict[str, PageMessage] = {}
    msgspec.json.encode(page, enc_hook=collecting(messages))
    return messages
