"""The errors for refusals of a broker: their cause, and what the reader can do."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode

from contract.errors import StoreError, StoreForbidden, StoreRefused, StoreUnavailable
from stores.mqtt.limits import no_qos, no_retain

if TYPE_CHECKING:
    from stores.mqtt.address import BrokerAddress

_MAY_NOT_TAKE = (
    "it may refuse a last will that is retained (set retain_available true) or at QoS 1 (set "
    "max_qos 1). It may also refuse a packet of this size (max_packet_size), or this version of "
    "MQTT (mqtt.protocol)"
)
HUNG_UP = f"the broker hung up; {_MAY_NOT_TAKE}"

# Reason codes of MQTT 5, section 2.4; paho translates the return codes of 3.1.1 into them.
_UNSPECIFIED = 0x80
_TOO_LARGE = 0x95
_NO_RETAIN = 0x9A
_NO_QOS = 0x9B
_NOT_AUTHORIZED = 0x87
_BAD_PASSWORD = 0x86
_PROTOCOL = 0x84
_IDENTIFIER = 0x85
_FIRST_REFUSAL = _UNSPECIFIED

# Rights, busy, shutting down, keep alive, taken over, Receive Maximum, rates, an operator, moved.
_ABOUT_ELSE = {0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x93, 0x96, 0x97, 0x98, 0x9C, 0x9D, 0x9F, 0xA0}

# Another attempt may be answered otherwise: unspecified, server unavailable or busy, packet
# identifier in use (mochi compares it with those of its own messages), moved, rates.
_PASSING = {_UNSPECIFIED, 0x83, 0x88, 0x89, 0x91, 0x97, 0x9C, 0x9D, 0x9F}


def connect_error(address: BrokerAddress, error: Exception, reason: str) -> StoreError:
    """Return why there is no connection; ``reason`` is the connection's log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreForbidden(
            f"{address}: the broker's certificate is not accepted: {error.verify_message}; "
            "mqtt.ca_file must hold the authority that issued it, and the address a name of it"
        )
    if isinstance(error, ssl.SSLError):
        return StoreForbidden(
            f"{address}: TLS failed: {error.reason or error}; is this a port for mqtts://, and "
            "are mqtt.certificate_file and mqtt.key_file what the broker asks for?"
        )
    if isinstance(error, socket.gaierror):
        return StoreUnavailable(f"{address}: the host name is not known: {error.strerror}")
    if isinstance(error, OSError):
        return StoreUnavailable(f"{address}: no connection: {error.strerror or error}")
    if isinstance(error, aiomqtt.MqttCodeError):
        return _refused_connection(address, error)
    if "SSL" in reason or "ssl" in reason:
        return StoreForbidden(
            f"{address}: the broker refused the TLS connection: {reason}; it may ask for another "
            "client certificate (mqtt.certificate_file, mqtt.key_file)"
        )
    return StoreUnavailable(f"{address}: no connection: {error}")


def is_too_large(code: object) -> bool:
    """Return whether the broker reports that a packet was too large for it (MQTT 5)."""
    return isinstance(code, ReasonCode) and code.value == _TOO_LARGE


def is_about_else(error: BaseException | None) -> bool:
    """Return whether a connection ended for a reason that is not the size of a packet.

    A lost connection without any reason, and one that names a malformed packet, may be about it.
    ``error`` is aiomqtt's; without a code this side ended the connection.
    """
    code = getattr(error, "rc", None)
    if isinstance(code, ReasonCode):
        return code.value in _ABOUT_ELSE
    return error is None or isinstance(error, aiomqtt.MqttError)


def publish_error(address: BrokerAddress, answer: ReasonCode) -> StoreError | None:
    """Return why a message was not taken, or ``None`` if it was (also without a subscriber)."""
    if answer.value < _FIRST_REFUSAL:
        return None
    if answer.value == _NOT_AUTHORIZED:
        return StoreForbidden(
            "the broker's access rules do not let this client write there; those that do are in "
            "systemd/mosquitto/rights"
        )
    # A passing error: the next attempt is refused by
    # ``LearnedLimits.check``, which names the limit.
    if answer.value == _TOO_LARGE:
        return StoreUnavailable(f"{address}: the broker does not take a packet of this size")
    if answer.value in _PASSING:
        return StoreUnavailable(f"{address}: the broker answers {answer}")
    return StoreRefused(f"{address}: the broker refused: {answer}")


def subscribe_error(address: BrokerAddress, answers: list[ReasonCode]) -> StoreError | None:
    """Return why a subscription was refused, or ``None`` if it was granted."""
    for answer in answers:
        if answer.value == _NOT_AUTHORIZED:
            return StoreForbidden("the broker's access rules do not let this client subscribe")
        if answer.value >= _FIRST_REFUSAL:
            kind = StoreUnavailable if answer.value in _PASSING else StoreRefused
            return kind(f"{address}: the broker refused the subscription: {answer}")
    return None


def first_refused(address: BrokerAddress, topic: str, node: str | None) -> StoreForbidden:
    """Return the error for a refused first message, to ``topic``: the client is another one."""
    return StoreForbidden(
        f"{address}: the broker's access rules do not let this client write {topic}: "
        f"{_known_as(node)}"
    )


def ended_at_first(address: BrokerAddress, topic: str, node: str | None) -> StoreUnavailable:
    """Return the error for a connection that the broker ended at the first message, to ``topic``.

    mosquitto 2.0.11 does so with ``max_queued_messages 0`` where the right is missing.
    """
    return StoreUnavailable(
        f"{address}: the broker ended the connection at a message to {topic}: it stopped, or its "
        f"access rules do not let this client write there: {_known_as(node)}"
    )


def hung_up_at_retained(address: BrokerAddress, topic: str) -> StoreUnavailable:
    """Return the error for a connection that ended at a retained message (MQTT 3.1.1)."""
    return StoreUnavailable(
        f"{address}: the broker ended the connection at a retained message to {topic}: it stopped, "
        "or it keeps no retained messages: set retain_available true (mosquitto)"
    )


def _known_as(node: str | None) -> str:
    name = "mqtt.user or the common name in mqtt.certificate_file"
    if node is None:
        return f"{name} must be a user with the aggregator's rights (systemd/mosquitto/rights)"
    return f"{name} must be the node's name, {node}"


def end_reason(error: BaseException | None) -> str:
    """Return why a connection ended; ``error`` is aiomqtt's, ``None`` for an end in order."""
    code = getattr(error, "rc", None)
    if isinstance(code, ReasonCode) and code.value == _UNSPECIFIED:
        return "closed by the broker"  # paho's name for an end without a reason
    return str(code or error or "closed")


def _refused_connection(address: BrokerAddress, error: aiomqtt.MqttCodeError) -> StoreError:
    code = error.rc.value if isinstance(error.rc, ReasonCode) else None
    if code in (_BAD_PASSWORD, _NOT_AUTHORIZED):
        return StoreForbidden(
            f"{address}: the broker does not let this client in: {error.rc}; look at mqtt.user, "
            "mqtt.password_file and mqtt.certificate_file"
        )
    if code == _PROTOCOL:
        return StoreRefused(
            f"{address}: the broker does not speak this version of MQTT; set mqtt.protocol to the "
            "other one (5, 3.1.1)"
        )
    # The answer to CONNECT, because the last will is retained and has QoS 1.
    if code == _NO_RETAIN:
        return no_retain(address)
    if code == _NO_QOS:
        return no_qos(address)
    if code == _IDENTIFIER:
        return StoreRefused(f"{address}: the broker refused the client's identifier")
    # With 3.1.1 there is no code for what a broker does not offer, and some send one of MQTT 5.
    reason = f"; {_MAY_NOT_TAKE}" if code == _UNSPECIFIED else ""
    return StoreUnavailable(f"{address}: the broker refused the connection: {error}{reason}")
