"""What all steps of a scenario have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from contract.codes.chip_codes import format_code
from contract.codes.levels import Severity
from dcmi_shim.emulator.codes import parse_code

if TYPE_CHECKING:
    from dcmi_shim.emulator.control import Emulator

LAST_MS = 86_400_000


def _code(text: str) -> str:
    return format_code(parse_code(text))


Code = Annotated[str, AfterValidator(_code)]
SeverityWord = Literal["suggestion", "minor", "major", "critical"]


class ScenarioStep(BaseModel):
    """Something that happens ``at_ms`` after the begin of the play."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    at_ms: int = Field(ge=0, le=LAST_MS)

    @abstractmethod
    def apply(self, emulator: Emulator) -> None:
        """Make it happen now."""


def severity_of_word(word: SeverityWord | None) -> Severity | None:
    """Return the severity that a scenario calls ``word``; ``None`` for the driver's own."""
    return None if word is None else Severity[word.upper()]
