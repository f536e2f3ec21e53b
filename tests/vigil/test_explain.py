"""``vigil explain CODE`` as a person runs it."""

from __future__ import annotations

import json
from itertools import product

import pytest

from contract.codes.reference import all_codes
from tests.parts.verbs import columns_of, run_verb
from vigil.language import CATALOGUE, read_catalogue


def explain(*arguments: str, **environment: str) -> tuple[int, bytes, str]:
    return run_verb("explain", *arguments, **environment)


def test_a_code_is_explained_without_a_daemon() -> None:
    status, output, _ = explain("0x80e01801")
    assert status == 0
    lines = output.decode().splitlines()
    assert lines[0] == "80E01801  Multi-bit ECC errors when accessing the HBM"
    assert "  level     RestartBusiness" in lines
    assert any(line.startswith("  to do ") for line in lines)
    assert lines[-1] == "  derived   jobs, to do (from the code and its level)"
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_explanation_fits_any_width(language: str) -> None:
    codes = ("80CD8008", "81078603", "220001001")
    for code, columns in product(codes, (20, 40, 80)):
        status, output, _ = explain(code, "--lang", language, COLUMNS=str(columns))
        assert status == 0
        assert max(map(columns_of, output.decode().splitlines())) <= columns


@pytest.mark.parametrize(
    ("arguments", "environment", "heading"),
    [
        ([], {"LC_ALL": "zh_CN.UTF-8"}, "english   "),
        ([], {"LC_ALL": "", "LANG": "zh_CN.UTF-8", "PYTHONUTF8": "1"}, "english   "),
        (["--lang", "zh"], {}, "英文名称  "),
        ([], {"VIGIL_LANG": "zh"}, "英文名称  "),
    ],
)
def test_the_vendors_chinese_name_is_shown(
    arguments: list[str], environment: dict[str, str], heading: str
) -> None:
    lines = explain("80E01801", *arguments, **environment)[1].decode().splitlines()
    assert lines[0] == "80E01801  HBM用户内存空间内存颗粒访问多bit ECC错误"
    assert lines[1] == f"  {heading}Multi-bit ECC errors when accessing the HBM"


def test_a_missing_chinese_name_is_not_made_up() -> None:
    lines = explain("814F8008", "--lang", "zh")[1].decode().splitlines()
    assert lines[0] == "814F8008  ISP: multi-bit ECC error, raised by the chip"
    # Sorted by the English names of the fields.
    assert lines[-1] == "  推导得出  任务、名称、部件、严重程度、处理（根据故障码及其级别）"


def test_effect_and_action_of_each_code_are_chinese() -> None:
    texts = read_catalogue(CATALOGUE.read_text(encoding="utf-8").splitlines())
    for reference in all_codes():
        assert {reference.effect, reference.remedy} <= texts.keys(), reference.code
    output = explain("80E01801", "--lang", "zh", COLUMNS="200")[1].decode()
    assert (
        "  处理      让任务重启。如果故障在其他任务中再次出现，保存驱动日志并联系厂商支持。"
        in output
    )


def test_json_carries_both_names() -> None:
    found = json.loads(explain("80E01801", "--json")[1])
    assert found["code"] == "80E01801"
    assert found["name_en"]
    assert found["name_zh"]
    assert found["known"]["severity"] == "contract/data/codes.json"
    assert found["follows"]["effect"] == "docs/spec/consumers.md#1.10"


def test_an_unknown_code_is_wrong_use_and_no_escape_reaches_the_terminal() -> None:
    status, output, errors = explain("\x1b[31m80E01801")
    assert (status, output) == (2, b"")
    assert "\x1b" not in errors
    assert "is in no table of fault codes" in errors


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("0xabcdef12", "a chip code that the driver calls major or critical is SeparateNPU"),
        ("290001999", "A public fault without a level is refused"),
        ("[0x08520003,na,L3,na]", "A switch code without a level is shown"),
        ("80E0 1801", "Codes have eight or nine hexadecimal digits"),
    ],
)
def test_an_unknown_code_names_what_happens_to_codes_of_its_form(code: str, expected: str) -> None:
    status, _, errors = explain(code, "--server", "unix:/nonexistent/agent.sock")
    assert status == 2
    assert expected in errors
    assert errors.endswith("docs/codes.md lists all codes.\n")
