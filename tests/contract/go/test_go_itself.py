"""The tolerant reader and Go's own ``encoding/json`` (``tests/go_json``) read the same texts.

The texts are those that good inputs of ``benchmarks.fuzz`` give to the reader, most of them from
recordings of the real programs, and seeded mutations of them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import inspect

from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.targets import TARGETS
from contract.errors import DocumentError, VigilError
from contract.go import decode as reader
from contract.go.decode import GoStruct, Int32, Pairs, folded, parse
from tests.parts.processes import built_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Go's reader is built by ``tests/setup.sh``.
pytestmark = pytest.mark.server

_MODULE = Path(__file__).parent.parent.parent / "go_json"
_SOURCES = [_MODULE / name for name in ("go.mod", "main.go")]
_MUTATED = 60
_MAX_CHARACTERS = 20_000
_WITHOUT_DOCUMENTS = ("lint-", "advise-", "aggregator-input")
"""Targets that are whole programs, and read no document that another target does not read."""
_INTEGERS = {-(2**31): "int32", -(2**63): "int64", 0: "uint64"}
_COMPOSITE = (inspect.ListType, inspect.DictType, inspect.StructType, inspect.UnionType)


def _shape(kind: inspect.Type) -> dict[str, Any]:
    """Return a type as ``tests/go_json`` takes it."""
    match kind:
        case inspect.Metadata(type=inner):
            return _shape(inner)
        case inspect.IntType(ge=int(low)):
            return {"kind": _INTEGERS[low]}
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            shape = _shape(inner)
            # Go's lists and maps have a nil of their own.
            return shape if shape["kind"] in ("list", "map") else {"kind": "pointer", "item": shape}
        case inspect.ListType(item_type=item):
            return {"kind": "list", "item": _shape(item)}
        case inspect.DictType(value_type=item):
            return {"kind": "map", "item": _shape(item)}
        case inspect.StructType(fields=fields):
            members = [{"name": field.encode_name, "type": _shape(field.type)} for field in fields]
            return {"kind": "struct", "fields": members}
    assert isinstance(kind, inspect.StrType)
    return {"kind": "text"}


def _plain(value: Any, kind: inspect.Type, member: Callable[[Any, inspect.Field], Any]) -> Any:
    """Return ``value`` without objects of Python; ``member`` returns one of a struct.

    A list or map that must be there is empty where it is nil in Go.
    """
    match kind:
        case inspect.Metadata(type=inner):
            return _plain(value, inner, member)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return None if value is None else _plain(value, inner, member)
        case inspect.ListType(item_type=item):
            return [_plain(element, item, member) for element in value or ()]
        case inspect.DictType(value_type=item):
            return {key: _plain(element, item, member) for key, element in (value or {}).items()}
        case inspect.StructType(fields=fields):
            return {
                field.encode_name: _plain(member(value, field), field.type, member)
                for field in fields
            }
    return value


def _merges(value: Any, kind: inspect.Type) -> bool:
    """Return whether Go merges a member of a parsed ``value`` that is there twice."""
    match kind:
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return _merges(value, inner)
        case inspect.ListType(item_type=item) if isinstance(value, list):
            return any(_merges(element, item) for element in value)
        case inspect.DictType(value_type=item) if isinstance(value, Pairs):
            return any(_merges(element, item) for _, element in value)
        case inspect.StructType(fields=fields) if isinstance(value, Pairs):
            members = {folded(field.encode_name): field.type for field in fields}
            names = [folded(key) for key, _ in value]
            return any(
                (names.count(name) > 1 and isinstance(members[name], _COMPOSITE))
                or _merges(element, members[name])
                for name, (_, element) in zip(names, value, strict=True)
                if name in members
            )
    return False


@cache
def _texts() -> dict[Any, dict[str, None]]:
    """Return the texts that good inputs give to the reader, by what they are read as."""
    read = reader._decode
    texts: dict[Any, dict[str, None]] = {}

    def recording(text: str, model: Any, *rest: Any) -> Any:
        texts.setdefault(model, {})[text] = None
        return read(text, model, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_decode", recording)
        for name, new in TARGETS.items():
            if name.startswith(_WITHOUT_DOCUMENTS):
                continue
            target = new()
            for text in target.seeds:
                try:
                    target.feed(text)
                except VigilError as error:
                    raise AssertionError(f"{name} refuses a good input") from error
    return texts


def _inputs(good: Iterable[str], rng: Random) -> Iterator[str]:
    seeds = [text for text in good if len(text) < _MAX_CHARACTERS]
    yield from seeds
    for _ in range(_MUTATED if seeds else 0):
        yield mutated(rng, seeds).encode("utf-8", "replace").decode()


def _read_by_go(model: Any, texts: list[str]) -> list[dict[str, Any]]:
    lines: list[object] = [{"type": _shape(inspect.type_info(model))}]
    lines += [{"text": base64.b64encode(text.encode()).decode()} for text in texts]
    given = "\n".join(map(json.dumps, lines)).encode()
    program = built_program("go-json", _SOURCES)
    answers = subprocess.run([program], input=given, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(answer) for answer in answers.splitlines()]


def test_go_and_the_reader_accept_and_read_the_same() -> None:
    rng = Random(5)
    accepted = refused = merged = 0
    assert len(_texts()) > 15
    for model, good in _texts().items():
        kind = inspect.type_info(model)
        texts = list(_inputs(good, rng))
        for text, answer in zip(texts, _read_by_go(model, texts), strict=True):
            value = None
            with contextlib.suppress(DocumentError):
                value = reader.decode(text, model, "document")
            assert (value is None) == ("error" in answer), (model, text, answer)
            if value is None:
                refused += 1
                continue
            if _merges(parse(text), kind):
                merged += 1
                continue
            ours = _plain(value, kind, lambda struct, field: getattr(struct, field.name))
            assert ours == _plain(
                answer["value"], kind, lambda struct, field: struct[field.encode_name]
            ), (model, text)
            accepted += 1
    assert accepted > 1000
    assert refused > 200
    assert merged < accepted / 20


class Inner(GoStruct, frozen=True):
    Name: str = ""
    Small: Int32 = 0


class Outer(GoStruct, frozen=True):
    Inside: Inner = Inner()
    Items: list[Inner] | None = None
    Map: dict[str, str] | None = None


@pytest.mark.parametrize(
    ("text", "ours", "go"),
    [
        ('{"Inside":{"Name":"x"},"Inside":{"Small":1}}', Outer(Inner("", 1)), Outer(Inner("x", 1))),
        (
            '{"Items":[{"Name":"x"}],"items":[{"Small":1}]}',
            Outer(Items=[Inner("", 1)]),
            Outer(Items=[Inner("x", 1)]),
        ),
        (
            '{"Map":{"a":"1"},"Map":{"b":"2"}}',
            Outer(Map={"b": "2"}),
            Outer(Map={"a": "1", "b": "2"}),
        ),
    ],
)
def test_a_member_that_is_there_twice_counts_once_and_go_merges_it(
    text: str, ours: Outer, go: Outer
) -> None:
    kind = inspect.type_info(Outer)
    (answer,) = _read_by_go(Outer, [text])
    assert reader.decode(text, Outer, "document") == ours
    of_go = _plain(answer["value"], kind, lambda struct, field: struct[field.encode_name])
    assert of_go == _plain(go, kind, lambda struct, field: getattr(struct, field.name))
