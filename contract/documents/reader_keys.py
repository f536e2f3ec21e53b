"""Labels and data keys of documents that some reader acts on, whichever program wrote them.

In a document of ours these are ours even where we do not write them. All other labels, annotations
and data keys belong to whoever adds them. Sources: ``docs/spec/consumers.md#7.1``, M1 and M2,
``docs/spec/clusterd.md#1.2``, 4.1 and 6.
"""

from __future__ import annotations

_LABELS = ("mx-consumer-", "mc-consumer-", "mc-statistic-", "npu-vigil/")
"""What the keys of such labels begin with."""
_MORE_LABELS = frozenset({"jobID", "huawei.com/consumer.clusterd"})
_KEYS = frozenset(
    {
        "Description",
        "DeviceInfoCfg",
        "DpuInfoCfg",
        "ManuallySeparateNPU",
        "NodeInfo",
        "NpuVigil",
        "PublicFault",
        "SwitchInfoCfg",
        "UpgradeFaultReason",
        "hccl.json",
        "state",
        "updateTime",
    }
)
_OURS = "npu-vigil"
"""What data keys and annotations of our own begin with."""


def is_label_acted_on(key: str) -> bool:
    """Return whether some reader selects documents by this label."""
    return key.startswith(_LABELS) or key in _MORE_LABELS


def is_key_acted_on(key: str, document: str) -> bool:
    """Return whether some reader looks for this data key in ``document``; those of a cluster
    document have its name.
    """
    return key == document or key in _KEYS or key.startswith(_OURS)


def is_annotation_ours(key: str) -> bool:
    """Return whether only we set this annotation."""
    return key.startswith(f"{_OURS}/")
