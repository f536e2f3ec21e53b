"""Selectors of DCMI v1 (``docs/spec/dcmi.md#4.2``)."""

from __future__ import annotations

SUPER_POD = (12, 1)
VIRTUAL_DEVICES = (52, 1)
"""Main and sub command of ``dcmi_get_device_info`` (``docs/spec/dcmi.md#2.3``)."""
