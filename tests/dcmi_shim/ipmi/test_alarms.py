"""The list of alarms: pages, bad replies, lists that change while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.codes.levels import Severity
from contract.errors import BmcError
from dcmi_shim.ipmi.alarms import MAX_PASSES, Alarm, parse_page, reading, request_from
from tests.dcmi_shim.bmc_model import FAN, fans, hold, page, pages_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dcmi_shim.bmc_model import Event

Found = TypeVar("Found")

events = st.tuples(
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 255),
)


def refusal(answer: Callable[[int], bytes]) -> str:
    with pytest.raises(BmcError) as caught:
        hold(reading(None), answer)
    return str(caught.value)


def test_the_request_is_that_of_the_specification() -> None:
    assert str(request_from(0)) == "30 94 db 07 00 40 00 00 00 0e ff"
    assert str(request_from(0x1234)) == "30 94 db 07 00 40 00 34 12 0e ff"


def test_one_page_is_one_request() -> None:
    found, asked = hold(reading(None), pages_of([FAN]))
    assert found == (Alarm("28000009", "Fan", 3, Severity.MAJOR, 1_700_000_000),)
    assert asked == [0]


def longer(answer: Callable[[int], bytes], zeros: int) -> Callable[[int], bytes]:
    """Return the pages of ``answer``, each with so many zeros at its end."""
    return lambda index: answer(index) + bytes(zeros)


@pytest.mark.parametrize("zeros", [1, 14, 15, 16, 200])
def test_zeros_behind_the_alarms_are_none(zeros: int) -> None:
    for number in (0, 1, 7):
        found, asked = hold(reading(None), longer(pages_of(fans(number)), zeros))
        assert [alarm.index for alarm in found] == list(range(number))
        assert asked == [0]


def test_an_alarm_of_zeros_counts_where_it_is_counted() -> None:
    nothing = (0, 0, 0, 0, 0)
    found, _ = hold(reading(None), lambda _: page([FAN, nothing]) + bytes(15))
    assert len(found) == 2


def test_no_alarm() -> None:
    assert hold(reading(None), pages_of([])) == ((), [0])


def test_a_severity_without_a_name() -> None:
    found, _ = hold(reading(None), pages_of([(1, 2, 4, 0xFE, 5)]))
    assert found == (Alarm("00000001", "UNKNOWN", 5, None, 2),)


def test_several_pages_count_when_two_passes_agree() -> None:
    found, asked = hold(reading(None), pages_of(fans(25)))
    assert [alarm.index for alarm in found] == list(range(25))
    assert asked == [0, 10, 20] * 2


def test_several_pages_that_are_known_are_read_once() -> None:
    before, _ = hold(reading(None), pages_of(fans(25)))
    assert hold(reading(before), pages_of(fans(25), size=9)) == (before, [0, 9, 18])


def test_an_alarm_is_listed_once_at_its_first_place() -> None:
    listed = [FAN, (9, 1, 1, 0, 0), (FAN[0], 5, 3, FAN[3], FAN[4]), (9, 1, 1, 0, 0)]
    found, _ = hold(reading(None), pages_of(listed, size=3))
    assert [(alarm.code, alarm.raised_at_seconds) for alarm in found] == [
        ("28000009", 1_700_000_000),
        ("00000009", 1),
    ]


def test_the_last_alarm_may_be_the_first_once_more() -> None:
    found, _ = hold(reading(None), pages_of([*fans(3), fans(3)[0]]))
    assert [alarm.index for alarm in found] == [0, 1, 2]


def test_an_alarm_that_moves_into_a_page_already_read_is_not_lost() -> None:
    """While page 2 is read one alarm of page 1 goes and another comes: the total is the same."""
    lists = [fans(12), [*fans(12)[1:], (*FAN[:4], 99)]]
    asked: list[int] = []

    def answer(first: int) -> bytes:
        asked.append(first)
        return pages_of(lists[len(asked) > 1])(first)

    found, _ = hold(reading(None), answer)
    assert [alarm.index for alarm in found] == [*range(1, 12), 99]
    assert asked == [0, 10] * 3


def test_a_total_that_changes_begins_from_the_start() -> None:
    totals = iter([12, 13])

    def answer(first: int) -> bytes:
        return pages_of(fans(next(totals, 13)))(first)

    found, asked = hold(reading(None), answer)
    assert len(found) == 13
    assert asked == [0, 10] * 3


def test_a_list_that_never_rests_is_an_error() -> None:
    sizes = iter(range(12, 100))
    output = refusal(lambda first: pages_of(fans(next(sizes)))(first))
    assert (
        f"changes while it is read, {MAX_PASSES} times now: the total went from 20 to 21" in output
    )


def test_a_list_that_changes_under_one_total_is_an_error() -> None:
    codes = iter(range(1, 100))

    def answer(first: int) -> bytes:
        return pages_of(fans(12, next(codes)))(first)

    assert "no two passes agree" in refusal(answer)


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (b"", "it has 0 bytes, not even 7 (no byte)"),
        (page([])[:-1], "it has 6 bytes, not even 7"),
        (page([FAN])[:-1], "its alarms take 14 bytes, no multiple of 15"),
        (page([FAN]) + b"\1", "its alarms take 16 bytes, no multiple of 15"),
        (page([FAN]) + bytes(14) + b"\1", "its count of alarms is 1, but it holds 2"),
        (page([FAN], count=2) + bytes(14), "its alarms take 29 bytes, no multiple of 15"),
        (page([FAN])[3:], "it begins with 01 00 01 instead of db 07 00: shifted"),
        (page([FAN], manufacturer=b"\x57\x01\0"), "it begins with 57 01 00"),
        (page([FAN], count=2), "its count of alarms is 2, but it holds 1"),
        (page([FAN], total=0, count=0), "its count of alarms is 0, but it holds 1"),
        (page([], total=1, count=1), "its count of alarms is 1, but it holds 0"),
        (page([FAN], total=0), "the total is 0, but 1 came"),
        (page([], total=3), "it is empty, but the total is 3"),
    ],
)
def test_a_bad_first_page(reply: bytes, what: str) -> None:
    output = refusal(lambda first: reply)
    assert "the alarms from index 0 on is bad" in output
    assert what in output


@pytest.mark.parametrize(
    ("second", "where", "what"),
    [
        (page([], total=12), 10, "it is empty, but the total is 12"),
        (page(fans(2), total=12)[:-2], 10, "no multiple of 15"),
        (page(fans(3), total=12), 0, "the total is 12, but 13 came"),
        (b"\xdb", 10, "it has 1 byte, not even "),
    ],
)
def test_a_bad_later_page(second: bytes, where: int, what: str) -> None:
    output = refusal(lambda first: second if first else pages_of(fans(12))(0))
    assert f"the alarms from index {where} on is bad" in output
    assert what in output


def test_a_count_that_would_lead_beyond_the_last_index() -> None:
    """Recorded as index-overflow: 255 announced on every page, one sent."""
    output = refusal(lambda first: page([FAN], total=0xFFFF, count=255))
    assert "its count of alarms is 255, but it holds 1" in output


@pytest.mark.slow
def test_the_longest_list_has_no_index_beyond_65535() -> None:
    listed: list[Event] = [(code, 0, 1, 0, index) for code in range(1, 258) for index in range(255)]
    assert len(listed) == 0xFFFF
    found, asked = hold(reading(None), pages_of(listed, size=60))
    assert len(found) == 0xFFFF
    assert max(asked) < 0xFFFF


@given(st.lists(events, max_size=40), st.integers(1, 60))
def test_every_list_is_read_whole(listed: list[Event], size: int) -> None:
    found, _ = hold(reading(None), pages_of(listed, size))
    single, _ = hold(reading(None), pages_of(listed, size=60))
    assert found == single
    assert {int(alarm.code, 16) for alarm in found} == {event[0] for event in listed}


def attempt(work: Callable[[], Found]) -> Found | BmcError:
    try:
        return work()
    except BmcError as error:
        return error


@given(st.binary(max_size=80), st.booleans())
def test_a_page_of_noise_is_an_error_or_exactly_a_page(noise: bytes, sound: bool) -> None:
    reply = b"\xdb\x07\0" + noise if sound else noise
    found = attempt(lambda: parse_page(reply, 7))
    if isinstance(found, BmcError):
        assert "from index 7 on is bad" in str(found)
        return
    assert reply[:3] == b"\xdb\x07\0"
    assert reply[5] == len(found.alarms)
    assert len(reply) == 7 + 15 * len(found.alarms)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=40))
def test_a_conversation_of_noise_ends(replies: list[bytes]) -> None:
    answers = iter(replies)
    ended = attempt(
        lambda: hold(reading(None), lambda first: b"\xdb\x07\0" + next(answers, replies[-1]))
    )
    if isinstance(ended, BmcError):
        assert "from index" in str(ended) or "changes" in str(ended)
    else:
        found, asked = ended
        assert len(found) <= 4 * len(asked)
