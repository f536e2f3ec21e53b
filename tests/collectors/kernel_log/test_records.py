"""Records of the kernel's log: good ones, pieces, escapes, nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kernel_log.records import KernelRecord, Records, parse_record
from tests.parts.kernel_log import HUNG, LOCKUP, line


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (b"6,339,5140900,-;NET: on", KernelRecord(6, 339, 5140900, False, "NET: on")),
        (b"30,340,5690716,-,caller=T1;udevd", KernelRecord(6, 340, 5690716, False, "udevd")),
        (b"691,7,1,-;[ascend]", KernelRecord(3, 7, 1, False, "[ascend]")),
        (b"4,8,2,c;a piece", KernelRecord(4, 8, 2, False, "a piece")),
        (b"4,9,2,+;and more", KernelRecord(4, 9, 2, True, "and more")),
        (b"0,1,0,-;", KernelRecord(0, 1, 0, False, "")),
        (b"3,2,1,-;1\\x0a2 \\x5cx41; 3", KernelRecord(3, 2, 1, False, "1\n2 \\x41; 3")),
        (b"3,2,1,-;\\xe4\\xb8\\xad \\xff", KernelRecord(3, 2, 1, False, "中 �")),
        (b"3,2,1,-;\\x4", KernelRecord(3, 2, 1, False, "\\x4")),
    ],
)
def test_a_record(text: bytes, record: KernelRecord) -> None:
    assert parse_record(text) == record


@pytest.mark.parametrize(
    "text",
    [b"no record", b"6,1,2;no flags", b"6,,2,-;x", b"-6,1,2,-;x", b"6,1,2,-", b"6,%030d,1,-;x" % 1],
)
def test_malformed_line_is_no_record(text: bytes) -> None:
    assert parse_record(text) is None


def test_lines_of_the_device_belong_to_the_record_before() -> None:
    records = Records()
    reported = records.feed(b"6,1,2,-;usb 1-1\n SUBSYSTEM=usb\n DEVICE=c189:0\n6,2,3,-;next\n")
    assert [one.sequence for one in reported] == [1, 2]
    assert records.unreadable == 0


@given(st.lists(st.integers(min_value=1, max_value=60)))
def test_a_pipe_may_cut_anywhere(cuts: list[int]) -> None:
    data = "".join([line(1, LOCKUP), "nonsense\n", line(2, HUNG), " DEVICE=+pci\n"]).encode()
    records = Records()
    reported: list[KernelRecord] = []
    for cut in cuts:
        reported += records.feed(data[:cut])
        data = data[cut:]
    reported += records.feed(data)
    assert [one.text for one in reported] == [LOCKUP, HUNG]
    assert records.unreadable == 1


def test_a_line_without_an_end_is_given_up() -> None:
    records = Records()
    for _ in range(20):
        assert records.feed(b"x" * 10_000) == []
    assert records.unreadable > 0
    assert [one.text for one in records.feed(b"\n" + line(1, HUNG).encode())] == [HUNG]


@pytest.mark.parametrize("cut", [1, 30_000, 70_000, 139_990])
def test_a_line_that_is_too_long_is_no_record_and_neither_is_its_end(cut: int) -> None:
    text = b"6,1,1,-;" + b"x" * 70_000 + b"6,2,2,-;" + b"y" * 70_000 + b"\n6,3,3,-;good\n"
    whole, pieces = Records(), Records()
    assert [one.sequence for one in whole.feed(text)] == [3]
    found = pieces.feed(text[:cut]) + pieces.feed(text[cut:])
    assert [one.sequence for one in found] == [3]
    assert (whole.unreadable, pieces.unreadable) == (1, 1)


@given(st.binary(max_size=300))
def test_nonsense_is_counted_and_never_an_error(data: bytes) -> None:
    records = Records()
    for record in records.feed(data):
        assert 0 <= record.level < 8
        assert record.sequence >= 0
