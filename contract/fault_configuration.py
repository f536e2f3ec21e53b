"""The operator's fault configuration: which documents it has, and which of them are in force.

Source: ``spec/device-plugin.md`` 3.1.
"""

from __future__ import annotations

import hashlib

import msgspec

FAULT_CONFIG_NAMESPACE = "kube-system"
FAULT_CONFIG_NAME = "mindx-dl-fault-config"
FAULT_CODE_KEY = "faultCode.json"
CUSTOMIZATION_KEY = "faultCustomization.json"
SWITCH_FAULT_CODE_KEY = "SwitchFaultCode.json"
POLL_INTERVAL_KEY = "PollInterval"


class FaultTexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The documents in force, each as its text; ``None``: the one of this package.

    All of them can be decoded: one that cannot never replaces one that could.
    """

    fault_code: str | None = None
    customization: str | None = None
    switch_fault_code: str | None = None

    @property
    def digest(self) -> str:
        """What names this configuration in the journal."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()
