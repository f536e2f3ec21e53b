"""The error tree. Every error says what failed, where, and what the reader can do.

VigilError
├── ConfigurationError        wrong configuration, scenario or command line (exit status 2)
├── DocumentError             a document that its reader must refuse
│   └── CheckCodeMismatch     its check code does not belong to its content
├── DriverError               the vendor library could not be used (exit status 3)
│   ├── DriverNotFound        no library, or one that must not be loaded
│   ├── DriverCallError       a call answered with a return code other than 0
│   ├── DriverCallStuck       a call missed its deadline, or is left out because it did
│   └── DriverGone            the library's process is not there (crashed, being replaced)
├── StoreError                a store refused or failed (exit status 3)
│   ├── StoreUnavailable      no answer now; trying again makes sense
│   ├── StoreConflict         someone else wrote in between
│   └── StoreRefused          the store will not take this request (rights, validation)
├── JournalError              the journal could not be opened, read or written
└── EmulatorError             the emulator could not be built or driven
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        super().__init__(f"{source}: {len(self.problems)} problem(s)\n{lines}")


class DocumentError(VigilError):
    """A document that its reader must refuse. ``where`` is a JSON path inside it."""

    def __init__(self, document: str, where: str, what: str) -> None:
        self.document = document
        self.where = where
        self.what = what
        super().__init__(f"{document}: {where}: {what}")


class CheckCodeMismatch(DocumentError):
    """The check code is missing or does not belong to the content."""


class DriverError(VigilError):
    """The vendor library could not be used."""


class DriverNotFound(DriverError):
    """No library was found, or the one found must not be loaded."""


class DriverCallError(DriverError):
    """A driver call answered with ``return_code`` other than 0 (``spec/dcmi.md`` 4.4)."""

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
        super().__init__(f"{function}{where} does not return (stuck since {since_ms} ms)")


class DriverGone(DriverError):
    """The process that holds the library is not there now."""


class StoreError(VigilError):
    """A store refused or failed."""


class StoreUnavailable(StoreError):
    """The store gives no answer now; trying again makes sense."""


class StoreConflict(StoreError):
    """Someone else wrote the document since it was read."""


class StoreRefused(StoreError):
    """The store will not take this request: rights, validation, wrong address."""


class JournalError(VigilError):
    """The journal could not be opened, read or written."""


class EmulatorError(VigilError):
    """The emulator could not be built or driven."""
