"""Volcano's programs, built once, and a cluster with its job controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parts.controlplane import ControlPlane
from tests.vigil.advise.cluster import node as node_object
from tests.volcano.jobs import Real
from tests.volcano.programs import build, controllers, install
from tests.volcano.site import Site
from tests.volcano.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def volcano_built() -> Path:
    """Return the folder with Volcano's program; an error where it cannot be built."""
    return build()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, volcano_built: Path) -> Iterator[Real]:
    """Run an API server with the real job controller, and no program of ours."""
    with ControlPlane(tmp_path_factory.mktemp("real")) as plane:
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
        install(plane, volcano_built)
        for index in range(3):
            one = node_object(f"n{index}")
            del one["metadata"]["uid"]
            plane.request("POST", "/api/v1/nodes", one)
            plane.request("PATCH", f"/api/v1/nodes/n{index}", {"spec": {"taints": []}})
        with controllers(plane, volcano_built), Surroundings(plane) as around:
            yield Real(plane, around)


@pytest.fixture(scope="module")
def whole_site(
    tmp_path_factory: pytest.TempPathFactory, volcano_built: Path, built: Path
) -> Iterator[Site]:
    """Run Volcano's controllers, and three nodes with real agents and an aggregator."""
    with ControlPlane(tmp_path_factory.mktemp("chain")) as plane:
        install(plane, volcano_built)
        with controllers(plane, volcano_built):
            around = Surroundings(plane)
            made = Site(tmp_path_factory.mktemp("site"), around, 3, built)
            try:
                with around:
                    yield made
            finally:
                made.stop()
