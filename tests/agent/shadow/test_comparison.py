"""When a write is right although it comes later, earlier or mixed, and when a write is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from agent.shadow.comparison import AFTER_MS, BEFORE_MS, MISSING_MS, REFRESH_MS, ShadowComparison
from agent.shadow.difference import Fact
from contract.codes.families import FAMILIES
from contract.documents.device_info import DeviceFault, DeviceInfo, TimeAndLevel, encode
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from contract.pages.agent_status import Field, WriteResult
from stores.base import Document

if TYPE_CHECKING:
    from agent.shadow.comparison import ComparisonResult

BEGIN_MS = 1_800_000_000_000
A, B = "80C98008", "80CD8008"


def shown(codes: dict[int, str], stamp: int = 1) -> Document:
    """Return a document of two chips; those with a code are unhealthy."""
    names = {f"Ascend910-{chip}": code for chip, code in codes.items()}
    info = DeviceInfo(
        device_type="Ascend910",
        free=tuple(name for name in ("Ascend910-0", "Ascend910-1") if name not in names),
        unhealthy=tuple(names),
        network_unhealthy=(),
        recovering=(),
        faults=tuple(
            DeviceFault(
                "CardUnhealthy", name, *("RestartNPU",) * 3, code, {code: TimeAndLevel(stamp, "x")}
            )
            for name, code in names.items()
        ),
        update_time=stamp,
    )
    data = encode(info, FAMILIES["Ascend910B"])
    name = device_info_name("node-1")
    return Document(DEVICE_INFO_NAMESPACE, name, data, dict([REPORT_LABEL]))


def judge_of(*wishes: tuple[int, dict[int, str]]) -> ShadowComparison:
    """Return a comparison with our desired documents, each from its time after ``BEGIN_MS`` on."""
    judge = ShadowComparison()
    for at_ms, codes in wishes:
        judge.set_desired(BEGIN_MS + at_ms, shown(codes))
    return judge


def results(judge: ShadowComparison, at_ms: int) -> list[WriteResult]:
    return [verdict.result for verdict in verdicts(judge, at_ms)]


def verdicts(judge: ShadowComparison, at_ms: int) -> list[ComparisonResult]:
    return judge.pop_results(BEGIN_MS + at_ms)


def test_the_state_of_now_is_right_at_once() -> None:
    judge = judge_of((0, {}), (10_000, {1: A}))
    judge.observe_write(BEGIN_MS + 10_500, shown({1: A}, stamp=9))
    assert results(judge, 10_500) == [WriteResult.SAME]
    assert results(judge, 60_000) == []


def test_a_state_from_just_now_is_right_and_an_older_one_is_not() -> None:
    judge = judge_of((0, {1: A}), (10_000, {}))
    judge.observe_write(BEGIN_MS + 10_000 + BEFORE_MS - 1, shown({1: A}))
    assert results(judge, 10_000 + BEFORE_MS - 1) == [WriteResult.SAME]
    judge.observe_write(BEGIN_MS + 10_000 + BEFORE_MS, shown({1: A}))
    late = 10_000 + BEFORE_MS + AFTER_MS
    assert results(judge, late - 1) == []
    assert judge.next_deadline_ms() == BEGIN_MS + late
    (verdict,) = verdicts(judge, late)
    assert verdict.result is WriteResult.DIFFERENT
    assert verdict.at_ms == BEGIN_MS + 10_000 + BEFORE_MS
    first = verdict.differences[0]
    assert str(first) == f"Ascend910-1: fault_code {A} too much"


def test_a_write_is_right_when_our_own_state_follows() -> None:
    judge = judge_of((0, {1: A}))
    judge.observe_write(BEGIN_MS + 60_000, shown({}))
    assert results(judge, 60_000) == []
    judge.set_desired(BEGIN_MS + 60_000 + AFTER_MS, shown({}))
    assert results(judge, 60_000 + AFTER_MS) == [WriteResult.SAME]


def test_a_write_may_have_the_old_state_of_one_chip_and_the_new_one_of_another() -> None:
    judge = judge_of((0, {0: A}), (10_000, {}), (10_500, {1: B}))
    judge.observe_write(BEGIN_MS + 11_000, shown({0: A, 1: B}))
    assert results(judge, 11_000) == [WriteResult.SAME]
    judge.observe_write(BEGIN_MS + 12_000, shown({0: B, 1: B}))
    (verdict,) = verdicts(judge, 30_000)
    assert {one.fact.device for one in verdict.differences} == {"Ascend910-0"}


def with_codes(*codes: str, level: str = "RestartNPU") -> Document:
    """Return a document of one chip with these codes, of which ``A`` needs no handling."""
    own = {code: "NotHandleFault" if code == A else "RestartNPU" for code in codes}
    fault = DeviceFault(
        "CardUnhealthy",
        "Ascend910-0",
        *(level,) * 3,
        ",".join(codes),
        {code: TimeAndLevel(1, word) for code, word in own.items()},
    )
    healthy = level == "NotHandleFault"
    info = DeviceInfo(
        device_type="Ascend910",
        free=("Ascend910-0",) if healthy else (),
        unhealthy=() if healthy else ("Ascend910-0",),
        network_unhealthy=(),
        recovering=(),
        faults=(fault,),
        update_time=1,
    )
    return replace(shown({}), data=encode(info, FAMILIES["Ascend910B"]))


@pytest.mark.parametrize(
    ("level", "result"),
    [("RestartNPU", WriteResult.SAME), ("NotHandleFault", WriteResult.DIFFERENT)],
)
def test_a_recovery_may_be_held_back_while_another_code_of_the_chip_comes(
    level: str, result: WriteResult
) -> None:
    judge = ShadowComparison()
    judge.set_desired(BEGIN_MS, with_codes(A, level="NotHandleFault"))
    judge.set_desired(BEGIN_MS + 10_000, with_codes(B))
    judge.observe_write(BEGIN_MS + 10_500, with_codes(A, B, level=level))
    assert results(judge, 20_000) == [result]


def test_two_changes_may_share_a_write_and_a_change_may_have_none() -> None:
    judge = judge_of((0, {}), (10_000, {0: A}), (10_300, {0: A, 1: B}), (10_600, {}))
    judge.observe_write(BEGIN_MS + 11_000, shown({0: A, 1: B}))
    judge.observe_write(BEGIN_MS + 13_000, shown({}))
    assert results(judge, 13_000) == [WriteResult.SAME, WriteResult.SAME]
    assert results(judge, 13_000 + MISSING_MS) == []


def test_write_before_the_first_desired_document_is_judged_later() -> None:
    judge = ShadowComparison()
    judge.observe_write(BEGIN_MS, shown({1: A}))
    assert results(judge, 60_000) == []
    assert judge.next_deadline_ms() is None
    judge.set_desired(BEGIN_MS + 60_000, shown({}))
    assert results(judge, 60_000 + AFTER_MS - 1) == []
    judge.set_desired(BEGIN_MS + 60_000 + AFTER_MS - 1, shown({1: A}))
    assert results(judge, 60_000 + AFTER_MS) == [WriteResult.SAME]


def test_missing_write_is_reported_once() -> None:
    judge = judge_of((0, {}))
    judge.observe_write(BEGIN_MS + 1_000, shown({}))
    assert results(judge, 1_000) == [WriteResult.SAME]
    judge.set_desired(BEGIN_MS + 20_000, shown({1: A}))
    assert judge.next_deadline_ms() == BEGIN_MS + 20_000 + MISSING_MS
    assert results(judge, 20_000 + MISSING_MS - 1) == []
    (verdict,) = verdicts(judge, 20_000 + MISSING_MS)
    assert verdict.result is WriteResult.NOT_WRITTEN
    assert verdict.at_ms == BEGIN_MS + 20_000, "it says when that began"
    assert str(verdict.differences[0]) == f"Ascend910-1: fault_code {A} missing"
    assert results(judge, 60_000) == []
    fact = verdict.differences[0].fact
    assert not judge.agrees(fact)
    judge.set_desired(BEGIN_MS + 61_000, shown({}))
    assert judge.agrees(fact), "we came back to what is written"
    assert results(judge, 61_000 + MISSING_MS) == []


def test_change_that_was_reversed_need_not_be_written() -> None:
    judge = judge_of((0, {}))
    judge.observe_write(BEGIN_MS, shown({}))
    judge.set_desired(BEGIN_MS + 10_000, shown({1: A}))
    judge.set_desired(BEGIN_MS + 10_000 + MISSING_MS - 1, shown({}))
    assert results(judge, 60_000) == [WriteResult.SAME]


def test_nothing_is_missing_while_nothing_can_be_seen() -> None:
    judge = judge_of((0, {}))
    judge.observe_write(BEGIN_MS, shown({}))
    assert results(judge, 0) == [WriteResult.SAME]
    judge.observe_interruption(BEGIN_MS + 5_000)
    judge.set_desired(BEGIN_MS + 10_000, shown({1: A}))
    judge.set_desired(BEGIN_MS + 20_000, shown({1: B}))
    assert results(judge, 40_000) == []
    # Written while nobody could see it: it belongs to the time of darkness.
    judge.observe_write(BEGIN_MS + 41_000, shown({1: A}))
    assert results(judge, 41_000) == [WriteResult.SAME]
    judge.end_interruption(BEGIN_MS + 41_000)
    (verdict,) = verdicts(judge, 41_000 + MISSING_MS)
    assert verdict.result is WriteResult.NOT_WRITTEN


def test_a_deletion_is_reported_and_over_with_the_next_write() -> None:
    judge = judge_of((0, {}))
    judge.observe_write(BEGIN_MS, shown({}))
    judge.observe_deletion(BEGIN_MS + 5_000)
    assert results(judge, 5_000) == [WriteResult.SAME, WriteResult.DELETED]
    assert not judge.agrees(Fact(Field.DOCUMENT))
    judge.observe_write(BEGIN_MS + 90_000, shown({}))
    assert results(judge, 90_000) == [WriteResult.SAME]
    assert judge.agrees(Fact(Field.DOCUMENT))


def test_a_document_that_never_comes_is_missed() -> None:
    judge = judge_of((1_000, {}))
    judge.observe_absence(BEGIN_MS)
    (verdict,) = verdicts(judge, 1_000 + MISSING_MS)
    assert (verdict.result, verdict.at_ms) == (WriteResult.NOT_WRITTEN, BEGIN_MS + 1_000)
    assert str(verdict.differences[0]) == "the document: nothing, ours written"
    assert results(judge, 600_000) == []


def test_a_writer_that_has_gone_is_reported() -> None:
    judge = judge_of((0, {}))
    judge.observe_write(BEGIN_MS, shown({}))
    assert results(judge, REFRESH_MS - 1) == [WriteResult.SAME]
    (verdict,) = verdicts(judge, REFRESH_MS)
    assert str(verdict.differences[0]) == "UpdateTime: older than 5 min, ours written every 5 min"
    assert results(judge, 3 * REFRESH_MS) == []


def test_fields_that_only_a_refresh_writes_have_more_time() -> None:
    judge = judge_of((0, {}))
    judge.observe_write(BEGIN_MS, replace(shown({}), labels={}))
    judge.set_desired(BEGIN_MS + 1_000, replace(shown({}), labels={}))
    assert results(judge, 1_000) == [WriteResult.SAME]
    judge.set_desired(BEGIN_MS + 2_000, shown({}))
    assert results(judge, REFRESH_MS - 1) == []


def test_an_unreadable_write_changes_nothing() -> None:
    judge = judge_of((0, {1: A}))
    judge.observe_write(BEGIN_MS, replace(shown({}), data={"DeviceInfoCfg": "{"}))
    assert results(judge, 0) == [WriteResult.UNREADABLE]
    assert results(judge, REFRESH_MS * 2) == []
    judge.observe_write(BEGIN_MS + REFRESH_MS * 2, shown({1: A}))
    assert results(judge, REFRESH_MS * 2) == [WriteResult.SAME]
