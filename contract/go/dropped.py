"""What Go's ``encoding/json`` reads past without a word: unknown members and repeated ones.

A reader that does as Go does takes such a document; its writer should be informed.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from contract.errors import Problem, quoted
from contract.go.decode import Pairs, folded, parse

if TYPE_CHECKING:
    from collections.abc import Iterator


def dropped(text: str, model: type[Any]) -> Iterator[Problem]:
    """Yield the members of ``text``, which ``go_decode.decode`` has read as ``model``, without
    effect.
    """
    try:
        yield from _dropped(parse(text), inspect.type_info(model), "$")
    except RecursionError:
        yield Problem("$", "is nested so deeply that it was not looked at whole")


def _dropped(value: Any, kind: inspect.Type, where: str) -> Iterator[Problem]:
    match kind:
        case inspect.UnionType(types=(some, inspect.NoneType())):
            yield from _dropped(value, some, where)
        case inspect.ListType(item_type=item) if isinstance(value, list):
            for index, element in enumerate(value):
                yield from _dropped(element, item, f"{where}[{index}]")
        case inspect.StructType(fields=fields) if isinstance(value, Pairs):
            members = {folded(field.encode_name): field for field in fields}
            last = {folded(key): position for position, (key, _) in enumerate(value)}
            for position, (key, element) in enumerate(value):
                member = members.get(folded(key))
                if member is None:
                    yield Problem(f"{where}.{quoted(key)}", _unknown(key, members))
                elif last[folded(key)] != position:
                    message = "is given more than once; only the last one counts"
                    yield Problem(f"{where}.{member.encode_name}", message)
                else:
                    yield from _dropped(element, member.type, f"{where}.{member.encode_name}")


def _unknown(key: str, members: dict[str, inspect.Field]) -> str:
    # Cut, because the comparison of long names is slow.
    near = _nearest(folded(key)[:64], tuple(members))
    if near is not None:
        return f"is not known and has no effect; did you mean {members[near].encode_name}?"
    names = ", ".join(field.encode_name for field in members.values())
    return f"is not known and has no effect; known here: {names}"


@lru_cache(maxsize=256)  # a member is mostly misspelled in every entry of a list
def _nearest(name: str, names: tuple[str, ...]) -> str | None:
    return next(iter(get_close_matches(name, names, n=1)), None)
