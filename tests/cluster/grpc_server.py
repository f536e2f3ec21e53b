"""gRPC without a network, for virtual time: what serves is asked as a client's bytes would ask it.

``MemoryServer`` stands in for what ``grpc.aio.server`` makes.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence


class Refused(Exception):
    """The call ended with a status that is not OK."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


@dataclass(frozen=True)
class _Details:
    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


@dataclass
class _Context:
    """The part of ``grpc.aio.ServicerContext`` that means something without a network."""

    status: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    sent: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    ended: list[Callable[[Any], object]] = field(default_factory=list)
    is_over: bool = False

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()
    ) -> NoReturn:
        raise Refused(code, details)

    async def write(self, message: Any) -> None:
        await self.sent.put(message)

    async def send_initial_metadata(self, _: object) -> None:
        pass

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, _: object) -> None:
        pass

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, Any]:
        return {}

    def peer_identities(self) -> None:
        return None

    def cancelled(self) -> bool:
        return self.is_over

    def done(self) -> bool:
        return self.is_over

    def add_done_callback(self, on_end: Callable[[Any], object]) -> None:
        self.ended.append(on_end)

    def end(self) -> None:
        self.is_over = True
        for on_end in self.ended:
            on_end(self)


class MemoryServer:
    """A ``grpc.aio.Server`` that is called by ``call`` and ``subscribe``."""

    def __init__(self, interceptors: Sequence[Any] = ()) -> None:
        self.serves = False
        self._interceptors = tuple(interceptors)
        self._handlers: list[Any] = []
        self._stopped = asyncio.Event()

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Ignore handlers of generated code: ``add_generic_rpc_handlers`` receives them, too."""

    def add_insecure_port(self, address: str) -> int:
        return int(address.rpartition(":")[2]) or 1

    def add_secure_port(self, address: str, credentials: object) -> int:
        return int(address.rpartition(":")[2]) or 1

    async def start(self) -> None:
        self.serves = True

    async def stop(self, grace: float | None) -> None:
        self.serves = False
        self._stopped.set()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        await self._stopped.wait()
        return True

    async def call(self, method: str, request: bytes) -> bytes:
        """Ask once. Raises ``Refused``."""
        handler, context = await self._handler(method), _Context()
        assert handler.unary_unary is not None, method
        found = handler.unary_unary(_read(handler, request), context)
        answer = await found if inspect.isawaitable(found) else found
        context.end()
        if context.status is not grpc.StatusCode.OK:
            raise Refused(context.status, context.details)
        return _written(handler, answer)

    async def subscribe(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Ask for a stream. Raises ``Refused``, also at its end."""
        handler, context = await self._handler(method), _Context()
        assert handler.unary_stream is not None, method
        found = handler.unary_stream(_read(handler, request), context)
        try:
            if not hasattr(found, "__aiter__"):
                found = _through(found, context)
            async for message in found:
                yield _written(handler, message)
            if context.status is not grpc.StatusCode.OK:
                raise Refused(context.status, context.details)
        finally:
            context.end()

    async def _handler(self, method: str) -> Any:
        assert self.serves, "the server is not started"

        async def last(details: _Details) -> Any:
            found = (handler.service(details) for handler in self._handlers)
            return next((one for one in found if one is not None), None)

        ask: Any = last
        for interceptor in reversed(self._interceptors):
            ask = _Link(interceptor, ask)
        handler = await ask(_Details(method))
        if handler is None:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return handler


@dataclass
class _Link:
    """An interceptor, and what comes behind it."""

    interceptor: Any
    behind: Any

    async def __call__(self, details: _Details) -> Any:
        return await self.interceptor.intercept_service(self.behind, details)


async def _through(running: Any, context: _Context) -> AsyncIterator[Any]:
    """Yield the messages that a handler writes to its context."""
    task, on_end = asyncio.ensure_future(running), None
    try:
        while True:
            on_end = asyncio.ensure_future(context.sent.get())
            await asyncio.wait((task, on_end), return_when=asyncio.FIRST_COMPLETED)
            if not on_end.done():
                await task
                return
            yield on_end.result()
    finally:
        task.cancel()
        if on_end is not None:
            on_end.cancel()


def _read(handler: Any, request: bytes) -> Any:
    """Decode the request for the handler; return the bytes if it has no deserializer."""
    read = handler.request_deserializer
    return request if read is None else read(request)


def _written(handler: Any, answer: Any) -> bytes:
    write = handler.response_serializer
    content: bytes = answer if write is None else write(answer)
    return content
