"""One driver child in the agent: started, asked with deadlines, killed, reaped."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import subprocess
import sys
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contract.errors import DriverGone
from contract.validation_texts import decode_text
from dcmi_shim.library.return_codes import SYMBOL_MISSING
from dcmi_shim.values import DriverEvent, DriverSwitchEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dcmi_shim.library.discovery import FoundLibrary

_CHILD = Path(__file__).with_name("child.py")
_READ_SIZE = 1 << 16
# A longer frame is an error of the child, whose memory may be damaged.
_MAX_FRAME_BYTES = 1 << 20
# With it the dynamic loader ends a process whose lazily bound symbol is missing.
_SYMBOL_LOOKUP_STATUS = 127
_BEGIN = Struct(">QQ")
_FIRST_REAP_SECONDS = 0.005
_EXIT_SECONDS = 0.2
"""A process whose pipe is closed ends soon, on a busy machine a little later: nothing can hang."""
_LAST_REAP_SECONDS = 1.0


# Killed processes that are not gone yet; one that hangs inside the kernel may outlive its loop.
_unreaped: set[subprocess.Popen[bytes]] = set()


class Message(msgspec.Struct, frozen=True):
    """Any message of a child; its protocol is described in ``child``.

    JSON, and not ``marshal`` as in requests: the memory of a child may be damaged.
    """

    id: int | None = None
    answer: int = SYMBOL_MISSING
    value: msgspec.Raw = msgspec.Raw(b"null")
    wrong: str | None = None
    failed: str | None = None
    event: DriverEvent | DriverSwitchEvent | None = None
    dropped: int = 0
    invalid_event: str | None = None
    each: tuple[Message, ...] = ()


_decoder = msgspec.json.Decoder(Message)


class StartedProcess(NamedTuple):
    """A process that has no library yet, and its pipe of begins."""

    process: subprocess.Popen[bytes]
    begins: int
    command: tuple[str, ...]
    environment: dict[str, str]

    def suits(self, library: FoundLibrary) -> bool:
        """Return whether it can load ``library``."""
        return (self.command, self.environment) == _invocation(library)

    def close(self) -> None:
        """Kill it, and wait for nothing: it may hang in the kernel before it is asked anything."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        os.close(self.begins)
        _unreaped.add(self.process)


def start_process(library: FoundLibrary) -> StartedProcess:
    """Start a process that can load ``library``; nothing waits for it. Raises ``OSError``."""
    command, environment = _invocation(library)
    # No file in memory: kernels and builds of Python exist without ``memfd_create``.
    begins, child_begins = os.pipe()
    # The agent must not wait for a record, nor the child for place in a full pipe.
    os.set_blocking(begins, False)
    os.set_blocking(child_begins, False)
    try:
        process = subprocess.Popen(
            [*command, str(child_begins)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd="/",
            pass_fds=(child_begins,),
        )
    except OSError:
        os.close(begins)
        raise
    finally:
        os.close(child_begins)
    return StartedProcess(process, begins, command, environment)


def _invocation(library: FoundLibrary) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command, without its pipe, and the environment of a process for ``library``."""
    # Isolated and without ``site``: the process is to hold ctypes and little else (decision 1).
    command = (sys.executable, "-I", "-S", str(_CHILD), str(os.getpid()), library.vendor.kind)
    environment = dict(os.environ)
    search = [str(directory) for directory in library.search]
    if search:
        inherited = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = ":".join(search + ([inherited] if inherited else []))
    return command, environment


class ChildProcess:
    """A driver child. All methods belong to the event loop's thread.

    ``on_message`` gets messages that are not answers: events, drops, unknown events. ``on_end`` is
    called once when the child's last message was read. The caller sends one request at a time.
    """

    def __init__(
        self,
        started: StartedProcess,
        on_message: Callable[[ChildProcess, Message], None],
        on_end: Callable[[ChildProcess], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_end = on_end
        self._buffer = bytearray()
        self._waiting: tuple[int, asyncio.Future[Message]] | None = None
        self._last_id = 0
        self._has_begins = False
        self._protocol_error: str | None = None
        self.ended = False
        """Whether nothing more will be read from it."""
        self.begun: list[float] = []
        """When the calls of the last ``request_each`` began (loop time), as far as they have.

        It does not change any more after the answer, a missed deadline or the end of the child.
        """
        self._process, self._begins = started.process, started.begins
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._answers = self._process.stdout.fileno()
        # A child that hangs does not read; a write must not hold the agent.
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        self._loop.add_reader(self._answers, self._read)

    @property
    def pid(self) -> int:
        """Process id, for logs and measurements."""
        return self._process.pid

    @property
    def reaped(self) -> bool:
        """Whether the process is really gone. One that hangs inside the kernel is not."""
        return self._process.poll() is not None

    @property
    def crashed(self) -> bool:
        """Whether it ended by itself; one that was killed, as for its memory, did not."""
        return self._protocol_error is not None or self._process.poll() not in (
            None,
            -signal.SIGKILL,
        )

    async def request(
        self, call: str, arguments: tuple[int | str, ...], deadline_seconds: float
    ) -> Message:
        """Ask the child; return its answer.

        ``TimeoutError`` after the deadline, ``DriverGone`` if it ended.
        """
        return await self._exchange({"call": call, "arguments": arguments}, (deadline_seconds,))

    async def request_each(
        self, call: str, each: Sequence[tuple[int, ...]], deadlines_seconds: Sequence[float]
    ) -> Message:
        """Ask the child to make ``call`` with each of the arguments, one call after the other.

        Returns a message whose ``each`` has the answers, perhaps without the last ones.
        ``TimeoutError`` when a call missed its own deadline, ``DriverGone`` if the child ended. The
        last of ``begun`` is that call then.
        """
        return await self._exchange({"call": call, "each": [*each]}, deadlines_seconds)

    def _read_begun(self) -> None:
        # A request has one record of 16 bytes for each chip, so one read has them all.
        with contextlib.suppress(BlockingIOError):
            # There may be older records, of a request that was cancelled.
            self.begun += [
                begin_ns / 1e9
                for request_id, begin_ns in _BEGIN.iter_unpack(os.read(self._begins, _READ_SIZE))
                if request_id == self._last_id
            ]

    async def _exchange(
        self, request: dict[str, object], deadlines_seconds: Sequence[float]
    ) -> Message:
        if self.ended:
            raise DriverGone(self.exit_reason())
        self._last_id += 1
        self._has_begins = "each" in request
        self.begun = []
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._waiting = (self._last_id, answer)
        self._expiry = self._loop.call_later(
            deadlines_seconds[0], self._expire, answer, deadlines_seconds
        )
        body = marshal.dumps({"id": self._last_id, **request})
        # The end of the child is seen by the reader, with the exit status.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, len(body).to_bytes(4, "big") + body)
        try:
            return await answer
        finally:
            self._expiry.cancel()
            self._waiting = None

    def _expire(self, answer: asyncio.Future[Message], deadlines_seconds: Sequence[float]) -> None:
        """Fail at the deadline of the present call, unless the answer arrived while the agent was
        slow.
        """
        self._read()
        if answer.done():
            return
        self._read_begun()
        if self.begun:
            due = self.begun[-1] + deadlines_seconds[len(self.begun) - 1]
            if due > self._loop.time():
                self._expiry = self._loop.call_at(due, self._expire, answer, deadlines_seconds)
                return
        answer.set_exception(TimeoutError())

    def _read(self) -> None:
        if self.ended:
            return
        try:
            data = os.read(self._answers, _READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self._end(_EXIT_SECONDS)
            return
        self._buffer += data
        try:
            self._decode_frames()
        except (ValueError, msgspec.DecodeError) as error:
            self._protocol_error = (
                f"sent an invalid message ({decode_text(error)}); its memory may be damaged"
            )
            self.kill()
            self._end()

    def _decode_frames(self) -> None:
        start = 0
        while len(self._buffer) - start >= 4:
            size = int.from_bytes(self._buffer[start : start + 4], "big")
            if size > _MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            if len(self._buffer) - start - 4 < size:
                break
            message = _decoder.decode(self._buffer[start + 4 : start + 4 + size])
            start += 4 + size
            self._deliver(message)
        del self._buffer[:start]

    def _deliver(self, message: Message) -> None:
        if message.id is None:
            self._on_message(self, message)
        # An answer that comes after its deadline has no waiter any more, and is dropped.
        elif self._waiting is not None and self._waiting[0] == message.id:
            answer = self._waiting[1]
            if not answer.done():
                if self._has_begins:
                    self._read_begun()
                answer.set_result(message)

    def _end(self, wait_seconds: float = _FIRST_REAP_SECONDS) -> None:
        if self.ended:
            return
        self.ended = True
        self._loop.remove_reader(self._answers)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        # The pipe closes shortly before the exit status can be read, which shows a crash.
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_seconds)
        self._reap(_FIRST_REAP_SECONDS)
        # A missed deadline keeps the records it was judged by: the child may have gone on since.
        if self._waiting is not None and not self._waiting[1].done():
            self._read_begun()
            self._waiting[1].set_exception(DriverGone(self.exit_reason()))
        os.close(self._begins)
        self._on_end(self)

    def _reap(self, delay_seconds: float) -> None:
        _unreaped.add(self._process)
        _unreaped.difference_update([dead for dead in _unreaped if dead.poll() is not None])
        # A process that hangs in the kernel cannot be waited for (decision 1).
        if not self.reaped and not self._loop.is_closed():
            later = min(2 * delay_seconds, _LAST_REAP_SECONDS)
            self._loop.call_later(delay_seconds, self._reap, later)

    def kill(self) -> None:
        """Kill the process at once; what it sent before is still read."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and read nothing more; never waits for it."""
        self._process.kill()
        self._end()

    def exit_reason(self) -> str:
        """Return how the process ended, as a part of a sentence."""
        if self._protocol_error is not None:
            return f"the driver process {self._protocol_error}"
        status = self._process.poll()
        if status is None:
            return "the driver process closed its pipe"
        if status == _SYMBOL_LOOKUP_STATUS:
            return "the driver process ended with status 127: the library lacks a symbol it needs"
        if status >= 0:
            return f"the driver process ended with status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the driver process was ended by {name}"
