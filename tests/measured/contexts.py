"""A pytest plugin: each test is a context of coverage.py, and how long each test took.

Not coverage.py's own ``test_function``: that ends a context where a coroutine waits, so it misses
all that tasks of the product do while an asynchronous test awaits them.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import coverage
import pytest

from tests.measured.places import CONTEXT, TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator


_not_passed: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give what runs for this test its name, in this process and in those that it starts."""
    measured = coverage.Coverage.current()
    assert measured is not None
    measured.switch_context(item.nodeid)
    os.environ[CONTEXT] = item.nodeid
    begin = time.monotonic()
    try:
        return (yield)
    finally:
        seconds = time.monotonic() - begin
        del os.environ[CONTEXT]
        measured.switch_context("")
        if item.nodeid not in _not_passed:
            with TIMES.open("a", encoding="utf-8") as file:
                # One write below a page: lines of several workers do not mix.
                file.write(json.dumps([item.nodeid, round(seconds, 4)]) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note which tests cannot show by failing that something else is wrong."""
    if not report.passed:
        _not_passed.add(report.nodeid)
