"""A real kube-apiserver on a real etcd, for tests, benchmarks and the demo's checks.

::

    with ControlPlane(directory) as plane:
        store = open_store("kubernetes:", plane.kubeconfig)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.parts.certificates import make_authority, make_client, make_server
from tests.parts.deadlines import patience
from tests.parts.processes import Running, built_program, free_ports, program

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping
    from typing import Self

_MODULE = Path(__file__).parent.parent / "controlplane"
_UP_SECONDS = 30.0
_ASK_SECONDS = 10.0
_OK, _GONE = 200, 404
CHIEF_TOKEN = "chief-token"
"""The token of a user who may do everything."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"
"""Where the heartbeats are."""
_KEPT = {"kube-root-ca.crt", "extension-apiserver-authentication"}


def apiserver_program() -> Path:
    """Find kube-apiserver: in ``KUBEBUILDER_ASSETS``, on ``PATH``, or built by ``setup.sh``."""
    sources = [_MODULE / name for name in ("go.mod", "go.sum", "main.go")]
    return built_program("kube-apiserver", sources, assets())


def assets() -> Path | None:
    """Return the folder with ready-made programs in ``KUBEBUILDER_ASSETS``; ``None`` without it."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(folder) if folder else None


class ControlPlane:
    """An API server and its etcd in ``directory``, on ports of 127.0.0.1 that stay the same.

    Users: ``kubeconfig`` is the administrator's; ``kubeconfig_of`` makes one for a user without
    any rights, for one with all (``CHIEF_TOKEN``), or with a token that was never issued.
    With ``audited`` every request of a service account is in ``audit``. ``quota_bytes`` is the most
    that etcd stores, 2 GiB by default.
    """

    def __init__(
        self,
        directory: Path,
        *,
        audited: bool = False,
        port: int | None = None,
        quota_bytes: int = 2 << 30,
    ) -> None:
        self.directory = directory
        self._audited = audited
        self._quota_bytes = quota_bytes
        self._audited_bytes = 0
        """Length of the audit log when ``clean`` was called last."""
        self.port, self.etcd_port, self._peer_port = free_ports(3)
        if port is not None:
            self.port = port
        self.kubeconfig = directory / "admin.kubeconfig"
        self._etcd: Running | None = None
        self._apiserver: Running | None = None
        self._rests = False
        make_authority(directory)
        make_server(directory)
        make_client(directory, "admin", "system:masters")
        (directory / "tokens.csv").write_text(
            f'stranger-token,stranger,1\n{CHIEF_TOKEN},chief,2,"system:masters"\n'
        )
        self._write_kubeconfig(
            self.kubeconfig,
            {
                "client-certificate": str(directory / "admin.crt"),
                "client-key": str(directory / "admin.key"),
            },
        )
        self._tls = self._administrator()
        self._idle: list[http.client.HTTPSConnection] = []

    def _administrator(self) -> ssl.SSLContext:
        tls = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        tls.load_cert_chain(self.directory / "admin.crt", self.directory / "admin.key")
        return tls

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def apiserver_pid(self) -> int:
        """Return the process id of the API server."""
        assert self._apiserver is not None
        return self._apiserver.pid

    def start(self) -> None:
        """Start both and wait until the API server is ready; neither is left if it does not."""
        try:
            self.start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()  # also when a test's time is over
            raise

    def stop(self) -> None:
        """Stop both."""
        self.stop_apiserver()
        if self._etcd is not None:
            self._etcd.stop()
            self._etcd = None

    def start_etcd(self) -> None:
        """Start etcd on the data it had."""
        client = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._etcd = Running(
            [
                program("etcd", assets()),
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                # A machine that loses power loses the test, too.
                "--unsafe-no-fsync",
                f"--quota-backend-bytes={self._quota_bytes}",
            ],
            self.directory / "etcd.log",
        )
        self._etcd.wait_until(self._etcd_is_up, _UP_SECONDS)

    def start_apiserver(self) -> None:
        """Start the API server, on the port that it had before, and wait until it is ready."""
        here = self.directory
        self._apiserver = Running(
            [
                apiserver_program(),
                f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
                f"--secure-port={self.port}",
                f"--client-ca-file={here / 'ca.crt'}",
                f"--tls-cert-file={here / 'server.crt'}",
                f"--tls-private-key-file={here / 'server.key'}",
                f"--token-auth-file={here / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={here / 'server.crt'}",
                f"--service-account-signing-key-file={here / 'server.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--endpoint-reconciler-type=none",
                *self._gates(),
                *self._surroundings(),
                *(self._audit_options() if self._audited else ()),
            ],
            here / "kube-apiserver.log",
            # It lives for minutes at most: fewer garbage collections take a sixth off its start,
            # and 70 MB more memory.
            {**os.environ, "GOGC": "400"},
        )
        self._apiserver.wait_until(self._apiserver_is_up, _UP_SECONDS)

    def _gates(self) -> tuple[str, ...]:
        """Return options for what is off by default in Kubernetes 1.36 and on in 1.37."""
        return (
            "--runtime-config=resource.k8s.io/v1beta2=true",
            "--feature-gates=DRADeviceTaintRules=true",
        )

    def _surroundings(self) -> tuple[str, ...]:
        """Return options for an API server on this machine, without controllers."""
        return (
            "--bind-address=127.0.0.1",
            # It would look for a default route, which not every machine has. Nobody connects there.
            "--advertise-address=192.0.2.1",
            # No controller makes the service accounts that it would demand of every pod.
            "--disable-admission-plugins=ServiceAccount",
        )

    def stop_apiserver(self) -> None:
        """Stop the API server; etcd keeps the data."""
        while self._idle:
            self._idle.pop().close()
        if self._apiserver is not None:
            # It would wait up to a minute for clients to end their watches.
            self._apiserver.stop(patience_seconds=2.0)
            self._apiserver = None

    def replace_authority(self) -> None:
        """Restart the API server with another CA, which signed its certificate and the clients'."""
        self.stop_apiserver()
        make_authority(self.directory)
        make_server(self.directory)
        make_client(self.directory, "admin", "system:masters")
        self._tls = self._administrator()
        self.start_apiserver()

    def kill_apiserver(self) -> None:
        """End the API server without warning."""
        assert self._apiserver is not None
        self._apiserver.kill()
        self._apiserver = None

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections stay, nothing answers."""
        assert self._apiserver is not None
        self._apiserver.freeze()

    def resume_apiserver(self) -> None:
        """Let a frozen API server go on."""
        assert self._apiserver is not None
        self._apiserver.thaw()

    def pause_etcd(self) -> None:
        """Freeze etcd: the API server has only what is in its memory."""
        assert self._etcd is not None
        self._etcd.freeze()

    def resume_etcd(self) -> None:
        """Let a frozen etcd go on."""
        assert self._etcd is not None
        self._etcd.thaw()

    def kubeconfig_of(self, token: str, server: str | None = None) -> Path:
        """Write a kubeconfig with a bearer token: ``stranger-token`` is known and has no rights."""
        path = self.directory / f"{token}.kubeconfig"
        self._write_kubeconfig(path, {"token": token}, server)
        return path

    def administrator_at(self, port: int) -> Path:
        """Write the administrator's kubeconfig for another port of this host; return its path."""
        path = self.directory / f"admin-{port}.kubeconfig"
        content = self.kubeconfig.read_text().replace(self.url, f"https://127.0.0.1:{port}")
        path.write_text(content)
        path.chmod(0o600)
        return path

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask as administrator, without any code of ours; the decoded answer.

        Raises ``AssertionError`` for a status other than 2xx.
        """
        status, answer = self.ask(method, path, body)
        assert status // 100 == 2, (method, path, status, answer)
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
    ) -> tuple[int, Any]:
        """Ask as administrator; status and decoded answer (text if it is not JSON)."""
        with self._connected() as connection:
            return _asked(connection, method, path, body, content_type)

    def may(
        self, user: str, verb: str, resource: str, namespace: str = "", subresource: str = ""
    ) -> bool:
        """Return whether a user has a right; ``resource`` is as in ``resource.k8s.io/devices``."""
        group, _, name = resource.rpartition("/")
        place = {"verb": verb, "group": group, "resource": name, "namespace": namespace}
        place["subresource"] = subresource
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": place},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.request("POST", path, body)["status"]["allowed"])

    @contextlib.contextmanager
    def _connected(self) -> Iterator[http.client.HTTPSConnection]:
        """Yield a connection; a new one where all are in use.

        Tests look for documents every few milliseconds; to encrypt a connection takes both sides
        more than to answer. What ends with an error is not used again.
        """
        connection = self._unused()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _unused(self) -> http.client.HTTPSConnection:
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread has taken it
                connection = self._idle.pop()
                # What can be read now is the end of the server, which has been stopped since.
                if connection.sock is not None and not _can_be_read(connection.sock):
                    return connection
                connection.close()
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=patience(_ASK_SECONDS), context=self._tls
        )

    def apply(self, item: Mapping[str, Any]) -> None:
        """Apply an object on the server's side as administrator; unknown fields are refused."""
        status, answer = self.ask(
            "PATCH",
            f"{path_of(item)}?fieldManager=operator&fieldValidation=Strict&force=true",
            item,
            content_type="application/apply-patch+yaml",
        )
        assert status // 100 == 2, (item["kind"], item["metadata"]["name"], answer)

    def service_account(self, namespace: str, name: str, node: str | None = None) -> Path:
        """Write a kubeconfig with a token of an existing service account; return its path.

        With ``node``, the token is that of a pod on this node, as a kubelet gets it for its pods.
        """
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if node is not None:
            spec["boundObjectRef"] = self._pod(namespace, name, node)
        kubeconfig = self.directory / f"{namespace}-{name}-{node}.kubeconfig"
        self._write_kubeconfig(kubeconfig, {"token": self._token(namespace, name, spec)})
        return kubeconfig

    def token_for(self, namespace: str, name: str, audience: str) -> str:
        """Return a token of an existing service account, as it is projected into a pod."""
        return self._token(namespace, name, {"audiences": [audience]})

    def _token(self, namespace: str, name: str, spec: Mapping[str, Any]) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.request("POST", path, {"spec": spec})["status"]["token"])

    def _pod(self, namespace: str, account: str, node: str) -> dict[str, str]:
        self.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        pod = {
            "metadata": {"name": f"{account}-{node}"},
            "spec": {
                "serviceAccountName": account,
                "nodeName": node,
                "containers": [{"name": "one", "image": "any"}],
            },
        }
        made = self.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        metadata = made["metadata"]
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }

    def audit(self) -> list[dict[str, Any]]:
        """Return the API server's audit events: requests of service accounts since ``clean``."""
        with self._audit_log.open("rb") as file:
            file.seek(self._audited_bytes)
            return [json.loads(line) for line in file]

    @property
    def _audit_log(self) -> Path:
        return self.directory / "audit.log"

    def _audit_options(self) -> list[str]:
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
                {"level": "None"},
            ],
        }
        file = self.directory / "audit-policy.json"
        file.write_text(json.dumps(policy))
        return [
            f"--audit-policy-file={file}",
            f"--audit-log-path={self._audit_log}",
            "--audit-log-mode=blocking",
        ]

    def rest(self) -> None:
        """Stop both where they are until ``wake``: idle they take 1.4 % of a processor or more."""
        if not self._rests:
            self._signal(signal.SIGSTOP)
            self._rests = True

    def wake(self) -> None:
        """Let both go on after ``rest``."""
        self._signal(signal.SIGCONT)
        self._rests = False

    def _signal(self, number: signal.Signals) -> None:
        for server in (self._etcd, self._apiserver):
            if server is not None:
                server.signal(number)

    def recover(self) -> None:
        """Bring the API server back if a test left it stopped or frozen."""
        self.wake()
        if self._apiserver is None:
            self.start_apiserver()
        else:
            self._apiserver.wait_until(self._apiserver_is_up, _UP_SECONDS)

    def forget_versions(self) -> None:
        """Make etcd forget all versions but the last, and the API server, too.

        That has what happened since its start in its memory, and answers from there.
        """
        self.stop_apiserver()
        revision = self._ask_etcd("/v3/kv/range", {"key": "Zm9v"})["header"]["revision"]
        self._ask_etcd("/v3/kv/compaction", {"revision": revision})
        self.start_apiserver()

    def clean(self) -> None:
        """Delete what tests left: ConfigMaps, leases, pods, nodes. The audit begins anew.

        All on one connection, and only where there is something: most tests leave little, and each
        asks for this.
        """
        with self._connected() as connection:

            def ask(method: str, path: str) -> Any:
                status, answer = _asked(connection, method, path)
                assert status // 100 == 2 or (method, status) == ("DELETE", _GONE), (path, answer)
                return answer

            for place in ("configmaps", "pods"):
                for item in ask("GET", f"/api/v1/{place}")["items"]:
                    name, space = item["metadata"]["name"], item["metadata"]["namespace"]
                    if name not in _KEPT:
                        path = f"/api/v1/namespaces/{space}/{place}/{name}"
                        ask("DELETE", f"{path}?gracePeriodSeconds=0")
            for path in (LEASES, "/api/v1/nodes"):
                if ask("GET", path)["items"]:
                    ask("DELETE", path)
        self._audited_bytes = self._audit_log.stat().st_size if self._audit_log.exists() else 0

    def _etcd_is_up(self) -> bool:
        try:
            self._ask_etcd("/v3/kv/range", {"key": "Zm9v"})
        except OSError:
            return False
        return True

    def _apiserver_is_up(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == _OK
        except OSError:
            return False

    def _ask_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.etcd_port, timeout=patience(_ASK_SECONDS)
        )
        try:
            connection.request("POST", path, json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _write_kubeconfig(
        self, path: Path, user: Mapping[str, str], server: str | None = None
    ) -> None:
        cluster = {
            "server": server or self.url,
            "certificate-authority": str(self.directory / "ca.crt"),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": dict(user)}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(content, indent=2))
        path.chmod(0o600)


def _can_be_read(connection: socket.socket) -> bool:
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))


def _asked(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    content_type: str | None = None,
) -> tuple[int, Any]:
    content = None if body is None else json.dumps(body)
    headers = {"Content-Type": content_type or _content_type(method)}
    connection.request(method, path, content, headers)
    response = connection.getresponse()
    text = response.read().decode()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text


def _content_type(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


def path_of(item: Mapping[str, Any]) -> str:
    """Return the path of an object on the API server."""
    version, kind = item["apiVersion"], item["kind"]
    path = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    metadata = item["metadata"]
    if "namespace" in metadata:
        path += f"/namespaces/{metadata['namespace']}"
    plural = kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")
    return f"{path}/{plural}/{metadata['name']}"
