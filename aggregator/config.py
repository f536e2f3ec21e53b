"""The aggregator's configuration: command line beats environment beats TOML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, field

from aggregator.accepted_namespaces import ALL
from contract.codes.levels import (
    ENDING_LEVELS,
    SEPARATING_LEVELS,
    UNITED_LEVELS,
    ChipLevel,
)
from contract.documents.device_taints import DEFAULT_EFFECTS, DeviceEffect
from contract.documents.public_fault import LAST_DEVICE
from contract.names import DEFAULT_MAX_NODES, MAX_NODES
from contract.settings import HostName, ListenAddress, Section, StoreAddress, ValueRule
from service.configuration import load, load_daemon
from service.log.setup import LogFormat
from service.pages.settings import PagesTlsSection
from stores.document_names import is_namespace
from stores.settings import Directory, Mqtt

if TYPE_CHECKING:
    from collections.abc import Mapping


SOCKET_NAME = "aggregator.sock"
"""Of the socket in the state directory on which the pages are served."""


class LivenessSection(Section, frozen=True):
    """What becomes of nodes that fall silent."""

    publish: bool = True
    """Publish them ``UnHealthy``; otherwise they are only shown."""


def _namespace(text: str) -> str:
    if text != ALL and not is_namespace(text):
        raise ValueError(
            f"is not a valid namespace; use names of namespaces, or {ALL} for all of them"
        )
    return text


Namespaces: TypeAlias = Annotated[
    tuple[Annotated[str, ValueRule(_namespace)], ...], Meta(min_length=1)
]
"""Names of namespaces that documents are accepted from; ``*`` among them: from all."""


class PublicFaultsSection(Section, frozen=True):
    """Faults of chips that other programs report."""

    namespaces: Namespaces = (ALL,)
    """Every program that may create a ConfigMap in one of them can isolate any chip."""
    table_file: Path = Path("/user1/mindx-dl/clusterd/publicCustomization.json")
    """Codes, levels and resources in place of those that are shipped, where there is one."""


_Chip: TypeAlias = Annotated[int, Meta(ge=0, le=LAST_DEVICE)]


class DpuFaultsSection(Section, frozen=True):
    """Faults of RDMA NICs and DPUs, in the documents of MindCluster's RDMA plugin (Kubernetes)."""

    publish: bool = False
    """Publish them as public faults, so that schedulers act; otherwise they are only shown."""
    chips: dict[Annotated[str, Meta(min_length=1)], tuple[_Chip, ...]] = field(default_factory=dict)
    """By name of the device (HcaName) the physical ids of the chips that depend on it, on every
    node. A device without an entry concerns all chips of its node, at most at PreSeparateNPU; one
    with an empty list concerns none.
    """


class RankTablesSection(Section, frozen=True):
    """The tables of the jobs of MindIE services."""

    namespaces: Namespaces = (ALL,)
    """They lie where their jobs are."""


class PaceSection(Section, frozen=True):
    """The limit of writes to a store."""

    writes_per_second: Annotated[int, Meta(ge=1, le=1000)] = 16
    """Writes of cluster documents in any second, touches too. A store that stalls shows them later
    and closer together, so the 20 that readers are to see at most leave a margin.
    """


def _agent_url(text: str) -> str:
    filled = text.replace("{node}", "n")
    if filled == text or not re.fullmatch(r'https?://[^\s"<>\\^`{|}]+', filled):
        raise ValueError(
            "is not a valid address of agents' pages; use http:// or https:// and {node} for the "
            "name of the node, as in http://{node}:9820/"
        )
    return text


AgentUrl: TypeAlias = Annotated[str, ValueRule(_agent_url)]
"""Where browsers find the page of a node's agent; ``{node}`` is the name of the node."""


class AggregatorPagesSection(PagesTlsSection, frozen=True):
    """Connections, host names and TLS of the pages on the address of ``--listen``."""

    max_connections: Annotated[int, Meta(ge=16, le=1024)] = 256
    """Eight of them are kept for addresses of the host itself."""
    host_names: tuple[HostName, ...] = ()
    """Names that a request over loopback may use, besides ``localhost`` and addresses."""
    agent_url: AgentUrl | None = None
    """The page in the browser links to it; nothing asks there."""
    tokens: bool = False
    """Tokens of Kubernetes may read pages, where their users may get the paths of these."""
    token_audience: Annotated[str, Meta(min_length=1)] = "npu-vigil"
    """For which tokens must be issued."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens and self.certificate_file is None:
            raise ValueError(
                "certificate_file and key_file are missing: tokens needs TLS on the pages"
            )


class LeaderSection(Section, frozen=True):
    """Which of several aggregators writes."""

    elect: bool = True
    """By a Lease or a lock in what is published to; otherwise this is the only aggregator."""
    lease_seconds: Annotated[int, Meta(ge=2, le=300)] = 10
    """How long a follower waits for a leader that was killed."""


class GrpcSection(Section, frozen=True):
    """ClusterD's services for its clients; files are PEM."""

    listen: ListenAddress | None = None
    plaintext: bool = False
    """Without TLS, for every client that can connect: its messages can isolate chips."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None

    def __post_init__(self) -> None:
        files = {
            "certificate_file": self.certificate_file,
            "key_file": self.key_file,
            "client_ca_file": self.client_ca_file,
        }
        missing = [name for name, file in files.items() if file is None]
        if self.plaintext and len(missing) < len(files):
            raise ValueError("plaintext and files for TLS exclude each other")
        if self.listen is not None and not self.plaintext and missing:
            raise ValueError(
                f"{', '.join(missing)} missing: clients are served over mutual TLS unless "
                "plaintext is set"
            )


class AdviceSection(Section, frozen=True):
    """What the scheduler will do about what is published."""

    enabled: bool = False
    """On Kubernetes alone; reads all pods, and jobs of Volcano and of the Ascend Operator and
    ReplicaSets as far as it may."""


def _level(text: str) -> str:
    if text not in UNITED_LEVELS:
        raise ValueError(f"is not a valid level; use one of {', '.join(UNITED_LEVELS)}")
    return text


SignalLevels: TypeAlias = tuple[Annotated[str, ValueRule(_level)], ...]
"""Levels of chips, switches and parts of servers."""


class NodeConditionsSection(Section, frozen=True):
    """Conditions of Nodes, on Kubernetes."""

    enabled: bool = False
    dry_run: bool = False
    """Show what would be written, and write nothing."""
    false_levels: SignalLevels = ENDING_LEVELS
    """A fault at one of them makes its condition ``False``; one at another level stays ``True``."""


class NodeTaintsSection(Section, frozen=True):
    """The taint ``npu-vigil/fault`` of Nodes, on Kubernetes."""

    enabled: bool = False
    dry_run: bool = False
    """Show what would be written, and write nothing."""
    no_schedule_levels: SignalLevels = SEPARATING_LEVELS
    """New pods that do not tolerate the taint stay away."""
    no_execute_levels: SignalLevels = ()
    """Pods that do not tolerate the taint are evicted, too."""
    chips: Literal["all", "any"] = "all"
    """A fault of chips counts when all chips of the node have one, or any."""
    max_nodes_percent: Annotated[int, Meta(ge=1, le=100)] = 10
    """So many of the nodes with agents get a taint at most, one at least."""


class DeviceTaintsSection(Section, frozen=True):
    """Rules that taint devices of dynamic resource allocation, on Kubernetes."""

    enabled: bool = False
    dry_run: bool = False
    """Show what would be written, and write nothing."""
    drivers: dict[Annotated[str, Meta(min_length=1)], Annotated[str, Meta(min_length=1)]] = field(
        default_factory=dict
    )
    """By driver the attribute of its devices with the physical id of the chip, beside those of
    ``npu.huawei.com`` and ``ascend.project-hami.io``.
    """
    effects: dict[ChipLevel, DeviceEffect] = field(default_factory=DEFAULT_EFFECTS.copy)
    """By level of a fault the effect on the devices of its chip; a level without an entry has no
    rule.
    """
    max_chips_percent: Annotated[int, Meta(ge=1, le=100)] = 10
    """So many of the chips with devices have an effect at most, one at least."""
    max_pods_percent: Annotated[int, Meta(ge=1, le=100)] = 5
    """So many of the pods with such devices are evicted at most, one at least."""


class AggregatorConfiguration(Section, frozen=True):
    """All settings of ``vigil aggregator``."""

    store: Annotated[tuple[StoreAddress, ...], Meta(min_length=1)] = ("kubernetes:",)
    publish: tuple[StoreAddress, ...] = ()
    kubeconfig: Path | None = None
    mqtt: Mqtt = Mqtt()
    directory: Directory = Directory()
    state_dir: Path = Path("/var/lib/npu-vigil-aggregator")
    listen: ListenAddress | None = None
    log_format: LogFormat = LogFormat.TEXT
    grpc: GrpcSection = GrpcSection()
    touch_period_seconds: Annotated[float, Meta(gt=0, le=55)] = 45.0
    """Below the 60 s after which a reader takes a silent document for a broken watch."""
    max_nodes: Annotated[int, Meta(ge=1, le=MAX_NODES)] = DEFAULT_MAX_NODES
    """In each store; new nodes beyond it are refused and shown."""
    liveness: LivenessSection = LivenessSection()
    public_faults: PublicFaultsSection = PublicFaultsSection()
    dpu_faults: DpuFaultsSection = DpuFaultsSection()
    rank_tables: RankTablesSection = RankTablesSection()
    pace: PaceSection = PaceSection()
    pages: AggregatorPagesSection = AggregatorPagesSection()
    leader: LeaderSection = LeaderSection()
    advice: AdviceSection = AdviceSection()
    node_conditions: NodeConditionsSection = NodeConditionsSection()
    node_taints: NodeTaintsSection = NodeTaintsSection()
    device_taints: DeviceTaintsSection = DeviceTaintsSection()

    def __post_init__(self) -> None:
        options = {
            "node_conditions": self.node_conditions.enabled,
            "node_taints": self.node_taints.enabled,
            "device_taints": self.device_taints.enabled,
        }
        enabled = [name for name, is_enabled in options.items() if is_enabled]
        if enabled and "kubernetes:" not in self.store:
            raise ValueError(f"{', '.join(enabled)}: only the store kubernetes: has Nodes")
        if self.pages.tokens and "kubernetes:" not in (*self.store, *self.publish):
            raise ValueError("pages.tokens: only the store kubernetes: reviews tokens")

    @property
    def read_urls(self) -> tuple[str, ...]:
        """The stores to read, each once."""
        return tuple(dict.fromkeys(self.store))

    @property
    def publish_urls(self) -> tuple[str, ...]:
        """The stores to publish to: by default the first one that is read."""
        return tuple(dict.fromkeys(self.publish)) or self.store[:1]


def load_aggregator(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> AggregatorConfiguration:
    """Merge and check all layers. Raises ``ConfigurationError`` with every problem."""
    return load_daemon(AggregatorConfiguration, file, environment, command_line, "aggregator")


def check_aggregator(content: Mapping[str, object], source: str) -> None:
    """Check the content of a file for itself. Raises ``ConfigurationError`` with every problem."""
    load(AggregatorConfiguration, file=content, environment={}, command_line={}, source=source)
