"""Starts the product without checks of its code that refuse rows of the intruder's table.

::

    python -m tests.intruder.without_checks CHECK[,CHECK] VERB ...

The settings stay as they are. Only a test starts a daemon so: the product has no such switch.
"""

from __future__ import annotations

import ssl
import sys
from typing import TYPE_CHECKING, Any

import grpc
from aiohttp import web

from service.login import check
from service.tls import files
from tests.intruder.table import Protection
from vigil.main import main

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


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


REMOVALS = {
    Protection.LOGIN: _without_login,
    Protection.GRPC_CERTIFICATE: _without_client_certificate,
}
"""What removes each protection that is a check in code; others are modes, roles or policies."""


if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        REMOVALS[Protection[name]]()
    main()
