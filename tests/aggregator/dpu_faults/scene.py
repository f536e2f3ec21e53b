"""Documents of RDMA plugins, the nodes that they name, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aggregator.dpu_faults.documents import DOCUMENTS, SOURCE
from aggregator.dpu_faults.plugin import DpuFaults
from aggregator.public_faults.plugin import PublicFaultsPlugin
from contract.documents import dpu_info
from contract.documents.dpu_info import DpuFault, encode_dpu_info
from stores.base import Document
from stores.cluster import Snapshot, Update
from tests.aggregator.nodes import T0, healthy, instant, record
from tests.aggregator.public_faults.known import KnownPlaces
from tests.parts.kubernetes_object import made_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.public_faults.values import ActivePublicFault
    from stores.cluster import Cluster

HCAS = ("mlx5_0", "mlx5_1")
PORT_DOWN = DpuFault("mlx5_0", "21000024", "SeparateDPU", (T0 - 60) * 1000, "port is down")
LANE_DOWN = DpuFault("mlx5_1", "21000023", "SubHealthFault", (T0 - 60) * 1000)
CARD_DROP = DpuFault("", "22000026", "SeparateDPU", (T0 - 60) * 1000)


def dpu_document(node: str, *faults: DpuFault, at: float = 0) -> Document:
    """Return the document as the plugin writes it, so many seconds after ``T0``."""
    data = encode_dpu_info(node, HCAS, faults, int((T0 + at) * 1000))
    return Document(dpu_info.NAMESPACE, dpu_info.PREFIX + node, data, dict([dpu_info.LABEL]))


def without_documents() -> DpuFaults:
    """Return what an aggregator without an API server has."""
    return Scene(stores=0).dpu_faults


class Scene:
    """The node ``n1`` with eight chips, and the documents of stores that list what they have."""

    def __init__(
        self,
        *,
        publishes: bool = False,
        chips: Mapping[str, tuple[int, ...]] | None = None,
        stores: int = 1,
        public: PublicFaultsPlugin | None = None,
    ) -> None:
        self.places = KnownPlaces()
        self.places.see_report("n1", record(healthy()))
        self.places.synced = True
        self.public = public or PublicFaultsPlugin(self.places)
        if not self.public.restorations:
            self.public.restore({}, instant(0))
        cluster = cast("Cluster", None)  # events are given here
        clusters = dict.fromkeys(map(str, range(stores)), cluster)
        self.dpu_faults = DpuFaults(
            clusters, self.public, self.places, publishes=publishes, chips=chips or {}
        )
        self.documents = self.dpu_faults.documents

    def lists(self, *documents: Document, at: float = 0, store: int = 0) -> bool:
        """Let a store list these documents; return whether a step is needed."""
        found = {one.name: _read(one) for one in documents}
        return self._observe(store, Snapshot(found), at)

    def shows(self, document: Document, at: float = 0, store: int = 0) -> bool:
        """Let a store show a document; return whether a step is needed."""
        return self._observe(store, Update(document.name, _read(document)), at)

    def deletes(self, node: str, at: float = 0) -> bool:
        """Let a document go; return whether a step is needed."""
        return self._observe(0, Update(dpu_info.PREFIX + node, None), at)

    def _observe(self, store: int, event: object, at: float) -> bool:
        needs = self.documents.observe_event(store, event, instant(at))  # type: ignore[arg-type]
        self.step(at)
        return needs

    def step(self, at: float) -> None:
        """Do what is due."""
        self.dpu_faults.step(instant(at))
        self.public.step(instant(at))

    def codes(self, node: str = "n1") -> list[str]:
        """Return the codes that a node has."""
        return [one.code for one in self.documents.faults(node)]

    def published(self, node: str = "n1") -> list[ActivePublicFault]:
        """Return the public faults that hold of these documents."""
        return [one for one in self.public.standing(node) if one.resource == SOURCE]


def _read(document: Document) -> object:
    body = {"metadata": {"name": document.name}, "data": document.data}
    found = DOCUMENTS.read(made_of(body))
    assert found is not None
    return found
