"""The site that ``make site`` built, read from its files in a real browser without a network."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.parts.chromium import Chromium
from tests.parts.deadlines import patience
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

SITE = ROOT / "build" / "site"
_PAGES = sorted(SITE.rglob("*.html"))
_RESULTS = "#search-results li a"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chromium]:
    """Yield a browser for all tests of this file."""
    expect.set_options(timeout=patience(10) * 1000)
    async with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


async def test_every_page_loads_from_files_alone(chromium: Chromium) -> None:
    assert len(_PAGES) > 100
    async with chromium.page(offline=True) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        failed: list[str] = []
        page.on("requestfailed", lambda request: failed.append(request.url))
        for path in _PAGES:
            await page.goto(path.as_uri())
            if path.name == "index.html" and path.parent == SITE:
                await page.wait_for_url("**/README.html")
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        assert failed == []


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("故障码", "codes.zh-CN.html"),
        ("故障", "codes.zh-CN.html"),
        ("80E01801", "codes.html"),
        ("80e01801", "codes.zh-CN.html"),
        ("vigil isolate", "operate.html"),
    ],
)
async def test_the_search_shows_a_document(chromium: Chromium, query: str, document: str) -> None:
    async with chromium.page(offline=True) as page:
        await page.goto((SITE / "index.html").as_uri())
        await page.wait_for_url("**/README.html")
        await page.get_by_role("textbox", name="Search").fill(query)
        await page.keyboard.press("Enter")
        result = page.locator(f'{_RESULTS}[href*="/{document}"]').first
        await expect(result).to_be_visible()
        await result.click()
        await expect(page.locator("article")).to_contain_text(re.compile(query, re.IGNORECASE))


async def test_the_search_shows_nothing_for_what_no_document_has(chromium: Chromium) -> None:
    async with chromium.page(offline=True) as page:
        await page.goto((SITE / "search.html").as_uri() + "?q=码障故")
        await expect(page.locator(".search-summary")).to_contain_text("did not match any documents")
        assert await page.locator(_RESULTS).count() == 0


async def test_a_chinese_page_has_its_language(chromium: Chromium) -> None:
    async with chromium.page(offline=True) as page:
        await page.goto((SITE / "docs" / "codes.zh-CN.html").as_uri())
        await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        await expect(page.get_by_role("textbox", name="搜索")).to_be_visible()


@pytest.mark.parametrize(
    ("link", "status"),
    [
        ("docs/a.md#anchor", 0),
        ("docs/a.md#a-heading", 0),
        ("docs/decisions/", 0),
        ("docs/a.md#b-heading", 1),
        ("docs/b.md", 1),
        ("docs/", 1),
    ],
)
async def test_a_link_that_leads_nowhere_fails_the_build(
    tmp_path: Path, link: str, status: int
) -> None:
    tree, output = tmp_path / "tree", tmp_path / "site"
    (tree / "docs" / "site").mkdir(parents=True)
    (tree / "README.md").write_text(f"# Start\n\n[more]({link})\n")
    (tree / "docs" / "a.md").write_text('# A\n\n## A heading\n\n<a id="anchor"></a>Text.\n')
    contents = "# Contents\n\n```{toctree}\n/README\n/docs/a\ndecisions\n```\n"
    (tree / "docs" / "site" / "index.md").write_text(contents)
    (tree / "docs" / "site" / "decisions.md").write_text("# Decisions\n")
    command = [
        *(str(ROOT / ".venv" / "site" / "bin" / "sphinx-build"), "--quiet", "--fail-on-warning"),
        *("--conf-dir", str(ROOT / "docs" / "site"), str(tree), str(output)),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == status, built.stderr
