"""Takes the pictures of ``docs/page.md`` and the README, of the page while the demo runs.

::

    python -m tests.end_to_end.pictures
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.parts.chromium import Chromium
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Page

FOLDER = ROOT / "docs" / "pictures"
MAX_BYTES = 200 * 1024
_NODE = "vigil-demo-2"
_CODE = "80E18402"
_SIZE = {"width": 1000, "height": 620}
_WAIT_MS = 120_000


async def take() -> None:
    """Write both pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vigil-pictures-") as folder:
        demo = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vigil", "demo"), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert demo.stdout is not None
            url = (await demo.stdout.readline()).decode().rpartition(" ")[2].strip()
            async with (
                Chromium(Path(folder)) as chromium,
                chromium.page(viewport=_SIZE, color_scheme="light") as page,
            ):
                await page.goto(url)
                await _wait(page, _CODE)
                await page.screenshot(path=FOLDER / "fleet.png")
                await page.get_by_role("link", name=_NODE).click()
                await _wait(page, "Sources that give no answer")
                await page.screenshot(path=FOLDER / "node.png")
        finally:
            if demo.returncode is None:
                demo.terminate()
            await demo.communicate()


async def _wait(page: Page, text: str) -> None:
    await expect(page.get_by_text(text).first).to_be_visible(timeout=_WAIT_MS)


if __name__ == "__main__":
    asyncio.run(take())
