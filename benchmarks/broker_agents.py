"""Many agents on one broker, in one process: what ``benchmarks.broker`` runs.

Each has a connection of its own with a last will, as an agent has, writes its device-info, writes
it anew where the broker lost it, and beats. A line ``NODE CHIP`` on standard input makes a chip of
a node faulty, ``NODE -`` healthy; the answer is the steady time just before the write.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time

from benchmarks.scale_documents import device_document, node_names
from contract.documents.write_numbers import encode_writes
from contract.errors import StoreError
from pacing.backoff import Backoff
from stores.address import open_store
from stores.base import Beat, Changed, Deleted, DocumentsListed, Selection

INTERVAL_SECONDS = 5.0


class Agent:
    """One node."""

    def __init__(self, url: str, node: str, chip: int | None) -> None:
        self.node = node
        self._store = open_store(url, node=node)
        self._stamp = int(time.time())
        self._wanted = device_document(node, self._stamp, chip)
        self._writing = asyncio.Lock()

    async def change(self, chip: int | None) -> float:
        """Write that this chip is faulty, or none; the steady time just before."""
        self._stamp = max(int(time.time()), self._stamp + 1)
        self._wanted = device_document(self.node, self._stamp, chip)
        began = time.monotonic()
        await self._write()
        return began

    async def run(self, phase: float) -> None:
        """Keep the document in the broker, and beat, until cancelled."""
        await asyncio.sleep(phase)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep())
            tasks.create_task(self._beat())

    async def _write(self) -> None:
        backoff = Backoff()
        async with self._writing:
            while True:
                with contextlib.suppress(StoreError):
                    await self._store.put(self._wanted)
                    return
                await asyncio.sleep(backoff.next_seconds())

    async def _keep(self) -> None:
        own = Selection(self._wanted.namespace, self._wanted.name, owned=True)
        async for event in self._store.watch(own):
            match event:
                case DocumentsListed(documents):
                    there = next(iter(documents), None)
                case Changed(document):
                    there = document
                case Deleted():
                    there = None
                case _:
                    continue
            if (there is None or there.data != self._wanted.data) and not self._writing.locked():
                await self._write()

    async def _beat(self) -> None:
        while True:
            beat = Beat(
                self.node,
                f"host-of-{self.node}",
                INTERVAL_SECONDS,
                time.time_ns() // 1_000_000,
                blind=False,
                writes=encode_writes({"device-info": self._stamp}),
            )
            pause = INTERVAL_SECONDS
            try:
                await self._store.beat(beat)
            except StoreError:
                pause = 0.5
            await asyncio.sleep(pause)


async def _obey(agents: dict[str, Agent]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode():
        node, chip = line.split()
        print(await agents[node].change(None if chip == "-" else int(chip)), flush=True)


async def main(url: str, count: int, faulty: int) -> None:
    """Run ``count`` agents, the first ``faulty`` of them with a standing fault."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    agents = {
        node: Agent(url, node, 3 if number < faulty else None)
        for number, node in enumerate(node_names(count))
    }
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(agent.run(INTERVAL_SECONDS * number / count))
            for number, agent in enumerate(agents.values())
        ]
        await _obey(agents)
        for task in running:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
