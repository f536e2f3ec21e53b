"""What operators and earlier leaders wrote for the aggregator's chains of processors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aggregator.inputs.node_context import JobState, NodeContext, PodState
from aggregator.processors import separation_documents
from aggregator.processors.chains import ProcessorEngine
from aggregator.processors.frequent_fault_separation import SeparationPolicy
from aggregator.processors.separation_documents import CHIPS_NAME as CHIPS
from aggregator.processors.separation_documents import NAMESPACE, POLICY_KEY
from aggregator.processors.state import decode_buckets
from contract.errors import VigilError
from service.clock import Instant
from stores.base import Changed, Document, DocumentsListed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOW = Instant(1_800_000_000_000, 1_000_000)
CHIP = "Ascend910-0"

_POLICIES = (
    "enabled: true\nseparate:\n  fault_window_hours: 24\n  fault_threshold: 3\n"
    "release:\n  fault_free_hours: 48\n",
    "enabled: false\nseparate: {fault_window_hours: 1, fault_threshold: 50}\n"
    "release: {fault_free_hours: -1}  # never\n",
)
_SEPARATED = (
    '{"Total":["Ascend910-0"],"Detail":{"Ascend910-0":[{"FaultCode":"8C084E00",'
    '"FaultLevel":"ManuallySeparateNPU","LastSeparateTime":1799999999000}]}}',
    '{"Total":null,"Detail":{}}',
)
_KEPT = (
    '{"n1":{"device":{"received":{"Ascend910-0":{"80C98000":1799999999000}},"uce":{"Ascend910-0":5},'
    '"seen":{"Ascend910-0":{"80C98000":"RestartNPU"}}},"waiting":[{"at_ms":1799999999000,"node":"n1",'
    '"chip":"Ascend910-0","code":"80C98000","job":"j"}],"counts":{"Ascend910-0":{"80C98000":[1,2]}},'
    '"separated":{"Ascend910-0":{"codes":{"80C98000":3},"shown":[0]}}}}',
)


def _processing() -> ProcessorEngine:
    """Return an engine that has a policy and a separated chip on another node."""
    pods = (PodState("p", "n1", job="j", chips=(CHIP,)),)
    node_context = NodeContext(frozenset({CHIP}), False, pods, {"j": JobState("j")})
    processing = ProcessorEngine(1, lambda _: node_context)
    processing.separation.set_policy(SeparationPolicy(enabled=True))
    _, chips = processing.inputs
    known = Document(NAMESPACE, CHIPS, {"n2": _SEPARATED[0]})
    processing.observe(0, chips, DocumentsListed((known,)), NOW)
    return processing


def _policy(text: str) -> None:
    processing = _processing()
    rules, _ = processing.inputs
    before = processing.separation.policy
    processing.observe(
        0,
        rules,
        Changed(Document(NAMESPACE, separation_documents.POLICY_NAME, {POLICY_KEY: text})),
        NOW,
    )
    _refused(processing)
    read = processing.separation.policy
    assert read == before or 1 <= read.threshold <= 50
    assert isinstance(read, SeparationPolicy)


def _chips(text: str) -> None:
    processing = _processing()
    _, chips = processing.inputs
    data = {"n1": text, "n2": _SEPARATED[0]}
    processing.observe(0, chips, Changed(Document(NAMESPACE, CHIPS, data)), NOW)
    assert processing.separation.of("n2") == {CHIP}
    _refused(processing)
    other = ProcessorEngine(1, lambda _: NodeContext())
    other.observe(0, chips, DocumentsListed((Document(NAMESPACE, CHIPS, data),)), NOW)
    shown = {node: text for view in other.views() for node, text in (view.data or {}).items()}
    assert {node: json.loads(text)["Total"] for node, text in shown.items()} == {
        node: sorted(found) for node, found in other.separation.chips.items()
    }


def _kept(text: str) -> None:
    decode_buckets({"00": text})
    processing = _processing()
    problems = list(processing.restore({"00": text, "01": _KEPT[0], "policy": text}, NOW))
    assert "n1" in processing.nodes
    processing.advance(Instant(NOW.wall_ms + 60_000, NOW.steady_ms + 60_000))
    for bucket in processing.pop_changed():
        processing.text(bucket)
    if len(problems) > 1:
        raise VigilError(problems[0])


def _refused(processing: ProcessorEngine) -> None:
    for problem in processing.documents.problems.values():
        raise VigilError(problem)


PARSERS: dict[str, tuple[Sequence[str], Callable[[str], None]]] = {
    "separation-policy": (_POLICIES, _policy),
    "separated-chips": (_SEPARATED, _chips),
    "kept-processing": (_KEPT, _kept),
}
"""By name: good inputs, and who reads them."""
