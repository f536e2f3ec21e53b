"""The intruder's table: what each actor tries with each thing, and what refuses it.

A row is one attempt. A cell is an actor, a thing and a verb; it has rows, or the reason why the
actor has nothing to try. ``cells`` refuses a table with an empty cell. ``docs/security.md`` shows
it.
"""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Actor(Enum):
    """Who tries."""

    AGENT = "the token of one agent"
    CERTIFICATE = "the certificate of one node"
    TENANT = "a tenant with rights in one namespace"
    ADDRESS = "an address of the pod network"
    USER = "a local user without rights"
    PLUGIN = "the account of a taken Device Plugin"


class Thing(Enum):
    """With which thing."""

    DOCUMENTS = "documents"
    LABELS = "labels"
    EVENTS = "Events"
    LEASES = "Leases"
    NODE_STATUS = "node status"
    PODS = "pods"
    RANK_TABLES = "rank tables"
    TOPICS = "topics"
    WILLS = "wills"
    GRPC = "gRPC"
    PAGES = "pages"
    SOCKETS = "sockets"
    FILES = "files"


class Verb(Enum):
    """What it tries; a flood writes things without end, under names of its own choice."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    FLOOD = "flood"


class Protection(Enum):
    """What refuses an attempt. ``real_removed.py`` removes each."""

    ROLE = "role"
    OWN_NODE_POLICY = "policy `npu-vigil-agent-own-node-only`"
    DEVICE_INFO_POLICY = "policy `npu-vigil-device-info-writers`"
    BROKER_RIGHTS = "the broker's `rights`"
    BROKER_CERTIFICATE = "the broker's `require_certificate`"
    LOGIN = "`pages.client_ca_file`"
    GRPC_CERTIFICATE = "`grpc.client_ca_file`"
    MODE = "mode of the file or its directory"
    OTHER_NODE = "the aggregator's check `other-node`"
    OTHER_RESOURCE = "the aggregator's check `other-resource`"
    FAULT_NAMESPACES = "`public_faults.namespaces`"
    TABLE_OWNERS = "the aggregator's check of a `jobID` in several namespaces"


class Request(NamedTuple):
    """A request to the API server, which answers it as a dry run."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


class Publication(NamedTuple):
    """A retained message to a topic of the broker; an empty one deletes the last one."""

    topic: str
    payload: bytes = b"x"


class Subscription(NamedTuple):
    """A filter of topics, whose retained messages the actor wants to read."""

    topics: str


class Will(NamedTuple):
    """A last will: the broker publishes it when it loses the actor's connection."""

    topic: str
    payload: bytes = b"x"


class Page(NamedTuple):
    """A page of a daemon, over the network."""

    path: str


class SocketPage(NamedTuple):
    """A page of a daemon, over its socket."""

    path: str


class Call(NamedTuple):
    """A call of a gRPC method with an encoded message."""

    method: str
    message: bytes


class FileAccess(NamedTuple):
    """What a local user does with a file, and the path below the folder of the daemon."""

    way: str
    path: str


class Content(Enum):
    """What an actor writes into a document of its own that is about others."""

    FAULT = "a public fault of another node"
    RECOVERY = "the end of a public fault of another node"
    RESOURCE = "a public fault of another resource"
    HEARTBEAT = "a heartbeat of another node"
    EPISODES = "episodes of another node"
    TENANTS_FAULT = "a public fault in the tenant's namespace"
    RANK_TABLE = "a table with the jobID of another service"


Attempt: TypeAlias = (
    Request | Publication | Subscription | Will | Page | SocketPage | Call | FileAccess | Content
)


class Row(NamedTuple):
    """An attempt, with the protections that refuse it, the first one first.

    Without a protection the actor may do it, and ``about`` states what remains open.
    """

    actor: Actor
    thing: Thing
    verb: Verb
    about: str
    attempt: Attempt
    protections: tuple[Protection, ...]

    @property
    def name(self) -> str:
        """Return the name of the test of this row; several rows may share it."""
        return f"{self.actor.name}-{self.thing.name}-{self.verb.name}-{self.about}".lower()


class Gap(NamedTuple):
    """Why an actor has nothing to try with these things and verbs."""

    actor: Actor
    things: tuple[Thing, ...]
    reason: str
    verbs: tuple[Verb, ...] = tuple(Verb)


Cell: TypeAlias = tuple[Actor, Thing, Verb]


def cells(rows: Iterable[Row], gaps: Iterable[Gap]) -> dict[Cell, list[Row] | str]:
    """Return the rows of each cell, or the reason why there are none.

    Raises ``ValueError`` for an empty cell, and for one that has both or two reasons.
    """
    table: dict[Cell, list[Row] | str] = {}
    for gap in gaps:
        for cell in product((gap.actor,), gap.things, gap.verbs):
            if cell in table:
                raise ValueError(f"{_shown(cell)}: two reasons")
            table[cell] = gap.reason
    for row in rows:
        entry = table.setdefault((row.actor, row.thing, row.verb), [])
        if isinstance(entry, str):
            raise ValueError(f"{row.name}: a row and a reason: {entry}")
        entry.append(row)
    ordered = list(product(Actor, Thing, Verb))
    if empty := [_shown(cell) for cell in ordered if cell not in table]:
        raise ValueError(f"neither rows nor a reason: {', '.join(empty)}")
    return {cell: table[cell] for cell in ordered}


def _shown(cell: Cell) -> str:
    return " · ".join(part.value for part in cell)
