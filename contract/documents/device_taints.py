"""Devices of dynamic resource allocation, and rules that taint them (``resource.k8s.io``).

Of a ResourceSlice only devices that are chips count, of a ResourceClaim the pods that use a device,
and of a DeviceTaintRule those that this product made. ``v1`` and ``v1beta2`` have the same fields
(Kubernetes, ``staging/src/k8s.io/api/resource``).
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contract.codes.levels import ChipLevel
from contract.kubernetes import Member
from contract.node_signals import TAINT_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contract.kubernetes import KubernetesObject

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2")
"""Of the group, the preferred one first. Earlier ones have other fields."""

CHIP_ATTRIBUTES = {
    "npu.huawei.com": "physicId",
    "ascend.project-hami.io": "physicalID",
}
"""By driver the attribute of a device with the physical id of its chip.

``component/ascend-dynamic-resource-allocation`` of MindCluster (commit ``22bb3d98``) and
``pkg/consts/consts.go`` of HAMi's ``ascend-dra-driver`` (``dc1db52``) publish these, as integers.
"""

MANAGED_BY = ("app.kubernetes.io/managed-by", "npu-vigil")
"""The label of each rule of ours."""
RULE_PREFIX = "npu-vigil-"
NODE_ANNOTATION = "npu-vigil/node"
CHIP_ANNOTATION = "npu-vigil/chip"
PODS_ANNOTATION = "npu-vigil/evicted-pods"
"""How many pods were to be evicted when the effect of the rule was changed to ``NoExecute``."""

_EVICTION = "EvictionInProgress"


class DeviceEffect(StrEnum):
    """What a taint does to pods that do not tolerate it, most serious first."""

    NO_EXECUTE = "NoExecute"
    NO_SCHEDULE = "NoSchedule"
    NONE = "None"


_STRICTNESS = {DeviceEffect.NONE: 0, DeviceEffect.NO_SCHEDULE: 1, DeviceEffect.NO_EXECUTE: 2}


def is_stricter(effect: DeviceEffect, other: DeviceEffect) -> bool:
    """Return whether ``effect`` does more to pods than ``other``."""
    return _STRICTNESS[effect] > _STRICTNESS[other]


def weaker(effect: DeviceEffect, other: DeviceEffect) -> DeviceEffect:
    """Return that of two effects which does less to pods."""
    return min(effect, other, key=_STRICTNESS.__getitem__)


DEFAULT_EFFECTS = {
    ChipLevel.MANUALLY_SEPARATE_NPU: DeviceEffect.NO_EXECUTE,
    ChipLevel.SEPARATE_NPU: DeviceEffect.NO_EXECUTE,
    ChipLevel.PRE_SEPARATE_NPU: DeviceEffect.NO_SCHEDULE,
    ChipLevel.RESTART_NPU: DeviceEffect.NO_EXECUTE,
    ChipLevel.FREE_RESTART_NPU: DeviceEffect.NO_SCHEDULE,
    ChipLevel.RESTART_BUSINESS: DeviceEffect.NO_EXECUTE,
    ChipLevel.RESTART_REQUEST: DeviceEffect.NO_EXECUTE,
    ChipLevel.SUB_HEALTH_FAULT: DeviceEffect.NONE,
}
"""Pods are evicted at the levels at which Volcano ends jobs (``docs/spec/consumers.md#1.10``)."""


class Device(NamedTuple):
    """A device by which rules and claims refer to it."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


class ChipDevice(NamedTuple):
    """A device that is a chip or a part of it: its name and the chip's physical id.

    ``node`` is empty where the node is that of the slice.
    """

    name: str
    chip: int
    node: str = ""


class DeviceSlice(msgspec.Struct, frozen=True, gc=False):
    """A ResourceSlice: some of the devices of a pool.

    ``slices`` is how many slices of this ``generation`` the pool has. Only devices that are chips
    of a node are in ``devices``: a tuple that slices with equal devices share.
    """

    driver: str
    pool: str
    generation: int
    slices: int
    node: str
    devices: tuple[ChipDevice, ...]


class Eviction(msgspec.Struct, frozen=True, gc=False):
    """The answer of the controller manager to a rule, for a ``generation`` of it.

    ``pods`` is how many pods would be evicted by ``NoExecute``, ``None`` where the text has no such
    number.
    """

    generation: int
    text: str
    pods: int | None


class TaintRule(msgspec.Struct, frozen=True, gc=False):
    """A DeviceTaintRule for one device.

    ``node`` and ``chip`` are of the fault that it was made for. ``evicted_pods`` is how many pods
    were to be evicted when its effect became ``NoExecute``. What is empty or zero of ``uid``,
    ``version`` and ``generation`` is not stored yet.
    """

    device: Device
    value: str
    effect: DeviceEffect
    node: str
    chip: int
    evicted_pods: int = 0
    key: str = TAINT_KEY
    name: str = ""
    uid: str = ""
    version: str = ""
    generation: int = 0
    eviction: Eviction | None = None

    @property
    def content(self) -> tuple[object, ...]:
        """Return what of the rule is written by us, for a comparison."""
        return (
            self.name,
            self.device,
            self.key,
            self.value,
            self.effect,
            self.node,
            self.chip,
            self.evicted_pods,
        )


def rule_name(device: Device) -> str:
    """Return the name of the rule for a device: two leaders that make it meet in one object."""
    # No name contains NUL, so two devices never give the same text.
    digest = hashlib.sha256("\0".join(device).encode()).hexdigest()[:16]
    return f"{RULE_PREFIX}{device.name}-{digest}"


def rule_body(rule: TaintRule, version: str) -> dict[str, object]:
    """Return the object that makes a rule, or for one that is stored the merge patch of it.

    ``version`` is that of the group. A patch names uid and version: those of another object are a
    conflict.
    """
    stored = {"uid": rule.uid, "resourceVersion": rule.version} if rule.uid else {}
    pods = str(rule.evicted_pods) if rule.evicted_pods else None
    annotations = {
        NODE_ANNOTATION: rule.node,
        CHIP_ANNOTATION: str(rule.chip),
        # Null removes it. A rule that is made has none, and null would be a text there.
        **({PODS_ANNOTATION: pods} if pods or stored else {}),
    }
    label, product = MANAGED_BY
    driver, pool, device = rule.device
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule.name,
            "labels": {label: product},
            "annotations": annotations,
            **stored,
        },
        "spec": {
            "deviceSelector": {"driver": driver, "pool": pool, "device": device},
            "taint": {"key": rule.key, "value": rule.value, "effect": rule.effect.value},
        },
    }


# ResourceSlices.


class _Attribute(msgspec.Struct):
    """The value of an attribute: one member is there."""

    number: int | None = msgspec.field(default=None, name="int")
    string: str | None = None


class _SliceDevice(msgspec.Struct, rename="camel"):
    name: str
    # Not decoded: of the many attributes of a device only one is read.
    attributes: dict[str, msgspec.Raw] | None = None
    node_name: str | None = None


class _Pool(msgspec.Struct, rename="camel"):
    name: str
    generation: int
    resource_slice_count: int


class _SliceSpec(msgspec.Struct, rename="camel"):
    driver: str
    pool: _Pool
    node_name: str | None = None
    devices: list[_SliceDevice] | None = None


_slice_spec = Member("spec", _SliceSpec)
_attribute = msgspec.json.Decoder(_Attribute).decode
# More than any id has; a long text is costly to convert.
_MAX_ID_DIGITS = 9


def slice_reader(
    attributes: Mapping[str, str],
) -> Callable[[KubernetesObject], DeviceSlice | None]:
    """Return what reads a ResourceSlice; ``attributes`` is as ``CHIP_ATTRIBUTES``.

    It returns ``None`` for a slice of another driver, and raises ``ValueError`` for one that cannot
    be read.
    """

    def read(item: KubernetesObject) -> DeviceSlice | None:
        spec = _slice_spec(item)
        attribute = attributes.get(spec.driver)
        if attribute is None:
            return None
        devices = tuple(
            chip_device
            for device in spec.devices or ()
            if (chip_device := _chip_device(device, spec, attribute)) is not None
        )
        pool = spec.pool
        return DeviceSlice(
            driver=intern(spec.driver),
            pool=intern(pool.name),
            generation=pool.generation,
            slices=pool.resource_slice_count,
            node=intern(spec.node_name or ""),
            devices=_shared(devices),
        )

    return read


def _chip_device(device: _SliceDevice, spec: _SliceSpec, attribute: str) -> ChipDevice | None:
    """Return a device as that of a chip; ``None`` where its node or its chip is not stated."""
    attributes = device.attributes or {}
    # An attribute without a domain has that of the driver (Kubernetes, QualifiedName).
    given = attributes.get(attribute) or attributes.get(f"{spec.driver}/{attribute}")
    if given is None or not (device.node_name or spec.node_name):
        return None
    value = _attribute(given)
    chip = _physical_id(value.string) if value.number is None else value.number
    if chip is None or chip < 0:
        return None
    return ChipDevice(device.name, chip, device.node_name or "")


def _physical_id(text: str | None) -> int | None:
    is_number = text is not None and text.isdecimal() and len(text) <= _MAX_ID_DIGITS
    return int(text) if is_number and text is not None else None


@lru_cache(1024)
def _shared(devices: tuple[ChipDevice, ...]) -> tuple[ChipDevice, ...]:
    """Return one tuple for all equal ones: drivers name the devices of most nodes alike."""
    return devices


# DeviceTaintRules.


class _RuleAnnotations(msgspec.Struct):
    node: str = msgspec.field(default="", name=NODE_ANNOTATION)
    chip: str = msgspec.field(default="", name=CHIP_ANNOTATION)
    pods: str = msgspec.field(default="", name=PODS_ANNOTATION)


class _Selector(msgspec.Struct):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class _Taint(msgspec.Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class _RuleSpec(msgspec.Struct, rename="camel"):
    taint: _Taint
    device_selector: _Selector | None = None


class _RuleCondition(msgspec.Struct, rename="camel"):
    type: str = ""
    message: str = ""
    observed_generation: int = 0


class _RuleStatus(msgspec.Struct):
    conditions: list[_RuleCondition] | None = None


_labels: Member[dict[str, str]] = Member("metadata.labels", dict[str, str])
_annotations = Member("metadata.annotations", _RuleAnnotations)
_rule_spec = Member("spec", _RuleSpec)
_rule_status = Member("status", _RuleStatus)
_generation: Member[int | None] = Member("metadata.generation", int | None)

# kube-controller-manager 1.36: "3 pods would be evicted in 2 different namespaces if the effect …".
_WOULD_BE_EVICTED = re.compile(r"\b(\d{1,9}) pods? would be evicted\b")


def read_rule(item: KubernetesObject) -> TaintRule | None:
    """Return a rule of ours; ``None`` for a rule without our prefix or our label.

    A member that another program changed is as it is now, and empty where it is missing. Raises
    ``ValueError`` for a rule that cannot be read.
    """
    metadata = item.metadata
    label, product = MANAGED_BY
    if not metadata.name.startswith(RULE_PREFIX) or _labels(item).get(label) != product:
        return None
    spec, annotations = _rule_spec(item), _annotations(item)
    selector = spec.device_selector or _Selector()
    chip, pods = _physical_id(annotations.chip), _physical_id(annotations.pods)
    return TaintRule(
        device=Device(selector.driver or "", selector.pool or "", selector.device or ""),
        key=spec.taint.key,
        value=spec.taint.value,
        effect=_effect(spec.taint.effect),
        node=annotations.node,
        # An annotation that cannot be read must not mean chip 0.
        chip=-1 if chip is None else chip,
        evicted_pods=pods or 0,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        generation=_generation(item) or 0,
        eviction=_eviction(_rule_status(item)),
    )


def _effect(text: str) -> DeviceEffect:
    # Kubernetes demands that an unknown effect counts as none.
    return DeviceEffect(text) if text in list(DeviceEffect) else DeviceEffect.NONE


def _eviction(status: _RuleStatus) -> Eviction | None:
    for condition in status.conditions or ():
        if condition.type == _EVICTION:
            match = _WOULD_BE_EVICTED.search(condition.message)
            pods = None if match is None else int(match[1])
            return Eviction(condition.observed_generation, condition.message, pods)
    return None


# ResourceClaims.


class _ClaimToleration(msgspec.Struct, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class _Result(msgspec.Struct):
    driver: str
    pool: str
    device: str
    tolerations: list[_ClaimToleration] | None = None


class _Results(msgspec.Struct):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct):
    devices: _Results = msgspec.field(default_factory=_Results)


class _Consumer(msgspec.Struct):
    resource: str = ""
    uid: str = ""


class _ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


_claim_status = Member("status", _ClaimStatus)


class DeviceUse(msgspec.Struct, gc=False):
    """Which pods use devices: a count of all, and by device the uids of those that ``NoExecute``
    would evict.
    """

    pods: set[str]
    evictable: dict[Device, set[str]]


def add_claim(use: DeviceUse, item: KubernetesObject, drivers: frozenset[str]) -> None:
    """Count a ResourceClaim in; of its devices only those in ``use.evictable`` are looked at.

    Raises ``ValueError`` for a claim that cannot be read.
    """
    status = _claim_status(item)
    if status.allocation is None:
        return
    results = [r for r in status.allocation.devices.results or () if r.driver in drivers]
    pods = {user.uid for user in status.reserved_for or () if user.resource == "pods"}
    if not results:
        return
    use.pods |= pods
    for result in results:
        evictable = use.evictable.get(Device(result.driver, result.pool, result.device))
        if evictable is not None and not any(map(_tolerates, result.tolerations or ())):
            evictable |= pods


def _tolerates(toleration: _ClaimToleration) -> bool:
    """Return whether a claim tolerates our taint for ever, whatever its value is.

    A toleration of one value is not counted: the value changes with the level of the fault. One
    without an effect counts for placement alone (Kubernetes 1.36, its controller of evictions).
    """
    return (
        toleration.toleration_seconds is None
        and toleration.operator == "Exists"
        and toleration.key in ("", TAINT_KEY)
        and toleration.effect == DeviceEffect.NO_EXECUTE
    )
