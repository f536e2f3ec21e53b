"""An IPMI command, and an exchange of several ones. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """An IPMI command: network function, command and data."""

    network_function: int
    command: int
    data: bytes

    def __str__(self) -> str:
        return bytes([self.network_function, self.command, *self.data]).hex(" ")


Exchange: TypeAlias = Generator[Request, bytes, T]
"""Yields requests, is sent the replies without their completion code, and returns their content.

Raises ``BmcError`` for replies that cannot be used.
"""
