"""Starts the product without checks of its code that refuse rows of the intruder's table.

::

    INTRUDER_WITHOUT=CHECK[,CHECK] python -m tests.intruder.without_checks VERB ...

The settings stay as they are. Only a test starts a daemon so: the product has no such switch.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

import grpc
import msgspec
from aiohttp import web
from msgspec.structs import replace

from aggregator.public_faults import message_processor, validation
from aggregator.rank_tables.plugin import RankTables
from contract.names import heartbeat_name
from service.login import check
from service.tls import files
from stores.kubernetes_api import leases
from stores.mqtt import channel
from tests.intruder.table import Protection
from vigil.main import main

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from stores.base import Beat, HistoryBatch

VARIABLE = "INTRUDER_WITHOUT"
"""The variable of the environment that names the checks."""


def _without_login() -> None:
    """Answer each request, and let each certificate pass the handshake."""

    @web.middleware
    async def answer(_: object, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request)

    load = files._load

    def load_unverified(*arguments: Any) -> ssl.SSLContext:
        context = load(*arguments)
        context.verify_mode = ssl.CERT_NONE
        return context

    vars(check)["Login"].check = answer
    vars(files)["_load"] = load_unverified


def _without_client_certificate() -> None:
    """Accept gRPC clients without a certificate."""
    create = grpc.dynamic_ssl_server_credentials

    def create_for_all(configuration: Any, newer: Any, **_: bool) -> grpc.ServerCredentials:
        return create(configuration, newer, require_client_authentication=False)

    vars(grpc)["dynamic_ssl_server_credentials"] = create_for_all


def _without_other_node() -> None:
    """Accept public faults, heartbeats and episodes of any node at the place of a node."""
    beat_of = leases.beat_of

    def beat_of_any(lease: leases.Lease, _: Beat | None = None) -> Beat:
        name = heartbeat_name(lease.metadata.annotations.node)
        return beat_of(replace(lease, metadata=replace(lease.metadata, name=name)))

    decode_batch = channel.decode_batch

    def decode_any(_: str, payload: bytes) -> HistoryBatch:
        return decode_batch(msgspec.json.decode(payload)["node"], payload)

    vars(validation)["split_foreign"] = lambda _, reports: (list(reports), None)
    vars(message_processor)["belongs"] = lambda *_: True
    vars(leases)["beat_of"] = beat_of_any
    vars(channel)["decode_batch"] = decode_any


def _without_other_resource() -> None:
    """Accept public faults of any resource from a document of a node."""
    vars(validation)["foreign_resource"] = lambda *_: None
    vars(message_processor)["belongs"] = lambda *_: True


def _without_table_owners() -> None:
    """Serve a table of jobs that lie in several namespaces."""
    type.__setattr__(RankTables, "_is_shared", lambda *_: False)


REMOVALS = {
    Protection.LOGIN: _without_login,
    Protection.GRPC_CERTIFICATE: _without_client_certificate,
    Protection.OTHER_NODE: _without_other_node,
    Protection.OTHER_RESOURCE: _without_other_resource,
    Protection.TABLE_OWNERS: _without_table_owners,
}
"""What removes each protection that is a check in code; others are modes, roles or policies."""


if __name__ == "__main__":
    for name in os.environ[VARIABLE].split(","):
        REMOVALS[Protection[name]]()
    main()
