"""What is wrong with a value in a configuration or scenario, as a person reads it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_type": "must be a table",
    "string_type": "must be a text",
    "too_short": "is empty; at least one is needed",
    "tuple_type": "must be a list",
}
"""By the type of pydantic's error."""
_SUBJECT = re.compile(r"^(?:Input|Value|String|Field|URL|Tuple|List|Dictionary) should ")


def validation_text(item: ErrorDetails) -> str:
    """Return what is wrong, without the value that was given."""
    text = _TEXTS.get(item["type"])
    if text is not None:
        return text.format_map(item.get("ctx", {}))
    return _SUBJECT.sub("must ", item["msg"].removeprefix("Value error, "))
