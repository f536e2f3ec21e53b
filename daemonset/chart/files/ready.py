"""Asks each address of services for ``/readyz``; used by ``helm test``.

::

    python3 ready.py HOST:PORT...

Exit status: 0 all are ready, 1 otherwise; the reasons are on standard error.
"""

import json
import socket
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

_ANSWER_SECONDS = 10
_MAX_CONNECTIONS = 32


def addresses(service: str) -> list[str]:
    """Return ``HOST:PORT`` of each pod of a headless Service, else of the Service."""
    host, _, port = service.rpartition(":")
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        sys.exit(f"{host} has no address: does a pod of it run, and does the name server answer?")
    hosts = sorted({str(info[4][0]) for info in infos})
    return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in hosts]


def problem(address: str) -> str:
    """Return why a daemon is not ready; nothing where it is."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=_ANSWER_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"{address} is not ready: {'; '.join(json.load(error)['reasons'])}"
    except OSError as error:
        return f"{address} does not answer: {error}"


if __name__ == "__main__":
    pods = [address for service in sys.argv[1:] for address in addresses(service)]
    with ThreadPoolExecutor(_MAX_CONNECTIONS) as executor:
        problems = [text for text in executor.map(problem, pods) if text]
    sys.exit("\n".join(problems) or None)
