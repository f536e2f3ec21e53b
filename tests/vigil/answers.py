"""Answers of daemons, from the members that a test is about."""

from __future__ import annotations

from typing import Any

from msgspec import inspect

from contract.pages.agent_status import AgentStatus
from contract.pages.aggregator_status import (
    ClusterStatePage,
    JobsPage,
    LeaderPage,
    LivenessPage,
    NodesPage,
)
from contract.pages.explanation import ExplainedNode
from contract.pages.readiness import ReadinessPage

_NODE = "/api/v1/nodes/"
_PAGES: dict[str, Any] = {
    "/api/v1/status": AgentStatus,
    "/api/v1/leader": LeaderPage,
    "/api/v1/nodes": NodesPage,
    "/api/v1/liveness": LivenessPage,
    "/api/v1/jobs": JobsPage,
    "/api/v1/cluster-state": ClusterStatePage,
    "/readyz": ReadinessPage,
}


def page(path: str, members: Any) -> Any:
    """Return the answer at ``path`` with these ``members``, see ``whole``."""
    kind = ExplainedNode[Any] if path.startswith(_NODE) else _PAGES.get(path)
    return members if kind is None else whole(kind, members)


def whole(answer: Any, members: Any) -> Any:
    """Return ``members`` as the JSON object of a struct, with each that it demands besides.

    These are ``null`` where that is allowed, else empty, zero or false.
    """
    return _whole(inspect.type_info(answer), members)


def _whole(kind: inspect.Type, value: Any) -> Any:
    match kind, value:
        case inspect.StructType(), dict():
            about = {field.encode_name: field for field in kind.fields}
            absent = {name: _neutral(one.type) for name, one in about.items() if one.required}
            present = {
                name: _whole(about[name].type, part) if name in about else part
                for name, part in value.items()
            }
            return absent | present
        case inspect.VarTupleType(), list():
            return [_whole(kind.item_type, part) for part in value]
        case inspect.UnionType(), dict() | list():
            shapes = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return _whole(shapes[0], value)
    return value


def _neutral(kind: inspect.Type) -> object:
    match kind:
        case inspect.UnionType() if kind.includes_none:
            return None
        case inspect.StrType():
            return ""
        case inspect.IntType() | inspect.FloatType():
            return 0
        case inspect.BoolType():
            return False
        case inspect.VarTupleType():
            return []
        case inspect.DictType():
            return {}
        case inspect.StructType():
            return _whole(kind, {})
    raise AssertionError(f"{kind} has no neutral value")
