"""What settings are made of: sections of a configuration, and types that several packages use.

``service/configuration.py`` reads them from the file, the environment and the command line.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict


class Section(BaseModel):
    """A configuration model: typed strictly, unknown names refused, never changed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _listen(text: str) -> str:
    # From the right, because an IPv6 address contains colons.
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("is not HOST:PORT, such as 127.0.0.1:9820")
    return text


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", text):
        raise ValueError("is not a valid host name; give it without a port, as in npu.example.com")
    return text


def _store(text: str) -> str:
    if text != "kubernetes:" and not text.startswith(("directory:", "mqtt://", "mqtts://")):
        raise ValueError(
            "is not a valid store address; use kubernetes:, directory:PATH, mqtt://HOST:PORT or "
            "mqtts://HOST:PORT"
        )
    return text


ListenAddress: TypeAlias = Annotated[str, AfterValidator(_listen)]
"""Where a daemon serves its pages: ``HOST:PORT``."""

HostName: TypeAlias = Annotated[str, AfterValidator(_host_name)]
"""A name by which hosts are asked for pages."""

StoreAddress: TypeAlias = Annotated[str, AfterValidator(_store)]
"""Where documents live."""


M = TypeVar("M", bound=Section)


def at_most(section: M, less: str, more: str) -> M:
    """Return ``section`` where option ``less`` is not above ``more``; raises ``ValueError``."""
    if getattr(section, less) > getattr(section, more):
        raise ValueError(f"{less} must not be more than {more}")
    return section
