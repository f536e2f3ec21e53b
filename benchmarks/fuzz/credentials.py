"""Kubeconfigs, what credential plugins print, and ``NO_PROXY``."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from benchmarks.fuzz.running import Target
from contract.errors import StoreMisconfigured, VigilError
from stores.kubernetes_api.client.configuration import ConfigurationReader
from stores.kubernetes_api.client.credential_plugin import credential_in
from stores.kubernetes_api.client.proxies import proxy_for
from stores.kubernetes_api.client.unusable import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stores.kubernetes_api.client.credential_files import CredentialFiles
    from stores.kubernetes_api.client.credential_plugin import Plugins

_VERSION = "client.authentication.k8s.io/v1"
_PRINTED = (
    {"apiVersion": _VERSION, "kind": "ExecCredential", "status": {"token": "abc\n"}},
    {
        "apiVersion": _VERSION,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
        "status": {
            "expirationTimestamp": "2030-01-01T00:00:00Z",
            "clientCertificateData": "-----BEGIN CERTIFICATE-----",
            "clientKeyData": "-----BEGIN PRIVATE KEY-----",
        },
    },
)
_PLUGIN = {"command": "./plugin", "args": ["a"], "apiVersion": _VERSION, "env": None}
_USERS: tuple[dict[str, object], ...] = (
    {"token": " abc "},
    {"exec": _PLUGIN},
    {"username": "a", "password": "b"},
)
_YAML = """\
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster:
    server: http://10.0.0.1:8080/
    proxy-url: http://proxy.example:3128
users:
- name: u
  user:
    tokenFile: >-
      token
"""
_NO_PROXY = (
    "https://10.0.0.1:6443\nfoo.com, .bar.net:443,10.0.0.0/8 ,[2001:db8::1]:6443,localhost",
    "https://api.foo.com\n*.foo.com,192.168.1.1:6443,fd00::/8,::ffff:10.0.0.1",
    "https://[2001:db8::1]:6443\n2001:db8::/32,*",
)


def _kubeconfig(user: Mapping[str, object]) -> str:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://u:p@10.0.0.1:8080"}}],
        "users": [{"name": "u", "user": user}],
    }
    return json.dumps(content)


class _Given:
    """Stands in for files and plugins: the text is each kubeconfig, and nothing else is real."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, path: Path, _: int) -> bytes:
        """Return the kubeconfig, or a token."""
        return self._text.encode("utf-8", "replace") if path.name == "config" else b"abc\n"

    def run(self, command: Sequence[str], *_: object) -> bytes:
        """Return what a plugin prints."""
        assert all(isinstance(part, str) for part in command)
        return json.dumps(_PRINTED[0]).encode()


class Kubeconfigs(Target):
    """What is taken can be put into a request; what is not is named in one line."""

    name = "kubeconfig"
    seeds = (*map(_kubeconfig, _USERS), _YAML)

    @override
    def feed(self, text: str) -> None:
        given = _Given(text)
        files, plugins = cast("CredentialFiles", given), cast("Plugins", given)
        try:
            found = ConfigurationReader(files, plugins, {}, math.inf).read("/etc/config")
        except StoreMisconfigured as error:
            shown = str(error)
            assert shown.isprintable()
            assert len(shown) < 2000
            raise
        assert found.endpoint.server.startswith(("http://", "https://"))
        if found.authorization is not None:
            assert found.authorization.isascii()
            assert found.authorization.isprintable()


class ExecCredentials(Target):
    """A plugin's answer has a token or a certificate with its key, or is refused."""

    name = "exec-credential"
    seeds = tuple(map(json.dumps, _PRINTED))

    @override
    def feed(self, text: str) -> None:
        try:
            found = credential_in(text.encode("utf-8", "replace"), _VERSION)
        except Unusable as error:
            raise VigilError(str(error)) from None
        pair = found.client_certificate_data, found.client_key_data
        assert found.token is not None or None not in pair


class NoProxies(Target):
    """Any text is read; what goes by the proxy counts as refused."""

    name = "no-proxy"
    seeds = _NO_PROXY

    @override
    def feed(self, text: str) -> None:
        server, _, no_proxy = text.partition("\n")
        environment = {"HTTPS_PROXY": "proxy", "NO_PROXY": no_proxy}
        known = server if server in [seed.partition("\n")[0] for seed in _NO_PROXY] else None
        for loopback in ("https://localhost:6443", "https://127.0.0.1", "https://[::1]:6443"):
            assert proxy_for(loopback, environment) is None
        target = known or "https://10.0.0.1:6443"
        assert proxy_for(target, {**environment, "NO_PROXY": f"{no_proxy},*"}) is None
        if proxy_for(target, environment) is not None:
            raise VigilError("goes by the proxy")
