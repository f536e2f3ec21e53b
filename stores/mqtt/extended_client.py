"""The private parts of aiomqtt on which our client depends, all of them and nothing else.

aiomqtt offers no way to read reason codes, to take messages without a queue, or to give up while it
connects, so its callbacks for paho are overridden. Any release may change them:
``VERSIONS`` are those that have been read, ``pyproject.toml`` allows no others, and
``tests/stores/mqtt/test_extended_client.py`` fails with the name of each part that has gone.
``make test-brokers`` runs it and the tests of the store with the oldest and the newest of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiomqtt

from stores.mqtt.errors import HUNG_UP

if TYPE_CHECKING:
    import asyncio

    from paho.mqtt.client import Client

VERSIONS = ((2, 5), (2, 6))
"""From this release of aiomqtt on, and before that one."""
ATTRIBUTES = ("_client", "_connected", "_disconnected", "_loop")
METHODS = {
    "_client_connect": 1,
    "_on_connect": 6,
    "_on_disconnect": 6,
    "_on_message": 4,
    "_on_publish": 6,
    "_on_socket_register_write": 4,
    "_on_subscribe": 6,
    "_on_unsubscribe": 6,
}
"""The overridden methods by their number of parameters, ``self`` included."""


class ExtendedClient(aiomqtt.Client):
    """aiomqtt's client, with the callbacks of paho as methods that a subclass gives.

    All of these are called in the loop's thread, and none may block or raise.
    """

    _failure: OSError | None = None
    """Why no connection was made, where the socket shows it."""

    def _take_message(self, message: Any) -> None:
        """Take a message that the broker sent."""
        raise NotImplementedError

    def _end_publication(self, mid: int, reason_code: Any) -> None:
        """Take the answer to a publication."""
        raise NotImplementedError

    def _end_subscription(self, mid: int, reason_codes: Any) -> None:
        """Take the answer to a subscription."""
        raise NotImplementedError

    def _begin_session(self, properties: Any) -> None:
        """Take what the broker reported when it accepted the connection, or refused it."""
        raise NotImplementedError

    @property
    def _paho(self) -> Client:
        return self._client

    @property
    def _end(self) -> asyncio.Future[Any]:
        """Done when the connection has ended; its exception is the reason."""
        return self._disconnected

    def _abandon_connecting(self) -> None:
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("given up"))
            # Where the thread fails to connect, nothing waits for it, and asyncio would log it.
            self._connected.exception()

    def _hang_up(self) -> None:
        if self._client.socket() is not None:
            # Both would come when the socket is closed and no task waits any more.
            self._client.on_disconnect = None
            self._client.on_socket_register_write = None
            self._client.disconnect()
            self._client.loop_write()

    def _on_message(self, _client: Any, _userdata: Any, message: Any) -> None:
        self._take_message(message)

    def _on_publish(
        self, _client: Any, _userdata: Any, mid: int, reason_code: Any, _properties: Any
    ) -> None:
        self._end_publication(mid, reason_code)

    def _on_subscribe(
        self, _client: Any, _userdata: Any, mid: int, reason_codes: Any, _properties: Any = None
    ) -> None:
        self._end_subscription(mid, reason_codes)

    def _on_unsubscribe(
        self, _client: Any, _userdata: Any, _mid: int, _codes: Any, _properties: Any = None
    ) -> None:
        # Nothing waits for it; aiomqtt's own would look for a call of its own that does.
        pass

    def _on_connect(
        self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None
    ) -> None:
        # Before aiomqtt's: that wakes whoever connects, who reads the limits.
        self._begin_session(properties)
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None
    ) -> None:
        if not self._connected.done():
            # aiomqtt would wait out its deadline for an acceptance that cannot come any more.
            self._connected.set_exception(aiomqtt.MqttError(HUNG_UP))
            return
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_socket_register_write(self, _client: Any, _userdata: Any, sock: Any) -> None:
        # Called by the thread that connects, too.
        self._loop.call_soon_threadsafe(self._register_write, sock)

    def _register_write(self, sock: Any) -> None:
        # Since it was asked for, the connection may have ended, and its descriptor be another's.
        current = self._client.socket()
        if current is not None and current is sock and self._client.want_write():
            self._loop.add_writer(current.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._client.loop_write()
        except Exception as error:  # whatever it is, the connection cannot be used
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def _client_connect(self) -> None:
        try:
            super()._client_connect()
        except OSError as error:
            self._failure = error
            raise
