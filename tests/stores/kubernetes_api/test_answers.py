"""The Kubernetes store and a server whose answers are not those of an API server.

The real one does not lie, so this is the one place with a server of our own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest
from aiohttp import web

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from stores.address import open_store
from stores.base import Document, DocumentsListed, ListedPage, Selection
from stores.device_taints import ServedVersions
from stores.interruption import Interrupted
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Store

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

GOOD = {
    "metadata": {"name": "one", "namespace": "mindx-dl", "resourceVersion": "7"},
    "data": {"text": "x"},
}
GOOD_LIST = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [GOOD]})


class Server:
    """Answers everything with ``handler``."""

    handler: Handler

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self.handler(request)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = {
        "clusters": [{"name": "a", "cluster": {"server": site_url(runner)}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    yield server
    await runner.cleanup()


def site_url(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0]
    return f"http://{host}:{port}"


@pytest.fixture
async def store(server: Server, tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store("kubernetes:", tmp_path / "kubeconfig")
    yield store
    await store.close()


def always(status: int, text: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return answer


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, StoreUnavailable),
        (500, StoreUnavailable),
        (503, StoreUnavailable),
        (504, StoreUnavailable),
        (400, StoreRefused),
        (405, StoreRefused),
        (422, StoreRefused),
        (302, StoreRefused),
    ],
)
async def test_each_status_has_its_error(
    server: Server, store: Store, status: int, error: type[StoreError]
) -> None:
    server.handler = always(status, json.dumps({"message": "because"}))
    for asked in (
        store.get("mindx-dl", "one"),
        store.put(Document("mindx-dl", "one", {})),
        store.list(Selection()),
        store.delete("mindx-dl", "one"),
    ):
        with pytest.raises(error, match=rf"because \(status {status}\)"):
            await asked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"metadata":{}}',
        '{"metadata":{"name":"one","namespace":"mindx-dl","resourceVersion":7}}',
        '{"metadata":{"name":"one","namespace":"mindx-dl","resourceVersion":"7"},"data":{"a":1}}',
        "\udcff",
    ],
)
async def test_an_answer_that_is_no_config_map_is_unavailable(
    server: Server, store: Store, text: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=text.encode(errors="surrogateescape"))

    server.handler = answer
    with pytest.raises(StoreUnavailable, match="not a ConfigMap"):
        await store.get("mindx-dl", "one")
    with pytest.raises(StoreUnavailable, match="not a ConfigMap"):
        await store.put(Document("mindx-dl", "one", {}))
    with pytest.raises(StoreUnavailable, match="malformed"):
        await store.list(Selection())


@pytest.mark.parametrize(
    "frame",
    [
        b"garbage\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{"metadata":{}}}\n',
        b'{"type":"SURPRISE","object":' + json.dumps(GOOD).encode() + b"}\n",
        b'{"type":"ERROR","object":{"code":500,"message":"etcd is ill"}}\n',
        b'{"type":"BOOKMARK","object":{}}\n',
        b"x" * (17 * 1024 * 1024),
        b"",
    ],
    ids=range(10),
)
async def test_a_wrong_watch_frame_leads_to_a_new_list(
    server: Server, store: Store, frame: bytes
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(text=GOOD_LIST)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(frame)
        return response

    server.handler = answer
    async with watching(store, Selection("mindx-dl")) as seen:
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        assert [type(event) for event in seen.events[:3]] == [
            DocumentsListed,
            Interrupted,
            DocumentsListed,
        ]
        assert len(seen.documents) == 1


async def test_a_broken_answer_is_unavailable(server: Server, store: Store) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    server.handler = answer
    with pytest.raises(StoreUnavailable):
        await store.get("mindx-dl", "one")


RULES, SLICES = {"name": "devicetaintrules"}, {"name": "resourceslices"}


@pytest.mark.parametrize(
    ("resources", "served"),
    [
        (None, ServedVersions()),
        ({}, ServedVersions(has_group=True)),
        ({"v1": [SLICES]}, ServedVersions(None, "v1", has_group=True)),
        ({"v1": [SLICES], "v1beta2": None}, ServedVersions(None, "v1", has_group=True)),
        (
            {"v1": [SLICES], "v1beta2": [SLICES, RULES]},
            ServedVersions("v1beta2", "v1", has_group=True),
        ),
        (
            {"v1": [RULES, SLICES], "v1beta2": [RULES, SLICES]},
            ServedVersions("v1", "v1", has_group=True),
        ),
        ({"v1alpha3": [RULES], "v2": [RULES, SLICES]}, ServedVersions(has_group=True)),
    ],
)
async def test_which_versions_of_device_taint_rules_are_served(
    server: Server,
    store: Store,
    resources: dict[str, list[dict[str, str]] | None] | None,
    served: ServedVersions,
) -> None:
    """Other releases of Kubernetes than that of the tests. ``None``: the version or group ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        _, _, version = request.path.removeprefix("/apis/resource.k8s.io").rpartition("/")
        if resources is None or (version and resources.get(version) is None):
            return web.Response(status=404, text="{}")
        if not version:
            versions = [{"groupVersion": "g/v", "version": name} for name in resources]
            return web.Response(text=json.dumps({"versions": versions}))
        return web.Response(text=json.dumps({"resources": resources[version]}))

    server.handler = answer
    assert store.device_taints is not None
    assert await store.device_taints.served() == served


@pytest.mark.slow
async def test_a_list_whose_later_page_fails_begins_again_and_reports_its_reason_once(
    server: Server, store: Store
) -> None:
    failures = iter((True, True, False))

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        is_second = "continue" in request.query
        if is_second and next(failures):
            return web.json_response({"items": 7})
        token = "" if is_second else "second"
        metadata = {"resourceVersion": "7", "continue": token}
        return web.json_response({"metadata": metadata, "items": [GOOD]})

    server.handler = answer
    async with watching(store, Selection("mindx-dl"), by_page=True) as seen:
        (problem,) = seen.of(Interrupted)
        assert "the list of ConfigMaps is malformed" in problem.reason
        kinds = [type(event) for event in seen.events]
        begun_thrice = [ListedPage, Interrupted, *[ListedPage] * 3, DocumentsListed]
        assert kinds == begun_thrice
        assert [page.is_first for page in seen.of(ListedPage)] == [True, True, True, False]
