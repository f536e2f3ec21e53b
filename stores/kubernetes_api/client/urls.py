"""URLs of servers and proxies, apart from the user and the password that may stand in them."""

from __future__ import annotations

import base64
from typing import NamedTuple

from yarl import URL

from stores.kubernetes_api.client.unusable import Unusable


class AuthorizedUrl(NamedTuple):
    """``url`` without user and password, and ``authorization``: the header made of these."""

    url: str
    authorization: str | None


def address_of(text: str) -> AuthorizedUrl:
    """Split the URL of a server or proxy, with the scheme http or https.

    Raises ``Unusable`` with what is wrong, which repeats nothing of ``text``: no password.
    """
    try:
        url = URL(text)
        port = url.port
        # As it will be looked up; that of a label that is too long is no OSError.
        (url.raw_host or "").encode("idna")
    except ValueError:
        raise Unusable("is no URL; write https://HOST:PORT") from None
    if url.scheme not in ("http", "https"):
        raise Unusable("does not begin with https:// or http://; write https://HOST:PORT")
    if not url.host or not port:
        raise Unusable("names no host, or port 0; write https://HOST:PORT")
    if url.query_string or url.fragment:
        raise Unusable("has a query (?) or a fragment (#); write https://HOST:PORT")
    without = str(url.with_user(None)).rstrip("/")
    if url.user is None and url.password is None:
        return AuthorizedUrl(without, None)
    return AuthorizedUrl(without, basic(url.user or "", url.password or ""))


def basic(user: str, password: str) -> str:
    """Return the value of an ``Authorization`` header for a user and a password (RFC 7617)."""
    pair = f"{user}:{password}".encode("utf-8", "replace")
    return f"Basic {base64.b64encode(pair).decode()}"
