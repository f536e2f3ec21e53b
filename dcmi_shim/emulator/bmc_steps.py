"""Steps of a scenario that change the BMC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field
from typing_extensions import override

from contract.codes.bmc_device_types import parse_device_type
from contract.codes.levels import Severity
from dcmi_shim.emulator.bmc import (
    MAX_EVENTS_PER_REPLY,
    TEXT_BYTES,
    BmcAlarm,
    Where,
    parse_completion_code,
    parse_reply,
    parse_request,
)
from dcmi_shim.emulator.step import Code, ScenarioStep, SeverityWord

if TYPE_CHECKING:
    from collections.abc import Callable

    from dcmi_shim.emulator.control import Emulator


def _readable(parse: Callable[[str], object]) -> AfterValidator:
    """Return a check that ``parse`` takes a text, which stays as it is."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


Text = Annotated[str, Field(max_length=TEXT_BYTES, pattern=r"^[ -~]*$")]
Index = Annotated[int, Field(ge=0, le=255)]
Device = Annotated[str, _readable(parse_device_type)]


class BmcOccur(ScenarioStep):
    """An alarm is raised."""

    do: Literal["bmc_occur"]
    code: Code
    device: Device
    index: Index = 0
    severity: SeverityWord = "major"

    @override
    def apply(self, emulator: Emulator) -> None:
        """Add the alarm."""
        severity = Severity[self.severity.upper()]
        emulator.bmc.occur(BmcAlarm(self.code, self.device, self.index, severity))


class BmcRecover(ScenarioStep):
    """An alarm ends."""

    do: Literal["bmc_recover"]
    code: Code
    device: Device
    index: Index = 0

    @override
    def apply(self, emulator: Emulator) -> None:
        """Remove the alarm."""
        emulator.bmc.recover(self.code, self.device, self.index)


class BmcHang(ScenarioStep):
    """Commands get no answer."""

    do: Literal["bmc_hang"]
    where: Where = "reply"

    @override
    def apply(self, emulator: Emulator) -> None:
        """Let commands hang."""
        emulator.bmc.hang(self.where)


class BmcSlow(ScenarioStep):
    """Commands take longer."""

    do: Literal["bmc_slow"]
    delay_ms: int = Field(ge=1, le=3_600_000)

    @override
    def apply(self, emulator: Emulator) -> None:
        """Delay commands."""
        emulator.bmc.slow(self.delay_ms)


class BmcFail(ScenarioStep):
    """Commands are answered with a completion code, as ``C1``."""

    do: Literal["bmc_fail"]
    completion_code: Annotated[str, _readable(parse_completion_code)]

    @override
    def apply(self, emulator: Emulator) -> None:
        """Let commands fail."""
        emulator.bmc.fail(parse_completion_code(self.completion_code))


class BmcPage(ScenarioStep):
    """The list is sent in pages of another size."""

    do: Literal["bmc_page"]
    alarms: int = Field(ge=1, le=MAX_EVENTS_PER_REPLY)

    @override
    def apply(self, emulator: Emulator) -> None:
        """Set the size of pages."""
        emulator.bmc.page(self.alarms)


class BmcReply(ScenarioStep):
    """Requests are answered with these bytes; replaces an earlier step of this kind."""

    do: Literal["bmc_reply"]
    request: Annotated[str, _readable(parse_request)]
    reply: Annotated[str, _readable(parse_reply)]

    @override
    def apply(self, emulator: Emulator) -> None:
        """Set the reply."""
        emulator.bmc.replies([(self.request, parse_reply(self.reply))])


class BmcLabel(ScenarioStep):
    """The server gets another serial number or manufacturer; what is not given stays."""

    do: Literal["bmc_label"]
    serial: Text | None = None
    manufacturer: Text | None = None

    @override
    def apply(self, emulator: Emulator) -> None:
        """Set the label."""
        emulator.bmc.label(self.serial, self.manufacturer)


class BmcPlain(ScenarioStep):
    """All alarms end, the BMC is absent or present again, or all its troubles end."""

    do: Literal["bmc_clear", "bmc_absent", "bmc_present", "bmc_ok"]

    @override
    def apply(self, emulator: Emulator) -> None:
        """Do what the step is called."""
        match self.do:
            case "bmc_clear":
                emulator.bmc.clear()
            case "bmc_ok":
                emulator.bmc.ok()
            case "bmc_absent" | "bmc_present":
                emulator.bmc.present(self.do == "bmc_present")


BmcStep: TypeAlias = (
    BmcOccur | BmcRecover | BmcHang | BmcSlow | BmcFail | BmcPage | BmcReply | BmcLabel | BmcPlain
)
