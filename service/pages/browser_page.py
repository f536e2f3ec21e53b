"""The page for browsers at ``/``: HTML, scripts, styles and texts of ``browser/``.

A file is packed once, when a client first asks for it: to pack all of them takes 6 ms, and most
daemons never show their page. Their address has the digest of all of them, so a browser
may keep them for good, and files of two releases never mix. All addresses in the page are relative:
it works below any prefix of a proxy. Nothing is loaded from elsewhere.

A web page of another site must neither read this page through a name that it points here (DNS
rebinding) nor show it in a frame. So ``Host`` is checked on every address, other than for
programs, and the headers forbid frames and foreign scripts
([decision 61](../../docs/decisions/061-a-page-that-stays-open.md)).
"""

from __future__ import annotations

import hashlib
import html
import re
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from contract.record import Record
from service.http.address import is_own_name
from service.pages.compression import packed, packed_answer
from service.pages.daemon_pages import HOST_NAMES, is_kept, json_response

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_PATH = "/page/{digest}/{name}"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
        "object-src 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_INDEX = "index.html"
_LANGUAGES = ("en", "zh")
_BEST_LEVEL = 9
_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "svg": "image/svg+xml",
}


class _BrowserFile(Record, frozen=True, dict=True):
    plain: bytes
    content_type: str
    tag: str

    @cached_property
    def packed(self) -> bytes:
        return packed(self.plain, _BEST_LEVEL)


def asks_for_html(request: web.Request) -> bool:
    """Return whether the client names HTML among what it accepts, as only browsers do."""
    return any(
        part.partition(";")[0].strip().lower() == "text/html"
        for part in ",".join(request.headers.getall(hdrs.ACCEPT, ())).split(",")
    )


class BrowserPage:
    """The page of one ``daemon`` (``aggregator`` or ``agent``). ``epoch`` names its process.

    ``agent_url`` is the address of agents' pages with ``{node}``; empty where it is not known.
    """

    def __init__(self, daemon: str, version: str, epoch: str, agent_url: str = "") -> None:
        contents = {
            file.name: file.read_bytes() for file in (files("service.pages") / "browser").iterdir()
        }
        digest = hashlib.blake2b(digest_size=6)
        for name, content in sorted(contents.items()):
            digest.update(b"%s %d\n" % (name.encode(), len(content)))
            digest.update(content)
        self.digest = digest.hexdigest()
        values = {
            "digest": self.digest,
            "daemon": daemon,
            "version": version,
            "epoch": epoch,
            "agent_url": agent_url,
        }
        index = _filled(contents.pop(_INDEX).decode(), values)
        self._index = {
            language: _file(_INDEX, _with_texts(index, language, contents[f"{language}.json"]))
            for language in _LANGUAGES
        }
        self._files = {name: _file(name, content) for name, content in contents.items()}

    def index(self, request: web.Request) -> web.Response:
        """Answer with the HTML, and in it the texts of the language that the browser prefers."""
        # Browsers name languages in the order of preference. A script decides, and loads others.
        named = re.search(r"\b(en|zh)\b", request.headers.get(hdrs.ACCEPT_LANGUAGE, "").lower())
        index = self._index["en" if named is None else named[1]]
        # It names the files of this release, so a browser asks each time whether it is current.
        return _answer(request, index, "no-cache", hdrs.ACCEPT, hdrs.ACCEPT_LANGUAGE)

    async def file(self, request: web.Request) -> web.Response:
        """Answer with a file that the HTML names."""
        file = self._files.get(request.match_info["name"])
        if file is None or request.match_info["digest"] != self.digest:
            return json_response({"error": "this release has no such file"}, 404)
        return _answer(request, file, "max-age=31536000, immutable")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", html.escape(value, quote=True))
    return text


def _with_texts(index: str, language: str, texts: bytes) -> bytes:
    """Return the HTML with a catalogue, which a browser takes for data, whatever is in it."""
    catalogue = texts.decode().replace("<", "\\u003c")
    return index.replace("{language}", language).replace("{texts}", catalogue).encode()


def _file(name: str, content: bytes) -> _BrowserFile:
    kind = _TYPES[name.rpartition(".")[2]]
    tag = hashlib.blake2b(content, digest_size=12).hexdigest()
    return _BrowserFile(content, f"{kind}; charset=utf-8", tag)


def _answer(request: web.Request, file: _BrowserFile, keep: str, *vary: str) -> web.Response:
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    headers = {
        **HEADERS,
        hdrs.ETAG: f'"{file.tag}"',
        hdrs.CACHE_CONTROL: keep,
        hdrs.VARY: ", ".join((hdrs.ACCEPT_ENCODING, *vary)),
    }
    if is_kept(request, file.tag):
        return web.Response(status=304, headers=headers)
    headers[hdrs.CONTENT_TYPE] = file.content_type
    return packed_answer(request, file.plain, file.packed, headers)


def _refusal(request: web.Request) -> web.Response | None:
    """Return why a browser gets no part of the page; ``None`` where it may have it."""
    names = request.app.get(HOST_NAMES, frozenset())
    if not all(is_own_name(host, names) for host in request.headers.getall(hdrs.HOST, ())):
        reason = "a browser asks for this page by an address, as localhost, or by a name of "
        return json_response({"error": f"{reason}pages.host_names"}, 421)
    fetch = {name: request.headers.get(f"Sec-Fetch-{name}") for name in ("Site", "Mode", "Dest")}
    is_top_navigation = fetch["Mode"] == "navigate" and fetch["Dest"] == "document"
    if fetch["Site"] == "cross-site" and not is_top_navigation:
        return json_response({"error": "this page is not for other sites"}, 403)
    return None
