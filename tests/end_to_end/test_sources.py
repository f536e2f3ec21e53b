"""Who answers the verbs for people: daemons here, the cluster's aggregator, or documents."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from contract.errors import StoreError
from contract.names import AGGREGATOR_NAMESPACE, AGGREGATOR_SERVICE
from service.login.client import LoginFiles
from tests.aggregator.daemon import AnsweringCluster, put_documents
from tests.aggregator.nodes import report
from tests.contract.documents.node_documents import config, fault
from tests.parts import pods
from tests.parts.certificates import make_pki
from tests.parts.connect_proxy import ConnectProxy
from tests.parts.processes import Running
from tests.parts.service_proxy import endpoint, host_address, make_service, remove_service
from tests.parts.verbs import run_vigil
from tests.service.tls.tls_site import private_copy, tls_site, user_line, write_users
from vigil import options
from vigil.sources.api_server import ApiServerClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

_CODE = "80E18402"
_FAULTY = config([fault(3, "SeparateNPU", _CODE)], unhealthy=(3,))
_SERVICE = f"Service {AGGREGATOR_NAMESPACE}/{AGGREGATOR_SERVICE}, through the API server"
_SECONDS = 20.0


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[AnsweringCluster]:
    cluster = AnsweringCluster(control_plane, tmp_path)
    yield cluster
    cluster.daemon.stop()
    remove_service(control_plane)


@pytest.mark.apiserver
@pytest.mark.daemon
def test_the_aggregator_of_a_cluster_answers_through_its_api_server(
    cluster: AnsweringCluster, tmp_path: Path
) -> None:
    put_documents(cluster.plane, report("n1", _FAULTY))
    pods.make(cluster.plane, "train-0", "n1", "Ascend910-3", owner=pods.owned_by("u", "train"))
    daemon = cluster.daemon
    daemon.start()
    make_service(cluster.plane, *endpoint(daemon.url))
    daemon.process.wait_until(lambda: daemon.ask("/api/v1/jobs")[1]["jobs"] != [], _SECONDS)
    daemon.process.wait_until(lambda: daemon.ask("/api/v1/history")[1]["events"] != [], _SECONDS)

    for verb in (["status"], ["faults"], ["jobs"], ["explain", "n1/3"]):
        status, lines, errors = cluster.ask(*verb)
        assert (status, errors) == (1, ""), verb
        assert f"answered by: aggregator, which leads ({_SERVICE})" in lines
    status, lines, errors = cluster.ask("timeline", "n1")
    assert (status, errors) == (0, "")
    assert any("begins at SeparateNPU" in line for line in lines)
    status, _, errors = cluster.ask("status", "nobody")
    assert status == 2
    assert "knows no node of this name" in errors

    output = tmp_path / "watched"
    kubeconfig = ("--kubeconfig", str(cluster.plane.kubeconfig))
    arguments = ("faults", "--watch", "--json", *cluster.away, *kubeconfig)
    watching = Running([sys.executable, "-m", "vigil", *arguments], output)
    try:
        watching.wait_until(lambda: output.read_bytes().count(b"\n") == 1, _SECONDS)
        put_documents(cluster.plane, report("n1", config(update_time=1_760_000_001)))
        watching.wait_until(lambda: output.read_bytes().count(b"\n") == 2, _SECONDS)
        assert json.loads(output.read_bytes().splitlines()[1])["faults"] == []
    finally:
        watching.stop()


@pytest.mark.apiserver
@pytest.mark.daemon
def test_documents_answer_where_no_aggregator_does(cluster: AnsweringCluster) -> None:
    put_documents(cluster.plane, report("n1", _FAULTY), report("n2", {"DeviceInfoCfg": "{"}))
    pods.make(cluster.plane, "train-0", "n1", "Ascend910-3", owner=pods.owned_by("u", "train"))
    no_service = f'services "{AGGREGATOR_SERVICE}" not found'

    status, lines, errors = cluster.ask("status")
    assert status == 1
    assert no_service in errors
    assert "asking the next source" in errors
    assert lines[0].startswith("the cluster is not well: n2: mindx-dl-deviceinfo-n2")
    assert "answered by: documents of a store, without any daemon (kubernetes:)" in lines
    assert "not known:   what the scheduler reads: there is no cluster-info" in lines
    assert "nodes:       1 rejected; 1 reported" in lines
    assert "chips:       1 SeparateNPU; 7 NormalNPU" in lines

    status, lines, _ = cluster.ask("jobs")
    assert status == 1
    assert lines[-2] == "default/train: UnHealthy"
    assert lines[-1].startswith("  n1  Ascend910-3  80E18402  SeparateNPU  ")
    status, lines, _ = cluster.ask("explain", "n1/3")
    assert status == 1
    shown = [line.strip() for line in lines]
    assert "reported:  SeparateNPU" in shown
    assert "used by:   default/train-0" in shown
    assert cluster.ask("explain", "n1/9")[0] == 2
    assert cluster.ask("status", "nobody")[0] == 2
    status, lines, errors = cluster.ask("timeline")
    assert (status, lines) == (3, [])
    assert "have no history; an aggregator has one" in errors

    make_service(cluster.plane, host_address(), 9)
    status, lines, errors = cluster.ask("faults", "--node", "n1")
    assert status == 1
    assert "documents of a store" in lines[0]
    assert "cannot reach mindx-dl/npu-vigil-aggregator" in errors


@pytest.mark.apiserver
@pytest.mark.daemon
def test_refusal_of_the_api_server_is_named(cluster: AnsweringCluster) -> None:
    for token, why in (("stranger-token", "is forbidden"), ("nobody", "Unauthorized")):
        kubeconfig = cluster.plane.kubeconfig_of(token)
        status, lines, errors = cluster.ask("status", kubeconfig=kubeconfig)
        assert (status, lines) == (3, [])
        first, second = errors.splitlines()
        assert why in first
        assert first.endswith("; asking the next source")
        assert why in second


@pytest.mark.apiserver
async def test_a_login_goes_through_the_api_server(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pki, kubeconfig = tmp_path / "pki", str(control_plane.kubeconfig)
    pki.mkdir()
    make_pki(pki)
    users = write_users(tmp_path / "users", user_line("ops", "secret"))
    for name in ("secret", "other"):
        (tmp_path / name).write_text(f"ops:{name}\n")
        (tmp_path / name).chmod(0o600)

    async def answer(files: LoginFiles) -> str:
        monkeypatch.setattr(options, "_login", files)
        return await asyncio.to_thread(ApiServerClient(kubeconfig).get, "/hello", str)

    address = host_address()
    async with tls_site(tmp_path, private_copy(pki, tmp_path), users=users, host=address) as site:
        make_service(control_plane, address, site.port)
        try:
            assert await answer(LoginFiles(password_file=tmp_path / "secret")) == "hello"
            with pytest.raises(StoreError, match=r"does not accept the login of .*/other"):
                await answer(LoginFiles(password_file=tmp_path / "other"))
            with pytest.raises(StoreError, match="it needs a login; give --password-file"):
                await answer(LoginFiles(ca_file=pki / "ca.crt"))
            with pytest.raises(StoreError, match="its pages use TLS; give --token-file"):
                await answer(LoginFiles())
        finally:
            remove_service(control_plane)


@pytest.mark.apiserver
@pytest.mark.daemon
async def test_the_proxy_of_a_kubeconfig_leads_to_the_aggregator(cluster: AnsweringCluster) -> None:
    content = yaml.safe_load(cluster.plane.kubeconfig.read_text())
    password = base64.b64encode(b"me:secret").decode()
    async with ConnectProxy(f"Basic {password}") as proxy:
        content["clusters"][0]["cluster"]["proxy-url"] = f"http://me:secret@127.0.0.1:{proxy.port}"
        kubeconfig = cluster.plane.directory / "proxied.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(content))
        _, _, errors = await asyncio.to_thread(cluster.ask, "status", kubeconfig=kubeconfig)
    assert f'services "{AGGREGATOR_SERVICE}" not found' in errors
    assert proxy.tunnels[0] == cluster.plane.url.removeprefix("https://")


@pytest.mark.server
@pytest.mark.daemon
def test_the_documents_of_a_broker_are_read(broker: Broker, tmp_path: Path) -> None:
    put_documents(broker.url, report("n1", _FAULTY), report("n2", config()))
    away = ("--state-dir", str(tmp_path), "--store", broker.url)
    status, lines, errors = run_vigil("faults", *away, COLUMNS="300")
    assert (status, errors) == (1, "")
    assert lines[0] == f"answered by: documents of a store, without any daemon ({broker.url})"
    assert [line.split()[0] for line in lines if _CODE in line] == ["n1"]
    status, lines, errors = run_vigil("jobs", *away)
    assert (status, lines) == (3, [])
    assert "only an API server has pods" in errors
    broker.kill()
    status, lines, errors = run_vigil("status", *away)
    assert (status, lines) == (3, [])
    assert broker.url in errors


@pytest.mark.daemon
def test_each_change_of_documents_is_shown(tmp_path: Path) -> None:
    url, output = f"directory:{tmp_path / 'store'}", tmp_path / "watched"
    put_documents(url, report("n1", _FAULTY))
    arguments = ["faults", "--watch", "--json", "--state-dir", str(tmp_path), "--store", url]
    watching = Running([sys.executable, "-m", "vigil", *arguments], output)
    try:
        watching.wait_until(lambda: output.read_bytes().count(b"\n") == 1, _SECONDS)
        put_documents(url, report("n1", config(update_time=1_760_000_001)))
        watching.wait_until(lambda: output.read_bytes().count(b"\n") == 2, _SECONDS)
        assert json.loads(output.read_bytes().splitlines()[1])["faults"] == []
    finally:
        watching.stop()


def _is_in_history(node: Node) -> bool:
    events = node.ask("/api/v1/history")[1]["events"]
    return any(one.get("event") and one["event"]["code"] == _CODE for one in events)


@pytest.mark.daemon
def test_an_agent_shows_what_happened_and_its_journal_does_when_it_ended(folder_node: Node) -> None:
    where = ("--state-dir", str(folder_node.state_dir))
    folder_node.start()
    folder_node.up()
    folder_node.emulator.occur(3, _CODE)
    folder_node.until(lambda now: now.codes(3) == {_CODE}, "it is published")
    folder_node.wait(lambda: _is_in_history(folder_node), "it is in the history")
    status, lines, errors = run_vigil("timeline", "node-1/3", *where, COLUMNS="300")
    assert (status, errors) == (0, "")
    assert lines[0].startswith("answered by: agent of node-1, version ")
    assert "Ascend910-3  80E18402  reported  begins at SeparateNPU" in lines[-1]
    folder_node.kill()
    status, lines, errors = run_vigil("timeline", *where, COLUMNS="300")
    assert (status, errors) == (0, "")
    assert lines[0].startswith("answered by: journal of the agent of node-1 (")
    assert any("node-1  chip 3  80E18402  reported  begins at SeparateNPU" in one for one in lines)
    assert run_vigil("timeline", "node-1/4", *where)[1][-1].startswith("not known:")
    assert run_vigil("timeline", "--since", "2099-01-01", *where)[1][-1].startswith("not known:")
    status, lines, _ = run_vigil("timeline", "node-1/3", "--json", *where)
    (row,) = json.loads(lines[0])["rows"]
    assert (row["was"], row["level"]) == (None, "SeparateNPU")
    status, _, errors = run_vigil("timeline", "node-2", *where)
    assert status == 2
    assert "is of node-1" in errors
    assert run_vigil("status", *where)[0] == 3
    for file in folder_node.state_dir.glob("journal.sqlite*"):
        file.write_bytes(b"no journal")
    status, lines, errors = run_vigil("timeline", *where)
    assert (status, lines) == (3, [])
    assert "cannot be read" in errors
