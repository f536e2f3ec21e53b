"""Every command of the documents is run, or its options are those of the real program."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import typer
import typer.main

from tests.documented_commands import (
    TESTS,
    blocks,
    blocks_of,
    blocks_of_commands,
    counted,
    inline,
    runs,
    split,
)
from tests.parts.helm import VERSIONS, helm
from tests.parts.tree import ROOT
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLACEHOLDER = re.compile(r"[A-Z_]+|…")
_NOTATION = str.maketrans("", "", "[]…\\")
_FOLDERS = ("daemonset/", "docs/", "monitoring/", "systemd/", "tests/")
_PROGRAMS = re.compile(
    r"^(\$ )?(\S+/)?(vigil|make|kubectl|helm|pip|python3?|curl|systemctl) ", re.M
)


@cache
def _program() -> Any:
    """Return the command ``vigil``; each verb is built once."""
    return typer.main.get_command(app)


def _wrong(arguments: Sequence[str], *, is_whole: bool = True) -> str | None:
    """Return what is wrong with the arguments of ``vigil``; a sentence may have a part of them."""
    command = _program()
    words = list(arguments)
    while True:
        context = typer.Context(command)
        try:
            values, words, _ = command.make_parser(context).parse_args(args=words)
        except Exception as error:
            if not is_whole and "requires an argument" in str(error):
                return None
            return str(error) or type(error).__name__
        for parameter in command.get_params(context):
            given = values.get(parameter.name)
            if parameter.required and given is None and is_whole:
                return f"{parameter.name} is missing"
            if _is_checked(parameter, given):
                try:
                    parameter.process_value(context, given)
                except Exception as error:
                    return f"{parameter.name}: {error}"
        if not words or not hasattr(command, "get_command"):
            break
        name, *words = words
        if _PLACEHOLDER.fullmatch(name):
            return None
        command = command.get_command(context, name)
        if command is None:
            return f"there is no {name}"
    if words:
        return f"too many arguments: {words}"
    return None


def _is_checked(parameter: Any, given: Any) -> bool:
    """Return whether a value is checked: it is no file and not what the reader replaces."""
    values = given if isinstance(given, list | tuple) else [given]
    return "Path" not in str(parameter.type_descriptor.annotation) and all(
        isinstance(value, str) and not _PLACEHOLDER.fullmatch(value) for value in values
    )


@cache
def _targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([\w-]+):", text, re.MULTILINE))


def _wrong_of_make(words: Sequence[str]) -> str | None:
    return None if set(words[:1]) <= _targets() else "there is no such target"


class _Parsed(Exception):
    """The arguments of a module are right."""


def _wrong_of_module(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return what is wrong with ``python -m`` and ``words``; it ends behind its arguments."""
    module, *arguments = words
    spec = find_spec(module)
    if spec is None:
        return f"there is no module {module}"
    if not arguments:
        return None
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(*given: Any, **named: Any) -> NoReturn:
        parse(*given, **named)
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    # runpy warns of a module that another test has imported.
    is_package = spec.submodule_search_locations is not None
    monkeypatch.delitem(sys.modules, f"{module}.__main__" if is_package else module, raising=False)
    try:
        runpy.run_module(module, run_name="__main__")
    except _Parsed:
        return None
    except SystemExit as end:
        return f"status {end.code}"
    return "it takes no arguments"


def test_no_command_is_without_a_test_a_parser_or_a_reason() -> None:
    counts, others = counted()
    assert others == []
    assert counts["run"] > counts["parsed"] > 0


def test_commands_are_marked() -> None:
    plain = [block for block in blocks() if not block.language]
    assert plain
    assert [block.place for block in plain if _PROGRAMS.search(block.text)] == []


def test_each_test_that_runs_blocks_exists_and_has_some() -> None:
    for (document, heading), path in TESTS.items():
        assert document in (ROOT / path).read_text(encoding="utf-8"), path
        assert [
            block
            for block in blocks_of_commands()
            if block.document == document
            if heading in ("", *block.headings)
        ], heading


def test_each_reason_belongs_to_commands() -> None:
    reasons = [block for block in blocks() if block.reason]
    assert reasons
    assert [block.place for block in reasons if block.language not in ("sh", "console")] == []


def test_a_reason_is_the_comment_right_before_a_block() -> None:
    text = """\
<!-- not run: it writes -->

```sh
first
```

<!-- another comment -->

```sh
second
```

<!-- not run: over
two lines -->

```sh
third
```
"""
    reasons = [block.reason for block in blocks_of("a.md", text)]
    assert reasons == ["it writes", None, "over\ntwo lines"]


@pytest.mark.parametrize(
    ("command", "is_run"),
    [
        ("vigil faults", True),
        ("vigil explain b", True),
        ("vigil emulator show", True),
        ("vigil emulator install /tmp/npu", False),
        ("vigil lint -", False),
        ("vigil lint job.yaml", True),
        ("vigil agent", False),
        ("vigil", False),
        ("curl --fail -N http://AGGREGATOR:9821/api/v1/stream", False),
        ("curl --fail http://AGGREGATOR:9821/api/v1/jobs", True),
        ("install -d /etc/npu-vigil", False),
    ],
)
def test_a_command_is_run_by_its_program_or_verb_and_its_options(
    command: str, is_run: bool
) -> None:
    assert runs(tuple(command.split())) is is_run


def test_every_curl_reports_what_a_server_refuses() -> None:
    commands = [c for block in blocks_of_commands() for c in block.commands() if c[0] == "curl"]
    assert commands
    assert [command for command in commands if "--fail" not in command] == []


def test_every_file_of_the_repository_exists() -> None:
    wrong = [
        (block.place, word)
        for block in blocks_of_commands()
        for command in block.commands()
        for word in command
        if word.startswith(_FOLDERS)
        if not any(ROOT.glob(word))
    ]
    assert wrong == []


def _wrong_of_blocks(
    program: str, problem_of: Callable[[Sequence[str]], str | None]
) -> list[tuple[str, tuple[str, ...], str]]:
    """Return place, words and problem of each wrong command of a program in a block."""
    return [
        (block.place, command, problem)
        for block in blocks_of_commands()
        for command in block.commands()
        if command[0] == program
        if (problem := problem_of(command[1:])) is not None
    ]


def test_every_command_of_vigil_is_one() -> None:
    assert _wrong_of_blocks("vigil", _wrong) == []


def test_every_target_of_make_is_one() -> None:
    assert _wrong_of_blocks("make", _wrong_of_make) == []


@pytest.mark.slow
def test_every_command_of_a_module_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def problem_of(words: Sequence[str]) -> str | None:
        assert words[0] == "-m"
        return _wrong_of_module(words[1:], monkeypatch)

    assert _wrong_of_blocks("python", problem_of) == []


def test_every_command_in_a_sentence_is_one() -> None:
    wrong: list[tuple[str, str, str]] = []
    for document, text in inline():
        words = [word for word in split(text.translate(_NOTATION))[0] if word != "…"]
        if words[0] == "vigil":
            problem = _wrong(words[1:], is_whole=False)
        elif words[0] == "make":
            problem = _wrong_of_make(words[1:])
        else:
            module = words[2].removesuffix(".NAME")
            problem = None if find_spec(module) else "there is no such module"
        if problem:
            wrong.append((document, text, problem))
    assert wrong == []


@pytest.mark.server
@pytest.mark.parametrize("version", VERSIONS)
def test_helm_knows_every_option(version: str) -> None:
    commands = {
        command
        for block in blocks_of_commands()
        for command in block.commands()
        if command[0] == "helm"
    }
    assert len(commands) > 2
    for command in commands:
        # It parses the options before it shows their help.
        done = helm(version, *command[1:], "--help")
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("stats", "there is no stats"),
        ("faults --ordered newest", "--ordered"),
        ("faults --order nwest", "order"),
        ("explain", "is missing"),
        ("explain a b", "too many arguments"),
        ("elastic shows a/b", "there is no shows"),
    ],
)
def test_a_wrong_command_is_noticed(arguments: str, problem: str) -> None:
    noticed = _wrong(arguments.split())
    assert noticed is not None
    assert problem in noticed


def test_a_wrong_argument_of_a_module_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("benchmarks.chaos", "--episodes", "many")
    assert _wrong_of_module(words, monkeypatch) == "status 2"
    monkeypatch.undo()
    assert _wrong_of_module(("benchmarks.nothing",), monkeypatch) is not None
