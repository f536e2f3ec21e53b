"""Errors about the configuration of requests to an API server, which name the wrong place."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from contract.errors import Problem, StoreMisconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unusable(Exception):
    """What is wrong with a file, a plugin or a certificate, as the end of a sentence about it."""


def misconfigured(where: str, message: str) -> StoreMisconfigured:
    """Return the error that ``message`` holds at ``where``."""
    return StoreMisconfigured("store kubernetes", [Problem(where, message)])


@contextlib.contextmanager
def naming(where: str, subject: str = "") -> Iterator[None]:
    """Turn ``Unusable`` into ``StoreMisconfigured`` about ``subject`` at ``where``."""
    try:
        yield
    except Unusable as error:
        raise misconfigured(where, f"{subject} {error}".lstrip()) from None
