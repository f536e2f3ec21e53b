"""What is made of kubeconfigs, files of a pod and credential plugins, good ones and all others."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from kubernetes.aio.config import incluster_config

from contract.errors import ConfigurationError, StoreMisconfigured, StoreUnavailable
from stores.kubernetes_api.client.configuration import ConfigurationReader
from stores.kubernetes_api.client.credential_files import CredentialFiles
from stores.kubernetes_api.client.credential_plugin import Plugins, credential_in
from stores.kubernetes_api.client.unusable import Unusable
from tests.parts.certificates import make_authority, make_client
from tests.parts.deadlines import patience
from tests.parts.examples import mostly_slow
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stores.kubernetes_api.client.configuration import ClientConfiguration

SECRET = "s3cr3t-t0k3n"
SERVER = "https://10.0.0.1:6443"
VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
@needs("server")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    make_authority(directory)
    make_client(directory, "agent", "nodes")
    make_client(directory, "other", "nodes")
    locking = ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", "agent.key"]
    locking += ["-out", "locked.key"]
    subprocess.run(locking, cwd=directory, check=True, capture_output=True)
    return directory


def read(
    kubeconfig: Path | str | None, environment: Mapping[str, str] | None = None, seconds: float = 10
) -> ClientConfiguration:
    given = {"PATH": os.environ["PATH"], **(environment or {})}
    deadline = time.monotonic() + patience(seconds)
    reading = ConfigurationReader(CredentialFiles(), Plugins(), given, deadline)
    return reading.read(None if kubeconfig is None else str(kubeconfig))


def content(
    user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def written(
    directory: Path,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> Path:
    path = directory / "kubeconfig"
    path.write_text(json.dumps(content(user, cluster)))
    return path


def refused(
    path: Path | None, environment: Mapping[str, str] | None = None, seconds: float = 10
) -> str:
    """Return why the configuration is refused.

    The text has no secret, and the error lets daemons continue.
    """
    with pytest.raises(StoreMisconfigured) as caught:
        read(path, environment, seconds)
    assert isinstance(caught.value, StoreUnavailable), "daemons try again"
    assert isinstance(caught.value, ConfigurationError), "people are shown what is wrong"
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    return text


# Each of them starts an interpreter.
@pytest.mark.parametrize(
    "text",
    mostly_slow([f"\r\n\t {SECRET} \r\n", SECRET, f"{SECRET}\n", f"\n{SECRET}\n\n"], 4),
)
def test_white_space_around_a_token_is_removed(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    for user in ({"token": text}, {"tokenFile": "token"}, {"exec": plugin({"token": text})}):
        found = read(written(tmp_path, user))
        assert found.authorization == f"Bearer {SECRET}"
        assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{SECRET}\nmore", "white space inside"),
        (f"{SECRET} more", "white space inside"),
        (f"{SECRET}\0", "white space inside"),
        (f"{SECRET}é", "not ASCII"),
        (f"\ufeff{SECRET}", "not ASCII"),
        ("  \n ", "is an empty token"),
        (SECRET * 25_000, "longer than 262144 bytes"),
    ],
)
def test_a_token_that_no_header_can_hold(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "token").write_text(text)
    path = written(tmp_path, {"tokenFile": "token"})
    assert what in refused(path)
    assert "tokenFile" in refused(path)
    assert what in refused(written(tmp_path, {"token": text}))


def test_files_that_are_no_files(tmp_path: Path, pki: Path) -> None:
    path = written(tmp_path, {"tokenFile": "token"}, {"certificate-authority": "ca.crt"})
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(SECRET)
    assert f"{authority} cannot be read: No such file" in refused(path)
    authority.mkdir()
    assert f"{authority} is a directory" in refused(path)
    authority.rmdir()
    os.mkfifo(authority)
    assert f"{authority} is not a regular file" in refused(path)
    authority.unlink()
    authority.write_bytes((pki / "ca.crt").read_bytes())
    assert read(path).endpoint.authorities == authority.read_bytes()
    token.write_text("")
    assert f"{token} is empty" in refused(path)
    token.unlink()
    os.mkfifo(token)
    assert f"{token} is not a regular file" in refused(path)


def test_a_ca_file_that_is_half_written(tmp_path: Path, pki: Path) -> None:
    whole = (pki / "ca.crt").read_bytes()
    authority = tmp_path / "ca.crt"
    path = written(tmp_path, {}, {"certificate-authority": str(authority)})
    for broken in (whole[:-40], whole + whole[:300], b"no PEM", b"\xff\xfe" * 500, b" "):
        authority.write_bytes(broken)
        assert "certificate-authority" in refused(path)
    authority.write_bytes(b"")
    assert "is empty" in refused(path)
    for good in (whole, whole * 2, b"# caf\xc3\xa9\n" + whole):
        authority.write_bytes(good)
        tls = read(path).tls
        assert tls is not None
        assert tls.cert_store_stats()["x509_ca"] == 1


def test_without_tls_no_certificate_is_needed(tmp_path: Path) -> None:
    cluster = {"server": "http://10.0.0.1:8080", "certificate-authority": "/nowhere"}
    found = read(written(tmp_path, {"client-certificate": "/nowhere"}, cluster))
    assert (found.tls, found.endpoint.certificate) == (None, None)


def test_a_client_certificate_and_its_key(tmp_path: Path, pki: Path) -> None:
    certificate, key = pki / "agent.crt", pki / "agent.key"

    def user(certificate: Path, key: Path) -> dict[str, str]:
        return {"client-certificate": str(certificate), "client-key": str(key)}

    assert read(written(tmp_path, user(certificate, key))).endpoint.key == key.read_bytes()
    for wrong in (pki / "other.key", pki / "locked.key", certificate):
        text = refused(written(tmp_path, user(certificate, wrong)))
        assert "client-certificate: is not a valid certificate (PEM) with its key" in text
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    assert read(written(tmp_path, {"client-certificate": "both.pem"})).endpoint.key is None


@pytest.mark.parametrize("has_memfd", [True, False])
def test_a_key_is_never_on_a_disk(
    tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch, has_memfd: bool
) -> None:
    """Neither the reading nor ``kill -9`` can leave one."""
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    opened: list[tuple[str, int]] = []
    user = {
        "client-certificate-data": base64.b64encode((pki / "agent.crt").read_bytes()).decode(),
        "client-key-data": base64.b64encode((pki / "agent.key").read_bytes()).decode(),
    }
    path = written(tmp_path, user)
    before = psutil.Process().num_fds()
    _audited.append(opened)
    try:
        found = read(path)
    finally:
        _audited.remove(opened)
    assert found.endpoint.key == (pki / "agent.key").read_bytes()
    assert psutil.Process().num_fds() == before
    written_to = {path for path, flags in opened if flags & (os.O_WRONLY | os.O_RDWR)}
    assert written_to == (set() if has_memfd else {"/dev/shm"})
    assert list(temporary.iterdir()) == []


_audited: list[list[tuple[str, int]]] = []


def test_the_ends_of_certificates_are_known_by_their_files(pki: Path, tmp_path: Path) -> None:
    data = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
    user = {"client-certificate": str(pki / "agent.crt"), "client-key": str(pki / "agent.key")}
    kubeconfig = written(tmp_path, user, {"certificate-authority-data": data})
    ends_ms = read(kubeconfig).certificate_ends_ms
    assert ends_ms.keys() == {str(kubeconfig), str(pki / "agent.crt")}
    for end_ms in ends_ms.values():
        assert end_ms / 1000 - time.time() == pytest.approx(30 * 86_400, abs=7200)
    assert read(written(tmp_path, {"token": "t"})).certificate_ends_ms == {}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        for opened in _audited:
            opened.append((os.fsdecode(arguments[0]), arguments[2]))


sys.addaudithook(_audit)


@pytest.mark.parametrize("text", ["%%%", "AAA", "é", base64.b64encode(b"\xff" * 9).decode()])
def test_data_that_is_no_certificate(tmp_path: Path, text: str) -> None:
    """Nothing is no reason to trust all authorities of the host."""
    found = refused(written(tmp_path, {}, {"certificate-authority-data": text}))
    assert "certificate-authority" in found


@pytest.mark.parametrize(
    ("server", "what"),
    [
        ("", "does not begin with https://"),
        ("10.0.0.1:6443", "does not begin with https://"),
        ("ftp://10.0.0.1", "does not begin with https://"),
        ("https://", "names no host"),
        ("https://10.0.0.1:99999", "is not a valid URL"),
        (f"https://user:{SECRET}/more@10.0.0.1", "is not a valid URL"),
        (f"https://10.0.0.1?{SECRET}", "query"),
        (f"https://10.0.0.1#{SECRET}", "fragment"),
        (f"https://user:{SECRET}@", "is not a valid URL"),
        (f"https://{'a' * 64}.example", "is not a valid URL"),
    ],
)
def test_a_server_that_is_none(tmp_path: Path, server: str, what: str) -> None:
    text = refused(written(tmp_path, {}, {"server": server}))
    assert "clusters[c].cluster.server" in text
    assert what in text


@pytest.mark.parametrize("name", [".a", "a\0b", "a" * 64, "a..b"])
def test_a_name_that_no_server_has(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, {}, {"tls-server-name": name})
    assert "tls-server-name: is not a name" in refused(path)


@pytest.mark.slow
def test_user_and_password_of_a_server(tmp_path: Path) -> None:
    cluster = {"server": f"https://user:{SECRET}%20@10.0.0.1:6443/k8s/"}
    alone = read(written(tmp_path, {}, cluster))
    assert alone.endpoint.server == "https://10.0.0.1:6443/k8s"
    pair = base64.b64encode(f"user:{SECRET} ".encode()).decode()
    assert (alone.authorization, alone.unused) == (f"Basic {pair}", None)
    beside = read(written(tmp_path, {"token": "other"}, cluster))
    assert beside.authorization == "Bearer other"
    assert "a user and a password, which are not used" in str(beside.unused)
    assert SECRET not in str(beside.unused) + repr(alone) + repr(beside)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"clusters: [{SECRET}",
        f"{SECRET}: &a [*b]",
        f"\t{SECRET}",
        "{}",
        "[]",
        "null",
        f"- {SECRET}",
        f"current-context: [{SECRET}]",
        "current-context: nobody",
        f"users: {SECRET}",
        "a: 2020-99-99",
        "a: 0b",
        "? [a]\n: b\n? {c: d}\n: e",
        "[" * 500_000,
        "- " * 500_000,
        f"{SECRET}: !!python/object:os.system {{}}",
        "\ufffe",
        json.dumps({**content({"token": SECRET}), "contexts": None}),
        json.dumps({**content({"token": SECRET}), "current-context": "there"}),
        json.dumps({**content({"token": SECRET}), "clusters": []}),
        json.dumps({**content({"token": SECRET}), "users": []}),
        json.dumps(content({"token": [SECRET]})),
        json.dumps(content({"exec": {"command": SECRET}})),
    ],
)
def test_a_kubeconfig_that_is_garbage(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    assert str(path) in refused(path)


def test_a_kubeconfig_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(b"\x80\x81" * 100)
    assert "is not valid YAML" in refused(path)
    path.write_text(" " * 2_000_000)
    assert "longer than 1048576 bytes" in refused(path)


@pytest.mark.slow
def test_kubeconfigs_are_merged(tmp_path: Path) -> None:
    """Of one name the first counts, each path is relative to its file, and absent ones may come."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    first, second = content(), content({"tokenFile": "token"})
    del first["users"], first["current-context"], first["contexts"]
    second["clusters"][0]["cluster"]["server"] = "https://10.0.0.2"
    (tmp_path / "one" / "config").write_text(json.dumps(first))
    (tmp_path / "two" / "config").write_text(json.dumps(second))
    names = [str(tmp_path / name) for name in ("one/config", "absent", "two/config")]
    files = CredentialFiles()
    reading = ConfigurationReader(files, Plugins(), {}, time.monotonic() + patience(10))
    found = reading.read(os.pathsep.join(names))
    assert found.endpoint.server == SERVER
    assert found.authorization == "Bearer two"
    assert not files.have_changed()
    (tmp_path / "absent").write_text(json.dumps(content({"token": "came"})))
    assert files.have_changed()
    assert reading.read(os.pathsep.join(names)).authorization == "Bearer came"


def test_first_current_context_of_several_kubeconfigs_is_used(tmp_path: Path) -> None:
    for name in ("one", "two"):
        one = content({"token": name})
        one["contexts"][0]["name"] = one["current-context"] = name
        one["users"][0]["name"] = one["contexts"][0]["context"]["user"] = name
        (tmp_path / name).write_text(json.dumps(one))
    reading = ConfigurationReader(CredentialFiles(), Plugins(), {}, time.monotonic() + patience(10))
    names = os.pathsep.join(str(tmp_path / name) for name in ("one", "two"))
    assert reading.read(names).authorization == "Bearer one"


def test_the_files_of_a_pod(tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    service = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert f"{tmp_path / 'token'} cannot be read" in refused(None, service)
    (tmp_path / "token").write_text(f"{SECRET}\n")
    assert f"{tmp_path / 'ca.crt'} cannot be read" in refused(None, service)
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes()[:-30])
    assert "broken" in refused(None, service)
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    found = read(None, service)
    assert found.endpoint.server == "https://[fd00::1]"
    assert found.authorization == f"Bearer {SECRET}"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert "KUBERNETES_SERVICE_HOST" in refused(None, {})


def test_files_are_followed_through_links(tmp_path: Path) -> None:
    """As the kubelet sets them: the file links into ``..data``, which is replaced."""
    for number in (1, 2):
        volume = tmp_path / f"..{number}"
        volume.mkdir()
        (volume / "token").write_text(f"token-{number}")
        os.utime(volume / "token", ns=(0, 0))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    files = CredentialFiles()
    assert files.read(tmp_path / "token", 100) == b"token-1"
    assert not files.have_changed()
    (tmp_path / "..next").symlink_to("..2")
    (tmp_path / "..next").replace(tmp_path / "..data")
    assert files.have_changed()
    assert files.read(tmp_path / "token", 100) == b"token-2"
    (tmp_path / "token").unlink()
    assert files.have_changed()


@pytest.mark.parametrize(
    ("environment", "cluster", "proxy"),
    [
        ({}, {}, None),
        ({"HTTPS_PROXY": "proxy:3128"}, {}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8"}, {}, None),
        ({"HTTPS_PROXY": "a", "NO_PROXY": "*"}, {"proxy-url": "http://b:1"}, "http://b:1"),
    ],
)
def test_a_proxy(
    tmp_path: Path, environment: dict[str, str], cluster: dict[str, str], proxy: str | None
) -> None:
    assert read(written(tmp_path, {}, cluster), environment).endpoint.proxy == proxy


def test_a_proxy_with_tls_is_judged_by_authorities_also_for_a_server_without_tls(
    tmp_path: Path,
) -> None:
    cluster = {"server": "http://10.0.0.1", "proxy-url": "https://proxy:3129"}
    tls = read(written(tmp_path, {}, cluster)).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
    plain = {**cluster, "proxy-url": "http://proxy:3128"}
    assert read(written(tmp_path, {}, plain)).tls is None


@pytest.mark.slow
def test_a_proxy_with_a_password_and_one_that_cannot_be_used(tmp_path: Path) -> None:
    found = read(written(tmp_path), {"HTTPS_PROXY": f"http://user:{SECRET}@proxy:3128"})
    assert found.endpoint.proxy == "http://proxy:3128"
    pair = base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert found.endpoint.proxy_authorization == f"Basic {pair}"
    assert SECRET not in repr(found)
    for wrong in (f"socks5://user:{SECRET}@proxy", f"http://user:{SECRET}@proxy:99999"):
        assert "proxy that the environment names" in refused(
            written(tmp_path), {"HTTPS_PROXY": wrong}
        )
        assert "proxy-url" in refused(written(tmp_path, {}, {"proxy-url": wrong}))


def plugin(status: Mapping[str, str] | None = None, script: str = "") -> dict[str, Any]:
    """Write a plugin that prints a credential, or that runs ``script``."""
    answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    command = f"cat <<'END'\n{json.dumps(answer)}\nEND\n" if status is not None else script
    return {"command": "sh", "args": ["-c", command], "apiVersion": VERSION, "env": None}


def test_a_plugin_gives_a_certificate(tmp_path: Path, pki: Path) -> None:
    certificate, key = (pki / "agent.crt").read_text(), (pki / "agent.key").read_text()
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    found = read(written(tmp_path, {"exec": plugin(status)}))
    assert found.endpoint.certificate == certificate.encode()
    assert found.authorization is None
    half = {"clientCertificateData": certificate}
    assert "without its key" in refused(written(tmp_path, {"exec": plugin(half)}))
    wrong = {"clientCertificateData": certificate, "clientKeyData": SECRET}
    assert "its certificate: is no" in refused(written(tmp_path, {"exec": plugin(wrong)}))


def test_environment_and_arguments_of_a_credential_plugin(tmp_path: Path) -> None:
    """Run a plugin beside the kubeconfig, with its arguments and variables and no terminal."""
    program = tmp_path / "bin" / "plugin"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nread line && exit 3\n"
        f'echo \'{{"apiVersion":"{VERSION}","kind":"ExecCredential","status":'
        '{"token":"\'"$1-$GIVEN-$(echo "$KUBERNETES_EXEC_INFO" | tr -dc a-zA-Z)"\'"}}\'\n'
    )
    program.chmod(0o755)
    user = {
        "exec": {
            "command": "./bin/plugin",
            "apiVersion": VERSION,
            "args": ["first"],
            "env": [{"name": "GIVEN", "value": "second"}],
        }
    }
    authorization = read(written(tmp_path, user)).authorization
    assert authorization is not None
    assert authorization.startswith("Bearer first-second-")
    assert "kindExecCredential" in authorization
    assert "interactivefalse" in authorization


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (f"echo {SECRET}", "printed no ExecCredential: no JSON"),
        ("head -c 4096 /dev/urandom", "printed no ExecCredential"),
        ("exec true", "printed no ExecCredential: no JSON"),
        ("echo '[]'", "printed no ExecCredential"),
        (f'echo \'{{"status": {{"token": "{SECRET}"}}}}\'', "printed no ExecCredential"),
        ("head -c 100000000 /dev/zero", "printed more than 1048576 bytes and was ended"),
        (f"echo {SECRET}; echo log in first >&2; exit 7", "ended with status 7: log in first"),
        ("head -c 100000000 /dev/zero >&2; exit 1", "ended with status 1"),
        ("kill -9 $$", "was ended by signal 9"),
    ],
)
def test_a_plugin_that_gives_nothing(tmp_path: Path, script: str, what: str) -> None:
    text = refused(written(tmp_path, {"exec": plugin(script=script)}))
    assert what in text
    assert "users[u].user.exec: sh " in text
    assert len(text) < 1000


@pytest.mark.parametrize(
    "status", [{}, {"token": ""}, {"token": f"{SECRET} more"}, {"token": "x" * 300_000}]
)
def test_a_plugin_whose_token_cannot_be_used(tmp_path: Path, status: dict[str, str]) -> None:
    assert "users[u].user.exec" in refused(written(tmp_path, {"exec": plugin(status)}))


def test_error_about_another_version_is_one_short_line() -> None:
    printed = {"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "abc"}}
    with pytest.raises(Unusable) as caught:
        credential_in(json.dumps(printed).encode(), f"n\t.\x1b{'[' * 5000}")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    user = {"exec": {"command": "no-such-plugin", "apiVersion": VERSION}}
    assert "no-such-plugin cannot be run: No such file" in refused(written(tmp_path, user))
    user = {"exec": {"command": "a\0b", "apiVersion": VERSION}}
    assert "cannot be run" in refused(written(tmp_path, user))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit 0", "trap '' TERM INT HUP; wait"])
def test_a_plugin_that_hangs_is_ended_with_all_it_began(tmp_path: Path, ending: str) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! >{pids}; echo $$ >>{pids}; {ending}"
    began = time.monotonic()
    text = refused(written(tmp_path, {"exec": plugin(script=script)}), seconds=1.0)
    assert "did not end in time and was ended" in text
    assert time.monotonic() - began < patience(5)
    gone = [int(pid) for pid in pids.read_text().split()]
    assert len(gone) == 2
    _, alive = psutil.wait_procs([psutil.Process(p) for p in gone if psutil.pid_exists(p)], 5)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
def test_a_plugin_is_ended_when_no_caller_waits_any_more(tmp_path: Path) -> None:
    plugins = Plugins()
    path = written(tmp_path, {"exec": plugin(script="kill -STOP $$")})
    reading = ConfigurationReader(
        CredentialFiles(), plugins, dict(os.environ), time.monotonic() + patience(30)
    )
    stopping = threading.Timer(0.5, plugins.end)
    stopping.start()
    with pytest.raises(StoreMisconfigured, match="was ended by signal 9"):
        reading.read(str(path))
    stopping.join()
    with pytest.raises(StoreMisconfigured, match="has been closed"):
        reading.read(str(path))


@pytest.mark.slow
def test_auth_providers(tmp_path: Path) -> None:
    """By the official client, and within the same bounds."""
    part = base64.urlsafe_b64encode(b"{}").decode()
    token = f"{part}.{part}.signature"
    oidc = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    assert read(written(tmp_path, oidc)).authorization == f"Bearer {token}"
    printed = json.dumps({"credential": {"access_token": SECRET, "token_expiry": "2030-01-01"}})

    def gcp(script: str) -> dict[str, Any]:
        config = {"cmd-path": "sh", "cmd-args": f'-c "{script}"'}
        return {"auth-provider": {"name": "gcp", "config": config}}

    (tmp_path / "printed").write_text(printed)
    good = gcp(f"cat {tmp_path / 'printed'}")
    assert read(written(tmp_path, good)).authorization == f"Bearer {SECRET}"
    assert "did not end in time" in refused(written(tmp_path, gcp("sleep 300")), seconds=1.0)
    assert "auth-provider" in refused(written(tmp_path, gcp(f"echo {SECRET}")))
    for wrong in ({"name": "oidc"}, {"name": "gcp"}, {"name": "nobody"}, {}):
        assert "auth-provider" in refused(written(tmp_path, {"auth-provider": wrong}))
