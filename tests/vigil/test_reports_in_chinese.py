"""Reports of verbs that ask no daemon: Chinese for people, one JSON in both languages."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import pytest
import yaml

from agent.journal.file import FILE_NAME
from contract.names import device_info_name
from stores.base import Beat
from tests.agent.node_history import a_history, changed
from tests.parts.tree import ROOT
from tests.parts.verbs import run_verb
from tests.vigil.lint.case_files import CASES
from tests.vigil.lint.manifests import storm_service
from tests.vigil.sources.recorded_documents import contents, inputs
from vigil.demo.run import StepResult, Summary
from vigil.demo.show import plain, summary_lines
from vigil.demo.steps import FULL_SCENARIO, SHORT_SCENARIO, steps_of_profile
from vigil.language import choose

if TYPE_CHECKING:
    from pathlib import Path

_EXAMPLE = ROOT / "docs" / "examples" / "cluster.json"
_CHINESE = re.compile("[一-鿿]")
_WORD = re.compile(r"(?a:[A-Za-z](?:[\w./-]*\w)?)")
_NAME = re.compile(
    "AIBrix|API|Ascend|ClusterD|Failed|Helm|InvalidScalingConfig|JSON|Jinja2|LWS|MindCluster|MindIE"
    "|NFS|OME|Operator|RankTable|TerminateJob|Volcano|claim|forceExit|gang|helm|hotSwitch|ignore"
    "|kubectl|kubelet|lint|operator|owner|rank|task|vNPU|vigil|webhook|.*[./-].*"
)
"""Names of programs, options, states and terms that Chinese texts have, too; paths and keys."""
_ENGLISH_CODES = {"SCALING_RULE_NO_JSON", "UNREADABLE"}
"""Findings whose reason is the text of a parser."""
_TWO_WORDS = re.compile(r"(?<![\w-])[a-z]{2,} [a-z]{2,}(?![\w-])")


def _english(text: str) -> list[str]:
    """Return the lines of a report with two English words in a row, which is no name."""
    return [line.strip() for line in text.splitlines() if _TWO_WORDS.search(line)]


def _chinese(*arguments: object, status: int = 0, json: bool = True) -> str:
    """Return what a verb prints in Chinese; its JSON is the same in both languages."""
    words = [str(argument) for argument in arguments]
    if json:
        english, chinese = (
            run_verb("--lang", language, *words, "--json") for language in ("en", "zh")
        )
        assert chinese == english
    ended, output, errors = run_verb("--lang", "zh", *words)
    assert ended == status, errors
    return output.decode() + errors


async def test_replay(tmp_path: Path) -> None:
    await a_history(tmp_path)
    (tmp_path / "faultCode.json").write_text('{"SubHealthFaultCodes":["80E3A201"]}')
    compared = _chinese("replay", "--journal", tmp_path / FILE_NAME, "--fault-config", tmp_path)
    assert "会有哪些不同" in compared
    # The reasons of the policy are the agent's.
    reasons = re.compile(r"\([a-z ]+|[a-z ]+\)|│[a-z ]+│")
    assert [line for line in _english(compared) if not reasons.search(line)] == []
    changed(tmp_path, "UPDATE rows SET body = replace(body, 'Separate', 'Restart')")
    deviating = _chinese("replay", "--journal", tmp_path / FILE_NAME, status=1)
    assert "变化与记录的不同" in deviating


async def test_prove(tmp_path: Path) -> None:
    await a_history(tmp_path)
    # The time of the report is that of its call.
    proof = _chinese("prove", "--state-dir", tmp_path, "--utc", json=False)
    assert "已证明：没有丢失故障" in proof
    assert _english(proof) == []


def test_support(tmp_path: Path) -> None:
    options = ("support", "--state-dir", tmp_path, "--output")
    text = _chinese(*options, tmp_path / "support.tar.gz", status=1, json=False)
    assert "提供归档文件之前请先查看" in text
    # Problems are English, as in the manifest of the archive.
    assert [line for line in _english(text) if not re.match("[a-z-]+: (缺失|不完整): ", line)] == []
    refused = _chinese(*options, tmp_path / "none" / "file", status=3, json=False)
    assert refused.startswith(f"vigil: 无法写入 {tmp_path}/none/file：")


def test_isolate_and_release(tmp_path: Path) -> None:
    report = inputs("three-nodes-one-faulty")[device_info_name("n1")]
    contents(tmp_path, report)
    store = ("--store", f"directory:{tmp_path}")
    isolate = ("isolate", "n1", "Ascend910-3", "--reason", "x", *store)
    assert _chinese(*isolate, status=1).startswith("vigil: 已拒绝：n1 没有 NPU Vigil 代理的心跳")
    contents(tmp_path, report, beats=(Beat("n1", "host", 5.0, 1),))
    assert _chinese(*isolate, status=1).startswith("vigil: 已拒绝：n1 的代理不写入 device-info：")
    unknown = _chinese("release", "n9", "3", *store, status=2)
    assert unknown == f"vigil: 没有节点 'n9'：directory:{tmp_path} 中没有其 device-info\n"
    no_chip = _chinese("release", "n1", "Ascend910-99", *store, status=2)
    assert "；该节点有 Ascend910-0、Ascend910-1、" in no_chip
    assert _chinese("release", "n1", "Ascend910-3", *store) == (
        "n1 的 Ascend910-3 没有隔离：无需解除\n"
    )


@pytest.mark.slow
def test_forget_and_uninstall(tmp_path: Path) -> None:
    report = inputs("three-nodes-one-faulty")[device_info_name("n1")]
    contents(tmp_path, report, beats=(Beat("n1", "host", 0.2, 1),))
    store = ("--store", f"directory:{tmp_path}")
    assert _chinese("forget", "n9", *store, status=1, json=False) == (
        f"没有 n9 的任何信息：directory:{tmp_path} 中没有其文档、心跳和 cluster-info 条目；"
        "已有的节点：n1\n"
    )
    forget = _chinese("forget", "n1", *store, json=False)
    assert forget == (
        "将会移除 n1：mindx-dl-deviceinfo-n1、其心跳\n未作任何更改：请添加 --yes\n观察心跳 1 秒\n"
    )
    uninstall = _chinese("uninstall", *store, json=False)
    assert uninstall == (
        "将会删除 kube-system/mindx-dl-deviceinfo-n1\n将会删除 n1 的心跳\n"
        "未作任何更改：请添加 --yes\n观察心跳 1 秒\n"
    )
    chip = ("forget", "--chip", "Ascend910-3", "--state-dir", tmp_path)
    assert _chinese(*chip, status=3, json=False) == f"{tmp_path} 中没有代理的日志库\n"


def test_validate(tmp_path: Path) -> None:
    file = tmp_path / "faultDuration.json"
    file.write_text("[]")
    reason = "只有 ClusterD 读取 faultDuration.json，NPU Vigil 不读取"
    assert _chinese("validate", file, json=False) == (
        f"{file}：未检查（fault-duration）：{reason}\n"
    )
    file = tmp_path / "rule.json"
    file.write_text('{"elastic_scaling_list": []}')
    rule = _chinese("validate", file, "--kind", "scaling-rule", status=2, json=False)
    assert "\n  第 1 行: SCALING_RULE_EMPTY：规则中有问题（" in rule
    assert _english(rule) == []
    file = tmp_path / "agent.toml"
    file.write_text('node_name = "n1"')
    assert _chinese("validate", file, json=False) == f"{file}：正确（agent）\n"


def test_demo(request: pytest.FixtureRequest) -> None:
    profiles = chain.from_iterable(map(steps_of_profile, ("a2", "a5")))
    results = tuple(
        StepResult(1, step, 0.5, 3.0, None, problems)
        for step in (*FULL_SCENARIO, *SHORT_SCENARIO, *profiles)
        for problems in ((), ("was never seen",))
    )
    request.addfinalizer(lambda: choose((), {}))
    choose(("--lang", "zh"), {})
    texts = [*map(plain, results), summary_lines(Summary(results, (), 61.2))]
    lines = "\n".join(texts).splitlines()
    assert "          到达节点：3 ms，到达 cluster-info：未到达：与预期不符" in lines
    assert re.fullmatch(r"61 秒内达到 \d+ 个预期状态，共 \d+ 个：不正常", lines[-1])
    # A problem is English, as in the JSON.
    assert [line for line in lines if not _CHINESE.search(line)] == []
    assert set(_english("\n".join(lines))) == {"问题: was never seen"}


@pytest.mark.slow
def test_lint_of_each_finding() -> None:
    english = run_verb("lint", str(CASES))
    status, output, errors = run_verb("--lang", "zh", "lint", str(CASES))
    assert (status, errors) == (english[0], "")
    *lines, summary = output.decode().splitlines()
    assert re.match(r"\d+ 个文件：\d+ 个错误", summary)
    # Where a finding stands is the same for editors.
    assert _places(lines) == _places(english[1].decode().splitlines()[:-1])
    allowed = _words_of_cases()
    english_codes, code = set(), ""
    for line in lines:
        if not line.startswith("    "):
            code = line.split(": ", 1)[1].split()[1]
        elif _CHINESE.search(line):
            words = set(_WORD.findall(line)) - allowed
            assert [word for word in words if not _NAME.fullmatch(word)] == [], line
        else:
            english_codes.add(code)
    assert english_codes == _ENGLISH_CODES
    assert run_verb("--lang", "zh", "lint", "--json", str(CASES))[1].isascii()


def _words_of_cases() -> set[str]:
    """Return the keys, kinds and values of the manifests, without their comments."""
    lines = [line for file in CASES.glob("*.yaml") for line in file.read_text().splitlines()]
    return {word for line in lines for word in _WORD.findall(line.partition("#")[0])}


def _places(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("    ")]


def test_advise() -> None:
    options = ("advise", "--dump", _EXAMPLE, "--what-if", "chip 3 of node-2 SeparateNPU")
    advice = _chinese(*options, status=1)
    assert "  任务\n" in advice
    assert "按 MindCluster" in advice
    assert "驱逐 (EVICT)，范围：任务: CardUnhealthy：一个故障 Pod 移除整个 PodGroup" in advice
    assert "重新创建后" in advice


def test_lint_of_a_long_name(tmp_path: Path) -> None:
    """A word that is a sentence with a long name is translated, and its name is cut."""
    service = storm_service(2, {"fault-scheduling": "grace"})
    roles = service["spec"]["template"]["spec"]["roles"]
    roles[1]["name"] = "decode" * 40
    roles[1]["template"]["metadata"]["labels"] = {"fault-scheduling": "off"}
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(service))
    texts = [
        run_verb("--lang", language, "lint", str(file))[1].decode() for language in ("en", "zh")
    ]
    name = f"{'decode' * 40:.200} ..."
    assert f"fault-scheduling is off of {name}, so" in texts[0]
    assert f"fault-scheduling 已关闭（{name}），因此" in texts[1]
