"""The settings of stores: brokers with the file of a password, and directories."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from contract.settings import Section


class Mqtt(Section, frozen=True):
    """The settings of connections to an MQTT broker, for stores ``mqtt://`` and ``mqtts://``.

    Files are PEM. Without ``ca_file`` an ``mqtts://`` broker is judged by the system's authorities.
    """

    protocol: Literal["5", "3.1.1"] = "5"
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    # A broker notices a dead client, and publishes its will,
    # after 1.5 times as long (MQTT 5, 3.1.2.10).
    keepalive_seconds: Annotated[int, Meta(ge=1, le=300)] = 10

    def __post_init__(self) -> None:
        problems = []
        if (self.certificate_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "certificate_file"
            problems.append(f"{missing} is missing: a certificate and its key belong together")
        if self.password_file is not None and self.user is None:
            problems.append("user is missing: a password_file needs one")
        if problems:
            raise ValueError("; ".join(problems))


def read_password(file: Path) -> str:
    """Return the text of ``file`` without the end of its line.

    Raises ``OSError`` where it cannot be read, ``ValueError`` where all users can read it.
    """
    with file.open(encoding="utf-8") as opened:
        # Of the opened file: its path may lead to another one by now.
        if os.fstat(opened.fileno()).st_mode & stat.S_IROTH:
            raise ValueError(f"{file.absolute()} can be read by everybody; chmod 0600 or 0640")
        return opened.read().rstrip("\r\n")


class Directory(Section, frozen=True):
    """How a directory is used, for stores ``directory:PATH``."""

    others_may_write: bool = False
    """Take it as root although other users may write there."""
