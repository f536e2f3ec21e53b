"""Address and user of one API server: read from a kubeconfig, or as in a pod.

The official client reads both too, but keeps keys in temporary files, waits for a plugin without
end, and takes tokens that no header can hold. All of this blocks and belongs to a thread.
Only users with an ``auth-provider`` (``oidc``, ``gcp``) are read by it: such a kubeconfig costs its
memory, some 10 MiB.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from yarl import URL

from contract.errors import Problem, quoted
from stores.certificates import end_of_pem, last_end_of_pem
from stores.kubernetes_api.client.credential_plugin import credential_in, request_to
from stores.kubernetes_api.client.proxies import proxy_for
from stores.kubernetes_api.client.tls import check_server_name, client_tls, identify
from stores.kubernetes_api.client.unusable import Unusable, misconfigured, naming

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from stores.kubernetes_api.client.credential_files import CredentialFiles
    from stores.kubernetes_api.client.credential_plugin import PluginCredential, Plugins
    from stores.kubernetes_api.client.kubeconfig import (
        KubeconfigCluster,
        KubeconfigEntry,
        KubeconfigUser,
        Plugin,
    )

_MAX_KUBECONFIG = 1 << 20
_MAX_PEM = 4 << 20
_MAX_TOKEN = 256 << 10
"""Bytes; an API server takes 1 MiB of headers in all."""

_HEADER_TEXT = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class ApiEndpoint:
    """What a connection is made of. PEM texts are as they were read."""

    server: str
    """Without ``/`` at its end, and without user and password."""
    server_name: str | None
    """Whose certificate the server must have, if not that of its address."""
    verify: bool
    authorities: bytes | None
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    proxy: str | None
    """Without user and password."""
    proxy_authorization: str | None = field(repr=False)


@dataclass(frozen=True)
class ClientConfiguration:
    """What a request needs. Two that are equal have the same content."""

    endpoint: ApiEndpoint
    authorization: str | None = field(repr=False)
    # Not compared: a context equals only itself, and ``endpoint`` has the texts that it is made of.
    tls: ssl.SSLContext | None = field(repr=False, compare=False)
    unused: Problem | None = field(default=None, compare=False)
    """What was given and has no effect."""
    certificate_ends_ms: Mapping[str, int] = field(default_factory=dict, compare=False)
    """When certificates end (epoch ms), by the file that they are in."""


class ConfigurationReader:
    """Reads a configuration once. ``deadline`` (``time.monotonic``) ends its plugin."""

    def __init__(
        self,
        files: CredentialFiles,
        plugins: Plugins,
        environment: Mapping[str, str],
        deadline: float,
    ) -> None:
        self._files = files
        self._plugins = plugins
        self._environment = environment
        self._deadline = deadline
        self._certificate_ends_ms: dict[str, int] = {}

    def read(self, kubeconfig: str | None) -> ClientConfiguration:
        """Read the files ``kubeconfig`` (as ``KUBECONFIG`` lists them), or those of the pod.

        Raises ``StoreMisconfigured``.
        """
        return self._of_pod() if kubeconfig is None else self._of_kubeconfig(kubeconfig)

    def _of_pod(self) -> ClientConfiguration:
        # The official client defines where the files are.
        from stores.kubernetes_api.client.official_client import incluster_config

        names = (incluster_config.SERVICE_HOST_ENV_NAME, incluster_config.SERVICE_PORT_ENV_NAME)
        host, port = (self._environment.get(name, "") for name in names)
        host = f"[{host}]" if ":" in host else host
        server = _address(f"https://{host}:{port}", " and ".join(names))
        where = "the pod's service account"
        token = Path(incluster_config.SERVICE_TOKEN_FILENAME)
        authorization = self._token_in(token, where)
        authorities = Path(incluster_config.SERVICE_CERT_FILENAME)
        pem = self._file(authorities, where, _MAX_PEM)
        with naming(where, str(authorities)):
            tls = client_tls(pem, verify=True)
        self._note_end(authorities, pem, last_end_of_pem)
        proxy = self._proxy(server.url, None, "")
        endpoint = ApiEndpoint(server.url, None, True, pem, None, None, *proxy)
        ends_ms = self._certificate_ends_ms
        return ClientConfiguration(endpoint, authorization, tls, certificate_ends_ms=ends_ms)

    def _of_kubeconfig(self, kubeconfig: str) -> ClientConfiguration:
        # YAML takes 0.8 MiB, and the daemons of a cluster have no kubeconfig.
        from stores.kubernetes_api.client.kubeconfig import current_context

        paths = [Path(part).expanduser() for part in kubeconfig.split(os.pathsep) if part]
        contents = []
        for path in paths:
            # Those that are not there are left out, as by kubectl; they may come.
            if len(paths) == 1 or path.exists():
                contents.append((path, self._file(path, "kubeconfig", _MAX_KUBECONFIG)))
            else:
                self._files.note_absent(path)
        cluster, user = current_context(contents)
        server = _address(cluster.value.server or "", f"{cluster.where}.server")
        credential = self._plugin_credential(user)
        authorization = self._authorization(user, credential)
        tls, pems = self._tls(cluster, user, credential, server.url)
        proxy = self._proxy(server.url, cluster.value.proxy_url, f"{cluster.where}.proxy-url")
        if tls is None and proxy[0] is not None and proxy[0].startswith("https:"):
            # Only the proxy has TLS; the authorities of the kubeconfig are those of the server.
            tls = client_tls(None, verify=True)
        verify = not cluster.value.insecure_skip_tls_verify
        endpoint = ApiEndpoint(server.url, cluster.value.tls_server_name, verify, *pems, *proxy)
        unused = None
        if server.authorization is not None and authorization is not None:
            unused = Problem(
                f"{cluster.where}.server",
                "has a user and a password, which are not used: there are other credentials; "
                "take them out",
            )
        return ClientConfiguration(
            endpoint,
            authorization or server.authorization,
            tls,
            unused,
            self._certificate_ends_ms,
        )

    def _proxy(
        self, server: str, given: str | None, where: str
    ) -> AuthorizedUrl | tuple[None, None]:
        text = given or proxy_for(server, self._environment)
        if not text:
            return None, None
        return _address(text, where if given else "the proxy that the environment names")

    def _plugin_credential(self, user: KubeconfigEntry[KubeconfigUser]) -> PluginCredential | None:
        plugin = user.value.exec
        if plugin is None or user.value.auth_provider is not None:
            return None
        name = plugin.command
        # As kubectl: with a slash relative to the kubeconfig, otherwise looked up in ``PATH``.
        command = [str(user.directory / name) if "/" in name else name, *(plugin.args or ())]
        with naming(f"{user.where}.exec", quoted(name)):
            printed = self._plugins.run(command, self._environment_of(plugin), self._deadline)
            return credential_in(printed, plugin.api_version)

    def _environment_of(self, plugin: Plugin) -> dict[str, str]:
        own = {variable.name: variable.value for variable in plugin.env or ()}
        request = request_to(plugin.api_version)
        return {**self._environment, **own, "KUBERNETES_EXEC_INFO": request}

    def _authorization(
        self, user: KubeconfigEntry[KubeconfigUser], credential: PluginCredential | None
    ) -> str | None:
        value, where = user.value, user.where
        if value.auth_provider is not None:
            return self._provided(value.auth_provider, f"{where}.auth-provider")
        if credential is not None:
            token = credential.token
            return None if token is None else _bearer(token, f"{where}.exec: its token")
        if value.token:
            return _bearer(value.token, f"{where}.token")
        if value.token_file:
            return self._token_in(user.directory / value.token_file, f"{where}.tokenFile")
        if value.username is not None and value.password is not None:
            return basic(value.username, value.password)
        return None

    def _provided(self, provider: Mapping[str, object], where: str) -> str:
        def run(command: Sequence[str]) -> bytes:
            return self._plugins.run(command, self._environment, self._deadline)

        try:
            seconds = max(self._deadline - time.monotonic(), 0.0)
            header = authorization_by(provider, run, seconds)
        except Unusable as error:
            raise misconfigured(where, str(error)) from None
        except Exception as error:  # the official client's are of any kind, with any text
            raise misconfigured(where, f"cannot be used: {type(error).__name__}") from None
        protocol, _, token = header.partition(" ")
        return f"{protocol} {_token(token, where)}"

    def _tls(
        self,
        cluster: KubeconfigEntry[KubeconfigCluster],
        user: KubeconfigEntry[KubeconfigUser],
        credential: PluginCredential | None,
        server: str,
    ) -> tuple[ssl.SSLContext | None, tuple[bytes | None, bytes | None, bytes | None]]:
        """Return the context, and the authorities, certificate and key (PEM) that it has."""
        if not server.startswith("https:"):
            return None, (None, None, None)
        how, who = cluster.value, user.value
        authorities = self._pem(
            cluster,
            "certificate-authority",
            how.certificate_authority_data,
            how.certificate_authority,
            last_end_of_pem,
        )
        with naming(f"{cluster.where}.certificate-authority"):
            tls = client_tls(authorities, verify=not how.insecure_skip_tls_verify)
        if how.tls_server_name:
            with naming(f"{cluster.where}.tls-server-name"):
                check_server_name(tls, how.tls_server_name)
        if credential is not None and credential.client_certificate_data is not None:
            where = f"{user.where}.exec: its certificate"
            certificate = credential.client_certificate_data.encode("utf-8", "replace")
            key: bytes | None = (credential.client_key_data or "").encode("utf-8", "replace")
        else:
            where = f"{user.where}.client-certificate"
            pem = self._pem(
                user,
                "client-certificate",
                who.client_certificate_data,
                who.client_certificate,
                end_of_pem,
            )
            if pem is None:
                return tls, (authorities, None, None)
            certificate = pem
            key = self._pem(user, "client-key", who.client_key_data, who.client_key)
        with naming(where):
            identify(tls, certificate, key)
        return tls, (authorities, certificate, key)

    def _pem(
        self,
        entry: KubeconfigEntry[KubeconfigCluster] | KubeconfigEntry[KubeconfigUser],
        name: str,
        data: str | None,
        file: str | None,
        end_of: Callable[[str], datetime] | None = None,
    ) -> bytes | None:
        """Return a PEM text, and note by ``end_of`` when its certificate ends."""
        where = f"{entry.where}.{name}"
        if data:
            path = entry.file
            try:
                pem = binascii.a2b_base64(data)
            except ValueError:
                raise misconfigured(f"{where}-data", "is not valid base64") from None
        elif file:
            path = entry.directory / file
            pem = self._file(path, where, _MAX_PEM)
        else:
            return None
        if end_of is not None:
            self._note_end(path, pem, end_of)
        return pem

    def _note_end(self, path: Path, pem: bytes, end_of: Callable[[str], datetime]) -> None:
        # What is not a certificate is refused where it is used.
        with contextlib.suppress(ValueError):
            end_ms = int(end_of(pem.decode("ascii", "ignore")).timestamp() * 1000)
            # A kubeconfig may have several certificates in it.
            file, ends_ms = str(path), self._certificate_ends_ms
            ends_ms[file] = min(end_ms, ends_ms.get(file, end_ms))

    def _token_in(self, path: Path, where: str) -> str:
        content = self._file(path, where, _MAX_TOKEN)
        return _bearer(content.decode("utf-8", "replace"), f"{where}: {quoted(str(path))}")

    def _file(self, path: Path, where: str, most_bytes: int) -> bytes:
        with naming(where, quoted(str(path))):
            return self._files.read(path, most_bytes)


def _address(text: str, where: str) -> AuthorizedUrl:
    with naming(where):
        return address_of(text)


def _bearer(text: str, where: str) -> str:
    return f"Bearer {_token(text, where)}"


def _token(text: str, where: str) -> str:
    """Return ``text`` without the white space around it, if a header can hold it."""
    token = text.strip()
    if not token:
        raise misconfigured(where, "is an empty token")
    if len(token) > _MAX_TOKEN:
        raise misconfigured(where, f"is not a valid token: it is longer than {_MAX_TOKEN} bytes")
    if not _HEADER_TEXT.fullmatch(token):
        raise misconfigured(
            where, "is not a valid token: it has white space inside, or is not ASCII"
        )
    return token


def authorization_by(
    provider: Mapping[str, Any], run: Callable[[Sequence[str]], bytes], seconds: float
) -> str:
    """Return the ``Authorization`` header that ``provider`` gives. Blocks, with a loop of its own.

    ``run`` is what runs the command of ``gcp``. Raises ``Unusable``, and what ``run`` does.
    """
    return asyncio.run(_ask(provider, run, seconds))


async def _ask(
    provider: Mapping[str, Any], run: Callable[[Sequence[str]], bytes], seconds: float
) -> str:
    from stores.kubernetes_api.client.official_client import Configuration, KubeConfigLoader

    def of_command() -> SimpleNamespace:
        config = provider["config"]
        printed = run([config["cmd-path"], *shlex.split(config["cmd-args"])])
        credential = msgspec.json.decode(printed)["credential"]
        return SimpleNamespace(
            token=credential["access_token"], expiry=credential.get("token_expiry")
        )

    content = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {}}],
        "users": [{"name": "one", "user": {"auth-provider": dict(provider)}}],
    }
    configuration = Configuration()
    try:
        async with asyncio.timeout(seconds):
            loader = KubeConfigLoader(content, get_google_credentials=of_command)
            await loader.load_and_set(configuration)
    except TimeoutError:
        raise Unusable(f"gives no answer within {seconds:g} s") from None
    token = configuration.api_key.get("BearerToken")
    if not isinstance(token, str):
        raise Unusable("gives no token")
    return token


class AuthorizedUrl(NamedTuple):
    """``url`` without user and password, and ``authorization``: the header made of these."""

    url: str
    authorization: str | None


def address_of(text: str) -> AuthorizedUrl:
    """Split the URL of a server or proxy, with the scheme http or https.

    Raises ``Unusable`` with what is wrong, which repeats nothing of ``text``: no password.
    """
    try:
        url = URL(text)
        port = url.port
        # As it will be looked up; that of a label that is too long is not an OSError.
        (url.raw_host or "").encode("idna")
    except ValueError:
        raise Unusable("is not a valid URL; write https://HOST:PORT") from None
    if url.scheme not in ("http", "https"):
        raise Unusable("does not begin with https:// or http://; write https://HOST:PORT")
    if not url.host or not port:
        raise Unusable("names no host, or port 0; write https://HOST:PORT")
    if url.query_string or url.fragment:
        raise Unusable("has a query (?) or a fragment (#); write https://HOST:PORT")
    without = str(url.with_user(None)).rstrip("/")
    if url.user is None and url.password is None:
        return AuthorizedUrl(without, None)
    return AuthorizedUrl(without, basic(url.user or "", url.password or ""))


def basic(user: str, password: str) -> str:
    """Return the value of an ``Authorization`` header for a user and a password (RFC 7617)."""
    pair = f"{user}:{password}".encode("utf-8", "replace")
    return f"Basic {base64.b64encode(pair).decode()}"
