"""Main and sub commands of ``dcmi_get_device_info`` (``docs/spec/dcmi.md#2.3``)."""

from __future__ import annotations

SUPER_POD = (12, 1)
VIRTUAL_DEVICES = (52, 1)
