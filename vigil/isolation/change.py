"""A requested isolation or release of a chip, and the edit of each document for it."""

from __future__ import annotations

import getpass
import os
import socket
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from aggregator.processors import separation_documents
from contract.codes.levels import ChipLevel
from contract.documents.device_info import MANUALLY_SEPARATE_KEY
from contract.documents.isolation_request import (
    ISOLATION_ANNOTATION,
    MAX_BY_CHARACTERS,
    MAX_REASON_CHARACTERS,
    IsolationRequest,
    encode_requests,
    read_requests,
)
from contract.documents.separation import chip_of, read_names
from contract.errors import ConfigurationError, Problem
from contract.sentences import sentence

if TYPE_CHECKING:
    from stores.base import Document

MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value


class Consent(Enum):
    """Whether a change may be made."""

    ASK = auto()
    GIVEN = auto()
    DRY_RUN = auto()


@dataclass(frozen=True)
class Isolation:
    """To isolate ``chip`` of ``node`` (with ``by`` and ``reason``), or to release it (without).

    Raises ``ConfigurationError`` for a reason that is not readable text.
    """

    node: str
    chip: str
    by: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.by and not (
            0 < len(self.reason) <= MAX_REASON_CHARACTERS
            and self.reason.isprintable()
            and self.reason.strip()
        ):
            text = sentence(
                "must be 1 to {count} printable characters on one line", count=MAX_REASON_CHARACTERS
            )
            raise ConfigurationError("command line", [Problem("--reason", text)])

    @property
    def isolates(self) -> bool:
        """Return whether the chip is to be isolated, not released."""
        return bool(self.by)


def stated_name() -> str:
    """Return the name of the person as this machine has it: ``user@host``."""
    try:
        # Under sudo the person counts, not root (decision 39: as stated, proved by nothing).
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.geteuid()}"
    name = f"{user}@{socket.gethostname()}"[:MAX_BY_CHARACTERS]
    # The name goes into an annotation and into terminals of others.
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def is_named(document: Document, chip: str) -> bool:
    """Return whether a device-info isolates the chip by its name."""
    return chip_of(chip) in (read_names(document.data) or ())


def edited_report(document: Document, change: Isolation) -> Document | None:
    """Return a device-info with the change in it; ``None`` where it is so already.

    A request goes with the name of the chip. After a release the key stays (device-plugin#3.6).
    """
    # The same content must not be written: it would look like an edit.
    if is_named(document, change.chip) is change.isolates:
        return None
    names, annotations = _names(document), document.annotations
    if change.isolates:
        names = sorted([*names, change.chip], key=lambda name: (chip_of(name) or 0, name))
        kind = change.chip.rpartition("-")[0]
        requests = {
            # The annotation is encoded by names, and decoded by numbers of chips.
            f"{kind}-{chip_name}": item
            for chip_name, item in read_requests(annotations).items()
        }
        now_ms = time.time_ns() // 1_000_000
        requests[change.chip] = IsolationRequest(change.by, now_ms, change.reason)
        annotations = annotations | {ISOLATION_ANNOTATION: encode_requests(requests)}
    else:
        # By number: a name of another release's type is the same chip.
        names = [name for name in names if chip_of(name) != chip_of(change.chip)]
    data = document.data | {MANUALLY_SEPARATE_KEY: ",".join(names)}
    return msgspec.structs.replace(document, data=data, annotations=annotations)


def _names(document: Document) -> list[str]:
    result = document.data.get(MANUALLY_SEPARATE_KEY, "").split(",")
    return [name.strip() for name in result if name.strip()]


def is_separated(document: Document, node: str, chip: str) -> bool:
    """Return whether ``clusterd-manual-info-cm`` separates the chip. Raises ``DocumentError``."""
    text = document.data.get(node)
    return text is not None and chip in separation_documents.read_chips(node, text)


def without_separation(document: Document, node: str, chip: str) -> Document | None:
    """Return ``clusterd-manual-info-cm`` without the chip; ``None`` where it has none.

    Raises ``DocumentError``.
    """
    if not is_separated(document, node, chip):
        return None
    chips = separation_documents.read_chips(node, document.data[node])
    del chips[chip]
    data = {key: text for key, text in document.data.items() if key != node}
    if chips:
        data[node] = separation_documents.render_chips(chips)
    return msgspec.structs.replace(document, data=data)
