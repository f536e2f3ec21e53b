"""What all steps of a scenario have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from contract.codes.chip_codes import format_code
from contract.codes.levels import Severity
from dcmi_shim.emulator.codes import parse_code

LAST_MS = 86_400_000


def _code(text: str) -> str:
    return format_code(parse_code(text))


Code = Annotated[str, AfterValidator(_code)]
SeverityWord = Literal["suggestion", "minor", "major", "critical"]


class ScenarioStep(BaseModel):
    """Something that happens ``at_ms`` after the begin of the play."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    at_ms: int = Field(ge=0, le=LAST_MS)


def severity_of_word(word: SeverityWord) -> Severity:
    """Return the severity that a scenario calls ``word``."""
    return Severity[word.upper()]
