"""Why a request to isolate a chip would not be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.documents.write_numbers import NoWrites, decode_owned
from stores.kubernetes_api.writers import OURS

if TYPE_CHECKING:
    from vigil.isolation.found_chip import FoundChip


async def refusal(found: FoundChip, node: str) -> str | None:
    """Return why the writer of device-info would take no request; ``None`` where it takes it."""
    for store, document in found.reports:
        writer = await store.writer(document.namespace, document.name)
        if writer is not None and writer.name not in OURS:
            return (
                f"device-info of {node} is written by {writer.name!r}, which takes an added name "
                "out again. Isolate the chip with the means of that program, or cordon the node"
            )
    if found.problems:
        return found.problems[0]
    if found.beats is None:
        return None
    if not found.beats:
        return (
            f"no agent of NPU Vigil has a heartbeat for {node}, so none would take the request; "
            "device-info is another program's, or it is left behind"
        )
    for beat in found.beats:
        try:
            owned = decode_owned(beat.writes) if beat.writes else frozenset[str]()
        except NoWrites:
            continue
        if owned is not None and "device-info" not in owned:
            return (
                f"the agent of {node} does not write device-info: it is in shadow, of an earlier "
                "release, or another program writes it"
            )
    return None
