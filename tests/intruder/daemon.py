"""The aggregator of the intruder's table: its pages, its gRPC services, its socket and its files.

It reads a directory store, as on a server without Kubernetes. Pages and gRPC demand certificates of
one authority; an actor has none, or that of a node, which another authority signed.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import grpc

from contract.wire import pubfault_pb2
from stores.base import Document
from tests.aggregator.daemon import put_documents
from tests.intruder import without_checks
from tests.intruder.table import (
    Actor,
    Call,
    FileAccess,
    Gap,
    Page,
    Protection,
    Row,
    SocketPage,
    Thing,
    Verb,
)
from tests.intruder.without_checks import REMOVALS
from tests.parts.certificates import make_authority, make_client, make_server
from tests.parts.deadlines import patience
from tests.parts.processes import Running, free_ports, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.intruder.table import Attempt

_ANSWER_SECONDS = 10.0
_UP_SECONDS = 30.0
_NOBODY = 65534
_SOCKET = "state/aggregator.sock"
_DOCUMENT = "store/kube-system/mindx-dl-deviceinfo-node-1.json"
_LOCK = "store/kube-system/.lock"
_HISTORY = "state/history.sqlite"
_SEND = "PubFault/SendPublicFault"
_QUERY = "fault.Fault/GetFaultMsgSignal"

_LOGIN = (Protection.LOGIN,)
_GRPC = (Protection.GRPC_CERTIFICATE,)
_MODE = (Protection.MODE,)
_MODE_AND_LOGIN = (Protection.MODE, Protection.LOGIN)
_MAY: tuple[Protection, ...] = ()
_Tried: TypeAlias = Page | SocketPage | Call | FileAccess


def _public_fault(assertion: str) -> bytes:
    """Return a message about a public fault of a chip that occurs or recovers."""
    fault = pubfault_pb2.Fault(faultId="any", faultType="NPU", faultCode="220001001")
    fault.faultTime, fault.assertion = 1, assertion
    fault.influence.append(pubfault_pb2.PubFaultInfo(nodeName="node-1", deviceIds=[0]))
    message = pubfault_pb2.PublicFaultRequest(
        id="any", timestamp=1, version="1.0", resource="CCAE", faults=[fault]
    )
    return message.SerializeToString()


def _rows(
    actor: Actor,
    about: str,
    protections: tuple[Protection, ...],
    *attempts: tuple[Thing, Verb, _Tried],
) -> Iterable[Row]:
    for thing, verb, attempt in attempts:
        yield Row(actor, thing, verb, about, attempt, protections)


def _from_the_network(actor: Actor) -> Iterable[Row]:
    """Yield what clients without a certificate of the right authority try."""
    yield from _rows(
        actor,
        "pages, metrics and the operator's page",
        _LOGIN,
        *(
            (Thing.PAGES, Verb.READ, Page(path))
            for path in ("/api/v1/nodes", "/api/v1/stream", "/metrics", "/")
        ),
    )
    yield from _rows(
        actor,
        "faults, and public faults that isolate chips or end",
        _GRPC,
        (Thing.GRPC, Verb.READ, Call(_QUERY, b"")),
        (Thing.GRPC, Verb.WRITE, Call(_SEND, _public_fault("occur"))),
        (Thing.GRPC, Verb.DELETE, Call(_SEND, _public_fault("recover"))),
    )


ROWS: tuple[Row, ...] = (
    *_from_the_network(Actor.ADDRESS),
    *_from_the_network(Actor.CERTIFICATE),
    *_from_the_network(Actor.USER),
    *_rows(
        Actor.ADDRESS,
        "the status of the probes",
        _MAY,
        *((Thing.PAGES, Verb.READ, Page(path)) for path in ("/healthz", "/readyz")),
    ),
    *_rows(
        Actor.USER,
        "the socket of the daemon",
        _MODE_AND_LOGIN,
        (Thing.SOCKETS, Verb.READ, SocketPage(_SOCKET)),
    ),
    *_rows(
        Actor.USER,
        "the socket of the daemon",
        _MODE,
        (Thing.SOCKETS, Verb.WRITE, FileAccess("connect", _SOCKET)),
        (Thing.SOCKETS, Verb.DELETE, FileAccess("rename", _SOCKET)),
        (Thing.SOCKETS, Verb.FLOOD, FileAccess("connect", _SOCKET)),
    ),
    *_rows(
        Actor.USER,
        "the state directory",
        _MODE,
        (Thing.FILES, Verb.READ, FileAccess("list", "state")),
        (Thing.FILES, Verb.READ, FileAccess("read", _HISTORY)),
        (Thing.FILES, Verb.WRITE, FileAccess("write", _HISTORY)),
        (Thing.FILES, Verb.DELETE, FileAccess("rename", _HISTORY)),
        (Thing.FILES, Verb.FLOOD, FileAccess("create", "state/any")),
    ),
    *_rows(
        Actor.USER,
        "locks of the directory store, and so all writes",
        _MODE,
        (Thing.FILES, Verb.READ, FileAccess("read", _LOCK)),
        (Thing.FILES, Verb.WRITE, FileAccess("write", _LOCK)),
    ),
    *_rows(
        Actor.USER,
        "documents of the directory store",
        _MODE,
        (Thing.DOCUMENTS, Verb.WRITE, FileAccess("write", _DOCUMENT)),
        (Thing.DOCUMENTS, Verb.DELETE, FileAccess("rename", _DOCUMENT)),
        (Thing.DOCUMENTS, Verb.FLOOD, FileAccess("create", "store/kube-system/any.json")),
    ),
    *_rows(
        Actor.USER,
        "documents of the directory store",
        _MAY,
        (Thing.DOCUMENTS, Verb.READ, FileAccess("read", _DOCUMENT)),
    ),
)

GAPS = (
    *(
        gap
        for actor in (Actor.ADDRESS, Actor.CERTIFICATE, Actor.USER)
        for gap in (
            Gap(
                actor,
                (Thing.PAGES,),
                "no page writes: a daemon answers GET and HEAD alone",
                (Verb.WRITE, Verb.DELETE),
            ),
            Gap(
                actor,
                (Thing.PAGES,),
                "attacks above are floods of pages; figures: `python -m benchmarks.attack_pages`",
                (Verb.FLOOD,),
            ),
            Gap(
                actor,
                (Thing.GRPC,),
                "a client that the handshake refuses has no call that it could repeat",
                (Verb.FLOOD,),
            ),
        )
    ),
    Gap(
        Actor.ADDRESS,
        (Thing.SOCKETS, Thing.FILES),
        "sockets and files are on the node, and have no address",
    ),
    Gap(
        Actor.USER,
        (
            *(Thing.LABELS, Thing.EVENTS, Thing.LEASES, Thing.NODE_STATUS, Thing.PODS),
            *(Thing.RANK_TABLES, Thing.TOPICS, Thing.WILLS),
        ),
        "without credentials this actor is an address of the pod network",
    ),
)

_USER_PROGRAM = """
import json, os, socket, sys
def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
def ask(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b"GET /api/v1/nodes HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        status = client.recv(64).split()[1]
        if status != b"200":
            raise OSError(status.decode())
def rename(path):
    os.rename(path, path + ".moved")
    os.rename(path + ".moved", path)
def create(path):
    open(path, "x").close()
    os.unlink(path)
ways = {
    "connect": connect, "ask": ask, "rename": rename, "create": create, "list": os.listdir,
    "read": lambda path: open(path, "rb").close(), "write": lambda path: open(path, "r+b").close(),
}
for line in sys.stdin:
    way, path = json.loads(line)
    try:
        ways[way](path)
        print("done", flush=True)
    except PermissionError:
        print("permission", flush=True)
    except OSError as error:
        print(error, flush=True)
"""
"""Runs as the local user: does with a path what a line demands, and prints how that ended."""


class Aggregator:
    """An aggregator below a folder that other users may enter, and a process of such a user."""

    def __init__(self, place: Path, *, in_code: bool) -> None:
        self._place = place
        self._in_code = in_code
        """Whether the code of a check is removed, and not the setting that demands it."""
        self._removed: tuple[Protection, ...] = ()
        self._modes: dict[Path, int] = {}
        """The modes of files while they are open to all."""
        for name, user in (("ours", "client"), ("theirs", "node-1")):
            (place / name).mkdir(mode=0o700)
            make_authority(place / name)
            make_server(place / name)
            make_client(place / name, user, "npu-vigil")
        put_documents(
            f"directory:{place / 'store'}",
            Document("kube-system", "mindx-dl-deviceinfo-node-1", {"DeviceInfoCfg": "{}"}),
        )
        (self._grpc_port,) = free_ports(1)
        self._running = self._start()
        self._user: subprocess.Popen[str] | None = None
        if os.geteuid() == 0:
            self._user = subprocess.Popen(
                ["/usr/bin/python3", "-c", _USER_PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                user=_NOBODY,
                group=_NOBODY,
                extra_groups=[],
                cwd="/",
            )

    def close(self) -> None:
        """End the daemon and the user's process."""
        self._running.stop()
        if self._user is not None:
            self._user.communicate()

    def _start(self) -> Running:
        place = self._place
        listen = place / "state/listen"
        listen.unlink(missing_ok=True)
        tls = {
            "certificate_file": "server.crt",
            "key_file": "server.key",
            "client_ca_file": "ca.crt",
        }
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")}
        environment["VIGIL_GRPC_LISTEN"] = f"127.0.0.1:{self._grpc_port}"
        for section in ("PAGES", "GRPC"):
            for setting, file in tls.items():
                environment[f"VIGIL_{section}_{setting.upper()}"] = str(place / "ours" / file)
        if Protection.LOGIN in self._removed and not self._in_code:
            del environment["VIGIL_PAGES_CLIENT_CA_FILE"]
        if Protection.GRPC_CERTIFICATE in self._removed and not self._in_code:
            environment["VIGIL_GRPC_PLAINTEXT"] = "true"
            for setting in tls:
                del environment[f"VIGIL_GRPC_{setting.upper()}"]
        store = f"directory:{place / 'store'}"
        module = ["vigil"]
        checks = [protection.name for protection in self._removed if protection in REMOVALS]
        if self._in_code and checks:
            module = [without_checks.__name__]
            environment[without_checks.VARIABLE] = ",".join(checks)
        command = [sys.executable, "-m", *module, "aggregator", "--store", store]
        command += ["--state-dir", str(place / "state"), "--listen", "127.0.0.1:0"]
        running = Running(command, place / "log", environment)
        running.wait_until(listen.exists, _UP_SECONDS)
        return running

    def wait_until_ready(self) -> None:
        """Wait until the daemon has read the store and written its own files."""
        self._running.wait_until(lambda: self._status("/readyz", None) == http.client.OK, 30.0)

    def refusing(self, actor: Actor, attempt: Attempt) -> Protection | None:
        """Try something; return what refuses it, or ``None``."""
        if isinstance(attempt, Page):
            status = self._status(attempt.path, actor)
            assert status in (http.client.OK, http.client.UNAUTHORIZED, None), status
            return None if status == http.client.OK else Protection.LOGIN
        if isinstance(attempt, Call):
            return self._call(attempt, actor)
        if isinstance(attempt, SocketPage):
            answer = self._as_user("ask", attempt.path)
            return Protection.LOGIN if answer == "403" else _of_files(answer)
        assert isinstance(attempt, FileAccess)
        return _of_files(self._as_user(attempt.way, attempt.path))

    def _status(self, path: str, actor: Actor | None) -> int | None:
        """Return the status of a page for an actor; ``None`` where the handshake is refused."""
        port = int((self._place / "state/listen").read_text().strip().rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(self._place / "ours/ca.crt"))
        if actor is Actor.CERTIFICATE:
            theirs = self._place / "theirs"
            context.load_cert_chain(theirs / "node-1.crt", theirs / "node-1.key")
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, context=context, timeout=patience(_ANSWER_SECONDS)
        )
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (ssl.SSLError, ConnectionError):
            # As for a certificate of another authority.
            return None
        finally:
            connection.close()

    def _call(self, attempt: Call, actor: Actor) -> Protection | None:
        """Call a gRPC method; return what refuses it, or ``None``."""
        target = f"127.0.0.1:{self._grpc_port}"
        if Protection.GRPC_CERTIFICATE in self._removed and not self._in_code:
            channel = grpc.insecure_channel(target)
        else:
            files = [self._place / "ours/ca.crt"]
            if actor is Actor.CERTIFICATE:
                files += [self._place / f"theirs/node-1.{end}" for end in ("key", "crt")]
            credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
            channel = grpc.secure_channel(target, credentials)
        with channel:
            try:
                call = channel.unary_unary(f"/{attempt.method}", bytes, bytes)
                call(attempt.message, timeout=patience(_ANSWER_SECONDS))
            except grpc.RpcError as error:
                # Another error is an answer of the service.
                is_refused = error.code() is grpc.StatusCode.UNAVAILABLE
                return Protection.GRPC_CERTIFICATE if is_refused else None
        return None

    def _as_user(self, way: str, path: str) -> str:
        assert self._user is not None, "only root starts a program of another user"
        assert self._user.stdin is not None
        assert self._user.stdout is not None
        self._user.stdin.write(json.dumps([way, str(self._place / path)]) + "\n")
        self._user.stdin.flush()
        return self._user.stdout.readline().strip()

    def remove(self, actor: Actor, protections: tuple[Protection, ...]) -> None:
        """Remove these protections, and restore all others; the daemon restarts."""
        del actor
        if protections == self._removed:
            return
        self._removed = protections
        self._running.stop()
        for path, mode in self._modes.items():
            if path.exists():
                path.chmod(mode)
        self._modes = {}
        self._running = self._start()
        self.wait_until_ready()
        if Protection.MODE in protections:
            # The daemon itself refuses to start on a store that all may write.
            for path in (self._place, *self._place.rglob("*")):
                self._modes[path] = path.stat().st_mode
                path.chmod(0o777)


def _of_files(answer: str) -> Protection | None:
    """Return what refused an access to a file, by the answer of the user's process."""
    if answer == "done":
        return None
    assert answer == "permission", answer
    return Protection.MODE


@contextmanager
def aggregator(*, in_code: bool = False) -> Iterator[Aggregator]:
    """Run an aggregator until the end of the block.

    ``in_code``: ``remove`` replaces the code of a check, and leaves the settings as they are.
    """
    # Other users cannot enter the directories of pytest.
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name:
        Path(name).chmod(0o755)
        running = Aggregator(Path(name), in_code=in_code)
        try:
            running.wait_until_ready()
            yield running
        finally:
            running.close()
