"""What an agent must not load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
    imports = [line for line in node.logged().splitlines() if line.startswith("import time:")]
    packages = {line.rpartition("|")[2].strip().partition(".")[0] for line in imports}
    assert {"agent", "prometheus_client"} <= packages
    assert not packages & {"grpc", "rich", "pygments"}
