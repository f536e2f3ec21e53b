"""Makes a tool end with this process, also where this process is killed.

Otherwise a tool that hangs would stay behind at each ``kill -9``, and one that refuses concurrent
runs would refuse for ever. ``setpriv`` (util-linux 2.33) requests the kernel's ``PR_SET_PDEATHSIG``
and becomes the tool; it costs 0.7 ms of a core. A function between fork and exec would cost ten
times as much, because fork would copy this process's page tables. Without such a ``setpriv``, tools
run without it; a service manager or a container ends them with the daemon.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACES = ("/usr/bin/setpriv", "/bin/setpriv")
_OPTION = "--pdeathsig"
_ELF_HEADER = 64
_FAILURE = "setpriv: failed to execute "


@cache
def _setpriv() -> str | None:
    """Return the path of ``setpriv``, if it has the option."""
    for place in _PLACES:
        try:
            with open(place, "rb") as file:  # noqa: PTH123
                # Looked for in the file, which costs no process;
                # setpriv before 2.33 lacks the option.
                if _OPTION.strip("-").encode() in file.read():
                    return place
        except OSError:
            continue
    return None


def ending_with_parent(argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` and ends it with this process.

    ``argv`` itself where it is not a program, or without ``setpriv``, which would run a damaged
    program in a shell; the kernel refuses it.
    """
    setpriv = _setpriv()
    if setpriv is None:
        return list(argv)
    try:
        with open(argv[0], "rb") as file:  # noqa: PTH123
            header = file.read(_ELF_HEADER)
    except OSError:
        return list(argv)
    is_whole = header.startswith(b"\x7fELF") and len(header) == _ELF_HEADER
    if not is_whole and not header.startswith(b"#!"):
        return list(argv)
    return [setpriv, _OPTION, "KILL", "--", *argv]


def not_executed(stderr: str) -> str | None:
    """Return why ``setpriv`` could not execute the program; ``None`` when it did."""
    return stderr.removeprefix(_FAILURE).strip() if stderr.startswith(_FAILURE) else None
