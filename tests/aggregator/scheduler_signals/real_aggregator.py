"""A real aggregator with options for schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane


def aggregator(make: Make, plane: ControlPlane, **environment: str) -> Daemon:
    daemon = make("kubernetes:", plane.kubeconfig)
    daemon.environment = {f"VIGIL_{name}": value for name, value in environment.items()}
    daemon.start()
    return daemon
