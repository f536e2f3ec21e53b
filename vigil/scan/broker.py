"""Checks of the MQTT broker: connection, TLS, login, and rights to the topics of this node.

The last will of a running agent is not touched: this connection has a name of its own and no will.
What is published goes to the node's echo topic, and what is retained there is cleared again.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from contract.errors import StoreError
from contract.names import DEVICE_INFO_NAMESPACE, device_info_name
from contract.sentences import counted, sentence
from contract.topics import ack_topic, document_topic
from pacing.abandonable_thread import AbandonableThread
from stores.address import shown
from stores.certificates import end_of_der, end_of_pem
from stores.deadline import answered_within
from stores.mqtt.address import parse_address
from stores.mqtt.client import MqttClient, tls_of
from stores.mqtt.connection import BrokerConnection
from stores.mqtt.documents import BrokerDocuments
from stores.mqtt.limits import LearnedLimits, small_retained, unusable
from stores.mqtt.session import Sink
from vigil.exit_status import ExitStatus
from vigil.scan.configuration import check_fault_configuration
from vigil.scan.findings import not_applicable, ok, problem
from vigil.scan.store import WRITERS

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from stores.base import Document
    from stores.mqtt.address import BrokerAddress
    from vigil.scan.findings import Check

BROKER, TLS, OWN_CERTIFICATE = "broker", "broker-tls", "client-certificate"
LOGIN, TOPICS = "broker-login", "broker-topics"
_DOCUMENT_BYTES = 16 * 1024
"""A device-info of 16 chips with several faults each."""
# Each step has its own limit, so that the one that hangs is named and the others still run.
_CONNECT_SECONDS = 5.0
_LOGIN_SECONDS = 12.0
_TOPICS_SECONDS = 25.0
_EXPIRES_SOON = timedelta(days=14)


async def check_broker(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check each step to the broker separately, so that the failing one is named."""
    try:
        address = parse_address(configuration.store)
    except ValueError as error:
        advice = sentence("write mqtts://HOST:PORT or mqtt://HOST:PORT")
        finding = f"{shown(configuration.store)} {error}"
        return (problem(BROKER, finding, advice, ExitStatus.WRONG_USE),)
    connections = (await _tcp(address), await _tls(address, configuration))
    checks = [*connections, _own_certificate(configuration)]
    # Without a connection a login could only repeat the same error.
    if any(check.means is ExitStatus.OUTSIDE for check in connections):
        left_out = [not_applicable(name, sentence("no connection")) for name in (LOGIN, TOPICS)]
        judged = await check_fault_configuration(configuration, None)
        return (*checks, *left_out, _writers(), judged)
    connection = BrokerConnection(address, configuration.mqtt, configuration.node_name)

    async def read(namespace: str, name: str) -> Document | None:
        topic = document_topic(namespace, name)
        return (await BrokerDocuments(connection, shows_flags=False).read((topic,))).get(topic)

    try:
        checks.append(await _login(address, configuration))
        is_in = checks[-1].means is ExitStatus.OK
        if is_in:
            checks.append(await _topics(connection, configuration.node_name))
        else:
            checks.append(not_applicable(TOPICS, sentence("the broker does not let us in")))
        judged = await check_fault_configuration(configuration, read if is_in else None)
        return (*checks, _writers(), judged)
    finally:
        # Ended in order: this connection has no will that a broker could publish.
        await connection.close()


def _writers() -> Check:
    return not_applicable(WRITERS, sentence("a broker does not record who wrote what it retains"))


async def _tcp(address: BrokerAddress) -> Check:
    def connect() -> None:
        socket.create_connection((address.host, address.port), _CONNECT_SECONDS).close()

    try:
        # Name resolution cannot be cancelled, so the thread is left behind where it hangs.
        await AbandonableThread(connect, "scan").result(2 * _CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or sentence("no answer")
        advice = sentence(
            "is the broker started, its listener on this address, and a firewall between?"
        )
        return problem(
            BROKER,
            sentence("{address}: {reason}", address=address, reason=reason),
            advice,
            ExitStatus.OUTSIDE,
        )
    return ok(BROKER, sentence("{address} takes connections", address=address))


async def _tls(address: BrokerAddress, configuration: AgentConfiguration) -> Check:
    if not address.is_tls:
        finding = sentence("mqtt:// is not encrypted; passwords and faults can be read on the way")
        return not_applicable(TLS, finding)
    mqtt = configuration.mqtt

    def shake_hands() -> bytes:
        context = tls_of(mqtt)
        plain = socket.create_connection((address.host, address.port), _CONNECT_SECONDS)
        # The name of the host is checked as the agent does it.
        with plain, context.wrap_socket(plain, server_hostname=address.host) as encrypted:
            return encrypted.getpeercert(binary_form=True) or b""

    try:
        end = end_of_der(await AbandonableThread(shake_hands, "scan").result(3 * _CONNECT_SECONDS))
    except ssl.SSLCertVerificationError as error:
        advice = sentence(
            "mqtt.ca_file must hold the authority that issued the broker's certificate, "
            "and the certificate must name the host of --store"
        )
        finding = sentence(
            "the broker's certificate is not accepted: {reason}", reason=error.verify_message
        )
        return problem(TLS, finding, advice, ExitStatus.OUTSIDE)
    except (OSError, ValueError, TimeoutError) as error:
        advice = sentence(
            "is this the port for TLS? see openssl s_client -connect, and mqtt.* files"
        )
        reason = getattr(error, "reason", None) or str(error) or sentence("no answer")
        finding = sentence("TLS failed: {reason}", reason=reason)
        return problem(TLS, finding, advice, ExitStatus.OUTSIDE)
    return check_end(
        TLS, sentence("the broker's certificate is good for {host}", host=address.host), end
    )


def _own_certificate(configuration: AgentConfiguration) -> Check:
    file = configuration.mqtt.certificate_file
    if file is None:
        return not_applicable(OWN_CERTIFICATE, sentence("mqtt.certificate_file is not given"))
    try:
        # PEM is base64 between lines of ASCII; another encoding is not a PEM file.
        end = end_of_pem(file.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        advice = sentence("give the certificate as PEM, readable for the agent")
        return problem(
            OWN_CERTIFICATE,
            f"{file} {reason}",
            advice,
            ExitStatus.OUTSIDE,
        )
    return check_end(OWN_CERTIFICATE, str(file), end)


async def _login(address: BrokerAddress, configuration: AgentConfiguration) -> Check:
    try:
        async with (
            answered_within(_LOGIN_SECONDS),
            MqttClient(
                address,
                configuration.mqtt,
                # A client id of its own: a broker ends the older of two connections with one id
                # (MQTT 3.1.1, 3.1.4).
                f"npu-vigil-scan-{uuid.uuid4().hex[:8]}",
                None,
                lambda *_: None,
                LearnedLimits(address),
            ) as client,
        ):
            lacking = unusable(address, client.limits)
            if lacking is not None:
                advice = sentence("docs/stores.md has what a broker needs")
                return problem(LOGIN, str(lacking), advice, ExitStatus.OUTSIDE)
    except StoreError as error:
        finding = str(error)
        advice = sentence(
            "look at mqtt.user, mqtt.password_file, mqtt.certificate_file, the broker's log"
        )
        return problem(LOGIN, finding, advice, ExitStatus.OUTSIDE)
    except (OSError, ValueError) as error:
        advice = sentence("make the files of mqtt.* readable for the agent")
        finding = sentence("its files cannot be used: {reason}", reason=str(error))
        return problem(LOGIN, finding, advice, ExitStatus.OUTSIDE)
    return ok(LOGIN, sentence("the broker lets us in"))


async def _topics(connection: BrokerConnection, node: str) -> Check:
    """Subscribe to the topics that the node reads, and publish to its echo topic.

    A message of the size of a document must be retained there.
    """
    sink = Sink()
    try:
        async with answered_within(_TOPICS_SECONDS):
            session = await connection.session()
            for topic in (
                document_topic(DEVICE_INFO_NAMESPACE, device_info_name(node)),
                ack_topic(node),
            ):
                # A subscription without the right to read is refused, or shows nothing, so it is
                # tried.
                async with session.subscribed((topic,), sink):
                    await session.list_now(topic)
            is_kept = await session.keeps(_DOCUMENT_BYTES)
    except StoreError as error:
        finding = str(error)
        advice = sentence(
            "let the client read and write its topics below vigil/v1/nodes/{node}/ and "
            "read vigil/v1/config/#: see systemd/mosquitto for rights by the name in the "
            "certificate",
            node=node,
        )
        return problem(TOPICS, finding, advice, ExitStatus.OUTSIDE)
    if not is_kept:
        finding = small_retained(connection.address, _DOCUMENT_BYTES)
        advice = sentence("raise the broker's size limit of retained messages: docs/stores.md")
        return problem(TOPICS, finding, advice, ExitStatus.OUTSIDE)
    return ok(TOPICS, sentence("vigil/v1/nodes/{node}/echo can be written and read", node=node))


def check_end(name: str, result: str, end: datetime) -> Check:
    """Return the check ``name``: a problem for a certificate that has ended or ends soon.

    ``result`` states what the certificate is.
    """
    remaining = end - datetime.now(UTC)
    result = counted(
        remaining.days,
        "{certificate} until {end} ({count} day)",
        "{certificate} until {end} ({count} days)",
        certificate=result,
        end=f"{end:%Y-%m-%d}",
    )
    facts: dict[str, object] = {"ends": f"{end:%Y-%m-%dT%H:%M:%SZ}", "days": remaining.days}
    if remaining < timedelta():
        return problem(
            name,
            sentence("{result}: it has ended", result=result),
            sentence("renew it"),
            ExitStatus.OUTSIDE,
            facts,
        )
    if remaining < _EXPIRES_SOON:
        return problem(
            name,
            sentence("{result}: it ends soon", result=result),
            sentence("renew it before"),
            facts=facts,
        )
    return ok(name, result, facts=facts)
