"""A list by page: when the next page is requested, and that it is given up with the list."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from stores.kubernetes_api import wire
from stores.kubernetes_api.watch import ListPage, _listed_by_page

Page: TypeAlias = ListPage[str]
NEXT_PAGE = "list the next page"


class ScriptedList:
    """A list of three pages. The second one comes once ``may_answer`` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def ask(self, token: str) -> Page:
        self.asked.append(token)
        if token == "2":
            await self.may_answer.wait()
        following = {"": "2", "2": "3", "3": ""}[token]
        return Page(wire.ListMetadata(continue_token=following), [f"page {token or 1}"])


def pages_under_way() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == NEXT_PAGE]


async def test_the_next_page_is_requested_before_this_one_is_handed_out() -> None:
    scripted = ScriptedList()
    pages = _listed_by_page(scripted.ask)
    assert (await anext(pages)).items == ["page 1"]
    assert scripted.asked == ["", "2"]
    scripted.may_answer.set()
    assert (await anext(pages)).items == ["page 2"]
    assert scripted.asked == ["", "2", "3"]
    assert [page.items async for page in pages] == [["page 3"]]
    assert scripted.asked == ["", "2", "3"]


async def test_a_list_that_is_closed_while_a_page_is_under_way_leaves_no_task() -> None:
    scripted = ScriptedList()
    pages = _listed_by_page(scripted.ask)
    await anext(pages)
    assert pages_under_way() == [NEXT_PAGE]
    await pages.aclose()
    assert pages_under_way() == []
