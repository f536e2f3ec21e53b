"""A vendor library in a driver child: loaded, called, its outputs checked.

A missing function returns ``SYMBOL_MISSING``. Runs in the driver child: ctypes only.
"""

from __future__ import annotations

import os
from ctypes import CDLL, addressof, c_char, c_char_p, c_int, c_void_p, sizeof

from dcmi_shim.library.return_codes import SYMBOL_MISSING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ctypes import Array, Structure, _SimpleCData
    from typing import Any, Protocol, TypeVar

    Output = TypeVar("Output", bound="Structure | Array[Any] | _SimpleCData[Any]")
    Number = TypeVar("Number", int, float)
    Answer = tuple[int, object]
    """The library's return code, and a value that is meaningful only when that is 0."""

    class Interface(Protocol):
        """What a child can do with its library: a module of this package."""

        @property
        def SIGNATURES(self) -> Mapping[str, tuple[Any, ...]]: ...  # noqa: N802
        @property
        def SUBSCRIBE(self) -> str: ...  # noqa: N802
        @property
        def CALLS(self) -> Mapping[str, Callable[..., Answer]]: ...  # noqa: N802

        def subscribe(self, library: Library, handler: object) -> int:
            """Call ``handler`` for every event; return the library's return code."""

        def copy_event(self, address: int) -> dict[str, object]:
            """Return the event at ``address``. Raises ``Implausible`` for what is none."""


_MAX_SEVERITY = 3
_YEAR_10000_MS = 253_402_300_800_000
# A library that writes more than it should must not overwrite what lies behind an output.
SLACK = 1024


class Implausible(Exception):
    """The library returned 0 and a value that is not possible."""


class CannotLoad(Exception):
    """``dlopen`` refused; the text is its own."""


class Library:
    """A library loaded as MindCluster loads it (``docs/spec/dcmi.md#1.1``). Never unloaded."""

    def __init__(self, path: str, signatures: Mapping[str, tuple[Any, ...]]) -> None:
        self._signatures = signatures
        # ctypes would add RTLD_NOW, with which one unresolved symbol makes a library unusable.
        loader = CDLL(None)
        loader.dlopen.argtypes = (c_char_p, c_int)
        loader.dlopen.restype = c_void_p
        loader.dlerror.restype = c_char_p
        handle = loader.dlopen(os.fsencode(path), os.RTLD_LAZY | os.RTLD_GLOBAL)
        if not handle:
            raise CannotLoad((loader.dlerror() or b"dlopen failed").decode(errors="replace"))
        # By its handle, so that ctypes does not open it once more with its own flags.
        self._library = CDLL(path, handle=handle)
        self._functions: dict[str, Callable[..., int] | None] = {}
        self.translate: Callable[..., int] | None = None
        """Makes a call for a library of another generation, by ``raw``."""

    def call(self, name: str, *arguments: object) -> int:
        """Call ``name``; ``SYMBOL_MISSING`` when the library does not have it."""
        if self.translate is not None:
            return self.translate(self.raw, name, *arguments)
        return self.raw(name, *arguments)

    def raw(self, name: str, *arguments: object) -> int:
        """Call ``name`` without translation."""
        function = self._find(name)
        return SYMBOL_MISSING if function is None else int(function(*arguments))

    def has(self, name: str) -> bool:
        """Return whether the library has ``name``."""
        return self._find(name) is not None

    def _find(self, name: str) -> Callable[..., int] | None:
        if name not in self._functions:
            try:
                function = self._library[name]
            except AttributeError:
                self._functions[name] = None
            else:
                # Without them ctypes passes an address as a C ``int``, which cuts it to 32 bits.
                function.argtypes = self._signatures[name]
                self._functions[name] = function
        return self._functions[name]


def output(kind: type[Output]) -> tuple[Output, int]:
    """Return a zeroed ``kind`` with room behind it, and its address."""
    memory = (c_char * (sizeof(kind) + SLACK))()
    # ``from_buffer`` keeps the memory alive, of which the caller gets the bare address.
    value: Any = kind.from_buffer(memory)
    return value, addressof(memory)


def text(raw: bytes) -> str:
    """Return the C string in a fixed-size field."""
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def within(name: str, value: Number, least: int, most: int) -> Number:
    """Return ``value``. Raises ``Implausible`` unless it is between ``least`` and ``most``."""
    if not least <= value <= most:
        raise Implausible(f"{name} is {value}, not {least} to {most}")
    return value


def known_severity(number: int) -> int | None:
    """Return the severity of an event; ``None`` for a number that has no name (``dcmi#5.2``)."""
    return number if number <= _MAX_SEVERITY else None


def raised_at_ms(time: int) -> int | None:
    """Return the time of an event (epoch ms); ``None`` for one that is not possible."""
    return time if 0 < time < _YEAR_10000_MS else None
