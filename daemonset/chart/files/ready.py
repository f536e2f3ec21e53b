"""Asks each address of services for ``/readyz``; used by ``helm test``.

::

    python3 ready.py http://HOST:PORT|https://HOST:PORT...

Exit status: 0 all are ready, 1 otherwise; the reasons are on standard error.
"""

import json
import socket
import ssl
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

_ANSWER_SECONDS = 10
_MAX_CONNECTIONS = 32
# Nothing is sent that must be secret, and addresses of pods are in no certificate.
_context = ssl.create_default_context()
_context.check_hostname = False
_context.verify_mode = ssl.CERT_NONE


def addresses(service: str) -> list[str]:
    """Return the URL of each pod of a headless Service, else of the Service."""
    scheme, _, place = service.partition("://")
    host, _, port = place.rpartition(":")
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        sys.exit(f"{host} has no address: does a pod of it run, and does the name server answer?")
    hosts = sorted({str(info[4][0]) for info in infos})
    return [
        f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        for host in hosts
    ]


def problem(address: str) -> str:
    """Return why a daemon is not ready; nothing where it is."""
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=_ANSWER_SECONDS, context=_context):
            return ""
    except urllib.error.HTTPError as error:
        # Without a login, pages that need one state no reasons.
        reasons = json.load(error).get("reasons", ["its log has the reasons"])
        return f"{address} is not ready: {'; '.join(reasons)}"
    except OSError as error:
        return f"{address} does not answer: {error}"


if __name__ == "__main__":
    pods = [address for service in sys.argv[1:] for address in addresses(service)]
    with ThreadPoolExecutor(_MAX_CONNECTIONS) as executor:
        problems = [text for text in executor.map(problem, pods) if text]
    sys.exit("\n".join(problems) or None)
