"""An upgrade on a real API server and on a real broker: agents first, or the aggregator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.upgrade.site import ApiServerStore, BrokerStore
from tests.upgrade.steps import VERSIONS, upgrade

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

_orders = pytest.mark.parametrize("first", ["agents", "aggregator"])
_versions = pytest.mark.parametrize("version", VERSIONS)


@_orders
@_versions
@pytest.mark.apiserver
def test_nothing_is_lost_or_changed_on_an_api_server(
    tmp_path: Path, built: Path, control_plane: ControlPlane, version: str, first: str
) -> None:
    upgrade(tmp_path, built, ApiServerStore(control_plane), version, first)


@_orders
@_versions
def test_nothing_is_lost_or_changed_on_a_broker(
    tmp_path: Path, built: Path, broker: Broker, version: str, first: str
) -> None:
    upgrade(tmp_path, built, BrokerStore(broker), version, first)
