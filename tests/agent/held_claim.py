"""The claim of an agent that is alone with its node name."""

from __future__ import annotations

from agent.name_claim import NameClaim


def held_claim(node: str = "node-1") -> NameClaim:
    """Return a claim that permits publishing."""
    claim = NameClaim(node, "host_1")
    claim.record_read(None, 0, beats=False)
    assert claim.may_publish
    return claim
