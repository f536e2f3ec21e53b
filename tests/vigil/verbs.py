"""Answers of an aggregator to each verb for people, and how each verb is called."""

from __future__ import annotations

from typing import Any

from tests.vigil.stand import AT_MS, LEADER

VERBS = {
    "status": ("status",),
    "faults": ("faults",),
    "jobs": ("jobs",),
    "explain": ("explain", "node-1"),
    "timeline": ("timeline",),
}
"""Each verb that shows what a daemon knows, with the arguments that it needs."""
LATER = {"timeline": "--follow"}
"""How a verb goes on; the others by ``--watch``."""


def aggregator(text: str = "train", *, since_ms: int = AT_MS - 200_000) -> dict[str, Any]:
    """Return the pages of an aggregator with one fault; ``text`` is wherever a page has a text."""
    node = {"node": "node-1", "state": "reported", "heartbeat": "alive", "blind": []}
    fault = {
        "node": "node-1",
        "subject": "Ascend910-3",
        "kind": "chip",
        "code": "80E18402",
        "level": "SeparateNPU",
        "severity": text,
        "since_ms": since_ms,
        "received_at_ms": since_ms,
    }
    hit = {
        "device_id": "3",
        "device_type": "NPU",
        "code": "80E18402",
        "level": "SeparateNPU",
        "time_ms": since_ms,
    }
    job = {
        "job": "u",
        "namespace": "team",
        "name": text,
        "health": "UnHealthy",
        "since_ms": since_ms,
    }
    explained = {
        "code": "80E18402",
        "because": text,
        "reported": "SeparateNPU",
        "severity": text,
        "published": "SeparateNPU",
        "since_ms": since_ms,
    }
    chip = {"chip": "Ascend910-3", "because": [text], "pods": [text], "faults": [explained]}
    change = {
        "node": "node-1",
        "at_ms": since_ms,
        "subject": text,
        "code": "80E18402",
        "level": "SeparateNPU",
    }
    entry = {"number": 1, "node": "node-1", "journal": "", "received_at_ms": AT_MS}
    pods = {"store": text, "kind": "pods", "followed": True, "known": False, "interrupted": text}
    return {
        "/api/v1/leader": LEADER,
        "/readyz": {"ready": False, "reasons": [text]},
        "/api/v1/nodes": {"at_ms": AT_MS, "nodes": [node]},
        "/api/v1/nodes/node-1": {"node": node, "because": [text], "chips": [chip], "jobs": []},
        "/api/v1/faults": {"at_ms": AT_MS, "faults": [fault]},
        "/api/v1/liveness": {"liveness": {"alarm": False, "problems": {text: text}}},
        "/api/v1/jobs": {
            "at_ms": AT_MS,
            "jobs": [
                job
                | {
                    "nodes": [
                        {
                            "node": "node-1",
                            "health": "UnHealthy",
                            "since_ms": since_ms,
                            "faults": [hit],
                        }
                    ]
                }
            ],
        },
        "/api/v1/cluster-state": {"cluster_state": {"objects": [pods]}},
        "/api/v1/history?": {
            "events": [entry | {"published": change}],
            "next": 1,
            "more": False,
        },
        "/api/v1/history?after=1": {"events": [], "next": 1, "more": False},
    }
