"""Errors of the libraries that check values are never shown in the libraries' own words."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_type_hints

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

from contract.errors import Problem
from contract.validation_texts import decode_problem, decode_text, placed_in, validation_text
from dcmi_shim.emulator.scenario import AnyStep, Scenario
from tests.parts.plain_english import PACKAGES
from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    times: Annotated[int, msgspec.Meta(ge=1)] = 1
    level: Literal["low", "high"] = "low"
    chips: list[int] | None = None


class _Whole(msgspec.Struct):
    parts: dict[str, _Part] = {}
    share: float = 0.0
    is_on: bool = False
    by_number: dict[int, str] = {}


class _Circle(msgspec.Struct, tag="circle"):
    pass


class _Square(msgspec.Struct, tag="square"):
    pass


def _error(text: bytes, model: object) -> Exception:
    try:
        msgspec.json.decode(text, type=model)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return error
    raise AssertionError(f"{text!r} is right")


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (b"[]", "$", "must be an object, is an array"),
        (b"null", "$", "must be an object, is null"),
        (b'{"share": "x"}', "$.share", "must be a number, is a text"),
        (b'{"is_on": 1}', "$.is_on", "must be true or false, is an integer"),
        (b'{"parts": {"a": {}}}', "$.parts[...].code", "is missing"),
        (b'{"parts": {"a": {"code": 1.5}}}', "$.parts[...].code", "must be a text, is a number"),
        (b'{"parts": {"a": {"code": ""}, "b": {"kode": ""}}}', "$.parts[...].kode", "is not known"),
        (
            b'{"parts": {"a": {"code": "", "times": 0}}}',
            "$.parts[...].times",
            "must be an integer of at least 1",
        ),
        (
            b'{"parts": {"a": {"code": "", "level": "odd"}}}',
            "$.parts[...].level",
            "must not be 'odd'",
        ),
        (
            b'{"parts": {"a": {"code": "", "chips": {}}}}',
            "$.parts[...].chips",
            "must be an array or null, is an object",
        ),
        (b'{"by_number": {"x": ""}}', "a key of $.by_number", "must be an integer, is a text"),
        (b"{} {}", "$", "is not JSON: trailing characters at byte"),
        (b'{"parts": ', "$", "is not JSON: it is cut off"),
        (b'{"parts": {"a": {"code": "\xff"}}}', "$", "is not UTF-8 text"),
        (b"[" * 100_000, "$", "is nested too deeply"),
    ],
)
def test_an_error_names_the_place_and_what_would_be_right(
    text: bytes, where: str, what: str
) -> None:
    model = list[msgspec.Raw] if text.startswith(b"[[") else _Whole
    found = decode_problem(_error(text, model))
    assert found.where == where
    assert found.what.startswith(what)
    assert "`" not in found.what


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"7", "$.spec: must be an object, is an integer"),
        (b'{"share": "x"}', "$.spec.share: must be a number, is a text"),
        (b'{"by_number": {"x": ""}}', "a key of $.spec.by_number: must be an integer, is a text"),
    ],
)
def test_an_error_in_a_part_names_the_place_in_the_whole(text: bytes, expected: str) -> None:
    error = _error(text, _Whole)
    assert isinstance(error, msgspec.ValidationError)
    assert decode_text(placed_in(error, "$.spec")) == expected


def test_a_kind_that_is_not_known_is_named() -> None:
    error = _error(b'{"type": "line"}', _Circle | _Square)
    assert decode_text(error) == "$.type: must not be 'line': the value is not known here"


def test_no_control_character_is_repeated() -> None:
    error = _error(b'{"type": "\\u001b[2J"}', _Circle | _Square)
    assert decode_text(error).isprintable()


def test_an_error_about_the_whole_has_no_place_as_text() -> None:
    assert decode_text(_error(b"[]", _Whole)) == "must be an object, is an array"


def test_any_other_error_has_its_own_text() -> None:
    assert decode_problem(ValueError("its interval is 0")) == Problem("$", "its interval is 0")


@pytest.mark.slow
def test_no_module_passes_on_the_text_of_a_library() -> None:
    handlers = [
        (name, handler)
        for name in files("*.py")
        if name.partition("/")[0] in PACKAGES and not name.startswith("contract/wire/")
        for handler in _handlers((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert len(handlers) > 30
    assert [
        f"{name}:{line}" for name, handler in handlers for line in _lines_of_own_text(handler)
    ] == []


_OF_MSGSPEC = {"MsgspecError", "DecodeError", "ValidationError"}
_MAY_HAVE_THE_ERROR = {
    "decode_problem",
    "decode_text",
    "isinstance",
    "placed_in",
    "_problem",
    "_refuse",
    "_refused",
}
"""Functions that may be given the error; those with an underscore pass it to the first two."""


def _handlers(text: str) -> Iterator[ast.ExceptHandler]:
    """Yield each handler of an error of msgspec that gives the error a name."""
    # To parse all modules would take most of the time.
    if not any(name in text for name in _OF_MSGSPEC):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler) or node.name is None or node.type is None:
            continue
        if any(isinstance(one, ast.Attribute) and one.attr in _OF_MSGSPEC for one in _all(node)):
            yield node


def _all(handler: ast.ExceptHandler) -> Iterator[ast.AST]:
    assert handler.type is not None
    return ast.walk(handler.type)


def _lines_of_own_text(handler: ast.ExceptHandler) -> Iterator[int]:
    """Yield the lines that use the error other than as a cause or by one of the functions."""
    body = ast.Module(handler.body, [])
    allowed = {
        id(argument)
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in _MAY_HAVE_THE_ERROR
        for argument in node.args
    } | {id(node.cause) for node in ast.walk(body) if isinstance(node, ast.Raise)}
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id == handler.name and id(node) not in allowed:
            yield node.lineno


_VALUES: tuple[object, ...] = (
    *("", "x", "\ud800", b"x", -1, 10**30, 1.5, float("inf"), float("nan")),
    *([], [1], ["x"], {}, {"a": 1}, None, True),
)
# "is not a valid X" is ours; pydantic writes "should be a valid X".
_OF_PYDANTIC = re.compile(
    r"\b(?:Input|should|instance|Unable|discriminator)\b|(?<!is not a )\bvalid\b|<class"
)


def _texts_of_scenarios() -> Iterator[str]:
    for value in _VALUES:
        yield from _texts(Scenario, {"profile": value})
        yield from _texts(Scenario, {"steps": value})
        yield from _texts(Scenario, {"steps": [value]})
        yield from _texts(Scenario, {"steps": [{"do": value}]})
        for step in get_args(AnyStep):
            for do in get_args(get_type_hints(step)["do"]):
                for name in step.model_fields.keys() - {"do"}:
                    yield from _texts(Scenario, {"steps": [{"do": do, name: value}]})


def _texts(model: type[BaseModel], content: object) -> list[str]:
    try:
        model.model_validate(content, strict=True)
    except ValidationError as error:
        return [validation_text(one) for one in error.errors()]
    return []


@pytest.mark.slow
def test_no_wrong_step_is_shown_in_the_words_of_a_library() -> None:
    found = set(_texts_of_scenarios())
    assert {"must be a whole number", "must be less than 16", "'do' is missing"} <= found
    assert any(one.startswith("'do' must not be 'x'; write one of 'occur'") for one in found)
    assert [one for one in found if _OF_PYDANTIC.search(one)] == []
