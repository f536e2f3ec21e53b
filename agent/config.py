"""The agent's configuration: command line beats environment beats TOML file.

Every option is described in ``docs/configuration.md``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, model_validator

from collectors.file_systems.host_mounts import OF_PODS
from collectors.kernel_log.messages import DRIVER_PATTERNS
from contract.configuration import (
    Directory,
    HostName,
    ListenAddress,
    Mqtt,
    Section,
    StoreAddress,
    load,
)
from contract.names import node_name_problem
from service.files import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping


T = TypeVar("T")


def _node_name(text: str) -> str:
    problem = node_name_problem(text)
    if problem is not None:
        raise ValueError(problem)
    return text


DocumentKind: TypeAlias = Literal["device-info", "node-info"]
"""What this agent may own: write, repair and delete."""


class ChipFaultsSection(Section):
    """How the chip collector works."""

    audit_period_seconds: float = Field(default=15.0, ge=0.1, le=3600)
    health_period_seconds: float = Field(default=5.0, ge=0.1, le=3600)
    card_lost_after_seconds: float = Field(default=300.0, ge=10, le=86_400)
    list_period_seconds: float = Field(default=1.0, ge=0.5, le=60)


class BmcSection(Section):
    """How the server's BMC is asked for its alarms."""

    enabled: bool = True
    period_seconds: float = Field(default=10.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=60)
    device: str = "/dev/ipmi0"


class SwitchSection(Section):
    """How the collector of on-board switches works."""

    audit_period_seconds: float = Field(default=30.0, ge=0.1, le=3600)


class LinksSection(Section):
    """How network links are asked about."""

    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=600)


class CompatibilitySection(Section):
    """Where to do as upstream does, and otherwise do not."""

    hccn_error: Literal["blind", "down"] = "blind"
    duo_cards: Literal["apart", "together"] = "apart"


class HangSection(Section):
    """When a chip counts as hanging (``docs/spec/device-plugin.md#4``)."""

    enabled: bool = True
    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=10.0, ge=0.1, le=600)
    aicore_utilization: int = Field(default=5, ge=0, le=101)
    hbm_memory_delta: int = Field(default=0, ge=0, le=100)
    traffic_delta: int = Field(default=100, ge=0)
    cpu_time_delta: int = Field(default=5, ge=0)
    detect_duration: int = Field(default=5, ge=1, le=1440)


class StorageSection(Section):
    """Shared storage clients, and where their faults are told (``docs/spec/noded.md#4.3`` to 4.5).

    With ``clusterd`` over gRPC, not through the store; with ``ca_file`` over TLS. Files are PEM.
    """

    period_seconds: float = Field(default=5.0, ge=0.1, le=3600)
    dpc_file: str = "/user/mind-cluster/dpcstatus/dpc_status_check"
    dtfs_file: str = "/user/mind-cluster/dtfsstatus/dtfs_status_check"
    clusterd: ListenAddress | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @model_validator(mode="after")
    def _files_go_together(self) -> StorageSection:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file are given both or not at all")
        if self.certificate_file is not None and self.ca_file is None:
            raise ValueError("a certificate is for TLS, which needs ca_file")
        return self


class FileSystemsSection(Section):
    """When a file system of the host counts as full."""

    enabled: bool = True
    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=5.0, ge=0.1, le=60)
    full_percent: float = Field(default=95.0, gt=0, le=100)
    full_cleared_percent: float = Field(default=93.0, gt=0, le=100)
    excluded: tuple[str, ...] = OF_PODS

    @model_validator(mode="after")
    def _clears(self) -> Self:
        return _at_most(self, "full_cleared_percent", "full_percent")


class MemorySection(Section):
    """When memory of the host counts as short."""

    enabled: bool = True
    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    stalled_percent: float = Field(default=20.0, gt=0, le=100)
    stalled_cleared_percent: float = Field(default=10.0, gt=0, le=100)
    available_percent: float = Field(default=3.0, gt=0, le=100)
    available_cleared_percent: float = Field(default=5.0, gt=0, le=100)

    @model_validator(mode="after")
    def _clears(self) -> Self:
        _at_most(self, "stalled_cleared_percent", "stalled_percent")
        return _at_most(self, "available_percent", "available_cleared_percent")


def _at_most(section: T, less: str, more: str) -> T:
    """What is raised at one threshold and cleared at another must not be both at once."""
    if getattr(section, less) > getattr(section, more):
        raise ValueError(f"{less} must not be more than {more}")
    return section


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


class KernelLogSection(Section):
    """How the log of the kernel is read."""

    enabled: bool = True
    device: str = "/dev/kmsg"
    hold_seconds: float = Field(default=300.0, ge=1, le=86_400)
    npu_driver_patterns: tuple[Annotated[str, AfterValidator(_pattern)], ...] = DRIVER_PATTERNS


class ClockSection(Section):
    """When the clock of the host counts as set."""

    enabled: bool = True
    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    step_seconds: float = Field(default=10.0, ge=0.1, le=86_400)


class DriverCallsSection(Section):
    """How the vendor library is called."""

    call_deadline_seconds: float = Field(default=0.5, ge=0.05, le=10)
    probe_period_seconds: float = Field(default=10.0, ge=0.1, le=3600)


class MetricsSection(Section):
    """What ``/metrics`` shows."""

    npu_exporter_names: bool = False
    """Off: beside a real NPU exporter every sum would double."""


class AgentPagesSection(Section):
    """Who may ask for pages on the address of ``--listen``."""

    max_connections: int = Field(default=64, ge=16, le=1024)
    """Eight of them are kept for addresses of the host itself."""
    host_names: tuple[HostName, ...] = ()
    """Names under which it may be asked over loopback, besides ``localhost`` and addresses."""


class HeartbeatSection(Section):
    """The proof that the agent is alive."""

    interval_seconds: float = Field(default=5.0, ge=1, le=300)
    absence_seconds: float = Field(default=0.0, ge=0, le=900)
    generation: Literal["lease", "annotation", "cm-v5", "cm-v6rc"] = "lease"
    """Beside our own: each of the others wakes everybody who watches nodes or documents."""


class NodeLabelsSection(Section):
    """The labels and annotations of the Node."""

    enabled: bool = True


class AgentConfiguration(Section):
    """Everything that ``vigil agent`` can be told."""

    node_name: Annotated[str, AfterValidator(_node_name)]
    store: StoreAddress = "kubernetes:"
    kubeconfig: Path | None = None
    mqtt: Mqtt = Mqtt()
    directory: Directory = Directory()
    driver_root: Path | None = None
    trust_driver: bool = False
    state_dir: Path = Path("/var/lib/npu-vigil")
    fault_config_dir: Path | None = None
    listen: ListenAddress | None = None
    documents: Annotated[tuple[DocumentKind, ...], Field(min_length=1)] = (
        "device-info",
        "node-info",
    )
    shadow: bool = False
    """Beside a real Device Plugin: compare what it writes with what we would, and write nothing."""
    chip_faults: ChipFaultsSection = ChipFaultsSection()
    bmc: BmcSection = BmcSection()
    switch: SwitchSection = SwitchSection()
    links: LinksSection = LinksSection()
    hang: HangSection = HangSection()
    storage: StorageSection = StorageSection()
    file_systems: FileSystemsSection = FileSystemsSection()
    memory: MemorySection = MemorySection()
    kernel_log: KernelLogSection = KernelLogSection()
    clock: ClockSection = ClockSection()
    compatibility: CompatibilitySection = CompatibilitySection()
    driver: DriverCallsSection = DriverCallsSection()
    metrics: MetricsSection = MetricsSection()
    pages: AgentPagesSection = AgentPagesSection()
    heartbeat: HeartbeatSection = HeartbeatSection()
    node_labels: NodeLabelsSection = NodeLabelsSection()

    @model_validator(mode="after")
    def _old_heartbeats_have_a_place(self) -> Self:
        generation = self.heartbeat.generation
        if generation == "annotation" and self.store != "kubernetes:":
            raise ValueError(
                "heartbeat.generation annotation needs the store kubernetes: only that has Nodes"
            )
        if generation.startswith("cm-") and "node-info" not in self.documents:
            raise ValueError(
                f"heartbeat.generation {generation} is in node-info, which is not in `documents`"
            )
        return self


def load_agent(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> AgentConfiguration:
    """Merge and check all layers. ``NODE_NAME`` stands in for ``VIGIL_NODE_NAME``.

    Raises ``ConfigurationError`` with all problems.
    """
    variables = dict(environment)
    if "NODE_NAME" in variables:
        variables.setdefault("VIGIL_NODE_NAME", variables["NODE_NAME"])
    return load(
        AgentConfiguration,
        file=None if file is None else read_toml(file),
        environment=variables,
        command_line=command_line,
        source="vigil agent" if file is None else str(file),
    )


def check_agent(content: Mapping[str, object], source: str) -> None:
    """Check the content of a file: what it leaves to flags and environment is not missing.

    Raises ``ConfigurationError`` with all problems.
    """
    file = {"node_name": "any", **content}
    load(AgentConfiguration, file=file, environment={}, command_line={}, source=source)
