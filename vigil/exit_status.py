"""Exit statuses of all verbs, and results that are printed with one."""

from __future__ import annotations

import sys
from enum import IntEnum

from service.log.setup import last_words
from vigil.language import shown


class ExitStatus(IntEnum):
    """What a verb ends with.

    ``NOT_WELL``: done, but something is not well, or the request is refused. ``WRONG_USE``: the
    command line, a configuration or a name in it is wrong. ``OUTSIDE``: a part outside of NPU Vigil
    (store, driver, daemon, disk) failed or gives no answer.
    """

    OK = 0
    NOT_WELL = 1
    WRONG_USE = 2
    OUTSIDE = 3


def print_done(text: str) -> ExitStatus:
    """Print what was done, in the chosen language, on standard output; return the exit status."""
    print(last_words(shown(text)), flush=True)
    return ExitStatus.OK


def print_refusal(text: str, status: ExitStatus = ExitStatus.NOT_WELL) -> ExitStatus:
    """Print on standard error why nothing was done, in the chosen language; return ``status``."""
    print(last_words(shown(text)), file=sys.stderr)
    return status
