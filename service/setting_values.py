"""Values of settings: JSON and text become the types of a section, with all problems at once.

The annotation of a field is its whole rule. Types are ``bool``, ``int``, ``float``, ``str``,
``Path``, an enumeration of texts, ``Literal`` of texts, ``tuple[X, ...]``, ``dict[K, X]``, a
section, and ``X | None``. In ``Annotated`` are limits (``msgspec.Meta``) and a ``ValueRule``.
"""

from __future__ import annotations

import operator
import re
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
)

import msgspec

from contract.settings import Section, ValueRule

if TYPE_CHECKING:
    from collections.abc import Callable

Place: TypeAlias = tuple[str | int, ...]
"""Keys of tables and indices of lists that lead to a value."""

_REFUSED = object()
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
"""By their texts in small letters."""
_KINDS = {
    bool: "must be true or false",
    int: "must be a whole number",
    float: "must be a number",
    str: "must be a text",
    Path: "must be a text",
}
_WHOLE = re.compile(r"\s*([+-]?\d[\d_]*)\.0+\s*")


class WrongValue(NamedTuple):
    """A value that a section does not take."""

    place: Place
    text: str
    """What is wrong with it."""
    given: object = None
    kind: Literal["missing", "unknown", "value"] = "value"


@cache
def fields_of(model: type[Section]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of ``model``; cached, because evaluating their annotations is slow."""
    return msgspec.structs.fields(model)


def read_value(annotation: Any, given: object, refused: list[WrongValue]) -> object:
    """Return ``given`` as the type ``annotation``; texts in it may stand for numbers and booleans.

    What is wrong is added to ``refused``; the result then has no meaning.
    """
    return _ValueReader(refused, reads_text=True).read(annotation, given, ())


def read_section(model: type[Section], given: object, refused: list[WrongValue]) -> object:
    """Return the table ``given``, of values of JSON, as ``model``.

    What is wrong is added to ``refused``; the result then has no meaning.
    """
    return _ValueReader(refused, reads_text=False).read(model, given, ())


class _ValueReader:
    def __init__(self, refused: list[WrongValue], *, reads_text: bool) -> None:
        self._refused = refused
        self._reads_text = reads_text

    def read(self, annotation: Any, given: object, place: Place) -> object:
        """Return ``given`` as an ``annotation``; otherwise add what is wrong."""
        arguments = get_args(annotation)
        origin = get_origin(annotation)
        if origin is Annotated:
            return self._limited(arguments[0], arguments[1:], given, place)
        if NoneType in arguments:
            (some,) = (kind for kind in arguments if kind is not NoneType)
            return None if given is None else self.read(some, given, place)
        if origin is tuple:
            return self._list(arguments[0], given, place)
        if origin is dict:
            return self._table(arguments[0], arguments[1], given, place)
        if origin is Literal:
            return self._choice(arguments, str, given, place)
        if issubclass(annotation, StrEnum):
            return self._choice(tuple(annotation), annotation, given, place)
        if issubclass(annotation, Section):
            return self._section(annotation, given, place)
        return self._scalar(annotation, given, place)

    def _refuse(self, place: Place, text: str, given: object) -> object:
        self._refused.append(WrongValue(place, text, given))
        return _REFUSED

    def _limited(
        self, annotation: Any, rules: tuple[Any, ...], given: object, place: Place
    ) -> object:
        value = self.read(annotation, given, place)
        for rule in rules:
            if value is _REFUSED:
                break
            try:
                if isinstance(rule, ValueRule):
                    value = rule.function(value)
                else:
                    _check_limits(rule, annotation, value)
            except ValueError as error:
                value = self._refuse(place, str(error), given)
        return value

    def _list(self, annotation: Any, given: object, place: Place) -> object:
        if not isinstance(given, list | tuple):
            return self._refuse(place, "must be a list", given)
        values = [self.read(annotation, value, (*place, i)) for i, value in enumerate(given)]
        return _REFUSED if _REFUSED in values else tuple(values)

    def _table(self, key: Any, annotation: Any, given: object, place: Place) -> object:
        if not isinstance(given, dict):
            return self._refuse(place, "must be a table", given)
        table = {
            self.read(key, name, (*place, name, "[key]")): self.read(
                annotation, value, (*place, name)
            )
            for name, value in given.items()
        }
        return _REFUSED if _REFUSED in table or _REFUSED in table.values() else table

    def _choice(
        self, values: tuple[str, ...], kind: Callable[[str], object], given: object, place: Place
    ) -> object:
        if isinstance(given, str) and given in values:
            return kind(given)
        *first, last = (repr(str(value)) for value in values)
        choices = f"{', '.join(first)} or {last}" if first else last
        return self._refuse(place, f"must be {choices}", given)

    def _section(self, model: type[Section], given: object, place: Place) -> object:
        if not isinstance(given, dict):
            return self._refuse(place, "must be a table", given)
        before = len(self._refused)
        values = {}
        fields = fields_of(model)
        for field in fields:
            if field.name in given:
                below = (*place, field.name)
                values[field.name] = self.read(field.type, given[field.name], below)
            elif field.required:
                missing = WrongValue((*place, field.name), "is missing", given, "missing")
                self._refused.append(missing)
        names = {field.name for field in fields}
        for name, value in given.items():
            if name not in names:
                unknown = WrongValue((*place, name), "is not known here", value, "unknown")
                self._refused.append(unknown)
        if len(self._refused) > before:
            return _REFUSED
        try:
            return model(**values)
        except ValueError as error:
            return self._refuse(place, str(error), given)

    def _scalar(self, kind: type, given: object, place: Place) -> object:
        if self._reads_text and isinstance(given, str) and kind in (bool, int, float):
            value = _parsed(kind, given)
        else:
            value = _typed(kind, given)
        if value is _REFUSED:
            return self._refuse(place, _KINDS[kind], given)
        if isinstance(given, str) and not _is_unicode(given):
            return self._refuse(place, "must be a text of Unicode characters", given)
        return value


def _typed(kind: type, given: object) -> object:
    """Return a value of JSON as ``kind``: a whole number may be a ``float``, a text a ``Path``."""
    if kind is float and type(given) is int:
        try:
            return float(given)
        except OverflowError:
            return _REFUSED
    if kind is Path and isinstance(given, str):
        return Path(given)
    # Not ``isinstance``: a boolean is not a number here.
    return given if type(given) is kind else _REFUSED


def _parsed(kind: type, text: str) -> object:
    """Return the boolean or number that ``text`` stands for."""
    if kind is bool:
        return _BOOLEANS.get(text.lower(), _REFUSED)
    whole = _WHOLE.fullmatch(text)
    try:
        return kind(whole[1] if kind is int and whole is not None else text)
    except ValueError:
        return _REFUSED


def _is_unicode(text: str) -> bool:
    # The environment may have bytes that are not UTF-8, which Python keeps as surrogates.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_limits(limits: msgspec.Meta, kind: Any, value: Any) -> None:
    """Raise ``ValueError`` where ``value`` of a field of type ``kind`` is outside of ``limits``."""
    if limits.min_length is not None and len(value) < limits.min_length:
        if kind is str:
            raise ValueError("must have at least 1 character")
        raise ValueError("is empty; at least one is needed")
    for limit, keeps, text in (
        (limits.le, operator.le, "at most"),
        (limits.lt, operator.lt, "less than"),
        (limits.ge, operator.ge, "at least"),
        (limits.gt, operator.gt, "more than"),
    ):
        # A value that is not a number keeps none.
        if limit is not None and not keeps(value, limit):
            raise ValueError(f"must be {text} {kind(limit)}")
