"""JSON as Go's ``encoding/json`` reads it into a struct, with one exception.

Documents are declared as ``GoStruct`` classes. Text that is written as Go writes it takes a fast
path; everything else is judged member by member: names match without regard to case, the last
duplicate wins, unknown members are dropped, ``null`` leaves the zero value, an integer has neither
fraction nor exponent and fits its width, and text that is not Unicode becomes U+FFFD. Go merges an
object, array or map that is there twice; here the last one counts alone (docs/compatibility.md).

Source: ``docs/spec/clusterd.md#1.4`` ("Go decoding quirks").
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from contract.errors import DocumentError, Problem

if TYPE_CHECKING:
    from contract.errors import FoundProblems

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Uint: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Go's ``uint`` without its last bit: msgspec has no such bound, no document such a number."""


class GoStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what is read from documents. Every field needs its Go zero value as its default.

    A list or map that may be absent is declared ``… | None``: Go distinguishes nil and empty.
    Unknown members are forbidden only so that the fast path leaves them to the careful one.
    """


_MAX_WRONG = 250
"""So many values of wrong types are reported; a mebibyte may hold half a million of them."""
_BYTE_ORDER_MARK = "it begins with a byte order mark; save it as UTF-8 without one"

T = TypeVar("T")
_Wrong: TypeAlias = Callable[[str, str, Any], None]
"""Receives a value of a wrong type: its place, what is expected, and the value. It may raise."""
_Read: TypeAlias = Callable[[Any, str, _Wrong], Any]


def decode(text: str, model: type[T], document: str, where: str = "$") -> T:
    """Read ``text`` as ``model``: a ``GoStruct``, or a list or map of them.

    ``document`` names the document and ``where`` the place of ``text`` in it for the message.
    Raises ``DocumentError`` for what Go refuses.
    """

    def refuse_type(where: str, expected: str, value: Any) -> NoReturn:
        wrong = _wrong_type(where, expected, value)
        raise DocumentError(document, wrong.where, wrong.what)

    return _decode(text, model, document, where, refuse_type)


def decode_all(text: str, model: type[T], document: str) -> tuple[T, tuple[Problem, ...]]:
    """Read ``text`` as ``decode`` does, past wrong types; return what they are as well.

    A value of a wrong type becomes Go's zero value, so that the caller can check the rest. Raises
    ``DocumentError`` for what is not valid JSON, and for too many wrong types.
    """
    wrong: list[Problem] = []

    def note(where: str, expected: str, value: Any) -> None:
        wrong.append(_wrong_type(where, expected, value))
        if len(wrong) == _MAX_WRONG:
            more = Problem("$", f"has {_MAX_WRONG} wrong types at least; the rest is not looked at")
            raise DocumentError(document, more.where, more.what, tuple(wrong))

    return _decode(text, model, document, "$", note), tuple(wrong)


def _decode(text: str, model: type[T], document: str, where: str, wrong: _Wrong) -> T:
    shape: Any = model
    try:
        fast: T = _fast(shape).decode(text)
        return fast
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # not necessarily wrong: the careful reader decides
    value: T = _reader(shape)(parsed(text, document, where), where, wrong)
    return value


def refuse(document: str, wrong: tuple[Problem, ...], problems: FoundProblems) -> None:
    """Raise ``DocumentError`` where there is a ``wrong`` type, with what else has ``problems``.

    What follows from a zero value in its place is left out.
    """
    if not wrong:
        return
    first, *others = wrong
    places = {problem.where for problem in wrong} | {"$"}
    apart = (problem for problem in problems.all() if not _is_in(problem.where, places))
    raise DocumentError(document, first.where, first.what, (*others, *apart))


def _is_in(where: str, places: set[str]) -> bool:
    """Return whether ``where`` is one of ``places``, or inside of one but the whole."""
    if where in places:
        return True
    ends = (at for at, letter in enumerate(where) if letter in ".[" and at > 1)
    return any(where[:at] in places for at in ends)


def parsed(text: str, document: str, where: str = "$") -> Any:
    """Return ``text`` as ``parse`` gives it. Raises ``DocumentError`` for malformed JSON."""
    try:
        return parse(text)
    except RecursionError:
        raise DocumentError(document, where, "is nested too deeply") from None
    except ValueError as error:
        reason = _BYTE_ORDER_MARK if text.startswith("\ufeff") else str(error)
        raise DocumentError(document, where, f"is not JSON: {reason}") from None


@cache
def _fast(model: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(model)


class Pairs(list[tuple[str, Any]]):
    """An object as ``parse`` gives it: its members in order, duplicates included."""


class _Number(str):
    """A number with fraction or exponent: no integer for Go, whatever its value."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


# ``Pairs`` keep duplicates for the judgement; Go refuses NaN and Infinity, which Python reads.
parse = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_float=_Number, parse_constant=_refuse_constant
).decode


def _wrong_type(where: str, expected: str, value: Any) -> Problem:
    return Problem(where, f"must be {expected}, is {describe(value)}")


def describe(value: Any) -> str:
    """Return what a value of ``parse`` is, for people."""
    match value:
        case _Number():
            return f"the number {str(value)[:40]}"
        case bool():
            return "true" if value else "false"
        case int():
            return f"the number {value}" if abs(value) < 10**40 else "a very large number"
        case str():
            return f"the text {value[:40]!r}"
        case Pairs():
            return "an object"
        case list():
            return "an array"
    return "null"


_SURROGATE = re.compile("[\ud800-\udfff]")


def _text(value: str) -> str:
    return _SURROGATE.sub("\ufffd", value)


def folded(name: str) -> str:
    """Return what two names have in common that Go takes for one.

    Go folds two letters outside ASCII onto ASCII ones: the Kelvin sign and the long s.
    """
    # ``lower`` turns the Kelvin sign into k, and leaves the long s as it is.
    return name.lower().replace("\u017f", "s")


@cache
def _reader(model: Any) -> _Read:
    return _of_type(inspect.type_info(model))


def _of_type(kind: inspect.Type) -> _Read:
    match kind:
        case inspect.Metadata(type=some, extra=extra) if extra is not None:
            return _of_limited(some, extra["limits"])
        case inspect.StrType():
            return _read_text
        # A ``Uint`` has the bound that msgspec lacks: twice as much, as Go's ``uint`` of 64 bits.
        case inspect.IntType(ge=low, le=high) if low is not None and high is not None:
            return _integer(low, high if low < 0 else 2 * high + 1)
        case inspect.UnionType(types=(some, inspect.NoneType())):
            return _nullable(_of_type(some))
        case inspect.ListType(item_type=item):
            return _list(_of_type(item))
        case inspect.DictType(value_type=item):
            return _map(_of_type(item))
        case inspect.StructType(cls=cls):
            return _struct(cls, kind)
    raise TypeError(f"documents have no {kind!r}")


def _read_text(value: Any, where: str, wrong: _Wrong) -> str:
    if value is None:
        return ""
    # A ``_Number`` is a ``str`` in Python, and a number in JSON.
    if not isinstance(value, str) or isinstance(value, _Number):
        wrong(where, "a text", value)
        return ""
    return _text(value)


def _of_limited(kind: inspect.Type, limits: tuple[int, int]) -> _Read:
    assert isinstance(kind, inspect.IntType)
    assert kind.ge is not None
    assert kind.le is not None
    return _integer(kind.ge, kind.le, limits)


def _integer(low: int, high: int, limits: tuple[int, int] | None = None) -> _Read:
    """Read an integer that is refused outside of ``low`` to ``high``.

    ``limits`` are narrower ones for people, which the caller checks.
    """
    least, most = limits or (low, high)
    expected = f"an integer from {least} to {most}"

    def read(value: Any, where: str, wrong: _Wrong) -> int:
        if value is None:
            return 0
        # A ``bool`` is an ``int`` in Python and not in Go.
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            wrong(where, expected, value)
            return 0
        return value

    return read


def _nullable(some: _Read) -> _Read:
    return lambda value, where, wrong: None if value is None else some(value, where, wrong)


def _list(item: _Read) -> _Read:
    def read(value: Any, where: str, wrong: _Wrong) -> list[Any]:
        if value is None:
            return []
        # ``Pairs`` is a list, too, and stands for an object.
        if not isinstance(value, list) or isinstance(value, Pairs):
            wrong(where, "an array", value)
            return []
        return [item(element, f"{where}[{index}]", wrong) for index, element in enumerate(value)]

    return read


def _map(item: _Read) -> _Read:
    def read(value: Any, where: str, wrong: _Wrong) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Pairs):
            wrong(where, "an object", value)
            return {}
        return {_text(key): item(element, f"{where}[{key!r}]", wrong) for key, element in value}

    return read


def _struct(cls: type[Any], kind: inspect.StructType) -> _Read:
    members = {
        folded(field.encode_name): (
            field.name,
            field.encode_name,
            _of_type(field.type),
            isinstance(field.type, (inspect.UnionType, inspect.ListType, inspect.DictType)),
        )
        for field in kind.fields
    }

    def read(value: Any, where: str, wrong: _Wrong) -> Any:
        if value is None:
            return cls()
        if not isinstance(value, Pairs):
            wrong(where, "an object", value)
            return cls()
        values = {}
        for key, element in value:
            member = members.get(folded(key))
            if member is None:
                continue
            name, wire, reader, can_be_nil = member
            if element is not None:
                # The last duplicate wins (clusterd#1.4).
                values[name] = reader(element, f"{where}.{wire}", wrong)
            # In Go, null sets a slice or map to nil and leaves any other value as an earlier
            # duplicate set it.
            elif can_be_nil:
                values.pop(name, None)
        return cls(**values)

    return read
