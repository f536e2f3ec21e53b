"""Recordings of the real NodeD's storage monitors: what each sends to ClusterD, over gRPC."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typing_extensions import override

from collectors.storage.collector import StorageSection
from contract.codes.storage_faults import CODES
from tests.compatibility import check, different
from tests.replay.node import NodePlayer
from tests.replay.noded import RECORDINGS, recorded_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.config import AgentConfiguration
    from contract.documents.public_fault import PublicFault

LATE_MS = 7_000
"""Upstream asks every 5 s, at first after 5 s, and sends a second later."""


def _about_storage(name: str) -> bool:
    return any("status_check" in step.get("path", "") for step in recorded_node(name)["steps"])


NAMES = [name for name in RECORDINGS if _about_storage(name)]


class StoragePlayer(NodePlayer):
    """A node with status files, and a ClusterD that can be away."""

    def __init__(self, recording: dict[str, Any], place: Path) -> None:
        super().__init__(recording, place)
        self.is_away = False
        self.posted: list[tuple[int, PublicFault]] = []

    @override
    async def do(self, step: Mapping[str, Any]) -> None:
        if step["do"] == "fault-service":
            self.is_away = step["action"] == "stop"
        await super().do(step)

    async def answer(self, _: object, message: PublicFault) -> tuple[int | None, str]:
        """Record the message, in place of a call over gRPC."""
        if self.is_away:
            return None, "nobody listens"
        self.posted.append((self.at_ms, message))
        return 0, ""

    def _configuration(self) -> AgentConfiguration:
        usual = super()._configuration()
        storage = StorageSection(
            dpc_file=str(self._status_file("dpc_status_check")),
            dtfs_file=str(self._status_file("dtfs_status_check")),
            clusterd="127.0.0.1:8899",
        )
        changed = {"storage": storage, "trust_driver": os.geteuid() != 0}
        return msgspec.structs.replace(usual, **changed)

    def _status_file(self, name: str) -> Path:
        return self._place / name

    def _file(self, step: dict[str, Any]) -> None:
        path = Path(step["path"])
        if not path.name.endswith("_status_check"):
            super()._file(step)
            return
        file = self._status_file(path.name)
        file.unlink(missing_ok=True)
        if step["text"] is None:
            return
        real = file
        if "symlink_to" in step:
            real = self._place / Path(step["symlink_to"]).name
            file.symlink_to(real)
        real.write_bytes(step["text"].encode())
        real.chmod(int(step.get("mode", "0644"), 8))
        if "owner_uid" in step:
            os.chown(file, step["owner_uid"], 0, follow_symlinks=file is real)


def tree(posted: Iterable[tuple[int, str, str]]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return what was sent of each code, and when; a recovery without an occurrence is separate."""
    codes = [code for of_client in CODES.values() for code in of_client]
    assertions: dict[str, dict[str, Any]] = {code: {} for code in codes}
    times: defaultdict[str, list[int]] = defaultdict(list)
    for at_ms, code, assertion in posted:
        if assertion == "recover" and "told" not in assertions[code]:
            assertions[code]["recovery_of_nothing"] = True
            continue
        assertions[code].setdefault("told", []).append(assertion)
        times[code].append(at_ms)
    return assertions, times


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("name", NAMES)
async def test_recording(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded_node(name)
    if os.geteuid() != 0 and any("owner_uid" in step for step in recording["steps"]):
        pytest.skip("only root can give files away")
    player = StoragePlayer(recording, tmp_path)
    monkeypatch.setattr(
        "agent.publishing.fault_service.FaultServiceClient._answer",
        lambda service, message: player.answer(service, message),
    )
    with player.replaced():
        await player.all_steps()
        await player.end()
    upstream, upstream_times = tree(
        (row["at_ms"], fault["faultCode"], fault["assertion"])
        for row in recording["public_faults"]
        for fault in row["message"]["faults"]
    )
    ours, our_times = tree(
        (at_ms, fault.fault_code, fault.assertion)
        for at_ms, message in player.posted
        for fault in message.faults or ()
    )
    check(f"noded/{name}", different(upstream, ours))
    for code, times in our_times.items():
        if upstream.get(code) == ours[code]:
            pairs = zip(times, upstream_times[code], strict=True)
            for mine, theirs in pairs:
                assert theirs - LATE_MS < mine <= theirs, code
    ids = {fault["faultCode"]: fault["faultId"] for fault in _faults(recording)}
    for _, message in player.posted:
        for fault in message.faults or ():
            assert fault.fault_id == ids[fault.fault_code]
            assert fault.fault_type == "Node"


def _faults(recording: dict[str, Any]) -> list[dict[str, Any]]:
    return [fault for row in recording["public_faults"] for fault in row["message"]["faults"]]
