"""What is wrong with a value in a configuration, a scenario or JSON, as a person reads it.

The libraries that check values (pydantic, msgspec) have texts for programmers. No other module
passes them on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from contract.errors import Problem, printable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_TEXTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "extra_forbidden": "is not known here",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "frozen_set_type": "must be a list",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "is_instance_of": "must be a path",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_attributes_type": "must be a table",
    "model_type": "must be a table",
    "path_type": "must be a path",
    "string_type": "must be a text",
    "string_unicode": "must be a text of Unicode characters",
    "too_short": "is empty; at least one is needed",
    "tuple_type": "must be a list",
    "union_tag_invalid": "{discriminator} must not be '{tag}'; write one of {expected_tags}",
    "union_tag_not_found": "{discriminator} is missing",
}
"""By the type of pydantic's error."""
_SUBJECT = re.compile(r"^(?:Input|Value|String|Field|URL|Tuple|List|Dictionary) should ")


def validation_text(item: ErrorDetails) -> str:
    """Return what is wrong, without the value that was given."""
    text = _TEXTS.get(item["type"])
    if text is not None:
        return text.format_map(item.get("ctx", {}))
    return _SUBJECT.sub("must ", item["msg"].removeprefix("Value error, "))


_KINDS = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a text",
}
"""By msgspec's name of a type of JSON."""
_EXPECTED = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `([^`]+)`)?$")
_LIMITS = {"<=": "at most", "<": "less than", ">=": "at least", ">": "more than"}
_LIMIT = re.compile(r" (?:(of length) )?(<=|<|>=|>) ")
_MEMBER = re.compile(r"Object (missing required|contains unknown) field `(.*)`$")
_VALUE = re.compile(r"Invalid (?:enum )?value (.+)$")
_MALFORMED = re.compile(r"JSON is malformed: (.+) \(byte (\d+)\)$")
_TRUNCATED = "Input data was truncated"
CUT_OFF = "is not JSON: it is cut off"


def decode_problem(error: Exception) -> Problem:
    """Return where in a JSON text something is wrong, and what would be right.

    ``error`` is what msgspec raises for that text: ``$`` is the whole. Any other error has its own
    text.
    """
    if isinstance(error, RecursionError):
        return Problem("$", "is nested too deeply")
    if isinstance(error, UnicodeError):
        return Problem("$", "is not UTF-8 text")
    if not isinstance(error, msgspec.MsgspecError):
        return Problem("$", str(error))
    # The text repeats names of members, which may contain control characters.
    message, _, place = printable(str(error)).partition(" - at ")
    where = place.replace("`", "").replace("key in", "a key of") or "$"
    if (match := _MEMBER.match(message)) is not None:
        is_missing = match[1].startswith("missing")
        return Problem(f"{where}.{match[2]}", "is missing" if is_missing else "is not known here")
    if (match := _EXPECTED.match(message)) is not None:
        expected, limit, given = match.groups()
        rule = _LIMIT.sub(_limited, limit).replace("matching regex", "that matches")
        must = f"must be {_kinds(expected)}{rule}"
        if given == "float":
            return Problem(where, f"{must}, is a number with a fraction or exponent")
        return Problem(where, f"{must}, is {_kinds(given)}" if given else must)
    if (match := _VALUE.match(message)) is not None:
        return Problem(where, f"must not be {match[1]}: the value is not known here")
    if (match := _MALFORMED.match(message)) is not None:
        return Problem("$", f"is not JSON: {match[1]} at byte {match[2]}")
    return Problem(where, CUT_OFF if message == _TRUNCATED else message)


def placed_in(error: msgspec.ValidationError, path: str) -> msgspec.ValidationError:
    """Return an error in the part of a JSON text at ``path``, as one in the whole text."""
    text, separator, where = str(error).partition(" - at ")
    place = where.replace("`$", f"`{path}") if separator else f"`{path}`"
    return msgspec.ValidationError(f"{text} - at {place}")


def decode_text(error: Exception) -> str:
    """Return ``decode_problem`` as one text; without the place where that is the whole."""
    problem = decode_problem(error)
    return problem.what if problem.where == "$" else str(problem)


def _kinds(names: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in names.split(" | "))


def _limited(match: re.Match[str]) -> str:
    of = " of length" if match[1] else " of"
    return f"{of} {_LIMITS[match[2]]} "
