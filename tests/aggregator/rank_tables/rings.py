"""ConfigMaps of rank tables, as jobs of inference have them."""

from __future__ import annotations

import json
from typing import Any

from stores.base import Document

ME = "inference"


def table(**members: Any) -> str:
    """Return a rank table of one server with two chips."""
    server = {
        "device": [
            {"device_id": "0", "device_ip": "10.1.0.1", "rank_id": "0"},
            {"device_id": "1", "device_ip": "10.1.0.2", "rank_id": "1"},
        ],
        "server_id": "srv-1",
        "host_ip": "192.168.0.1",
        "container_ip": "10.2.0.1",
    }
    content = {"status": "completed", "server_list": [server], "server_count": "1"}
    return json.dumps({**content, "version": "1.0", **members})


def rings(
    name: str = "server-0",
    text: str | None = None,
    *,
    job: str = ME,
    namespace: str = "mindie",
    deploy: dict[str, str] | None = None,
) -> Document:
    labels = {"grt-group/deploy-server": "0"} if deploy is None else deploy
    return Document(
        namespace,
        f"rings-config-{name}",
        {"hccl.json": table() if text is None else text, "version": "7"},
        {"jobID": job, "mx-consumer-cim": "true", **labels},
    )
