"""Every mistake in a foreign write is named, with its chip and its field."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.shadow.comparison import AFTER_MS, ShadowComparison
from agent.shadow.difference import differences, facts_of
from agent.shadow.difference_log import DifferenceLog
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.pages.agent_status import ReportedDifference, WriteResult
from tests.agent.shadow.documents import MUTATIONS, RESOURCE, rich_tree, varied, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Document
    from tests.agent.shadow.documents import Tree

NOW_MS = 1_800_000_100_000


def reported_for(theirs: Document) -> list[ReportedDifference]:
    """Return the reports about a write while we have desired the rich document for long."""
    judge, ledger = ShadowComparison(), DifferenceLog(lambda difference, theirs: None)
    judge.set_desired(NOW_MS - 60_000, written(rich_tree()))
    judge.observe_write(NOW_MS, theirs)
    now_ms = NOW_MS + AFTER_MS
    return [
        reported
        for verdict in judge.pop_results(now_ms)
        for reported in ledger.record(verdict, now_ms)
    ]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_named(name: str) -> None:
    for seed in range(3):
        chance = Random(seed)
        tree = varied(rich_tree(), chance)
        place = MUTATIONS[name](tree, chance)
        reported = reported_for(written(tree))
        assert reported, place
        assert reported[0].place.startswith(place), reported
        assert reported[0].result is WriteResult.DIFFERENT
        assert reported[0].theirs != reported[0].ours
        assert reported[0].device in reported[0].place
        assert reported[0].since_ms == NOW_MS


def test_times_and_orders_that_vary_are_no_difference() -> None:
    for seed in range(10):
        tree = varied(rich_tree(), Random(seed))
        assert not differences(facts_of(written(tree)), facts_of(written(rich_tree()))), seed
    assert not reported_for(written(tree))


def test_a_wrong_check_code_is_named() -> None:
    document = written(rich_tree())
    text = document.data["DeviceInfoCfg"].replace('"UpdateTime":18', '"UpdateTime":17')
    data = document.data | {"DeviceInfoCfg": text}
    (reported,) = reported_for(msgspec.structs.replace(document, data=data))
    assert (reported.result, reported.field, reported.place) == (
        "unreadable",
        "check_code",
        "CheckCode",
    )
    assert "the content gives" in (reported.theirs or "")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("DeviceInfoCfg", "{"),
        ("DeviceInfoCfg", "[]"),
        ("SwitchInfoCfg", "no JSON"),
    ],
)
def test_unreadable_text_is_reported_as_such(key: str, text: str) -> None:
    document = written(rich_tree())
    data = document.data | {key: text}
    (reported,) = reported_for(msgspec.structs.replace(document, data=data))
    assert reported.result is WriteResult.UNREADABLE
    assert reported.place == "the document"
    assert key in (reported.theirs or "")


def test_labels_and_keys_are_compared() -> None:
    document = written(rich_tree())
    data = document.data | {"Mine": "1", "Description": "changed"}
    theirs = msgspec.structs.replace(document, data=data, labels={})
    (reported,) = reported_for(theirs)
    assert reported.place == "keys of the ConfigMap"
    assert reported.also == ("labels of the ConfigMap", "Description")


def _without_recovering(tree: Tree) -> None:
    del tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"][f"{RESOURCE}-Recovering"]


def _of_another_type(tree: Tree) -> None:
    devices = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]
    devices["huawei.com/Ascend910-2c"] = []


def _with_rack(tree: Tree) -> None:
    tree["DeviceInfoCfg"]["RackID"] = 0


def _members_in_another_order(tree: Tree) -> None:
    faults = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"][f"{RESOURCE}-Fault"]
    faults[0] = dict(reversed(faults[0].items()))


def _reasons_in_another_order(tree: Tree) -> None:
    tree["UpgradeFaultReason"] = dict(reversed(tree["UpgradeFaultReason"].items()))


def _without_status(tree: Tree) -> None:
    tree["SwitchInfoCfg"] = dict(reversed(tree["SwitchInfoCfg"].items()))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_without_recovering, "keys of DeviceList"),
        (_of_another_type, "keys of DeviceList"),
        (_with_rack, "keys of DeviceInfoCfg"),
        (_members_in_another_order, "keys of the fault list"),
        (_reasons_in_another_order, "keys of the reasons"),
        (_without_status, "keys of SwitchInfoCfg"),
    ],
)
def test_the_way_it_is_written_is_compared(change: Callable[[Tree], None], place: str) -> None:
    tree = rich_tree()
    change(tree)
    (reported,) = reported_for(written(tree))
    assert reported.place == place


def test_blanks_are_a_difference() -> None:
    document = written(rich_tree())
    text = document.data["UpgradeFaultReason"].replace(",", ", ")
    data = document.data | {"UpgradeFaultReason": text}
    (reported,) = reported_for(msgspec.structs.replace(document, data=data))
    assert reported.place == "keys of the text of UpgradeFaultReason"


FAULTS = f"{RESOURCE}-Fault"


def faults_of(document: Document) -> str:
    devices = json.loads(document.data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    text: str = devices[FAULTS]
    return text


def with_faults(document: Document, text: str) -> Document:
    """Return ``document`` with another text as its fault list, and the right check code."""
    outer = json.loads(document.data["DeviceInfoCfg"])
    outer["DeviceInfo"]["DeviceList"][FAULTS] = text
    outer["CheckCode"] = go_json.check_code(outer["DeviceInfo"])
    data = document.data | {"DeviceInfoCfg": go_json.encode(outer)}
    return msgspec.structs.replace(document, data=data)


@pytest.mark.slow
def test_nonsense_is_an_error_of_ours_or_a_difference() -> None:
    """Bytes at random places in texts that no check code protects, and in those that one does."""
    chance, document, readable = Random(4), written(rich_tree()), 0
    for _ in range(2_000):
        key = chance.choice(["UpgradeFaultReason", "SwitchInfoCfg", "ManuallySeparateNPU", FAULTS])
        text = faults_of(document) if key == FAULTS else document.data[key]
        begin = chance.randrange(len(text))
        end = begin + chance.randrange(4)
        junk = chance.choice(["", "[", "]", "{", "}", '"', "0", "null", ",", "5e9", "[" * 3000])
        junk = text[:begin] + junk + text[end:]
        try:
            facts_of(
                with_faults(document, junk)
                if key == FAULTS
                else msgspec.structs.replace(document, data=document.data | {key: junk})
            )
        except DocumentError:
            continue
        readable += 1
    assert readable > 100


def test_a_reason_text_that_makes_no_sense_is_named() -> None:
    document = written(rich_tree())
    data = document.data | {"UpgradeFaultReason": "{"}
    reported = reported_for(msgspec.structs.replace(document, data=data))
    assert {one.place for one in reported} >= {"UpgradeFaultReason"}
    assert {one.device for one in reported} == {"", "Ascend910-3", "Ascend910-10"}
