"""Kinds of other programs on an API server: their definitions, without a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SECONDS = 20.0


@dataclass(frozen=True)
class Definition:
    """A kind in namespaces."""

    group: str
    version: str
    kind: str

    @property
    def plural(self) -> str:
        """Return the name of the resource."""
        return f"{self.kind.lower()}s"

    def place(self, namespace: str | None = None) -> str:
        """Return the path of its objects, of all namespaces unless one is given."""
        where = "" if namespace is None else f"/namespaces/{namespace}"
        return f"/apis/{self.group}/{self.version}{where}/{self.plural}"

    def install(self, plane: ControlPlane) -> None:
        """Define it, and wait until it can be asked for. What is in an object is not checked."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": self.version, "served": True, "storage": True}
        plane.request(
            "POST",
            _DEFINITIONS,
            {
                "metadata": {"name": f"{self.plural}.{self.group}"},
                "spec": {
                    "group": self.group,
                    "names": {"kind": self.kind, "plural": self.plural},
                    "scope": "Namespaced",
                    "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
                },
            },
        )
        self._until(plane, 200)

    def uninstall(self, plane: ControlPlane) -> None:
        """Take the definition away, and with it all objects."""
        plane.ask("DELETE", f"{_DEFINITIONS}/{self.plural}.{self.group}")
        self._until(plane, 404)

    def _until(self, plane: ControlPlane, status: int) -> None:
        wait_until(
            lambda: plane.ask("GET", self.place())[0] == status,
            lambda: f"{self.plural} do not answer with {status}",
            _SECONDS,
        )


POD_GROUPS = Definition("scheduling.volcano.sh", "v1beta1", "PodGroup")
ASCEND_JOBS = Definition("mindxdl.gitee.com", "v1", "AscendJob")
VCJOBS = Definition("batch.volcano.sh", "v1alpha1", "Job")
