"""Fault configurations as texts: the shipped tables, and what the real program was given."""

from __future__ import annotations

import json

import msgspec

from contract.codes.catalogue import read_table, shipped_levels
from contract.codes.policies import PolicyTables
from contract.operator_rules.fault_configuration import DOCUMENTS
from tests.vectors import VECTORS


def shipped_texts() -> dict[str, str]:
    """Return the shipped tables as the documents that they were made of, by their keys."""
    levels = shipped_levels()
    policies = read_table("policies.json", PolicyTables)
    chip = {f"{name}Codes": codes for name, codes in levels.chip.items()}
    switch = {f"{name}Codes": codes for name, codes in levels.switch.items()}
    rules = {"FaultFrequency": policies.frequency, "FaultDuration": policies.duration}
    node = {"FaultTypeCode": {f"{name}Codes": codes for name, codes in levels.node.items()}}
    rules_text = msgspec.json.encode(rules).decode()
    texts = (json.dumps(chip), rules_text, json.dumps(switch), json.dumps(node))
    return dict(zip(DOCUMENTS, texts, strict=True))


def recorded_texts(key: str) -> tuple[str, ...]:
    """Return what was given to the real program as the document ``key``, good and bad."""
    found: dict[str, list[str]] = json.loads((VECTORS / "fault-config" / "texts.json").read_text())
    return tuple(found[key])
