"""The error tree. Every error names what failed, where, and what the reader can do.

VigilError
├── ConfigurationError        wrong configuration, scenario or command line (exit status 2)
├── DocumentError             a document that its reader must refuse
│   ├── CheckCodeMismatch     its check code does not belong to its content
│   └── OtherNodeError        it names another node than the one whose place it lies at
├── DriverError               the vendor library could not be used (exit status 3)
│   ├── DriverNotFound        no library, or one that must not be loaded
│   │   └── DriverMissing       there is no library at all
│   ├── DriverCallError       a call answered with a return code other than 0
│   ├── DriverCallStuck       a call missed its deadline, or is left out because it did
│   └── DriverGone            the library's process is not there (crashed, being replaced)
├── ToolError                 a command line tool gave no usable answer
│   ├── ToolMissing           there is none, or one that must not or cannot be run
│   ├── ToolFailed            it ended with an exit status other than 0, or by a signal
│   ├── ToolSilent            it missed its deadline and was killed
│   └── ToolInvalidOutput     it printed something that is not an answer to what was asked
├── BmcError                  the BMC could not be asked, or answered what cannot be used
│   └── ForeignBmc            it does not know Huawei's command
├── StoreError                a store refused or failed (exit status 3)
│   ├── StoreUnavailable      no answer now; trying again makes sense
│   │   └── StoreMisconfigured  no usable address or credentials now; also a ConfigurationError
│   ├── StoreConflict         someone else wrote in between
│   └── StoreRefused          the store will not take this request (validation, wrong address)
│       ├── StoreForbidden    rights or credentials are missing, for now or for good
│       └── StoreNotFound     what the request is about is not there
├── ListenError               an address to serve on cannot be had (exit status 3)
├── JournalError              the journal could not be opened, read or written
└── EmulatorError             the emulator could not be built or driven
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MAX_QUOTE = 200
MAX_LISTED = 1000
"""How many problems of one document are kept."""


class VigilError(Exception):
    """Root of all errors that NPU Vigil raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file or on the command line.

    ``where`` is a path inside the input (``chip_faults.audit_period_seconds``,
    ``steps[3].code``, ``--store``), ``what`` a sentence that names the value and what
    would be right.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ConfigurationError(VigilError):
    """All problems of one input at once; nothing of it was taken over."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{source}: {plural(len(self.problems), 'problem')}\n{lines}")


class DocumentError(VigilError):
    """A document that its reader must refuse. ``where`` is a JSON path inside it.

    ``more`` is what else is wrong with it, where its reader looked for that.
    """

    def __init__(
        self, document: str, where: str, message: str, more: tuple[Problem, ...] = ()
    ) -> None:
        self.document = document
        self.where = where
        self.what = message
        self.more = more
        super().__init__(f"{document}: {where}: {message}")


class CheckCodeMismatch(DocumentError):
    """The check code is missing or does not belong to the content."""


class OtherNodeError(DocumentError):
    """It lies at a place of one node and names another: it counts for neither."""


class DriverError(VigilError):
    """The vendor library could not be used."""


class DriverNotFound(DriverError):
    """No library was found, or the one found must not be loaded."""


class DriverMissing(DriverNotFound):
    """There is no library at all: it may be installed later."""


class DriverCallError(DriverError):
    """A driver call answered with ``return_code`` other than 0 (``docs/spec/dcmi.md#4.4``)."""

    def __init__(self, function: str, chip: str | None, return_code: int, meaning: str) -> None:
        self.function = function
        self.chip = chip
        self.return_code = return_code
        self.meaning = meaning
        where = f" on {chip}" if chip is not None else ""
        super().__init__(f"{function}{where} answered {return_code} ({meaning})")


class DriverCallStuck(DriverError):
    """A driver call missed its deadline, or is left out because it did so before."""

    def __init__(self, function: str, chip: str | None, since_ms: int) -> None:
        self.function = function
        self.chip = chip
        self.since_ms = since_ms
        where = f" on {chip}" if chip is not None else ""
        # Whoever shows it shows since when, too.
        super().__init__(f"{function}{where} does not return")


class DriverGone(DriverError):
    """The process that holds the library is not there now."""


class ToolError(VigilError):
    """A command line tool (``hccn_tool``, ``ipmitool``) gave no usable answer."""


class ToolMissing(ToolError):
    """There is no such tool here now, or one that must not or cannot be run."""


class ToolFailed(ToolError):
    """The tool ended with ``status`` other than 0; a negative one is the signal that ended it.

    ``command`` is what was run; ``stdout`` and ``stderr`` are all that it printed.
    """

    def __init__(self, command: str, status: int, stdout: str, stderr: str) -> None:
        self.command = command
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
        end = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
        printed = " ".join(text for text in (quoted(stderr), quoted(stdout)) if text)
        super().__init__(f"{command}: {end}: {printed or 'nothing printed'}")


class ToolSilent(ToolError):
    """The tool missed its deadline and was killed, or does not even die."""


class ToolInvalidOutput(ToolError):
    """The tool ended well, and ``printed`` is not an answer to what was asked."""

    def __init__(self, command: str, printed: str) -> None:
        self.what = command
        self.printed = printed
        super().__init__(f"{command}; printed: {quoted(printed) or 'nothing'}")


def quoted(text: str) -> str:
    """Return the beginning of what a program printed, on one line and fit for a log."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_QUOTE else line[:_MAX_QUOTE] + " ..."


def printable(text: str) -> str:
    """Return ``text`` with ``?`` in place of each character that no terminal should get."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class BmcError(VigilError):
    """The BMC could not be asked through its device, or its answer cannot be used."""


class ForeignBmc(BmcError):
    """The BMC gave ``answer``, but none to Huawei's command: it seems to be of another maker."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        super().__init__(
            f"{answer}: the BMC seems not to be Huawei's, and no other one lists its alarms; "
            "set bmc.enabled = false"
        )


class StoreError(VigilError):
    """A store refused or failed."""


class StoreUnavailable(StoreError):
    """The store gives no answer now; trying again makes sense."""


class StoreMisconfigured(ConfigurationError, StoreUnavailable):
    """How to reach a store cannot be used as it is configured now. It is read again: daemons go on.

    No problem repeats a secret.
    """

    def __str__(self) -> str:
        return f"{self.source}: {'; '.join(map(str, self.problems))}"


class StoreConflict(StoreError):
    """Someone else wrote the document since it was read."""


class StoreRefused(StoreError):
    """The store will not take this request: rights, validation, wrong address."""


class StoreForbidden(StoreRefused):
    """Rights or credentials are missing. They may still come: a server that has just started knows
    none for a moment."""


class StoreNotFound(StoreRefused):
    """The object that the request is about, or its whole kind, is not there."""


class ListenError(VigilError):
    """An address to serve on cannot be had: it is in use, or none of this host's."""


class JournalError(VigilError):
    """The journal could not be opened, read or written."""


class EmulatorError(VigilError):
    """The emulator could not be built or driven."""


class FoundProblems:
    """Keeps the first ``MAX_LISTED`` problems and counts the others.

    A ConfigMap may have a mebibyte, of which every few bytes can be wrong. An operator reads only
    the first problems, and all of them would take more memory than an agent may have.
    """

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._more = 0

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        # The rest is counted, because a reader must see that the list is not complete.
        if len(self._kept) < MAX_LISTED:
            self._kept.append(problem)
        else:
            self._more += 1

    def extend(self, problems: Iterable[Problem]) -> int:
        """Add problems; return how many they were."""
        count = 0
        for problem in problems:
            self.add(problem)
            count += 1
        return count

    def all(self) -> tuple[Problem, ...]:
        """Return the problems; the first one is their number where not all are kept."""
        if not self._more:
            return tuple(self._kept)
        count = len(self._kept) + self._more
        message = f"has {count} problems, of which the first {MAX_LISTED} are listed"
        return (Problem("$", message), *self._kept)
