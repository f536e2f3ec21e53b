"""Deadlines of tests grow by one factor, and tests wait for events instead of for time."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

import pytest

from tests.parts import deadlines
from tests.parts.deadlines import patience, patience_factor, until, wait_until
from tests.parts.tree import ROOT, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HERE = ROOT / "tests"
# The second one is loaded into measured processes, before anything of the tests.
_WAITING = (_HERE / "parts" / "deadlines.py", _HERE / "measured" / "start.py")
# Too short to be a deadline: it is awaited that nothing comes.
_BRIEF_SECONDS = 1.0
_SLEEPS = {"time.sleep", "asyncio.sleep"}
# What the names of functions that wait end with.
_WAITS = ("sleep", "timeout", "wait_for", "run", "check_output", "urlopen", "communicate")
_MAY_WAIT = re.compile(
    r"(?:sleep|timeout|wait_for|subprocess\.run|check_output|urlopen|communicate)\("
)
# What players of recordings wait for, in loops whose time is virtual; their tests have the mark.
_VIRTUAL = {
    _HERE / "agent" / "shadow" / "player.py",
    _HERE / "parts" / "recording_player.py",
    *(
        _HERE / "replay" / f"{name}.py"
        for name in ("bmc", "cluster", "driver", "journal", "player")
    ),
}
_WITH_TIMEOUT = {"subprocess.run", "subprocess.check_output", "urllib.request.urlopen"}


def test_a_deadline_grows_by_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_FACTOR", patience_factor("2.5"))
    assert patience(20) == 50


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "three"])
def test_a_factor_that_is_not_a_positive_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        patience_factor(text)


def test_pytests_own_timeout_grows(pytestconfig: pytest.Config) -> None:
    """It was not scaled in the processes of workers, which do not get the scaled option."""
    assert pytestconfig.getoption("timeout") is not None
    assert pytestconfig._env_timeout == pytestconfig.getoption("timeout")  # type: ignore[attr-defined]


def test_waiting_returns_what_was_reached_and_names_what_was_not() -> None:
    answers = iter([None, "", "here"])
    assert wait_until(lambda: next(answers), "never", step_seconds=0.001) == "here"
    with pytest.raises(AssertionError, match=r"not within .* s: it has 3"):
        wait_until(lambda: False, lambda: f"it has {3}", seconds=0.01)


@pytest.mark.looptime
async def test_waiting_in_a_coroutine_takes_both_kinds_of_conditions() -> None:
    async def asked() -> str:
        return "answer"

    assert await until(asked) == "answer"
    assert await until(lambda: 7) == 7
    with pytest.raises(AssertionError, match="not within"):
        await until(lambda: None, "never")


@pytest.mark.slow
def test_every_deadline_is_scaled() -> None:
    found = [place for path in _files() for place in _unscaled(path)]
    assert not found, "deadlines without patience() of tests/parts/deadlines.py:\n" + "\n".join(
        found
    )


@pytest.mark.slow
def test_no_test_sleeps_by_itself() -> None:
    found = [place for path in _files() for place in _sleeps(path)]
    assert not found, (
        "use until, wait_until, or another function of tests/parts/deadlines.py:\n"
        + "\n".join(found)
    )


def _files() -> list[Path]:
    return [path for path in sorted(_HERE.rglob("*.py")) if path not in _WAITING]


def _unscaled(path: Path) -> Iterator[str]:
    """Yield where a deadline is set that does not grow."""
    for node, in_virtual_time in _calls(path):
        name = ast.unparse(node.func)
        given: ast.expr | None = None
        if name in ("asyncio.timeout", "asyncio.wait_for"):
            given = node.args[-1]
        elif name in _WITH_TIMEOUT or name.rpartition(".")[2] == "communicate":
            given = next((one.value for one in node.keywords if one.arg == "timeout"), None)
        if given is None or in_virtual_time or _is_brief(given):
            continue
        if not ast.unparse(given).startswith("patience("):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}"


def _sleeps(path: Path) -> Iterator[str]:
    """Yield where a test sleeps in real time; to sleep for 0 s is to let others run."""
    for node, in_virtual_time in _calls(path):
        if ast.unparse(node.func) not in _SLEEPS or in_virtual_time:
            continue
        if ast.unparse(node.args[0]) != "0":
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}"


def _is_brief(given: ast.expr) -> bool:
    return (
        isinstance(given, ast.Constant)
        and isinstance(given.value, int | float)
        and given.value <= _BRIEF_SECONDS
    )


@functools.cache
def _calls(path: Path) -> tuple[tuple[ast.Call, bool], ...]:
    """Return each call, and whether it stands in a test whose time is virtual."""
    text = path.read_text(encoding="utf-8")
    if not _MAY_WAIT.search(text):
        return ()
    module = parsed(text)
    marks = [ast.unparse(one) for one in module.body if isinstance(one, ast.Assign)]
    is_virtual = path in _VIRTUAL or any("looptime" in mark for mark in marks)
    return tuple(_calls_below(module, is_virtual))


def _calls_below(node: ast.AST, is_virtual: bool) -> Iterator[tuple[ast.Call, bool]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        is_virtual = is_virtual or any("looptime" in ast.unparse(d) for d in node.decorator_list)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name.endswith(_WAITS):
            yield node, is_virtual
    for child in ast.iter_child_nodes(node):
        yield from _calls_below(child, is_virtual)
