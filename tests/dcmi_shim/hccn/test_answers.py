"""Answers of hccn_tool: samples of the specification, tolerance, and invalid outputs (dcmi#7)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.errors import ToolInvalidOutput
from dcmi_shim.hccn import tool as hccn
from dcmi_shim.hccn.answers import (
    parse_counters,
    parse_link,
    parse_link_ups,
    parse_optical,
    parse_speed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HISTORY = """\
[devid 0]current time        : Wed Aug  2 03:09:26 2022
[devid 0]link up count       : 2
[devid 0]link down count     : 1
[devid 0]link change records :
[devid 0]    Tue Aug  1 14:43:40 2022    LINK UP
[devid 0]    Tue Aug  1 14:43:40 2022    LINK DOWN
[devid 0]    Tue Aug  1 14:43:26 2022    LINK UP
"""
COUNTERS = """\
packet statistics:
mac_tx_mac_pause_num:0
mac_rx_fcs_err_pkt_num:17
roce_ecn_db_num:18446744073709551615
"""
OPTICAL = """\
optical info:
present              : not present
temperature          : 47 C
vendor part number   : LMQ8611-PC+
manufact date code   : 2023.6.18
Vcc                  : 3262.90 mV
Tx Power0            : 4.4035 mW
Rx Power1            : 0.0054 mW
Tx Power2            : NA
TxPower High Thres   : 3.5481 mW
Tx Los Flag          : 0x0
Host SNR Lane0       : not supported
Media SNR Lane0      : 23.1211 dB
"""


def test_link() -> None:
    assert parse_link("link status: UP\n", 2) is True
    assert parse_link("link status: DOWN\n", 2) is False
    for text in (
        "[devid 2]link status: DOWN",
        "[device 2] Link status :  DOWN  \r\n",
        "warning: slow\nlink status: DOWN\nlink status: DOWN\n",
    ):
        assert parse_link(text, 2) is False


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "UP", "link status:", "link status: up", "link status: UNKNOWN"),
        *("link status: UP\nlink status: DOWN", "no link status: UP", "\x00\xff\ufffd"),
    ],
)
def test_other_words_are_no_link_status(text: str) -> None:
    with pytest.raises(
        ToolInvalidOutput, match="hccn_tool gave no link status of chip 2; printed: "
    ):
        parse_link(text, 2)


def test_another_chip_answers() -> None:
    with pytest.raises(ToolInvalidOutput) as caught:
        parse_link("[devid 3]link status: DOWN\n", 2)
    assert str(caught.value) == (
        "hccn_tool answered for chip 3 when chip 2 was asked for; "
        "printed: [devid 3]link status: DOWN"
    )
    with pytest.raises(ToolInvalidOutput, match="chip 0 when chip 1"):
        parse_link_ups(HISTORY, 1)


def test_speed() -> None:
    assert parse_speed("Speed: 200000 Mb/s\n", 0) == 200000
    assert parse_speed("Speed: Unknown!\n", 0) is None
    for text in ("Speed: fast\n", "Speed: -1 Mb/s", "Speed: 1e5 Mb/s", ""):
        with pytest.raises(ToolInvalidOutput, match="no speed of chip 0"):
            parse_speed(text, 0)


def test_how_often_the_link_came_up() -> None:
    assert parse_link_ups(HISTORY, 0) == 2
    assert (
        parse_link_ups("[device 0]link up count : 7\n[device 0]link change records : NA\n", 0) == 7
    )
    with pytest.raises(ToolInvalidOutput, match="no link up count"):
        parse_link_ups("[devid 0]link down count : 1\n", 0)


def test_counters() -> None:
    assert parse_counters(COUNTERS, 0) == {
        "mac_tx_mac_pause_num": 0,
        "mac_rx_fcs_err_pkt_num": 17,
        "roce_ecn_db_num": 2**64 - 1,
    }
    assert parse_counters("crc_error_sum : 4\n", 0) == {"crc_error_sum": 4}
    with pytest.raises(ToolInvalidOutput, match="no packet statistics"):
        parse_counters("packet statistics:\n", 0)


def test_optical() -> None:
    found = parse_optical(OPTICAL, 0)
    assert found.present is False
    assert found.values["vendor_part_number"] == "LMQ8611-PC+"
    numbers = {
        "temperature": 47.0,
        "Vcc": 3262.9,
        "Tx_Power0": 4.4035,
        "Rx_Power1": 0.0054,
        "Tx_Power2": None,
        "Tx_Power3": None,
        "Host_SNR_Lane0": None,
        "Media_SNR_Lane0": 23.1211,
    }
    assert {name: found.number(name) for name in numbers} == numbers
    assert parse_optical("present : present", 0).present is True
    assert parse_optical("Tx Power : 1.0 mW", 0).present is None
    with pytest.raises(ToolInvalidOutput, match="no optical info"):
        parse_optical("optical info:\ncolour : red\n", 0)


PARSERS = [
    question.parse
    for name, question in vars(hccn).items()
    if isinstance(question, hccn.ToolQuestion) and name.isupper()
]
_words = st.sampled_from(
    [
        *("link status: UP", "link status:", "DOWN", "Speed: ", "200000 Mb/s", "Unknown!"),
        *("[devid 2]", "[devid 3]", "[device 2]", "link up count : ", "9" * 5000, "LINK UP"),
        *("\t", "+-----+", "| NPU |", "| 0 | 0 | 4 | ETH | DOWN |", "present : present"),
        *("Tx Power0 : 1.0 mW", "TxPower0 | 1 mW |", "port_enable: on", ":", "\n", " ", "\x00"),
        *("\u0663", "²", "-1", "1e999", "nan", "inf"),
    ]
)
_texts = st.lists(_words, max_size=12).map("".join) | st.text(max_size=60)


def test_every_question_is_tried() -> None:
    assert len(PARSERS) == 8


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(text=_texts, chip=st.integers(0, 15))
@example(text="", chip=0)
def test_any_text_is_an_answer_or_an_invalid_output(
    parse: Callable[[str, int], Any], text: str, chip: int
) -> None:
    refusal: ToolInvalidOutput | None = None
    try:
        parse(text, chip)
    except ToolInvalidOutput as error:
        refusal = error
    if refusal is not None:
        assert refusal.printed == text
        assert len(str(refusal)) < 400
        return
    named = {int(number) for number in re.findall(r"^\s*\[dev(?:id|ice) (\d+)\]", text, re.M)}
    assert named <= {chip}
