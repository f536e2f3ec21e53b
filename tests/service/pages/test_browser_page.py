"""The page for browsers: its files, headers, and who gets it, over a real server."""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from importlib.resources import files
from typing import TYPE_CHECKING

import aiohttp
import pytest

from contract.codes.catalogue import read_table
from contract.codes.reference import _Remedies
from service.pages.browser_page import HEADERS, BrowserPage, _with_texts, asks_for_html
from service.pages.daemon_pages import application, serving
from service.pages.operations import serve
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
NAMES = ("npu.example.com",)
FILES = files("service.pages") / "browser"
LANGUAGES = ("en", "zh")
MAX_SENT_BYTES = 150_000
MAX_REQUESTS = 8
MAX_PICTURE_BYTES = 200 * 1024
PARSERS = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "setHTML",
    "document.write",
    "DOMParser",
    "createContextualFragment",
    "srcdoc",
    "eval(",
    "Function(",
)
"""What makes elements or code of a text."""
TEXT_KEY = re.compile(r'\b(?:t|table|word)\("([\w.]+)"')
"""What ``word`` gets is a prefix."""


class Site:
    """Pages of a daemon at ``url``; nothing is unpacked on the way."""

    def __init__(self, url: str, session: aiohttp.ClientSession, page: BrowserPage) -> None:
        self.url = url
        self.page = page
        self._session = session

    async def ask(self, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        asked = {"Accept-Encoding": "identity", **headers}
        async with self._session.get(self.url + path, headers=asked) as answer:
            return answer.status, await answer.read(), dict(answer.headers)


@contextlib.asynccontextmanager
async def served(state_dir: Path) -> AsyncIterator[Site]:
    pages = application(dict, tuple, lambda _: b"up 1\n", {"/api/v1/x": lambda: "x"})
    page = BrowserPage("aggregator", '1"<2', "run")
    serve(pages, "Test", "1", (), page)
    async with (
        serving(pages, "127.0.0.1:0", state_dir, host_names=NAMES),
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        url = (state_dir / "listen").read_text().strip()
        yield Site(url, session, page)


def named(html: str) -> list[str]:
    return [f"/{path}" for path in re.findall(r'(?:href|src)="([^"]+)"', html)]


async def test_a_browser_gets_a_page_and_a_program_the_list(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        status, text, headers = await site.ask("/")
        assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert text.startswith(b"Test 1\n")
        assert (await site.ask("/", Accept="*/*"))[1] == text
        status, page, headers = await site.ask("/", **BROWSER)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "Accept" in headers["Vary"].split(", ")
        assert b'data-version="1&quot;&lt;2" data-epoch="run"' in page


async def test_files_have_types_headers_and_tags_and_stay_at_the_browser(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        _, page, headers = await site.ask("/", **BROWSER)
        assert headers["Cache-Control"] == "no-cache"
        types = {}
        for path in named(page.decode()):
            status, plain, headers = await site.ask(path)
            assert status == 200, path
            assert {name: headers[name] for name in HEADERS} == HEADERS
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "immutable" in headers["Cache-Control"]
            types[path.rpartition(".")[2]] = headers["Content-Type"]
            _, sent, packed = await site.ask(path, **{"Accept-Encoding": "gzip"})
            assert packed["Content-Encoding"] == "gzip"
            assert zlib.decompress(sent, 31) == plain
            tag = {"If-None-Match": headers["Etag"]}
            assert (await site.ask(path, **tag))[:2] == (304, b"")
        assert types == {
            "css": "text/css; charset=utf-8",
            "svg": "image/svg+xml; charset=utf-8",
            "js": "text/javascript; charset=utf-8",
        }
        assert (await site.ask("/page/0123/app.js"))[0] == 404, "a file of another release"
        assert (await site.ask(f"/page/{site.page.digest}/index.html"))[0] == 404
        assert (await site.ask(f"/page/{site.page.digest}/..%2fbrowser_page.py"))[0] == 404


async def test_the_page_is_small_and_asks_for_few_files(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        folder = f"/page/{site.page.digest}"
        sent = 0
        paths = {file.name for file in FILES.iterdir()} - {"index.html"}
        for path in ["/", *(f"{folder}/{name}" for name in paths)]:
            _, body, _ = await site.ask(path, **BROWSER, **{"Accept-Encoding": "gzip"})
            sent += len(body)
        assert sent <= MAX_SENT_BYTES
        # The views beside the fleet are read when they are first opened. The HTML has the texts of
        # the language that is preferred. The rows of the nodes are one request more.
        later = {"details.js", "past.js", *(f"{language}.json" for language in LANGUAGES)}
        assert len(paths - later) + len(("HTML", "rows")) <= MAX_REQUESTS


@pytest.mark.parametrize(
    ("preferred", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB,en;q=0.9,zh;q=0.8", "en"),
        ("fr-FR,fr;q=0.9,zh-TW;q=0.5", "zh"),
        ("fr-FR", "en"),
        ("", "en"),
    ],
)
async def test_the_html_has_the_texts_of_the_language_that_a_browser_prefers(
    tmp_path: Path, preferred: str, language: str
) -> None:
    async with served(tmp_path) as site:
        _, html, headers = await site.ask("/", **BROWSER, **{"Accept-Language": preferred})
        assert "Accept-Language" in headers["Vary"].split(", ")
        carried = re.search(
            r'<script type="application/json" id="texts" lang="(..)">([^<]*)</script>',
            html.decode(),
        )
        assert carried is not None
        assert carried[1] == language
        assert json.loads(carried[2]) == catalogue(language)


def test_markup_in_a_text_ends_no_script() -> None:
    html = _with_texts("<script>{texts}</script>", "en", b'{"x": "</script><b>"}').decode()
    assert html.count("<") == len(("<script>", "</script>"))
    assert json.loads(html.removeprefix("<script>").removesuffix("</script>")) == {
        "x": "</script><b>"
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "npu.example.com"}, 200),
        ({"Host": "NPU.example.com:8080"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "evil.example.com"}, 421),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        (
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "iframe",
            },
            403,
        ),
        (
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "document",
            },
            200,
        ),
    ],
)
async def test_other_sites_get_neither_the_page_nor_its_scripts(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with served(tmp_path) as site:
        assert (await site.ask("/", **BROWSER, **headers))[0] == status
        script = f"/page/{site.page.digest}/app.js"
        assert (await site.ask(script, **headers))[0] == status


async def test_a_foreign_name_is_refused_on_every_address_but_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The address of the connection decides for programs: here it is not loopback.
    monkeypatch.setattr("service.pages.daemon_pages.is_of_this_host", lambda *_: True)
    async with served(tmp_path) as site:
        foreign = {"Host": "evil.example.com"}
        assert (await site.ask("/api/v1/x", **foreign))[0] == 200
        assert (await site.ask("/", **foreign))[0] == 200
        assert (await site.ask("/", **BROWSER, **foreign))[0] == 421
        assert (await site.ask(f"/page/{site.page.digest}/app.js", **foreign))[0] == 421


def test_only_a_browser_asks_for_html() -> None:
    def asks(*accepts: str) -> bool:
        headers = [("Accept", accept) for accept in accepts]
        return asks_for_html(_request(headers))

    assert asks("text/html")
    assert asks("application/json", "Text/HTML;q=0.5")
    assert not asks()
    assert not asks("*/*")
    assert not asks("text/*, text/html5")


def _request(headers: list[tuple[str, str]]) -> aiohttp.web.Request:
    from aiohttp.test_utils import make_mocked_request
    from multidict import CIMultiDict

    return make_mocked_request("GET", "/", CIMultiDict(headers))


def scripts() -> dict[str, str]:
    """Return the scripts by name, without comments."""
    return {
        file.name: re.sub(
            r"/\*\*.*?\*/|^\s*//[^\n]*", "", file.read_text(encoding="utf-8"), flags=re.S | re.M
        )
        for file in FILES.iterdir()
        if file.name.endswith(".js")
    }


def catalogue(language: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads((FILES / f"{language}.json").read_text(encoding="utf-8"))
    return texts


def test_both_languages_have_the_same_texts_with_the_same_values() -> None:
    english, chinese = map(catalogue, LANGUAGES)
    assert english.keys() == chinese.keys()
    values = re.compile(r"\{\w+\}")
    for key, text in english.items():
        assert sorted(values.findall(text)) == sorted(values.findall(chinese[key])), key
        assert text.strip(), key
        assert chinese[key].strip(), key


def test_every_text_is_in_the_catalogue_and_every_text_there_is_used() -> None:
    texts, code = catalogue("en"), "\n".join(scripts().values())
    used = set(TEXT_KEY.findall(code))
    literals = set(re.findall(r'"([\w.]+)"', code))
    prefixes = set(re.findall(r"t\(`([\w.]+)\.\$\{", code))
    prefixes |= set(re.findall(r'word\("(\w+)"', code))
    assert set(re.findall(r'\bt\("([\w.]+)"', code)) <= texts.keys()
    unused = {
        key
        for key in texts.keys() - used - literals
        if not any(key.startswith(f"{prefix}.") for prefix in prefixes)
    }
    assert unused == set()


def test_no_script_has_a_text_for_people() -> None:
    found = []
    for name, code in scripts().items():
        for literal in re.findall(r'"([^"\n]*)"|`([^`]*)`', code):
            text = re.sub(r"\$\{[^}]*\}", " ", literal[0] or literal[1])
            words = re.findall(r"[A-Za-z]{2,}", text)
            is_prose = re.search(r"[A-Za-z]{2,} +[A-Za-z]{2,}", text) or not text.isascii()
            if words and is_prose and not text.startswith("vigil "):
                found.append((name, text))
    assert found == []


def test_no_script_parses_html_or_reaches_elsewhere() -> None:
    code = "\n".join(scripts().values())
    assert [name for name in PARSERS if name in code] == []
    for file in FILES.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w|\bstyle=|on(click|load)=\"", text), file.name
        # Relative addresses work below any prefix.
        assert not re.search(r"""(?:href|src)="/|(?:fetch|ask)\([`"']/""", text), file.name


def test_each_state_has_a_sign_and_no_motion_needs_a_preference() -> None:
    signs = re.search(r"const SIGNS = \{([^}]*)\}", scripts()["fleet.js"])
    assert signs is not None
    drawn = re.findall(r'(\w+): "([^"]*)"', signs[1])
    # A healthy node is the one without a sign: its cell differs by that, not by its colour alone.
    assert len({sign for _, sign in drawn}) == len(drawn) == len(dict(drawn))
    assert {f"state.{state}" for state, _ in drawn} <= catalogue("en").keys()
    style = (FILES / "page.css").read_text(encoding="utf-8")
    assert not re.search(r"transition|animation|@keyframes|scroll-behavior", style)
    assert "smooth" not in "\n".join(scripts().values())


def test_pictures_of_the_page_are_small_and_shown() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert [picture.name for picture in pictures] == ["demo.svg", "fleet.png", "node.png"]
    assert [picture for picture in pictures if f"](docs/pictures/{picture.name})" not in text] == []
    assert max(picture.stat().st_size for picture in pictures) <= MAX_PICTURE_BYTES


def test_levels_mean_what_they_mean_in_a_terminal() -> None:
    texts = catalogue("en")
    levels = read_table("remedies.json", _Remedies).levels
    expected = {}
    for kind, rows in levels.items():
        for level, row in rows.items():
            expected[f"effect.{kind}.{level}"] = row.effect
            expected[f"remedy.{kind}.{level}"] = row.remedy
    assert {
        key: text for key, text in texts.items() if key.startswith(("effect.", "remedy."))
    } == expected
