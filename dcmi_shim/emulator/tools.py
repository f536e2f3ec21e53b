"""The command line tools that look like the vendor's, and the troubles they can have."""

from __future__ import annotations

from dataclasses import dataclass

from contract.errors import Problem
from dcmi_shim.emulator.functions import tools

_MAX_DELAY_MS = 3_600_000
_MAX_EXIT_STATUS = 255
_MAX_TEXT = 119

SLOW, FAIL = "slow", "fail"
TROUBLES = ("ok", "hang", SLOW, FAIL, "garble", "busy", "other-chip")
"""The troubles of a tool, in the order of ``troubles.h``; ``ok`` ends all of them."""


@dataclass(frozen=True)
class ToolTrouble:
    """A trouble of runs of ``tool``, on ``chip`` or on any subject.

    ``delay_ms`` belongs to ``slow``; ``exit_status`` and ``text``, for standard error, to ``fail``.
    """

    tool: str
    trouble: str
    chip: int | None = None
    delay_ms: int | None = None
    exit_status: int | None = None
    text: str = ""

    def problems(self) -> list[Problem]:
        """Return all problems of it, but for a chip that a server does not have."""
        problems = []
        tool = tools().get(self.tool)
        if tool is None:
            text = f"{self.tool!r} is unknown; there are {', '.join(tools())}"
            problems.append(Problem("tool", text))
        elif self.chip is not None and not tool.is_about_a_chip:
            problems.append(Problem("chip", f"{self.tool} is not about a chip; leave the chip out"))
        if self.chip is not None and self.chip < 0:
            problems.append(Problem("chip", f"{self.chip} is not a chip"))
        if self.trouble not in TROUBLES:
            text = f"{self.trouble!r} is unknown; there are {', '.join(TROUBLES)}"
            return [*problems, Problem("trouble", text)]
        return problems + self._value_problems()

    def _value_problems(self) -> list[Problem]:
        problems = []
        delay_ms, status = self.delay_ms, self.exit_status
        if self.trouble == SLOW and (delay_ms is None or not 0 < delay_ms <= _MAX_DELAY_MS):
            text = f"{delay_ms} is not between 1 and {_MAX_DELAY_MS}"
            problems.append(Problem("delay_ms", text))
        if self.trouble != SLOW and delay_ms is not None:
            problems.append(Problem("delay_ms", f"belongs to {SLOW}, not to {self.trouble}"))
        if self.trouble == FAIL and (status is None or not 0 < status <= _MAX_EXIT_STATUS):
            text = f"{status} is not between 1 and {_MAX_EXIT_STATUS}"
            problems.append(Problem("exit_status", text))
        if self.trouble != FAIL and (status is not None or self.text):
            problems.append(
                Problem("exit_status", f"and text belong to {FAIL}, not {self.trouble}")
            )
        if len(self.text) > _MAX_TEXT or not self.text.isascii() or "\0" in self.text:
            text = f"must be ASCII text of at most {_MAX_TEXT} characters"
            problems.append(Problem("text", text))
        return problems
