"""What ``vigil explain NODE`` makes of the answers of agents and aggregators."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from aggregator.api.explanation import ExplanationContext
from contract.sentences import Sentence, english, sentence
from service.pages.daemon_pages import json_response
from stores.interruption import Interrupted
from tests.aggregator.api.explained import explained as explained_by_aggregator
from tests.aggregator.dpu_faults.scene import LANE_DOWN, PORT_DOWN, Scene, dpu_document
from tests.aggregator.nodes import faulty, instant, report
from tests.aggregator.pipelines import WrittenPipeline
from tests.parts.page_messages import messages_of
from tests.vigil.stand import AGENT, AT_MS, LEADER, Stand, vigil

FAULT = {
    "code": "80E18402",
    "severity": "major",
    "fault_type": "CardUnhealthy",
    "reported": "SeparateNPU",
    "published": "SeparateNPU",
    "since_ms": AT_MS - 200_000,
    "until_ms": None,
    "because": "the node reports it",
}
NODE: dict[str, Any] = {
    "node": {"node": "node-1", "state": "reported", "heartbeat": "alive", "blind": []},
    "because": ["its newest device-info counts"],
    "documents": {"cluster-info-device-0": True, "cluster-info-node-cm": False},
    "chips": [
        {
            "chip": "Ascend910-3",
            "because": ["the node reports: unhealthy"],
            "pods": ["team/train-0"],
            "faults": [FAULT],
        }
    ],
    "jobs": [
        {
            "job": "uid",
            "namespace": "team",
            "name": "train",
            "pods": ["team/train-0"],
            "health": "UnHealthy",
            "since_ms": AT_MS - 100_000,
            "because": ["1 fault of this node hits train"],
        }
    ],
}


@pytest.fixture
def aggregator(stand: Stand) -> Stand:
    stand.answers = {"/api/v1/leader": LEADER, "/api/v1/nodes/node-1": NODE}
    return stand


@pytest.fixture
def agent(stand: Stand) -> Stand:
    stand.answers = {"/api/v1/status": AGENT}
    return stand


def explained(stand: Stand, *arguments: str) -> tuple[int, list[str], str]:
    status, output, errors = vigil(stand, "explain", *arguments, "--utc")
    return status, output.decode().splitlines(), errors


def test_an_aggregator_shows_what_is_reported_what_is_published_why_and_what_to_do(
    aggregator: Stand,
) -> None:
    status, lines, _ = explained(aggregator, "node-1")
    assert status == 1
    assert lines[0] == "node-1 is not well: 1 part at SeparateNPU: Ascend910-3"
    assert lines[2] == f"answered by: aggregator, which leads ({aggregator.url})"
    text = [line.strip() for line in lines]
    for line in (
        "because:     its newest device-info counts",
        "documents:   every store has cluster-info-device-0 as it is now",
        "documents:   cluster-info-node-cm is being written",
        "used by:   team/train-0",
        "since:     3 min ago (21:31:09 UTC)",
        "reported:  SeparateNPU",
        "published: SeparateNPU",
        "because:   the node reports it",
        "job team/train: UnHealthy",
        "because:   1 fault of this node hits train",
    ):
        assert line in text
    assert any(line.startswith("to do:     ") for line in text)


@pytest.mark.parametrize("chip", ["3", "Ascend910-3"])
def test_one_chip_is_explained_by_its_name_or_number(aggregator: Stand, chip: str) -> None:
    status, lines, _ = explained(aggregator, f"node-1/{chip}")
    assert status == 1
    assert lines[0] == "node-1 Ascend910-3 is not well: 1 part at SeparateNPU: Ascend910-3"
    assert "job team/train: UnHealthy" in lines


@pytest.mark.slow
def test_a_chip_without_faults_is_well(aggregator: Stand) -> None:
    well = {"chip": "Ascend910-4", "reported": "available", "published": "available"}
    chips = [*NODE["chips"], well | {"because": ["the node reports: available"]}]
    aggregator.answers["/api/v1/nodes/node-1"] = NODE | {"chips": chips}
    status, lines, _ = explained(aggregator, "node-1/4")
    assert (status, lines[0]) == (0, "node-1 Ascend910-4 is well")
    assert not any("job" in line for line in lines)
    _, lines, _ = explained(aggregator, "node-1")
    assert not any("Ascend910-4" in line for line in lines), "there is nothing to explain"


def test_a_withheld_fault_shows_until_when(aggregator: Stand) -> None:
    held = FAULT | {"published": None, "until_ms": AT_MS + 60_000, "because": "held back"}
    chip = NODE["chips"][0] | {"faults": [held]}
    aggregator.answers["/api/v1/nodes/node-1"] = NODE | {"chips": [chip]}
    _, lines, _ = explained(aggregator, "node-1")
    text = [line.strip() for line in lines]
    assert "until:     in 1 min (21:35:29 UTC)" in text
    assert not any(line.startswith("published:") for line in text)


def test_a_node_that_gives_no_answer_or_fell_silent_is_not_well(aggregator: Stand) -> None:
    blind = {"source": "heartbeat", "since_ms": None, "reason": "unsaid", "chip": None}
    node = NODE["node"] | {"blind": [blind], "heartbeat": "lost"}
    answer = {"node": node, "because": [], "chips": []}
    aggregator.answers["/api/v1/nodes/node-1"] = answer
    status, lines, _ = explained(aggregator, "node-1")
    assert status == 1
    assert lines[:2] == [
        "node-1 is not well: the heartbeat is lost",
        "  no answer from heartbeat of the node",
    ]
    assert "no answer:   heartbeat of node-1: unsaid" in lines


def test_an_agent_gives_reason_rule_and_source(agent: Stand) -> None:
    fault = AGENT["faults"][0] | {"reason": "table", "reported_by": ["events"], "code": "80E18402"}
    agent.answers["/api/v1/status"] = AGENT | {"faults": [fault]}
    rule = {"file": "faultCode.json", "key": "SeparateNPUCodes", "line": 7, "text": "Out."}
    row: dict[str, Any] = {
        "node": "node-1",
        "subject": "Ascend910-3",
        "kind": "chip",
        "code": "80E18402",
    }
    ruled = row | {"level": "SeparateNPU", "rules": [rule]}
    agent.answers["/api/v1/faults"] = {"at_ms": AT_MS, "faults": [ruled]}
    status, lines, _ = explained(agent, "node-1/3")
    assert status == 1
    text = [line.strip() for line in lines]
    assert "because:   table" in text
    assert "observed:  by events" in text
    assert "rule:      Out. (faultCode.json, SeparateNPUCodes, line 7)" in text
    assert "reported:  SeparateNPU" in text
    assert any(line.startswith("not known:   what the cluster publishes") for line in text)


@pytest.mark.parametrize("arguments", [("status",), ("explain", "node-1"), ("explain", "node-1/3")])
def test_a_link_that_is_down_has_the_same_text_in_each_verb(
    agent: Stand, arguments: tuple[str, ...]
) -> None:
    chip = AGENT["chips"][0] | {"link_up": False}
    agent.answers["/api/v1/status"] = AGENT | {"chips": [chip], "faults": []}
    _, english, _ = vigil(agent, *arguments, COLUMNS="300")
    _, chinese, _ = vigil(agent, *arguments, "--lang", "zh", COLUMNS="300")
    assert " is not well: the link is down at Ascend910-3\n" in english.decode()
    assert " 不正常：Ascend910-3 的链路断开\n" in chinese.decode()


def test_an_agent_of_an_earlier_release_has_no_rules(agent: Stand) -> None:
    status, lines, errors = explained(agent, "node-1/3")
    assert (status, errors) == (1, "")
    assert not any(line.strip().startswith("rule:") for line in lines)


def test_parts_of_a_node_have_the_names_that_an_aggregator_gives_them(agent: Stand) -> None:
    common = {"code": "x", "level": "SeparateFault", "since_ms": AT_MS}
    faults = [
        common | {"subject": "host 1", "part": "Fan"},
        common | {"subject": "switch 2", "part": "7/1/0"},
        common | {"subject": "storage 0", "part": "DPC"},
        common | {"subject": "later", "part": "thing"},
    ]
    agent.answers["/api/v1/status"] = AGENT | {"faults": faults}
    _, lines, _ = explained(agent, "node-1")
    assert {"Fan 1", "switch 2 port 7", "storage DPC", "later thing"} <= {*lines}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("node-2", "knows no node of this name"),
        ("80E0FFFF", "is in no table of fault codes"),
        ("node-1/9", "knows no part of this name"),
        ("a b", "is in no table of fault codes"),
    ],
)
def test_an_unknown_name_is_wrong_use(agent: Stand, what: str, message: str) -> None:
    status, lines, errors = explained(agent, what)
    assert (status, lines) == (2, [])
    assert message in errors


@pytest.mark.slow
def test_a_part_that_is_no_chip_must_be_listed(aggregator: Stand) -> None:
    status, lines, errors = explained(aggregator, "node-1/fan")
    assert (status, lines) == (2, [])
    assert "knows no part of this name" in errors
    status, lines, errors = explained(aggregator, "node-1/9")
    assert (status, lines) == (2, [])
    assert "knows no such chip of node-1" in errors


def test_a_code_comes_before_a_node_of_its_name(aggregator: Stand) -> None:
    aggregator.answers["/api/v1/nodes/80E18402"] = NODE
    status, lines, _ = explained(aggregator, "80E18402")
    assert status == 0
    assert lines[0].startswith("80E18402  ")


def _real_page() -> Any:
    """Return the page of an aggregator about a node with a fault."""
    page = explained_by_aggregator(WrittenPipeline(report("node-1", faulty(3))), "node-1")
    page = msgspec.structs.replace(page, messages=messages_of(page))
    return json.loads(msgspec.json.encode(page, enc_hook=english))


def test_sentences_of_an_aggregator_are_shown_in_chinese(aggregator: Stand) -> None:
    aggregator.answers["/api/v1/nodes/node-1"] = page = _real_page()
    assert page["because"] == ["its newest device-info counts"]
    texts = [line.strip() for line in explained(aggregator, "node-1", "--lang", "zh")[1]]
    for text in (
        "原因:        以其最新的 device-info 为准",
        "状态:      节点上报：不健康",
        "原因:      由节点上报",
    ):
        assert text in texts
    english_texts = [line.strip() for line in explained(aggregator, "node-1")[1]]
    assert "because:     its newest device-info counts" in english_texts


def test_dpu_faults_and_interrupted_stores_are_shown_in_chinese(aggregator: Stand) -> None:
    written = WrittenPipeline(report("node-1", faulty(3)))
    written.pipeline.observe_event(written.devices, Interrupted("train"), instant(0))
    scene = Scene(publishes=True, chips={"mlx5_0": (2, 3), "mlx5_1": ()})
    scene.lists(dpu_document("n1", PORT_DOWN, LANE_DOWN))
    unread = sentence("there is no answer yet")
    context = ExplanationContext(
        dpu_faults=scene.dpu_faults.explained("n1"),
        dpu_problems=("train",),
        heartbeat_problem=unread,
    )
    page = explained_by_aggregator(written, "node-1", context=context)
    assert {text for text in page.because if not isinstance(text, Sentence)} == set()
    body = json_response(page).body
    assert isinstance(body, bytes)
    aggregator.answers["/api/v1/nodes/node-1"] = json.loads(body)
    texts = [line.strip() for line in explained(aggregator, "node-1", "--lang", "zh")[1]]
    for text in (
        "原因:        无法读取 store:，以其最后上报的内容为准：train",
        "原因:        无法确定其是否在运行：尚无应答",
        "原因:        其 RDMA 设备的文档：train",
        "原因:      已发布为芯片 2、3 的公共故障 021000024，级别为 SeparateNPU",
        "原因:      仅显示：dpu_faults.chips 中没有 mlx5_1 对应的芯片",
    ):
        assert text in texts


@pytest.mark.parametrize(
    "change",
    [
        {"id": "a sentence of a later release"},
        {"id": "the node reports: {reported}", "parameters": {}},
        {
            "id": "the node reports: {reported}",
            "parameters": {"reported": {"id": "a later word", "parameters": {}}},
        },
    ],
)
def test_a_sentence_that_cannot_be_translated_stays_english_as_a_whole(
    aggregator: Stand, change: dict[str, Any]
) -> None:
    page = _real_page()
    text = "the node reports: unhealthy"
    page["messages"][text] |= change
    aggregator.answers["/api/v1/nodes/node-1"] = page
    assert f"状态:      {text}" in [
        line.strip() for line in explained(aggregator, "node-1", "--lang", "zh")[1]
    ]


def test_braces_in_a_parameter_are_shown_as_they_are(aggregator: Stand) -> None:
    page = _real_page()
    reported = {
        "id": "{by} (as stated) isolated it at {time}: {reason}",
        "parameters": {"by": "{time}", "time": "8:00", "reason": "{reason.__class__} {0} {"},
    }
    page["messages"]["the node reports: unhealthy"] = {
        "id": "{by}; and here it is {reason}",
        "parameters": {"by": reported, "reason": "{by}"},
    }
    aggregator.answers["/api/v1/nodes/node-1"] = page
    text = "{time}（自行声明）于 8:00 将其隔离：{reason.__class__} {0} {；聚合器侧：{by}"
    assert f"状态:      {text}" in [
        line.strip() for line in explained(aggregator, "node-1", "--lang", "zh")[1]
    ]


def test_a_page_of_an_earlier_release_is_english(aggregator: Stand) -> None:
    page = _real_page()
    del page["messages"]
    aggregator.answers["/api/v1/nodes/node-1"] = page
    texts = [line.strip() for line in explained(aggregator, "node-1", "--lang", "zh")[1]]
    assert "原因:        its newest device-info counts" in texts


def test_json_has_both_levels(aggregator: Stand) -> None:
    status, lines, _ = explained(aggregator, "node-1", "--json")
    assert status == 1
    (fault,) = json.loads(lines[0])["parts"][0]["faults"]
    assert (fault["reported"], fault["published"]) == ("SeparateNPU", "SeparateNPU")
    assert fault["fault"]["name_zh"]
