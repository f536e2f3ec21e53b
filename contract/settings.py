"""What settings are made of: sections of a configuration, and types that several packages use.

``service/configuration.py`` reads them from the file, the environment and the command line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class Section(msgspec.Struct, frozen=True):
    """A table of a configuration, which may have tables in it; never changed.

    Limits of a field are ``msgspec.Meta`` and ``ValueRule`` in its annotation, which
    ``service/setting_values.py`` applies to what is read. What concerns several fields is in
    ``__post_init__``, which raises ``ValueError``.
    """


class ValueRule(NamedTuple):
    """What a value must comply with, in the annotation of its field."""

    function: Callable[[Any], Any]
    """Returns the value to use; raises ``ValueError``, whose text begins with "is not"."""


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


ListenAddress: TypeAlias = Annotated[str, ValueRule(_listen)]
"""Where a daemon serves its pages: ``HOST:PORT``."""

HostName: TypeAlias = Annotated[str, ValueRule(_host_name)]
"""A name by which hosts are asked for pages."""

StoreAddress: TypeAlias = Annotated[str, ValueRule(_store)]
"""Where documents live."""


def check_at_most(section: Section, less: str, more: str) -> None:
    """Raise ``ValueError`` where option ``less`` of ``section`` is above ``more``."""
    if getattr(section, less) > getattr(section, more):
        raise ValueError(f"{less} must not be more than {more}")
