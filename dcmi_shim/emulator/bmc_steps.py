"""Steps of a scenario that change the BMC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, assert_never

from pydantic import AfterValidator, Field

from contract.codes.bmc_device_types import parse_device_type
from dcmi_shim.emulator.bmc import (
    MAX_EVENTS_PER_REPLY,
    TEXT_BYTES,
    BmcAlarm,
    Where,
    parse_completion_code,
    parse_reply,
    parse_request,
)
from dcmi_shim.emulator.step import Code, ScenarioStep, SeverityWord, severity_of_word

if TYPE_CHECKING:
    from dcmi_shim.emulator.bmc import EmulatedBmc


def _device(text: str) -> str:
    parse_device_type(text)
    return text


def _request(text: str) -> str:
    parse_request(text)
    return text


def _reply(text: str) -> str:
    parse_reply(text)
    return text


def _completion_code(text: str) -> str:
    parse_completion_code(text)
    return text


Text = Annotated[str, Field(max_length=TEXT_BYTES, pattern=r"^[ -~]*$")]
Index = Annotated[int, Field(ge=0, le=255)]
Device = Annotated[str, AfterValidator(_device)]


class BmcOccur(ScenarioStep):
    """An alarm is raised."""

    do: Literal["bmc_occur"]
    code: Code
    device: Device
    index: Index = 0
    severity: SeverityWord = "major"


class BmcRecover(ScenarioStep):
    """An alarm ends."""

    do: Literal["bmc_recover"]
    code: Code
    device: Device
    index: Index = 0


class BmcHang(ScenarioStep):
    """Commands get no answer."""

    do: Literal["bmc_hang"]
    where: Where = "reply"


class BmcSlow(ScenarioStep):
    """Commands take longer."""

    do: Literal["bmc_slow"]
    delay_ms: int = Field(ge=1, le=3_600_000)


class BmcFail(ScenarioStep):
    """Commands are answered with a completion code, as ``C1``."""

    do: Literal["bmc_fail"]
    completion_code: Annotated[str, AfterValidator(_completion_code)]


class BmcPage(ScenarioStep):
    """The list is sent in pages of another size."""

    do: Literal["bmc_page"]
    alarms: int = Field(ge=1, le=MAX_EVENTS_PER_REPLY)


class BmcReply(ScenarioStep):
    """Requests are answered with these bytes; replaces an earlier step of this kind."""

    do: Literal["bmc_reply"]
    request: Annotated[str, AfterValidator(_request)]
    reply: Annotated[str, AfterValidator(_reply)]


class BmcLabel(ScenarioStep):
    """The server gets another serial number or manufacturer; what is not given stays."""

    do: Literal["bmc_label"]
    serial: Text | None = None
    manufacturer: Text | None = None


class BmcPlain(ScenarioStep):
    """All alarms end, the BMC is absent or present again, or all its troubles end."""

    do: Literal["bmc_clear", "bmc_absent", "bmc_present", "bmc_ok"]


BmcStep: TypeAlias = (
    BmcOccur | BmcRecover | BmcHang | BmcSlow | BmcFail | BmcPage | BmcReply | BmcLabel | BmcPlain
)


def apply_to_bmc(step: BmcStep, bmc: EmulatedBmc) -> None:
    """Apply one step now."""
    match step:
        case BmcOccur():
            severity = severity_of_word(step.severity)
            bmc.occur(BmcAlarm(step.code, step.device, step.index, severity))
        case BmcRecover():
            bmc.recover(step.code, step.device, step.index)
        case BmcHang():
            bmc.hang(step.where)
        case BmcSlow():
            bmc.slow(step.delay_ms)
        case BmcFail():
            bmc.fail(parse_completion_code(step.completion_code))
        case BmcPage():
            bmc.page(step.alarms)
        case BmcReply():
            bmc.replies([(step.request, parse_reply(step.reply))])
        case BmcLabel():
            bmc.label(step.serial, step.manufacturer)
        case BmcPlain(do="bmc_clear"):
            bmc.clear()
        case BmcPlain(do="bmc_ok"):
            bmc.ok()
        case BmcPlain():
            bmc.present(step.do == "bmc_present")
        case _:
            assert_never(step)
