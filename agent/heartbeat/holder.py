"""The holder of a heartbeat: this machine since its boot, with the state directory of its agent.

Not the process: a restarted agent continues its own heartbeat. The name of the machine is in front
for people; only what follows it is compared, because names may change.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from collectors.boot import boot_id, machine_id

if TYPE_CHECKING:
    from pathlib import Path

_DIGEST_BYTES = 6


def this_holder(state_dir: Path) -> str:
    """Return the holder for an agent on this machine with this state directory."""
    parts = (machine_id(), boot_id(), str(state_dir.resolve()))
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{os.uname().nodename}_{digest}"


def identity(holder: str) -> str:
    """Return the part of ``holder`` that is compared."""
    return holder.rpartition("_")[2]
