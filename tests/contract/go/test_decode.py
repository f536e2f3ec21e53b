"""The tolerant reader, quirk by quirk, and what no input may do to it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.documents import device_info
from contract.documents.device_info import DeviceFault
from contract.documents.separation import read_reasons
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int32, Int64, Uint, decode
from tests.parts.examples import examples
from tests.vectors import VECTORS


class Inner(GoStruct, frozen=True):
    Name: str = ""
    Small: Int32 = 0


class Outer(GoStruct, frozen=True):
    Text: str = ""
    Large: Int64 = 0
    Positive: Uint = 0
    Items: list[Inner] | None = None
    Names: list[str] | None = None
    Map: dict[str, str] | None = None
    Inside: Inner = Inner()


ACCEPTED: list[tuple[str, Outer]] = [
    ("null", Outer()),
    ("{}", Outer()),
    (' {"Text" : "x"}\n', Outer(Text="x")),
    ('{"tEXT":"x","unknown":[{"deep":1e9}]}', Outer(Text="x")),
    ('{"Text":"a","text":"b"}', Outer(Text="b")),
    ('{"text":"a","Text":"b"}', Outer(Text="b")),
    ('{"Text":"a","Text":null}', Outer(Text="a")),
    ('{"Te\u017ft":"x"}', Outer()),
    ('{"Po\u017fitive":1}', Outer(Positive=1)),
    ('{"Large":-9223372036854775808}', Outer(Large=-(2**63))),
    ('{"large":9223372036854775807}', Outer(Large=2**63 - 1)),
    ('{"Positive":18446744073709551615}', Outer(Positive=2**64 - 1)),
    ('{"Large":-0}', Outer(Large=0)),
    ('{"Items":[],"Names":[],"Map":{}}', Outer(Items=[], Names=[], Map={})),
    ('{"Items":null,"Names":null,"Map":null,"Inside":null}', Outer()),
    ('{"Items":[null,{"name":"x"}]}', Outer(Items=[Inner(), Inner(Name="x")])),
    ('{"Names":[null,"a"],"Map":{"k":null}}', Outer(Names=["", "a"], Map={"k": ""})),
    ('{"Map":{"K":"1","k":"2","k":"3"}}', Outer(Map={"K": "1", "k": "3"})),
    (r'{"Text":"\ud800A\udc00"}', Outer(Text="\ufffdA\ufffd")),
    (r'{"Text":"\ud83d\ude00\u0000"}', Outer(Text="\U0001f600\0")),
    ('{"Text":"\ud800"}', Outer(Text="\ufffd")),
    (r'{"Map":{"\udfff":"1"}}', Outer(Map={"\ufffd": "1"})),
]


@pytest.mark.parametrize(("text", "value"), ACCEPTED)
def test_text_that_go_accepts_is_read_as_go_does(text: str, value: Outer) -> None:
    assert decode(text, Outer, "doc") == value


REFUSED = [
    ("", "$", "is not JSON"),
    ("{", "$", "is not JSON"),
    ("{} x", "$", "is not JSON"),
    ("\ufeff{}", "$", "is not JSON"),
    ('{"Text":"\t"}', "$", "is not JSON"),
    ('{"Large":NaN}', "$", "NaN is not a JSON value"),
    ('{"Large":01}', "$", "is not JSON"),
    ("[" * 100_000, "$", "nested too deeply"),
    ("[]", "$", "must be an object, is an array"),
    ('"x"', "$", "must be an object, is the text 'x'"),
    ('{"Large":1.0}', "$.Large", "must be an integer"),
    ('{"Large":1e3}', "$.Large", "is the number 1e3"),
    ('{"large":9223372036854775808}', "$.Large", "must be an integer"),
    ('{"Positive":-1}', "$.Positive", "is the number -1"),
    ('{"Large":"1"}', "$.Large", "is the text '1'"),
    ('{"Large":true}', "$.Large", "is true"),
    ('{"Text":1.5}', "$.Text", "must be a text, is the number 1.5"),
    ('{"Text":{}}', "$.Text", "is an object"),
    ('{"Items":{}}', "$.Items", "must be an array, is an object"),
    ('{"Items":[{},{"small":2147483648}]}', "$.Items[1].Small", "is the number 2147483648"),
    ('{"Names":["a",[]]}', "$.Names[1]", "is an array"),
    ('{"Map":{"a":1}}', "$.Map['a']", "is the number 1"),
    ('{"Inside":{"NAME":0}}', "$.Inside.Name", "is the number 0"),
    ('{"Large":' + "9" * 5000 + "}", "$", "is not JSON"),
    ('{"Large":' + "9" * 100 + "}", "$.Large", "a very large number"),
]


@pytest.mark.parametrize(("text", "where", "what"), REFUSED)
def test_text_that_go_refuses_is_refused_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(DocumentError) as refused:
        decode(text, Outer, "doc")
    assert (refused.value.document, refused.value.where) == ("doc", where)
    assert what in refused.value.what


def test_other_shapes() -> None:
    assert decode('{"a":[{"small":1}]}', dict[str, list[Inner]], "doc") == {"a": [Inner(Small=1)]}
    assert decode("[null]", list[Inner], "doc") == [Inner()]
    with pytest.raises(DocumentError) as refused:
        decode('{"a":[{"Small":""}]}', dict[str, list[Inner]], "doc", "Key")
    assert refused.value.where == "Key['a'][0].Small"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Text", "items", "Map", "inside", "NAME", "Small"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_read_or_refused_and_reading_settles_it(value: Any) -> None:
    try:
        read = decode(json.dumps(value), Outer, "doc")
    except DocumentError:
        return
    written = go_json.encode({name: plain(getattr(read, name)) for name in Outer.__struct_fields__})
    assert decode(written, Outer, "doc") == read


def plain(value: Any) -> Any:
    if isinstance(value, Inner):
        return {"Name": value.Name, "Small": value.Small}
    return [plain(item) for item in value] if isinstance(value, list) else value


RECORDED = [
    row["data"]
    for path in sorted((VECTORS / "device-plugin/recordings").glob("level*.json"))
    for row in json.loads(path.read_text())["observed"]
    if "data" in row
]
SPLICES = (
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\",
    "\\u",
    "null",
    "1e9",
    "-",
    "0",
    "\ud800",
    "",
    "A",
)


def mutated(text: str, rng: Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        cut = rng.choice((0, 0, 1, 1, 5, 50))
        text = text[:at] + rng.choice(SPLICES) + text[at + cut :]
    return text


@examples(400)
@given(st.integers(0, 2**32))
def test_damaged_documents_are_refused_and_never_more(seed: int) -> None:
    rng = Random(seed)
    data = dict(rng.choice(RECORDED))
    key = rng.choice(("DeviceInfoCfg", "DeviceInfoCfg", "UpgradeFaultReason"))
    data[key] = mutated(data[key], rng)
    read_reasons(data["UpgradeFaultReason"])
    faults = json.loads(rng.choice(RECORDED)["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    try:
        device_info.decode(data, "doc")
        text = mutated(faults["huawei.com/Ascend910-Fault"], rng)
        faults_read = decode(text, list[DeviceFault], "doc")
    except DocumentError:
        return  # anything else but this error fails the test
    assert device_info.encode_faults(tuple(faults_read))
