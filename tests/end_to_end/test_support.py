"""``vigil support`` on a real node and a real cluster: whole, without secrets, whatever is broken.

The log of units and pods comes from stand-ins: this machine has neither systemd nor a kubelet.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import socket
import sqlite3
import subprocess
import tarfile
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from collectors.kernel_log.device import OpenLog
from contract.names import AGGREGATOR_NAMESPACE
from stores.base import Document
from tests.aggregator.daemon import AnsweringCluster, Daemon, put_documents
from tests.aggregator.nodes import report
from tests.contract.documents.node_documents import config, fault
from tests.parts import pods
from tests.parts.controlplane import CHIEF_TOKEN
from tests.parts.deadlines import patience
from tests.parts.service_proxy import endpoint, make_service, remove_service
from tests.parts.verbs import run_verb
from vigil.support import host_parts
from vigil.support.place import place_of
from vigil.support.run import write_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.controlplane import ControlPlane

_SECRET = "Zq7-planted-Zq7"
_PARTS = {
    *("versions", "configuration", "rights", "faults", "status", "call-times", "bmc", "hccn_tool"),
    *("kernel", "metrics", "timeline", "log", "journal", "documents"),
}
_CODE = "80E18402"
_URL = f"mqtts://agent:{_SECRET}@broker:8883"
_GRPC_LINE = "MHcCAQEEIGrpcPlantedGrpcPlanted01oAoGCCqGSM49"
"""A line of the key of the gRPC service, which has no form of a secret by itself."""
_PEM = f"-----BEGIN PRIVATE KEY-----\n{_SECRET * 3}\n-----END PRIVATE KEY-----\n"


def read(path: Path) -> dict[str, bytes]:
    """Return the files of an archive by name, without its folder."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
        for member in tar.getmembers():
            assert (member.isfile(), member.mode) == (True, 0o600)
            opened = tar.extractfile(member)
            assert opened is not None
            files[member.name.partition("/")[2]] = opened.read()
    return files


def states(files: dict[str, bytes]) -> dict[str, str]:
    """Return the state of each part, of the manifest."""
    manifest = json.loads(files["manifest.json"])
    return {part["part"]: part["state"] for part in manifest["parts"]}


def problem(files: dict[str, bytes], name: str) -> str:
    """Return why the part is not complete."""
    (part,) = (p for p in json.loads(files["manifest.json"])["parts"] if p["part"] == name)
    return str(part["problem"])


def check_manifest(files: dict[str, bytes]) -> None:
    """Check that the manifest has each part, and each file with its size."""
    manifest = json.loads(files["manifest.json"])
    assert {part["part"] for part in manifest["parts"]} == _PARTS
    listed = {name: size for part in manifest["parts"] for name, size in part["files"].items()}
    assert listed == {
        name: len(content)
        for name, content in files.items()
        if name not in ("manifest.json", "MANIFEST.txt")
    }
    for part in manifest["parts"]:
        assert part["state"] == "complete" or part["problem"]
        assert f"{part['part']}: {part['state']}" in files["MANIFEST.txt"].decode()


def has_no_secret(files: dict[str, bytes]) -> None:
    """Check that no file has the secret, in any usual coding, and none is itself compressed."""
    coded = {_SECRET.encode(), base64.b64encode(_SECRET.encode())[:-4], _GRPC_LINE.encode()}
    for name, content in files.items():
        for form in coded:
            assert form not in content, name
        assert not content.startswith((b"\x1f\x8b", b"PK", b"\x28\xb5\x2f\xfd", b"SQLite")), name
        content.decode()


class _Made:
    """Makes archives of one node, in the environment of its agent."""

    def __init__(self, node: Node, directory: Path) -> None:
        self.node, self.path = node, directory / "out" / "support.tar.gz"
        self.path.parent.mkdir()
        self.environment = node.environment | {
            "VIGIL_NODE_NAME": node.name,
            "VIGIL_DRIVER_ROOT": str(node.driver_root),
            "VIGIL_TRUST_DRIVER": "true",
            "VIGIL_KERNEL_LOG_DEVICE": "/dev/kmsg",
        }

    def make(self, *options: str, **environment: str) -> tuple[int, dict[str, bytes], str, str]:
        """Return exit status, files, standard output and standard error."""
        local = ("--state-dir", str(self.node.state_dir), *self.node.place.options)
        status, output, errors = run_verb(
            *("support", "--output", str(self.path), *local, *options),
            **(self.environment | environment),
        )
        return status, read(self.path), output.decode(), errors


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verb read no configuration of a package that is installed on this machine."""
    for name in ("_AGENT_FILE", "_AGGREGATOR_FILE"):
        monkeypatch.setattr(f"vigil.support.place.{name}", tmp_path / "not-installed.toml")


@pytest.fixture
def made(folder_node: Node, tmp_path: Path) -> _Made:
    """Return a node whose agent runs, with one fault."""
    folder_node.give_bmc(tmp_path)
    folder_node.start()
    folder_node.up()
    folder_node.emulator.occur(3, _CODE)
    folder_node.until(lambda shown: _CODE in shown.codes(3), "the fault is published")
    # The journal commits beside the publication.
    folder_node.wait(lambda: _CODE in str(folder_node.journal("changes")), "it is in the journal")
    return _Made(folder_node, tmp_path)


@pytest.mark.daemon
def test_an_archive_of_a_node_has_every_part(made: _Made) -> None:
    status, files, output, errors = made.make("--json")
    shown = json.loads(output)
    assert (errors, shown["file"]) == ("", str(made.path))
    assert made.path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in made.path.parent.iterdir()] == [made.path.name]
    check_manifest(files)
    result = states(files)
    assert result.pop("log") == "not-applicable"
    # A container may have no log of the kernel.
    kernel = result.pop("kernel")
    assert set(result.values()) == {"complete"}, files["MANIFEST.txt"].decode()
    assert status == (0 if kernel == "complete" else 1)
    assert _CODE in files["agent/faults.json"].decode()
    assert _CODE in files["agent/timeline.jsonl"].decode()
    assert _CODE in files["journal.jsonl"].decode()
    assert _CODE in files["documents.jsonl"].decode()
    assert _CODE in files["agent/metrics.txt"].decode()
    assert "npu_vigil_publication_seconds" in files["agent/call-times.txt"].decode()
    assert "-link -g" in files["hccn_tool.jsonl"].decode()
    assert "alarms" in json.loads(files["bmc.json"])
    settings = json.loads(files["configuration/agent.json"])["settings"]
    assert settings["node_name"] == made.node.name


def _plant(made: _Made, directory: Path) -> dict[str, str]:
    """Plant the secret in every source; return the environment."""
    node = made.node
    for name, content in (
        ("password", f"{_SECRET}\n"),
        ("tls.key", _PEM),
        ("tls.crt", "not a secret"),
        ("grpc.key", f"-----BEGIN PRIVATE KEY-----\n{_GRPC_LINE}\n-----END PRIVATE KEY-----\n"),
        ("token", _SECRET),
    ):
        (directory / name).write_text(content)
        (directory / name).chmod(0o600)
    (directory / "agent.toml").write_text(f'password = "{_SECRET}"\nstore = "{_URL}"\n')
    data = {
        "DeviceInfoCfg": json.dumps(
            {"reason": f"dial {_URL}", "token": _SECRET, "line": f"read {_GRPC_LINE} of a file"}
        ),
        "UpdateTime": f"key {_PEM}",
    }
    label = {"mx-consumer-cim": "true"}
    url = f"directory:{node.place.options[1].partition(':')[2]}"
    name = "mindx-dl-deviceinfo-other"
    put_documents(url, Document("kube-system", name, data, label, {"note": _SECRET}))
    return {
        "VIGIL_MQTT_USER": "agent",
        "VIGIL_MQTT_PASSWORD_FILE": str(directory / "password"),
        "VIGIL_MQTT_CERTIFICATE_FILE": str(directory / "tls.crt"),
        "VIGIL_MQTT_KEY_FILE": str(directory / "tls.key"),
        "VIGIL_GRPC_CERTIFICATE_FILE": str(directory / "tls.crt"),
        "VIGIL_GRPC_KEY_FILE": str(directory / "grpc.key"),
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "HTTPS_PROXY": f"http://me:{_SECRET}@proxy:3128",
        "DATABASE_PASSWORD": _SECRET,
    }


def _spoil_tool(made: _Made, text: str) -> None:
    """Have ``hccn_tool`` print this text, in a driver of its own."""
    tool = made.node.driver_root / "tools" / "hccn_tool"
    root = made.path.parents[1] / "driver"
    (root / "tools").mkdir(parents=True)
    (root / "tools" / "hccn_tool").write_text(f"#!/bin/sh\n{text}\n")
    (root / "tools" / "hccn_tool").chmod(0o755)
    (root / "version.info").write_text(f"Version=25.0\nurl={_URL}\n")
    assert tool.exists()
    made.environment["VIGIL_DRIVER_ROOT"] = str(root)


def _spoil_bmc(made: _Made) -> None:
    """Have ``ipmitool`` print secrets, in an answer and as an error."""
    tool = made.path.parents[1] / "bin" / "ipmitool"
    # The agent may be executing the file: its content cannot be replaced then.
    draft = tool.with_suffix(".new")
    draft.write_text(
        "#!/bin/sh\n"
        f"echo 'open {_URL}: key {_GRPC_LINE}' >&2\n"
        f"echo 'Authorization: Bearer {_SECRET}' >&2\n"
        f"echo ' 20 4d {_SECRET}'\n"
        "exit 1\n"
    )
    draft.chmod(0o755)
    draft.rename(tool)


@pytest.mark.daemon
@pytest.mark.parametrize("redact", [False, True])
def test_no_planted_secret_is_in_the_archive(made: _Made, tmp_path: Path, *, redact: bool) -> None:
    environment = _plant(made, tmp_path)
    _spoil_tool(made, f"cat <<'E'\nlink status: UP\nAuthorization: Bearer {_SECRET}\n{_PEM}E")
    _spoil_bmc(made)
    options = ("--redact",) if redact else ()
    _, files, _, _ = made.make(*options, **environment)
    has_no_secret(files)
    assert "open mqtts://(removed)@broker" in problem(files, "bmc")
    assert b"link status: UP" in files["hccn_tool.jsonl"]
    made.node.kill()
    with closing(sqlite3.connect(made.node.state_dir / "journal.sqlite")) as journal, journal:
        (last,) = journal.execute("SELECT max(sequence) FROM rows").fetchone()
        body = json.dumps({"reason": f"dial {_URL}", "password": "x", "raw": _SECRET, "pem": _PEM})
        journal.execute(
            "INSERT INTO rows (sequence, at_ms, kind, body) VALUES (?, ?, ?, ?)",
            (last + 1, time.time_ns() // 1_000_000, "later", body),
        )
    _, files, output, errors = made.make(*options, "--json", **environment)
    check_manifest(files)
    has_no_secret({**files, "output": output.encode(), "errors": errors.encode()})
    # They were there: what is beside each of them still is.
    assert b"dial mqtts://(removed)@broker" in files["journal.jsonl"]
    assert b"dial mqtts://(removed)@broker" in files["documents.jsonl"]
    assert b"read (removed) of a file" in files["documents.jsonl"]
    assert b"url=mqtts://(removed)@" in files["versions.json"]
    if redact:
        for name, content in files.items():
            # A pseudonym may begin with the same digit.
            assert not re.search(rb"node-1(?![0-9a-f]{9})", content), name


@pytest.mark.daemon
def test_no_planted_secret_is_in_lines_of_the_kernel(
    made: _Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in gives a record for each read, as ``/dev/kmsg`` does: that of a host is not ours
    to write.
    """
    for name, value in (made.environment | _plant(made, tmp_path)).items():
        monkeypatch.setenv(name, value)
    kernel, log = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(kernel), closing(log):
        log.setblocking(False)
        for text in (f"dial {_URL}", f"key {_GRPC_LINE}", f"password={_SECRET}", "the last line"):
            kernel.send(f"3,1,0,-;[ascend] davinci: {text}\n".encode())

        @contextmanager
        def opened(_: str) -> Iterator[OpenLog]:
            yield OpenLog(log.fileno(), is_pipe=False)

        monkeypatch.setattr(host_parts, "opened", opened)
        place = place_of(None, made.node.state_dir, None, made.node.place.options[1], None)
        write_archive(place, made.path, redact=False)
    files = read(made.path)
    has_no_secret(files)
    lines = files["kernel.txt"].decode()
    assert "davinci: dial mqtts://(removed)@broker" in lines
    assert "davinci: the last line" in lines


@pytest.mark.daemon
def test_a_dead_aggregator_leaves_its_history(tmp_path: Path) -> None:
    store = f"directory:{tmp_path / 'store'}"
    daemon = Daemon(tmp_path / "state", "--store", store)
    put_documents(store, report("n1", config([fault(3, "SeparateNPU", _CODE)])))
    path = tmp_path / "support.tar.gz"

    def archive() -> dict[str, bytes]:
        local = ("--state-dir", str(tmp_path / "state"), "--store", store)
        run_verb("support", "--output", str(path), *local)
        return read(path)

    try:
        daemon.start()
        daemon.process.wait_until(lambda: _CODE in str(daemon.ask("/api/v1/history")[1]), 20)
        assert "history/timeline.jsonl" not in archive()
    finally:
        daemon.kill()
    files = archive()
    assert states(files)["timeline"] == "complete", problem(files, "timeline")
    rows = [json.loads(line) for line in files["history/timeline.jsonl"].splitlines()]
    assert [(row["node"], row["level"]) for row in rows if row["code"] == _CODE] == [
        ("n1", "SeparateNPU")
    ]
    for file in (tmp_path / "state").glob("history.sqlite-*"):
        file.unlink()
    (tmp_path / "state" / "history.sqlite").write_bytes(b"not a database" * 1000)
    files = archive()
    assert "history.sqlite: file is not a database" in problem(files, "timeline")
    assert states(files)["documents"] == "complete"


@pytest.mark.daemon
def test_a_configuration_that_is_refused_shows_keys_and_no_values(
    made: _Made, tmp_path: Path
) -> None:
    environment = _plant(made, tmp_path)
    environment["VIGIL_CONFIG"] = str(tmp_path / "agent.toml")
    status, files, _, _ = made.make(**environment)
    assert status == 1
    has_no_secret(files)
    assert "password" in json.loads(files["configuration/agent.json"])["refused_keys"]
    assert states(files)["configuration"] == "partial"


@pytest.mark.daemon
def test_redacted_names_are_equal_in_all_files(made: _Made) -> None:
    _, files, _, _ = made.make("--redact")
    (chosen,) = {
        json.loads(files["agent/status.json"])["answer"]["node"],
        json.loads(files["configuration/agent.json"])["settings"]["node_name"],
    }
    assert chosen.startswith("node-")
    assert chosen != made.node.name
    assert f"mindx-dl-deviceinfo-{chosen}" in files["documents.jsonl"].decode()
    assert chosen in files["journal.jsonl"].decode()
    _, again, _, _ = made.make("--redact")
    assert chosen not in again["agent/status.json"].decode()


@pytest.mark.daemon
def test_it_works_with_a_dead_daemon_and_a_broken_journal(made: _Made) -> None:
    made.node.kill()
    status, files, output, _ = made.make()
    assert status == 1
    check_manifest(files)
    result = states(files)
    assert {result[name] for name in ("status", "faults", "metrics")} == {"missing"}
    assert "no daemon listens" in problem(files, "status")
    assert "status: missing" in output
    assert _CODE in files["journal/timeline.jsonl"].decode()
    assert {result[name] for name in ("journal", "documents", "timeline")} == {"complete"}

    path = made.node.state_dir / "journal.sqlite"
    for file in made.node.state_dir.glob("journal.sqlite-*"):
        file.unlink()
    os.truncate(path, path.stat().st_size // 2 + 100)
    status, files, _, _ = made.make()
    assert status == 1
    check_manifest(files)
    assert states(files)["journal"] in ("partial", "missing")
    assert "journal.sqlite" in problem(files, "journal")
    assert states(files)["documents"] == "complete"


@pytest.mark.daemon
@pytest.mark.slow
def test_a_tool_that_hangs_costs_only_its_part(made: _Made, monkeypatch: Any) -> None:
    _spoil_tool(made, "sleep 300")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    store = made.node.place.options[1]
    place = place_of(None, made.node.state_dir, None, store, None)
    begun = time.monotonic()
    manifest = write_archive(place, made.path, redact=False, seconds=8.0)
    assert time.monotonic() - begun < patience(25)
    files = read(made.path)
    assert states(files)["hccn_tool"] == "partial"
    assert "no answer in 8 s" in problem(files, "hccn_tool")
    assert states(files)["documents"] == "complete"
    (tool,) = (part for part in manifest.parts if part.part == "hccn_tool")
    assert 8 <= tool.seconds < patience(20)
    # The answer that is missing is named, and the call's time with it.
    first = json.loads(files["hccn_tool.jsonl"].splitlines()[0])
    assert first["seconds"] >= 3


@pytest.mark.daemon
def test_too_much_is_cut_by_priority(made: _Made) -> None:
    store = made.node.place.options[1]
    place = place_of(None, made.node.state_dir, None, store, None)
    manifest = write_archive(place, made.path, redact=False, limit=32_000)
    assert made.path.stat().st_size <= 32_000
    files = read(made.path)
    check_manifest(files)
    assert manifest.cut
    assert manifest.cut == json.loads(files["manifest.json"])["cut"]
    assert "versions.json" in files
    assert "documents.jsonl" not in files


@pytest.mark.daemon
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(made: _Made, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=True)
    try:
        made.path.write_bytes(b"earlier")
        status, output, errors = run_verb(
            *("support", "--output", str(place / "a.tar.gz")),
            *("--state-dir", str(made.node.state_dir), *made.node.place.options),
        )
        assert (status, output) == (3, b"")
        assert f"{place / 'a.tar.gz'} cannot be written: No space left on device" in errors
        assert "--output" in errors
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)
    status, _, errors = run_verb("support", "--output", str(tmp_path / "nowhere" / "a.tar.gz"))
    assert status == 3
    assert "No such file or directory" in errors


@pytest.mark.apiserver
@pytest.mark.daemon
def test_an_archive_of_a_cluster(control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = AnsweringCluster(control_plane, tmp_path)
    path = tmp_path / "support.tar.gz"
    try:
        put_documents(control_plane, report("n1-rack", config([fault(3, "SeparateNPU", _CODE)])))
        pods.make(control_plane, "train-0", "n1-rack", "Ascend910-3")
        cluster.daemon.start()
        make_service(control_plane, *endpoint(cluster.daemon.url))
        cluster.daemon.process.wait_until(
            lambda: cluster.daemon.ask("/api/v1/faults")[1]["faults"] != [], 20.0
        )
        chief = control_plane.kubeconfig_of(CHIEF_TOKEN)
        status, _, errors = cluster.ask("support", "--output", str(path), kubeconfig=chief)
        files = read(path)
        assert (status, errors) == (1, ""), files["MANIFEST.txt"].decode()
        check_manifest(files)
        for name in ("status", "faults", "metrics", "timeline", "documents", "rights"):
            assert states(files)[name] == "complete", files["MANIFEST.txt"].decode()
        assert _CODE in files["cluster/faults.json"].decode()
        assert "n1-rack" in files["documents.jsonl"].decode()
        rules = json.loads(files[f"rights/rules-{AGGREGATOR_NAMESPACE}.json"])
        assert rules["resourceRules"]
        # No kubelet runs here, and no pod is ours.
        assert "has no pod of NPU Vigil" in problem(files, "log")
        for name, content in files.items():
            assert CHIEF_TOKEN.encode() not in content, name

        cluster.ask("support", "--redact", "--output", str(path))
        for name, content in read(path).items():
            assert b"n1-rack" not in content, name
    finally:
        cluster.daemon.stop()
        remove_service(control_plane)


@contextmanager
def _api_server(log: str) -> Iterator[str]:
    """Serve one pod with this log, and refuse the rest; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "/log?" in self.path:
                self._answer(200, log.encode())
            elif "/pods?" in self.path:
                pod = {"metadata": {"name": "npu-vigil-agent-x1"}, "status": {"phase": "Running"}}
                self._answer(200, json.dumps({"items": [pod]}).encode())
            else:
                self._answer(403, json.dumps({"message": f"token {_SECRET} refused"}).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(403, f"Authorization: Bearer {_SECRET}".encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_logs_of_pods_and_a_kubeconfig_lose_their_secrets(tmp_path: Path) -> None:
    path, kubeconfig = tmp_path / "a.tar.gz", tmp_path / "kubeconfig"
    key = base64.b64encode(_PEM.encode()).decode()
    log = f"start on node rack-9\ndial {_URL} failed\nkey {key}\nbare {_SECRET}\nend of log\n"
    with _api_server(log) as server:
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": server}}],
                    "users": [{"name": "u", "user": {"token": _SECRET}}],
                },
                indent=1,
            )
        )
        status, output, errors = run_verb(
            *("support", "--redact", "--output", str(path), "--state-dir", str(tmp_path / "no")),
            *("--kubeconfig", str(kubeconfig)),
        )
    files = read(path)
    assert status == 1
    check_manifest(files)
    has_no_secret({**files, "output": output, "errors": errors.encode()})
    (name,) = (name for name in files if name.startswith("log/"))
    assert "npu-vigil-agent-x1" not in name
    text = files[name].decode()
    assert "dial mqtts://(removed)@broker" in text
    assert "end of log" in text
    assert "rack-9" not in text
    assert states(files)["rights"] == "partial"
