"""Where agents publish, read without any code of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.api_proxy import ApiProxy
    from tests.parts.controlplane import ControlPlane


def namespace_of(name: str) -> str:
    """Return the namespace in which upstream has the document of this name."""
    is_of_mindx = name.startswith(("mindx-dl-node", "cluster-info"))
    return "mindx-dl" if is_of_mindx else "kube-system"


def _label_of(name: str) -> dict[str, str]:
    is_of_the_cluster = name.startswith("cluster-info")
    return {"mx-consumer-volcano" if is_of_the_cluster else "mx-consumer-cim": "true"}


class Place(Protocol):
    """A store as tests see it."""

    @property
    def options(self) -> list[str]:
        """Return the options that ``vigil agent`` needs."""

    def read(self, name: str) -> dict[str, str] | None:
        """Return the data keys of a document; ``None`` if there is no document."""

    def write(self, name: str, data: dict[str, str]) -> None:
        """Write a document as a stranger would."""

    def delete(self, name: str) -> None:
        """Delete a document as a stranger would."""


class Folder:
    """A directory store."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def options(self) -> list[str]:
        return ["--store", f"directory:{self.root}"]

    def _file(self, name: str) -> Path:
        return self.root / namespace_of(name) / f"{name}.json"

    def read(self, name: str) -> dict[str, str] | None:
        try:
            content: dict[str, Any] = json.loads(self._file(name).read_text())
        except FileNotFoundError:
            return None
        data: dict[str, str] = content["data"]
        assert content["labels"] == _label_of(name)
        return data

    def write(self, name: str, data: dict[str, str]) -> None:
        self.write_text(name, json.dumps({"labels": {"mx-consumer-cim": "true"}, "data": data}))

    def write_text(self, name: str, text: str) -> None:
        """Replace the file of a document at once."""
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(".stranger")
        draft.write_text(text)
        draft.replace(file)

    def spoil(self, name: str, content: bytes) -> None:
        """Overwrite a document in place with what is none."""
        self._file(name).write_bytes(content)

    def delete(self, name: str) -> None:
        self._file(name).unlink()


class Cluster:
    """A real API server."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.any_labels = False
        """Whether another program labels documents."""

    @property
    def options(self) -> list[str]:
        return ["--store", "kubernetes:", "--kubeconfig", str(self.plane.kubeconfig)]

    def read(self, name: str) -> dict[str, str] | None:
        status, answer = self.plane.ask(
            "GET", f"/api/v1/namespaces/{namespace_of(name)}/configmaps/{name}"
        )
        if status == 404:
            return None
        assert status == 200, answer
        assert self.any_labels or answer["metadata"]["labels"] == _label_of(name)
        data: dict[str, str] = answer.get("data", {})
        return data

    def write(self, name: str, data: dict[str, str]) -> None:
        space = namespace_of(name)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": space,
                "labels": {"mx-consumer-cim": "true"},
            },
            "data": data,
        }
        self.plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        path = f"/api/v1/namespaces/{space}/configmaps"
        status, answer = self.plane.ask("PUT", f"{path}/{name}", body)
        if status == 404:
            status, answer = self.plane.ask("POST", path, body)
        assert status in (200, 201), answer

    def delete(self, name: str) -> None:
        self.plane.request("DELETE", f"/api/v1/namespaces/{namespace_of(name)}/configmaps/{name}")


class Proxied(Cluster):
    """An API server behind a proxy."""

    def __init__(self, plane: ControlPlane, proxy: ApiProxy) -> None:
        super().__init__(plane)
        self.proxy = proxy

    @property
    def options(self) -> list[str]:
        return ["--store", "kubernetes:", "--kubeconfig", str(self.proxy.kubeconfig)]
