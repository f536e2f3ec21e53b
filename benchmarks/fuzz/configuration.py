"""TOML of the daemons and of scenarios, the key ``NpuVigil``, and replies of clock programs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent.config import AgentConfiguration
from aggregator.config import AggregatorConfiguration
from collectors.clock_programs import chrony_answer, ntp_answer
from contract.documents.vigil_key import (
    BlindSource,
    FaultAnswer,
    VigilRecord,
    decode_vigil_key,
    encode_vigil_key,
)
from contract.errors import VigilError
from dcmi_shim.emulator.scenario import parse_scenario
from service.configuration import load, parse_toml

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).parent.parent.parent
_AGENT = tuple((_ROOT / "systemd" / f"{name}.toml").read_text() for name in ("agent", "agent-mqtt"))
_AGGREGATOR = tuple(
    (_ROOT / "systemd" / f"{name}.toml").read_text() for name in ("aggregator", "aggregator-mqtt")
)
_SCENARIOS = (
    "# A fault that comes back while the driver hangs: the answer to a call is late, and the\n"
    "# recovery is seen when the call ends. Comments are long, so that some changes are none.\n"
    'profile = "a2"\n\n[[steps]]\nat_ms = 1000\ndo = "occur"\nchip = 3\ncode = "80E18402"\n'
    'severity = "minor"\n\n[[steps]]\nat_ms = 5000\ndo = "hang"\n'
    'function = "get_device_errorcode_v2"\nchip = 5\n\n'
    '[[steps]]\nat_ms = 9000\ndo = "recover"\nchip = 3\ncode = "80E18402"\n',
)
_KEYS = tuple(
    text
    for text in (
        encode_vigil_key([BlindSource("hccn", 1_800_000_000_000, "no answer", 3)], 5),
        encode_vigil_key([], 7, [FaultAnswer(1, "80E18402", "major", device_fault=True)]),
    )
    if text is not None
)
_CHRONY = struct.pack(">BBxxHHH", 6, 2, 33, 5, 0).ljust(52, b"\0") + struct.pack(">HH", 2, 0)
_REPLIES = (
    _CHRONY.ljust(104, b"\0").hex(),
    (bytes([0x24, 3]) + bytes(46)).hex(),
)


def _configuration(
    model: type[AgentConfiguration] | type[AggregatorConfiguration], text: str
) -> None:
    """Load a file, which may be refused with nothing but the problems of its values."""
    environment = {"VIGIL_NODE_NAME": "node-1"} if model is AgentConfiguration else {}
    file = parse_toml(text, "file")
    load(model, file=file, environment=environment, command_line={}, source="file")


def _scenario(text: str) -> None:
    scenario = parse_scenario(text, "file")
    assert [step.at_ms for step in scenario.steps] == sorted(step.at_ms for step in scenario.steps)


def _key(text: str) -> None:
    record = decode_vigil_key(text, "document")
    assert msgspec.json.decode(msgspec.json.encode(record), type=VigilRecord) == record
    # The daemon writes at most what it reads.
    again = encode_vigil_key(record.blind, record.changed_at_ms, record.faults)
    assert again is None or decode_vigil_key(again, "document").faults == record.faults


def _reply(text: str) -> None:
    """Read a reply of chronyd or of an NTP server, which is written in hexadecimal digits here."""
    try:
        reply = bytes.fromhex(text)
    except ValueError as error:
        raise VigilError(str(error)) from None
    answers = [answer for answer in (chrony_answer(reply), ntp_answer(reply)) if answer is not None]
    assert all(0 <= answer.stratum < 1 << 16 for answer in answers)
    if not answers:
        raise VigilError("is no reply")


PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
    "agent-toml": (_AGENT, lambda text: _configuration(AgentConfiguration, text)),
    "aggregator-toml": (_AGGREGATOR, lambda text: _configuration(AggregatorConfiguration, text)),
    "scenario-toml": (_SCENARIOS, _scenario),
    "vigil-key": (_KEYS, _key),
    "clock-reply": (_REPLIES, _reply),
}
"""By name: good inputs, and the function that checks."""
