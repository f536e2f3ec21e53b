"""Scenarios: files of what happens to the emulated hardware and when, and their play.

Source: ``docs/scenarios.md``.
"""

from __future__ import annotations

import time
from ipaddress import IPv4Address  # noqa: TC003  (pydantic needs it)
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Self,
    TypeAlias,
    get_args,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from typing_extensions import override

from contract.codes.switch_codes import NOT_APPLICABLE, format_switch_code, parse_switch_code
from contract.errors import ConfigurationError, Problem
from contract.toml_text import toml_content
from contract.validation_texts import validation_text
from dcmi_shim.emulator.bmc_steps import BmcStep
from dcmi_shim.emulator.functions import find_function
from dcmi_shim.emulator.step import Code, ScenarioStep, SeverityWord, severity_of_word
from dcmi_shim.emulator.switch_faults import CHIPS as SWITCH_CHIPS
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault
from dcmi_shim.emulator.tools import ToolTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from dcmi_shim.emulator.control import Emulator

CHIPS = {"a2": 8, "a3": 16, "910a": 8, "310p": 4, "310": 4, "duo": 8, "a5": 8}
_WITH_SWITCHES = ("a3",)


def _switch_code(text: str) -> str:
    return format_switch_code(parse_switch_code(text))


def _function(name: str) -> str:
    call = find_function(name)
    if call is None:
        raise ValueError(f"{name!r} is not a function of the driver")
    return call.name


SwitchCodeText = Annotated[str, AfterValidator(_switch_code)]
FunctionName = Annotated[str, AfterValidator(_function)]
Chip = Annotated[int, Field(ge=0, lt=max(CHIPS.values()))]


class RaiseStep(ScenarioStep):
    """A fault begins (``occur``), or is announced once (``once``)."""

    do: Literal["occur", "once"]
    chip: Chip
    code: Code
    severity: SeverityWord | None = None

    @override
    def apply(self, emulator: Emulator) -> None:
        """Raise or announce the fault."""
        send = emulator.occur if self.do == "occur" else emulator.once
        send(self.chip, self.code, severity_of_word(self.severity))


class RecoverStep(ScenarioStep):
    """A fault ends."""

    do: Literal["recover"]
    chip: Chip
    code: Code

    @override
    def apply(self, emulator: Emulator) -> None:
        """End the fault."""
        emulator.recover(self.chip, self.code)


class SwitchStep(ScenarioStep):
    """A fault of an on-board switch begins, ends, or is announced once."""

    do: Literal["switch_occur", "switch_recover", "switch_once"]
    code: SwitchCodeText
    chip: int = Field(ge=0, lt=SWITCH_CHIPS)
    port: int = Field(default=NOT_APPLICABLE, ge=0, le=NOT_APPLICABLE)
    peer_port: int = Field(default=0, ge=0, le=0xFFFF)
    severity: SeverityWord | None = None

    @model_validator(mode="after")
    def _exists(self) -> SwitchStep:
        self.fault()
        if self.do == "switch_recover" and self.severity is not None:
            raise ValueError("a recovery has no severity")
        return self

    def fault(self) -> EmulatedSwitchFault:
        """Return the fault that the step is about."""
        return EmulatedSwitchFault(
            parse_switch_code(self.code), self.chip, self.port, self.peer_port
        )

    @override
    def apply(self, emulator: Emulator) -> None:
        """Raise, end or announce the fault."""
        if self.do == "switch_recover":
            emulator.switch_recover(self.fault())
            return
        send = emulator.switch_occur if self.do == "switch_occur" else emulator.switch_once
        send(self.fault(), severity_of_word(self.severity))


class DropStep(ScenarioStep):
    """A card is removed."""

    do: Literal["drop"]
    chip: Chip
    hard: bool = False

    @override
    def apply(self, emulator: Emulator) -> None:
        """Remove the card."""
        emulator.drop(self.chip, self.hard)


class ReturnStep(ScenarioStep):
    """A dropped card is back."""

    do: Literal["return"]
    chip: Chip

    @override
    def apply(self, emulator: Emulator) -> None:
        """Return the card."""
        emulator.return_card(self.chip)


class HangStep(ScenarioStep):
    """Calls do not return (``hang``), or are normal again (``clear``)."""

    do: Literal["hang", "clear"]
    function: FunctionName
    chip: Chip | None = None

    @override
    def apply(self, emulator: Emulator) -> None:
        """Let the calls hang, or make them normal."""
        change = emulator.hang if self.do == "hang" else emulator.clear
        change(self.function, self.chip)


class SlowStep(ScenarioStep):
    """Calls take longer."""

    do: Literal["slow"]
    function: FunctionName
    delay_ms: int = Field(ge=1, le=3_600_000)
    chip: Chip | None = None

    @override
    def apply(self, emulator: Emulator) -> None:
        """Delay the calls."""
        emulator.slow(self.function, self.delay_ms, self.chip)


class FailStep(ScenarioStep):
    """Calls return an error code."""

    do: Literal["fail"]
    function: FunctionName
    return_code: int = Field(ge=-(2**31), lt=0)
    chip: Chip | None = None

    @override
    def apply(self, emulator: Emulator) -> None:
        """Let the calls fail."""
        emulator.fail(self.function, self.return_code, self.chip)


class LinkStep(ScenarioStep):
    """A network link goes down or comes up; quietly: no event shows it."""

    do: Literal["link"]
    chip: Chip
    state: Literal["up", "down"]
    quietly: bool = False
    ports: int = Field(default=1, ge=1, le=2)

    @override
    def apply(self, emulator: Emulator) -> None:
        """Take the link down or up."""
        is_up = self.state == "up"
        emulator.link(self.chip, up=is_up, quietly=self.quietly, ports=self.ports)


class LoadStep(ScenarioStep):
    """The activity of a chip and its processes; what is left out stays as it is."""

    do: Literal["load"]
    chip: Chip
    aicore: int | None = Field(default=None, ge=0, le=100)
    hbm: int | None = Field(default=None, ge=0, le=100)
    traffic: Literal["flowing", "still"] | None = None
    processes: list[int] | None = Field(default=None, max_length=32)

    @override
    def apply(self, emulator: Emulator) -> None:
        """Set the activity."""
        flows = None if self.traffic is None else self.traffic == "flowing"
        emulator.load(
            self.chip, aicore=self.aicore, hbm=self.hbm, traffic=flows, processes=self.processes
        )


class AddressStep(ScenarioStep):
    """The network port of a chip gets another IPv4 address, or ``none``."""

    do: Literal["address"]
    chip: Chip
    value: IPv4Address | Literal["none"]

    @override
    def apply(self, emulator: Emulator) -> None:
        """Set the address."""
        emulator.address(self.chip, None if self.value == "none" else str(self.value))


class VirtualStep(ScenarioStep):
    """A chip is divided into virtual devices; 0 makes it whole again."""

    do: Literal["virtual"]
    chip: Chip
    count: int = Field(ge=0, le=32)

    @override
    def apply(self, emulator: Emulator) -> None:
        """Divide the chip."""
        emulator.virtual(self.chip, self.count)


class ToolStep(ScenarioStep):
    """Runs of a command line tool fail, or work again (``ok``)."""

    do: Literal["tool"]
    tool: str
    trouble: str
    chip: Chip | None = None
    delay_ms: int | None = None
    exit_status: int | None = None
    text: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problems = ToolTrouble(**self._trouble()).problems()
        if problems:
            raise ValueError("; ".join(map(str, problems)))
        return self

    def _trouble(self) -> dict[str, Any]:
        return self.model_dump(exclude={"do", "at_ms"})

    @override
    def apply(self, emulator: Emulator) -> None:
        """Set or end the trouble."""
        emulator.tool(**self._trouble())


class PlainStep(ScenarioStep):
    """Everything is normal again, or the next change loses its event or all its traces."""

    do: Literal["reset", "lose_next_event", "lose_everything_next"]

    @override
    def apply(self, emulator: Emulator) -> None:
        """Do what the step is called."""
        match self.do:
            case "reset":
                emulator.reset()
            case "lose_next_event":
                emulator.lose_next_event()
            case "lose_everything_next":
                emulator.lose_everything_next()


AnyStep: TypeAlias = (
    RaiseStep
    | RecoverStep
    | SwitchStep
    | DropStep
    | ReturnStep
    | HangStep
    | SlowStep
    | FailStep
    | LinkStep
    | LoadStep
    | AddressStep
    | VirtualStep
    | ToolStep
    | PlainStep
    | BmcStep
)


_ACTIONS = frozenset(
    action for kind in get_args(AnyStep) for action in get_args(get_type_hints(kind)["do"])
)


class Scenario(BaseModel):
    """A profile, and steps in the order of their times."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    profile: Literal["a2", "a3", "910a", "310p", "310", "duo", "a5"] = "a2"
    steps: list[Annotated[AnyStep, Field(discriminator="do")]]


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in ``path``.

    Raises ``ConfigurationError`` with everything that is wrong.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise _wrong(path, [Problem("file", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, [Problem("file", f"is not UTF-8 text: {error.reason}")]) from error
    return parse_scenario(text, str(path))


def parse_scenario(text: str, source: str) -> Scenario:
    """Return the scenario in ``text``.

    ``source`` names it in errors. Raises like ``read_scenario``.
    """
    try:
        content = toml_content(text)
    except ValueError as error:
        raise _wrong(source, [Problem("file", str(error))]) from error
    # On the raw content, so that they are reported together with wrong types.
    problems = [*_impossible_steps(content), *_disorder(content)]
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        problems = [*map(_problem, error.errors()), *problems]
        raise _wrong(source, problems) from error
    if problems:
        raise _wrong(source, problems)
    return scenario


def _wrong(source: Path | str, problems: list[Problem]) -> ConfigurationError:
    return ConfigurationError(str(source), problems)


def _problem(details: Any) -> Problem:
    where = ""
    before: object = None
    for part in details["loc"]:
        if isinstance(part, int):
            where += f"[{part}]"
        elif not (isinstance(before, int) and part in _ACTIONS):  # the branch of the union
            where += f".{part}" if where else part
        before = part
    return Problem(where or "file", validation_text(details))


def _raw_steps(content: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    steps = content.get("steps")
    return [
        (index, step)
        for index, step in enumerate(steps if isinstance(steps, list) else [])
        if isinstance(step, dict)
    ]


def _impossible_steps(content: dict[str, Any]) -> list[Problem]:
    """Return steps about what the profile lacks, and chips of functions that are not about one."""
    profile = content.get("profile", "a2")
    chips = CHIPS.get(profile) if isinstance(profile, str) else None
    problems = []
    for index, step in _raw_steps(content):
        chip = step.get("chip")
        name = step.get("function")
        action = step.get("do")
        if isinstance(action, str) and action.startswith("switch_"):
            if profile in CHIPS and profile not in _WITH_SWITCHES:
                problems.append(Problem(f"steps[{index}].do", f"{profile} has no switches"))
            continue
        if not isinstance(chip, int) or not 0 <= chip < max(CHIPS.values()):
            continue
        where = f"steps[{index}].chip"
        function = find_function(name) if isinstance(name, str) else None
        if chips is not None and chip >= chips:
            problems.append(Problem(where, f"{profile} has the chips 0 to {chips - 1}, not {chip}"))
        elif function is not None and not function.is_about_a_chip:
            text = f"{function.name} is not about a chip; leave the chip out"
            problems.append(Problem(where, text))
    return problems


def _disorder(content: dict[str, Any]) -> list[Problem]:
    """Return steps whose time is before that of a step above them."""
    problems = []
    latest = 0
    for index, step in _raw_steps(content):
        at_ms = step.get("at_ms")
        if not isinstance(at_ms, int):
            continue
        if at_ms < latest:
            problems.append(
                Problem(f"steps[{index}].at_ms", f"{at_ms} is before a step above ({latest})")
            )
        latest = max(latest, at_ms)
    return problems


def play(scenario: Scenario, emulator: Emulator) -> None:
    """Apply every step at its time, counted from now; returns after the last one.

    Raises ``ConfigurationError`` before the first step when the hardware is not what the scenario
    was written for, and ``EmulatorError`` at a step that is not possible.
    """
    running = emulator.status()["profile"]
    if running != scenario.profile:
        text = f"is {scenario.profile!r}, but the emulator runs {running!r}"
        raise ConfigurationError("scenario", [Problem("profile", text)])
    begin = time.monotonic()
    for step in scenario.steps:
        # Counted from the begin, so that a slow step does not delay all later ones.
        time.sleep(max(0.0, begin + step.at_ms / 1000 - time.monotonic()))
        step.apply(emulator)
