"""The program that shows which sources of an agent are blind with the rights of its process."""

from __future__ import annotations

RIGHTS = ("syslog", "sys_ptrace", "dac_override")
"""The capabilities of the component ``without-privileged``, as setpriv names them."""

SOURCES = """
import json, os, sys
from pathlib import Path
import msgspec
from collectors.file_systems.host_mounts import HostMounts
from collectors.hang.collector import _seconds_of
from collectors.kernel_log.device import explained, opened
from contract.errors import DriverError
from dcmi_shim.library import vendor
problems = {}
try:
    with opened("/dev/kmsg"):
        pass
except OSError as error:
    problems["kernel log"] = explained("/dev/kmsg", error)
if HostMounts().read()[1] != "/proc/1/root":
    problems["file systems"] = ""
try:
    _seconds_of(int(sys.argv[2]))
except OSError as error:
    problems["hang"] = str(error)
vendor._DEVICES = Path(sys.argv[1])
try:
    vendor.DCMI.check_init(Path("libdcmi.so"), -8005, msgspec.Raw(b"null"))
except DriverError as error:
    if "may not open" in str(error):
        problems["driver"] = str(error)
print(json.dumps(problems))
"""
"""Prints what the collectors do not see, with their texts. The driver's failed start is given."""
