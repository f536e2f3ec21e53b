"""The differences between the vendor libraries, for the process that talks to their children."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from contract.errors import DriverCallError, DriverError, DriverNotFound
from contract.record import Record
from dcmi_shim.library.return_codes import (
    SWITCH_MEANINGS,
    SYMBOL_MISSING,
    UNSUPPORTED,
    meaning,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DEVICES = Path("/dev")
_DEVICE_FILES = ("davinci*", "devmm_svm", "hisi_hdc")


class VendorLibrary(Record, frozen=True):
    """A kind of library. ``kind`` is the child's argument for it.

    ``check_init`` raises for a failed answer to ``init``.
    """

    file_name: str
    kind: str
    init: str
    subscribe: str
    own_meanings: Mapping[int, str]
    check_init: Callable[[Path, int, msgspec.Raw], None]

    def failed(self, function: str, where: str | None, return_code: int) -> DriverCallError:
        """Return the error for a call that returned ``return_code``."""
        means = self.own_meanings.get(return_code) or meaning(return_code)
        return DriverCallError(function, where, return_code, means)


def _check_dcmi(path: Path, answer: int, value: msgspec.Raw) -> None:
    if answer == 0:
        return
    if answer in (UNSUPPORTED, SYMBOL_MISSING):
        second_generation = msgspec.json.decode(value, type=int)
        # DCMI v2 was initialised, but lacks the list of chips (``chip_calls.init``).
        if second_generation == 0:
            lacks = "which speaks DCMI v2 (Ascend 950), has no dcmiv2_get_device_list"
            raise DriverError(f"{path}, {lacks}: that is not supported yet")
        if answer == second_generation == SYMBOL_MISSING:
            raise DriverNotFound(
                f"{path} has neither dcmi_init nor dcmiv2_init: it is not a DCMI library"
            )
    error = DCMI.failed(DCMI.init, None, answer)
    if not (refused := _refused_device_files(_DEVICES)):
        raise error
    means = (
        f"{error.meaning}; this process may not open {', '.join(refused)}: run it as root. A "
        "container also needs these device files and CAP_DAC_OVERRIDE, or is privileged"
    )
    raise DriverCallError(DCMI.init, None, answer, means)


def _refused_device_files(devices: Path) -> list[str]:
    """Return the driver's device files that this process may not open.

    Opens none of them, because a broken driver may hang then. The kernel's answer includes the list
    of devices of a container.
    """
    files = sorted(file for pattern in _DEVICE_FILES for file in devices.glob(pattern))
    rights = os.R_OK | os.W_OK
    return [str(file) for file in files if not os.access(file, rights, effective_ids=True)]


def _check_lingqu(path: Path, answer: int, _value: msgspec.Raw) -> None:
    if answer == SYMBOL_MISSING:
        raise DriverNotFound(f"{path} has no lq_dcmi_init: it is not a switch library")
    if answer != 0:
        raise LINGQU.failed(LINGQU.init, None, answer)


DCMI = VendorLibrary(
    "libdcmi.so", "chip", "dcmi_init", "dcmi_subscribe_fault_event", {}, _check_dcmi
)
LINGQU = VendorLibrary(
    "liblingqu-dcmi.so",
    "switch",
    "lq_dcmi_init",
    "lq_dcmi_subscribe_fault_event",
    SWITCH_MEANINGS,
    _check_lingqu,
)
