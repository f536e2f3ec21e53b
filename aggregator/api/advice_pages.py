"""``GET /api/v1/advice`` and the pages below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.api.operations import (
    ADVICE_JOB_PATH,
    ADVICE_OUTCOMES_PATH,
    ADVICE_PATH,
    ADVICE_WHAT_IF_PATH,
)
from service.pages.daemon_pages import json_response

if TYPE_CHECKING:
    from aiohttp import web

    from aggregator.api.collect_status import StatusQueries

_NOT_WANTED = "nothing is advised here: set advice.enabled"


class AdvicePages:
    """The handlers of these pages."""

    def __init__(self, queries: StatusQueries) -> None:
        self._queries = queries

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the pages to ``router``."""
        router.add_get(ADVICE_PATH, self._all)
        router.add_get(ADVICE_OUTCOMES_PATH, self._outcomes)
        router.add_get(ADVICE_WHAT_IF_PATH, self._what_if)
        router.add_get(ADVICE_JOB_PATH, self._job)

    async def _all(self, request: web.Request) -> web.Response:
        found = self._queries.advice(request.query.get("node"))
        return _unknown("node") if found is None else json_response(found)

    async def _outcomes(self, _: web.Request) -> web.Response:
        return json_response(self._queries.advice_outcomes())

    async def _job(self, request: web.Request) -> web.Response:
        place, advising = request.match_info, self._queries.advising
        if advising is None:
            return _refused(_NOT_WANTED, 404)
        node = request.query.get("node")
        found = advising.answers.of_job(place["namespace"], place["podgroup"], node)
        return _unknown("podgroup") if found is None else json_response(found)

    async def _what_if(self, request: web.Request) -> web.Response:
        advising, query = self._queries.advising, request.query
        if advising is None:
            return _refused(_NOT_WANTED, 404)
        # Loads the advisor, which an aggregator without advice does not need.
        from aggregator.advising.what_if import Busy, UnknownObject, WrongAssumption

        try:
            found = await advising.what_if.answer(
                query.getall("what_if", ()), query.get("job"), query.get("node")
            )
        except WrongAssumption as error:
            return _refused(str(error), 400)
        except UnknownObject as error:
            return _unknown(str(error))
        except Busy as error:
            return _refused(str(error), 503)
        return json_response(found)


def _refused(why: str, status: int) -> web.Response:
    return json_response({"error": why}, status)


def _unknown(what: str) -> web.Response:
    return _refused(f"there is no {what} of this name", 404)
