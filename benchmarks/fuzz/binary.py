"""Binary input: requests of gRPC clients, frames of the driver child, structures of a library.

A text stands for bytes: each character below U+0100 is one byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from ctypes import addressof, c_char_p, c_void_p, create_string_buffer, memmove
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast
from unittest.mock import patch

import msgspec
from typing_extensions import override

from aggregator.grpc.fault_service import FaultService
from aggregator.grpc.interfaces import CLUSTER, NORMAL, FaultMsgSignal
from aggregator.grpc.server import public_fault_methods
from benchmarks.fuzz.pages import loop
from contract.documents.public_fault import PublicFault, PublicFaultEntry, accepted
from contract.errors import DriverGone, VigilError
from contract.wire import fault_pb2, pubfault_pb2
from dcmi_shim.library import chip_calls, switch_calls
from dcmi_shim.library.binding import SLACK, Implausible, Library
from dcmi_shim.library.device_info import SUPER_POD, VIRTUAL_DEVICES
from dcmi_shim.library.discovery import FoundLibrary
from dcmi_shim.worker.process import ChildProcess, Message, start_process
from pacing.token_bucket import TokenBucket
from service.clock import Instant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from benchmarks.fuzz.running import Target
    from dcmi_shim.library.binding import Answer

_NOW_MS = 1_800_000_000_000
_MAX_FED_BYTES = 1 << 16
"""What a pipe holds."""
_NEVER_SECONDS = 3600.0


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", "replace")


class _Refused(Exception):
    """The call was ended with a status."""


class _Context:
    """The part of a gRPC context that the methods use."""

    async def abort(self, _status: object, text: str) -> NoReturn:
        """End the call."""
        assert len(text) <= 500
        raise _Refused


class _Faults:
    """The job view of a cluster with one job."""

    def knows(self, job_id: str, role: str) -> bool:
        """Return whether it is the job."""
        return job_id == "job-of-a-user" and bool(role)

    def message(self, job_id: str) -> FaultMsgSignal | None:
        """Return that nothing is wrong with the job."""
        return FaultMsgSignal(job_id, NORMAL) if self.knows(job_id, "Fault") else None

    def faulty(self) -> Collection[str]:
        """Return no job."""
        return ()

    def cluster(self) -> FaultMsgSignal:
        """Return that nothing is wrong."""
        return FaultMsgSignal(CLUSTER, NORMAL)


class _Reply(msgspec.Struct):
    code: int
    info: str


async def _judged(message: PublicFault) -> _Reply:
    """Return the reply to a message, after it was judged as the aggregator does."""
    try:
        entries, problems = accepted(message, "request", codes=("220001001",), resources=("CCAE",))
    except VigilError as error:
        return _Reply(400, str(error))
    assert all(isinstance(entry, PublicFaultEntry) for entry in entries)
    return _Reply(400 if problems else 0, "; ".join(map(str, problems)))


def _public_fault(assertion: str) -> bytes:
    fault = pubfault_pb2.Fault(
        faultId="fault-0001",
        faultType="NPU",
        faultCode="220001001",
        faultTime=_NOW_MS,
        assertion=assertion,
        faultLocation={"npuIp": "10.0.0.1"},
        influence=[pubfault_pb2.PubFaultInfo(nodeName="node-1", deviceIds=[0, 3])],
        description="lost",
    )
    return pubfault_pb2.PublicFaultRequest(
        id="message-1", timestamp=_NOW_MS, version="1.0", resource="CCAE", faults=[fault]
    ).SerializeToString()


class GrpcRequests:
    """The first byte selects the method; a status or an answer comes of each request."""

    name = "grpc-request"

    def __init__(self) -> None:
        ticks = count()
        # A second goes by with each input, or the limits would refuse most of them.
        clock = lambda: Instant(_NOW_MS, 1000 * next(ticks))  # noqa: E731
        bucket = TokenBucket(1000, 1000)
        faults = FaultService(_Faults(), clock, lambda _: None)
        methods = public_fault_methods(_judged, bucket, clock) | faults.methods(bucket)
        names = ("SendPublicFault", "Register", "GetFaultMsgSignal")
        self._calls = [methods[name].unary_unary for name in names]
        client = fault_pb2.ClientInfo(jobId="job-of-a-user", role="Fault").SerializeToString()
        seeds = [b"\0" + _public_fault(word) for word in ("occur", "recover", "once")]
        seeds += [b"\1" + client, b"\2" + client, b"\2"]
        self.seeds: Sequence[str] = tuple(seed.decode("latin-1") for seed in seeds)

    def feed(self, text: str) -> None:
        """Call the method."""
        data = _bytes(text)
        call = self._calls[data[0] % len(self._calls) if data else 0]
        try:
            answer = loop().run_until_complete(call(data[1:], _Context()))
        except _Refused:
            raise VigilError("refused") from None
        assert answer.SerializeToString() is not None
        if isinstance(answer, pubfault_pb2.RespStatus) and answer.code:
            raise VigilError(answer.info)


class _Process:
    """Stands in for the driver process, so that the pipe has the bytes of the input alone."""

    pid = 1

    def __init__(self, answers: int) -> None:
        self.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb")
        self.stdout = os.fdopen(answers, "rb", buffering=0)

    def poll(self) -> int:
        """Return that it ended well."""
        return 0

    def wait(self, _timeout: float) -> int:
        """Return that it ended well."""
        return 0

    def kill(self) -> None:
        """Do nothing: there is no process."""


def _frame(message: dict[str, object]) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body


def _event(kind: str) -> dict[str, object]:
    if kind == "chip":
        memory = create_string_buffer(bytes(8) + b"\1\x98\xe1\x80" * 80, 360)
        event = chip_calls.copy_event(addressof(memory))
    else:
        memory = create_string_buffer(b"\3\0\0\0" * 28, 112)
        event = switch_calls.copy_event(addressof(memory))
    return event | {"seen_at_ms": _NOW_MS}


class ChildFrames:
    """Frames from the driver process: cut anywhere, the same messages come out."""

    name = "child-frame"

    def __init__(self) -> None:
        frames = (
            _frame({"event": _event("chip")}),
            _frame({"event": _event("switch")}),
            _frame({"dropped": 7}) + _frame({"invalid_event": "an event without data"}),
            _frame({"id": 1, "answer": 0, "value": [1, 2]}) + _frame({"id": 2, "failed": "no"}),
        )
        self.seeds: Sequence[str] = tuple(frame.decode("latin-1") for frame in frames)

    def feed(self, text: str) -> None:
        """Read the bytes at once, and in two parts."""
        data = _bytes(text)[:_MAX_FED_BYTES]
        received = loop().run_until_complete(_messages(data))
        middle = len(data) // 2
        assert loop().run_until_complete(_messages(data[:middle], data[middle:])) == received
        messages, reason = received
        assert reason.isprintable()
        if "invalid message" in reason or not messages:
            raise VigilError(reason)


async def _messages(*parts: bytes) -> tuple[list[Message], str]:
    """Return what a child that writes ``parts`` was understood as, and how it ended."""
    messages: list[Message] = []
    ended = asyncio.Event()
    answers, written = os.pipe()
    with patch("dcmi_shim.worker.process.subprocess.Popen", lambda *_, **__: _Process(answers)):
        library = FoundLibrary(Path("/libdcmi.so"), (), ())
        child = ChildProcess(
            start_process(library),
            lambda _, message: messages.append(message),
            lambda _: ended.set(),
        )
    answer = asyncio.ensure_future(child.request("dcmi_init", (), _NEVER_SECONDS))
    for part in parts:
        if part and not child.ended:
            os.write(written, part)
            # One turn to be seen as readable, one to be read.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    os.close(written)
    await ended.wait()
    with contextlib.suppress(DriverGone):
        messages.append(await answer)
    return messages, child.exit_reason()


class _Filled(Library):
    """A library whose functions write the input into each of their outputs."""

    def __init__(self, data: bytes, signatures: Any) -> None:
        self._data = data[:SLACK]
        self._signatures = signatures
        self.translate: Callable[..., int] | None = None

    @override
    def raw(self, name: str, *arguments: object) -> int:
        kinds = self._signatures[name]
        for kind, argument in zip(kinds, arguments, strict=True):
            if kind is c_void_p:
                memmove(cast("int", argument), self._data, len(self._data))
            elif kind is c_char_p:
                memmove(cast("Any", argument), self._data, len(self._data))
        return 0

    @override
    def has(self, name: str) -> bool:
        return name in self._signatures


def _copied(copy: Callable[[int], dict[str, object]], data: bytes) -> Answer:
    memory = create_string_buffer(data[:SLACK], SLACK)
    return 0, {"event": copy(addressof(memory)) | {"seen_at_ms": _NOW_MS}}


def _called(function: Callable[..., Answer], signatures: Any, arguments: int) -> Any:
    return lambda data: function(_Filled(data, signatures), *(0,) * arguments)


_ARGUMENTS = {
    "dcmi_init": 0,
    "dcmi_get_dcmi_version": 0,
    "dcmi_get_card_list": 0,
    "dcmi_get_device_num_in_card": 1,
    "dcmi_get_device_phyid_from_logicid": 1,
    "dcmi_get_card_elabel_v2": 1,
    "dcmi_get_device_utilization_rate": 3,
}
"""Numbers that a call takes, where they are not a card and a device."""


def _read() -> tuple[Callable[[bytes], Answer], ...]:
    """Return all functions that read what a library wrote."""
    calls = [
        _called(function, chip_calls.SIGNATURES, _ARGUMENTS.get(name, 2))
        for name, function in chip_calls.CALLS.items()
        if name != "dcmi_get_device_info"
    ]
    calls += [
        _called(partial(chip_calls.device_info, main=main, sub=sub), chip_calls.SIGNATURES, 2)
        for main, sub in (SUPER_POD, VIRTUAL_DEVICES)
    ]
    calls += [
        _called(function, switch_calls.SIGNATURES, 0) for function in switch_calls.CALLS.values()
    ]
    calls += [
        partial(_copied, chip_calls.copy_event),
        partial(_copied, switch_calls.copy_event),
    ]
    return tuple(calls)


class Structures:
    """The first byte selects what is read; a value can be sent to the agent, or is refused."""

    name = "structure"

    def __init__(self) -> None:
        self._read = _read()
        words = b"".join(number.to_bytes(4, "little") for number in (3, 1, 2, 4, 0, 0x80E19801))
        kinds = (b"\0" * 400, b"\1" + b"\0" * 300, words * 10, b"Ascend910\0".ljust(32, b"\0") * 4)
        self.seeds: Sequence[str] = tuple(
            (bytes([place]) + kinds[kind]).decode("latin-1")
            for place in range(len(self._read))
            for kind in self._taken(place, kinds)
        )

    def _taken(self, place: int, kinds: Sequence[bytes]) -> list[int]:
        """Return the good inputs of a function: those that it does not refuse."""
        taken = []
        for kind, data in enumerate(kinds):
            try:
                self._read[place](data)
            except Implausible:
                continue
            taken.append(kind)
        return taken

    def feed(self, text: str) -> None:
        """Read the bytes, and send what was read as the child does."""
        data = _bytes(text)
        if not data:
            raise VigilError("nothing selects a function")
        try:
            answer, value = self._read[data[0] % len(self._read)](data[1:])
        except Implausible as error:
            raise VigilError(str(error)) from None
        has_event = isinstance(value, dict) and "event" in value
        sent = value if has_event else {"id": 1, "answer": answer, "value": value}
        message = msgspec.json.decode(json.dumps(sent), type=Message)
        assert (message.event is not None) == has_event


TARGETS: dict[str, Callable[[], Target]] = {
    "grpc-request": GrpcRequests,
    "child-frame": ChildFrames,
    "structure": Structures,
}
"""By name; the input of all others is text."""


def encoding_of(target: str) -> str:
    """Return the encoding between the bytes of an input of ``target``, a name, and its text."""
    return "latin-1" if target in TARGETS else "utf-8"
