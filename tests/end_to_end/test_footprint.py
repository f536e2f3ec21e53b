"""What an agent must not load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.footprint import NOT_IMPORTED, imported

if TYPE_CHECKING:
    from tests.end_to_end.node import Node


@pytest.mark.parametrize("exporter_names", ["false", "true"])
def test_an_agent_imports_neither_grpc_nor_rich(node: Node, exporter_names: str) -> None:
    node.environment |= {
        "PYTHONPROFILEIMPORTTIME": "1",
        "VIGIL_METRICS_NPU_EXPORTER_NAMES": exporter_names,
    }
    node.start()
    node.healthy()
    assert node.ask("/metrics")[0] == 200
    assert node.stop()[0] == 0
    packages = imported(node.logged())
    assert {"agent", "prometheus_client"} <= packages
    assert not packages & NOT_IMPORTED
