"""A thread that repeats a step goes on behind a time without memory."""

from __future__ import annotations

import threading

import pytest

from pacing import repeating_thread
from tests.parts.deadlines import patience


@pytest.mark.parametrize("error", [MemoryError(), threading.ThreadError("can't allocate lock")])
def test_a_step_without_memory_is_repeated(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeating_thread, "_WITHOUT_MEMORY_SECONDS", 0.01)
    results: list[Exception | bool] = [True, error, True, False]

    def step() -> bool:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    thread = repeating_thread.repeat_in_thread(step, "test")
    thread.join(patience(10))
    assert not thread.is_alive()
    assert results == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_another_error_ends_the_thread() -> None:
    def step() -> bool:
        raise RuntimeError("deque mutated during iteration")

    thread = repeating_thread.repeat_in_thread(step, "test")
    thread.join(patience(10))
    assert not thread.is_alive()
