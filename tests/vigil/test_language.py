"""Verbs for people speak the language that was asked for; programs get the same in each."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import typer
import typer.core
import typer.main

from agent.publishing.ownership import other_program, owned_by
from aggregator.liveness.lost_nodes import HeartbeatListing
from aggregator.liveness.unread_heartbeats import unread
from contract.codes.reference import CodeKind
from contract.pages.agent_status import AgentStatus, HeartbeatStatus, PublicationStatus
from contract.pages.aggregator_status import NODES_IN_STORE
from contract.pages.messages import PageMessage
from contract.pages.readiness import ReadinessPage
from contract.sentences import english, joined, sentence
from service.clock import Instant
from service.failing_requests import FailingRequests
from service.owned_documents.foreign_writes import ForeignWriter
from service.pages.daemon_pages import json_response
from stores.base import LastWriter
from tests.parts.page_messages import messages_of
from tests.parts.verbs import columns_of, run_verb
from tests.vigil import catalogue
from tests.vigil.answers import whole
from tests.vigil.stand import AGENT, AT_MS, Stand, vigil
from tests.vigil.verbs import VERBS, aggregator
from vigil.language import CATALOGUE, Language, choose, shown, translate_messages, translated
from vigil.main import app
from vigil.reports.show import print_json
from vigil.reports.status_report import fault_row, reasons_of_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRANSLATED = 0.98
_CHINESE = re.compile("[一-鿿]")
_FIELD = re.compile(r"\{\w*\}|``?[^`]+``?|--[a-z][\w-]+|VIGIL_[A-Z_]+|https?://[\w{}:]+")


def _commands() -> list[tuple[str, ...]]:
    """Return each command of the tree, as it is called."""
    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    context = typer.Context(whole)
    collected: list[tuple[str, ...]] = [()]
    waiting: list[tuple[tuple[str, ...], Any]]
    waiting = [((name,), whole.get_command(context, name)) for name in whole.list_commands(context)]
    while waiting:
        called, command = waiting.pop()
        collected.append(called)
        below = getattr(command, "commands", {})
        waiting += [((*called, name), each) for name, each in below.items()]
    return sorted(collected)


@pytest.mark.slow
def test_the_catalogue_has_the_texts_of_the_verbs_and_no_other() -> None:
    kept = CATALOGUE.read_text(encoding="utf-8")
    assert kept == catalogue.catalogue(catalogue.current()), "run python -m tests.vigil.catalogue"


@pytest.mark.slow
def test_the_catalogue_is_translated() -> None:
    texts, translations = catalogue.texts(), catalogue.current()
    assert len(translations) >= _TRANSLATED * len(texts)
    assert "fuzzy" not in CATALOGUE.read_text(encoding="utf-8")


def test_a_translation_has_the_names_of_its_text() -> None:
    different = {
        text: translation
        for text, translation in catalogue.current().items()
        if sorted(_FIELD.findall(text)) != sorted(_FIELD.findall(translation))
    }
    assert different == {}


def test_an_f_string_cannot_be_translated() -> None:
    assert list(catalogue.marked('translated("{count} more", count=3)')) == ["{count} more"]
    with pytest.raises(ValueError, match="line 1: an f-string"):
        list(catalogue.marked('translated(f"{count} more")'))


@pytest.mark.slow
def test_help_of_each_command_is_chinese() -> None:
    english = catalogue.current()
    untranslated = []
    for called in _commands():
        status, output, errors = run_verb(
            "--lang", "zh", *called, "--help", COLUMNS="80", PYTHONUTF8="1"
        )
        assert (status, errors) == (0, "")
        text = output.decode()
        # A list of choices is one word, which English help does not break either.
        assert max(columns_of(line) for line in text.splitlines() if _CHINESE.search(line)) <= 80
        whole = " ".join(text.split())
        untranslated += [
            (called, each)
            for each, translation in english.items()
            if each != translation and " " in each and each in whole
        ]
        # Three English words in a row are no name.
        for line in text.splitlines():
            if re.search(r"(?:\b[a-z]{2,} ){3}", line) and not _CHINESE.search(line):
                untranslated.append((called, line))
    assert untranslated == []


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--lang", "zh", "status", "--help"), {}),
        (("--lang=zh", "status", "--help"), {}),
        (("status", "--lang", "zh", "--help"), {}),
        (("status", "--help", "--lang", "zh"), {}),
        (("status", "--help"), {"VIGIL_LANG": "zh"}),
    ],
)
def test_the_language_is_chosen_by_option_or_environment(
    arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    assert "显示是否一切正常" in run_verb(*arguments, **environment)[1].decode()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--lang", "zh", "status", "--lang", "en"), {}),
        (("--lang", "en", "status"), {"VIGIL_LANG": "zh"}),
        (("status",), {"LANG": "zh_CN.UTF-8", "LC_ALL": "zh_CN.UTF-8"}),
        (("status",), {"VIGIL_LANG": "fr"}),
        (("isolate", "--", "--lang", "zh"), {}),
        ((), {}),
    ],
)
def test_other_calls_are_english(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    assert choose(arguments, environment) in (None, Language.ENGLISH)
    assert translated("Show times in UTC.") == "Show times in UTC."


def test_a_daemon_starts_with_an_unknown_language_and_a_wrong_option_is_refused() -> None:
    assert run_verb("agent", "--help", VIGIL_LANG="fr")[0] == 0
    status, _, errors = run_verb("--lang", "fr", "agent", "--help")
    assert status == 2
    assert "--lang" in errors


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("status", "--nope"), "没有选项 --nope（可能的选项：--store）"),
        (("statu",), "没有命令 'statu'。是否要使用 'status'？"),
        (("--json", "status"), "--json 的值无效：它与 --version 一起使用；各命令有自己的同名选项"),
        (("isolate",), "缺少参数 'NODE'。"),
        (("status", "--server"), "选项 '--server' 需要一个值。"),
        (("status", "a", "b"), "多余的参数（b）"),
        (
            ("demo", "--nodes", "x"),
            "'--nodes' (env var: 'VIGIL_NODES') 的值无效：应为整数，无法解析",
        ),
        (("demo", "--nodes", "99"), "'--nodes' (env var: 'VIGIL_NODES') 的值无效：应小于或等于 32"),
        (("forget",), "值无效：请给出节点，或 --chip NAME，或 --mark ID"),
    ],
)
def test_wrong_options_are_named_in_chinese(arguments: tuple[str, ...], error: str) -> None:
    status, output, errors = run_verb("--lang", "zh", *arguments)
    assert (status, output) == (2, b"")
    *usage, last = errors.splitlines()
    assert last == f"错误：{error}"
    assert [line for line in usage if line and not _CHINESE.search(line)] == []


@pytest.mark.parametrize(
    ("arguments", "ended", "error"),
    [
        (
            ("status", "--server", "unix:/nonexistent/agent.sock"),
            3,
            "vigil: unix:/nonexistent/agent.sock：没有守护进程在此监听",
        ),
        (
            ("status", "--server", "http://127.0.0.1:1"),
            3,
            "vigil: http://127.0.0.1:1 没有应答：[Errno 111] Connection refused",
        ),
        (
            ("status", "--server", "here"),
            2,
            "vigil: 命令行：1 个问题\n  --server: 'here' 既不是 http://HOST:PORT、"
            "https://HOST:PORT，也不是 unix:PATH",
        ),
        (
            ("status", "--server", "https://127.0.0.1:1", "--ca-file", "/nonexistent/ca.pem"),
            2,
            "vigil: 命令行：1 个问题\n  --ca-file: /nonexistent/ca.pem 不是有效的 CA 的 PEM 文件："
            "No such file or directory",
        ),
        (
            ("status", "--server", "https://127.0.0.1:1", "--token-file", "/nonexistent/token"),
            2,
            "vigil: 命令行：1 个问题\n  --token-file: 无法读取 /nonexistent/token："
            "No such file or directory",
        ),
        (
            ("validate", "/nonexistent/file"),
            2,
            "vigil: /nonexistent/file：1 个问题\n  (file): 无法读取：No such file or directory",
        ),
        *(
            (arguments, 2, f"vigil: {source}：1 个问题\n  {problem}\n")
            for arguments, source, problem in (
                (
                    ("prove", "--since", "x"),
                    "命令行",
                    "--since: 'x' 既不是时间（2026-11-23T21:44），也不是时长（90s、10min、2h、1d）",
                ),
                (
                    ("prove", "--agents", "http://x"),
                    "命令行",
                    "--agents: 必须含有 {node}，并且需要用 --server 指定聚合器",
                ),
                (
                    ("lint", "--format", "x"),
                    "命令行",
                    "--format: 'x' 不是以下值之一：text、json、github、sarif",
                ),
                (
                    ("lint",),
                    "命令行",
                    "FILE: 缺失；请给出文件、目录或 -（标准输入），或 --live",
                ),
                (
                    ("emulator", "status"),
                    "命令行",
                    "--emulator-dir: 缺失；请设置 VIGIL_EMULATOR_DIR 或给出该选项",
                ),
                (
                    ("simulate", "load", "0", "--processes", "x"),
                    "命令行",
                    "--processes: 'x' 不是有效的进程 ID 列表",
                ),
                (
                    ("isolate", "n1", "3", "--reason", " "),
                    "命令行",
                    "--reason: 必须是一行内 1 到 256 个可打印字符",
                ),
                (
                    ("elastic", "show", "x"),
                    "vigil elastic",
                    "x: 不是有效的 NAMESPACE/NAME",
                ),
            )
        ),
        (
            ("faults", "--level", "x", "--code", "x", "--server", "unix:/nonexistent/agent.sock"),
            2,
            "vigil: 命令行：2 个问题\n  --level: 'x' 不是以下值之一：",
        ),
    ],
)
def test_errors_are_shown_in_chinese(arguments: tuple[str, ...], ended: int, error: str) -> None:
    status, output, errors = run_verb("--lang", "zh", *arguments)
    assert (status, output) == (ended, b"")
    assert errors.startswith(error)
    assert [line for line in errors.splitlines() if not _CHINESE.search(line)] == []


def test_a_refused_login_is_named_in_chinese(stand: Stand) -> None:
    stand.status, stand.body = 401, b"Unauthorized"
    assert vigil(stand, "status", "--lang", "zh")[2] == (
        f"vigil: {stand.url}：需要登录；请给出 --password-file、--token-file 或 "
        "--certificate-file：Unauthorized\n"
    )


def test_an_error_that_the_catalogue_lacks_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vigil.help_text._ERRORS", ())
    assert run_verb("--lang", "zh", "statu")[2].endswith(
        "错误：No such command 'statu'. Did you mean 'status'?\n"
    )


@pytest.mark.slow
def test_one_call_does_not_choose_for_the_next() -> None:
    assert choose(("--lang", "zh"), {}) is Language.CHINESE
    assert b"Usage:" in run_verb("--help")[1]


def test_json_has_sentences_and_no_other_object(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"leader": sentence("nobody")})
    assert capsys.readouterr().out == '{"leader":"nobody"}\n'
    with pytest.raises(NotImplementedError, match="PosixPath is no type of JSON"):
        print_json({"file": CATALOGUE})


@pytest.fixture
def _chinese() -> Iterator[None]:
    choose(("--lang", "zh"), {})
    yield
    choose((), {})


class _Page(msgspec.Struct):
    because: str


@pytest.mark.usefixtures("_chinese")
def test_a_sentence_of_a_thousand_parts_is_sent_and_shown() -> None:
    codes = [sentence("{code} (last at {time})", code=f"{n:08X}", time="8:00") for n in range(1000)]
    text = joined("{before}, {part}", codes)
    assert english(text) == ", ".join(codes)
    messages = msgspec.json.decode(
        msgspec.json.encode(messages_of(_Page(text))), type=dict[str, PageMessage]
    )
    translate_messages(messages)
    assert shown(str(text)) == shown(text)
    assert shown(text).split("、") == [f"{n:08X}（最近一次：8:00）" for n in range(1000)]


@pytest.mark.usefixtures("_chinese")
def test_translations_of_an_earlier_page_are_dropped() -> None:
    for count in (1, 2):
        translate_messages(messages_of(_Page(sentence("{count} more jobs", count=count))))
    assert (shown("1 more jobs"), shown("2 more jobs")) == ("1 more jobs", "其他 2 个任务")


def _aggregator_with_blind_sources() -> dict[str, Any]:
    """Return the pages of an aggregator with a fault, and with two sources that do not answer."""
    answers = aggregator()
    (node,) = answers["/api/v1/nodes"]["nodes"]
    blind = {"since_ms": AT_MS - 60_000, "reason": "train"}
    node["blind"] = [
        blind | {"source": "bmc", "chip": None},
        blind | {"source": "links", "chip": "Ascend910-3"},
    ]
    return answers


@pytest.mark.parametrize("verb", VERBS)
def test_json_is_the_same_in_both_languages(verb: str, stand: Stand) -> None:
    stand.answers = _aggregator_with_blind_sources()
    english, chinese = (
        vigil(stand, *VERBS[verb], "--lang", language, "--json") for language in ("en", "zh")
    )
    assert chinese == english


_HEADING = re.compile(r"^\s*([一-鿿]+:\s+)?")
_TWO_WORDS = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")
# Behind its beginning each has a text of a daemon, which is "train" here (decision 81).
_ENGLISH_AS_A_WHOLE = {
    "faults": [],
    "jobs": ["pods of train (train)"],
    "status": ["the cluster is not well: the aggregator is not ready: train"],
    "timeline": [],
}


@pytest.mark.parametrize("verb", _ENGLISH_AS_A_WHOLE)
def test_a_report_is_chinese_but_for_texts_of_daemons(verb: str, stand: Stand) -> None:
    stand.answers = _aggregator_with_blind_sources()
    _, english, _ = vigil(stand, *VERBS[verb], "--lang", "en")
    _, chinese, errors = vigil(stand, *VERBS[verb], "--lang", "zh")
    assert errors == ""
    assert "answered by" in english.decode()
    assert "应答者" in chinese.decode()
    texts = [_HEADING.sub("", line) for line in chinese.decode().splitlines()]
    assert [text for text in texts if _TWO_WORDS.search(text)] == _ENGLISH_AS_A_WHOLE[verb]


def test_sources_without_an_answer_are_named_in_chinese(stand: Stand) -> None:
    stand.answers = _aggregator_with_blind_sources()
    _, output, _ = vigil(stand, *VERBS["explain"], "--utc", "--lang", "zh")
    lines = output.decode().splitlines()
    assert "  节点的数据源 bmc、Ascend910-3 的数据源 links 无应答" in lines
    assert "node-1 的数据源 bmc，自 1 分钟前（21:33:29 UTC）: train" in [
        _HEADING.sub("", line) for line in lines
    ]


def _readiness(*reasons: str) -> dict[str, Any]:
    """Return the page of a daemon that is not ready for these ``reasons``."""
    body = json_response(ReadinessPage(not reasons, reasons)).body
    assert isinstance(body, bytes)
    return dict(json.loads(body))


def _reasons(stand: Stand, language: str) -> list[str]:
    """Return why all is not well, each in a line of its own."""
    _, output, errors = vigil(stand, "status", "--lang", language, COLUMNS="1000")
    assert errors == ""
    return [line.strip() for line in output.decode().split("\n\n")[0].splitlines()]


def test_why_an_aggregator_is_not_ready_is_shown_in_chinese(stand: Stand) -> None:
    stand.answers = aggregator()
    failing = FailingRequests()
    failing.failed("n1", "train", 0)
    watch = failing.problem(
        sentence("the watch of {namespace} in {store}", namespace="x", store="s"), 40_000
    )
    assert watch is not None
    beats = {
        sentence(NODES_IN_STORE, store="s"): HeartbeatListing(problem="train"),
        "s": HeartbeatListing(),
    }
    unread_texts = [place.text for place in unread(beats, 0, Instant(40_000, 40_000)).values()]
    stand.answers["/readyz"] = page = _readiness(watch, *unread_texts)
    stand.answers["/api/v1/liveness"]["liveness"]["problems"] = {
        NODES_IN_STORE.format(store="s"): "train"
    }
    assert _reasons(stand, "zh")[:4] == [
        "集群 不正常：聚合器未就绪：对 s 中 x 的监视已失败 40 秒：train",
        "聚合器未就绪：自 1970-01-01 00:00:00 UTC（40 秒前）起未读取 s 中的各 Node 的心跳：train",
        "聚合器未就绪：自 1970-01-01 00:00:00 UTC（40 秒前）起未读取 s 的心跳：尚无应答",
        "未读取 s 中各 Node 上的心跳：train",
    ]
    english_texts = _reasons(stand, "en")
    # An earlier aggregator has no messages.
    del page["messages"]
    assert _reasons(stand, "zh")[:3] == english_texts[:3]
    assert _reasons(stand, "en") == english_texts


def test_a_report_of_a_node_has_the_sentences_of_two_pages(stand: Stand) -> None:
    stand.answers = aggregator()
    stand.answers["/readyz"] = _readiness(sentence("waiting for a leader"))
    counts = sentence("its newest device-info counts")
    about = stand.answers["/api/v1/nodes/node-1"]
    about |= {"because": [counts], "messages": msgspec.to_builtins(messages_of(_Page(counts)))}
    _, output, _ = vigil(stand, "status", "node-1", "--lang", "zh", COLUMNS="1000")
    lines = output.decode().splitlines()
    assert lines[0] == "node-1 不正常：聚合器未就绪：正在等待主节点"
    assert "以其最新的 device-info 为准" in [_HEADING.sub("", line) for line in lines]


def test_why_an_agent_is_not_ready_is_shown_in_chinese(stand: Stand) -> None:
    owned = owned_by("node-1", ("device-info",))[0]
    other = other_program(owned, LastWriter("noded", 0), 0)
    assert other is not None
    differs = ForeignWriter(differing=("data.x", "data.y")).changes("doc")
    status = msgspec.convert(
        AGENT
        | {
            "not_ready": [other.text, sentence("conflict: {change}", change=differs)],
            "publications": [whole(PublicationStatus, {"kind": "node-info", "conflict": differs})],
            "heartbeat": whole(HeartbeatStatus, {"trouble": "train", "withheld": "no progress: x"}),
        },
        AgentStatus,
    )
    body = json_response(status).body
    assert isinstance(body, bytes)
    page = json.loads(body)
    stand.answers = {"/api/v1/status": page}
    chinese = _reasons(stand, "zh")
    assert chinese[0].startswith(
        "node-1 不正常：代理未就绪：kube-system/mindx-dl-deviceinfo-node-1 由 'noded' 写入，"
    )
    changed = "对 doc 自身写入的应答与写入的内容不同：data.x、data.y；准入 webhook 或策略更改了它"
    assert chinese[1] == f"代理未就绪：冲突：{changed}"
    assert chinese[3:6] == [f"node-info：{changed}", "心跳：train", "the heartbeat: no progress: x"]
    del page["messages"]
    english_texts = _reasons(stand, "en")
    chinese = _reasons(stand, "zh")
    assert [chinese[n] for n in (0, 1, 3)] == [english_texts[n] for n in (0, 1, 3)]


@pytest.mark.parametrize(
    ("language", "line"),
    [("en", "device-info is left to noded"), ("zh", "device-info 由 noded 写入")],
)
def test_a_document_of_another_program_is_shown_with_its_writer(
    stand: Stand, language: str, line: str
) -> None:
    owned = owned_by("node-1", ("device-info",))[0]
    other = other_program(owned, LastWriter("noded", 0), 0)
    assert other is not None
    members = {"kind": "device-info", "left_to": other.text, "left_to_writer": other.writer.name}
    stand.answers = {
        "/api/v1/status": AGENT | {"publications": [whole(PublicationStatus, members)]}
    }
    _, output, errors = vigil(stand, "status", "--lang", language, COLUMNS="1000")
    assert errors == ""
    assert [text for text in output.decode().splitlines() if text.endswith(f" {line}")]


def test_names_of_faults_follow_the_language_of_the_program(stand: Stand) -> None:
    stand.answers = aggregator()
    before = run_verb("--lang", "zh", "faults", "--server", stand.url)
    after = run_verb("faults", "--lang", "zh", "--server", stand.url)
    assert before == after
    assert _CHINESE.search(before[1].decode())


def test_the_name_of_a_task_is_a_text_of_the_daemon(stand: Stand) -> None:
    stalled = {"ownership of node-info": 12.0}
    stand.answers = {"/api/v1/status": AGENT | {"stalled": stalled, "faults": []}}
    _, output, _ = vigil(stand, "status", "--lang", "zh", COLUMNS="300")
    text = "node-1 is not well: a task of the agent stands still: ownership of node-info"
    assert output.decode().splitlines()[0] == text


def test_a_fault_without_a_part_has_the_name_of_its_node() -> None:
    rows = [
        fault_row("node-1", part, CodeKind.CHIP, "80E18402", "SeparateNPU", None, None)
        for part in ("", "Ascend910-3")
    ]
    (reason,) = reasons_of_faults(rows, "node-1")
    assert reason == "2 parts at SeparateNPU: node-1, Ascend910-3"
