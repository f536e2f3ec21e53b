"""Check of cards with two dies beside a Device Plugin that resets them as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.node.device_plugin import ADVICE, is_duo, plugins_resetting_cards
from contract.errors import VigilError
from stores.address import open_store
from vigil.scan.findings import ok, problem

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from dcmi_shim.values import Inventory
    from vigil.scan.findings import Check

DUO = "duo-cards"


async def check_duo_cards(
    configuration: AgentConfiguration, inventory: Inventory | None
) -> tuple[Check, ...]:
    """Check whether device-info and such a plugin agree; nothing where there are no such cards."""
    if inventory is None or not is_duo(inventory):
        return ()
    if configuration.compatibility.duo_cards == "together":
        return (ok(DUO, "both dies of a card are unhealthy when one is"),)
    found = await _plugins(configuration)
    if found:
        what = (
            f"a Device Plugin resets both dies of a card as one (-hotReset=0): {', '.join(found)}"
        )
        return (problem(DUO, what, ADVICE, facts={"plugins": found}),)
    return (ok(DUO, "each die counts for itself; no Device Plugin with -hotReset=0 is seen"),)


async def _plugins(configuration: AgentConfiguration) -> list[str]:
    node = configuration.node_name
    if not configuration.store.startswith("kubernetes:"):
        return await plugins_resetting_cards(None, node)
    try:
        store = open_store(configuration.store, configuration.kubeconfig)
    except VigilError:  # which another check reports
        return await plugins_resetting_cards(None, node)
    try:
        return await plugins_resetting_cards(store.objects, node)
    finally:
        await store.close()
