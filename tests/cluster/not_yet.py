"""What of the recordings and worked examples the aggregator cannot do yet, and why.

One entry: from this point of the recording on this output differs from upstream's in ways that
``docs/compatibility.md`` does not have. Whoever makes an entry wrong sees it: one that would pass
now fails its test, and so does one whose first point is not the first that differs.
"""

from __future__ import annotations

from typing import NamedTuple

PUBLIC_FAULTS = "public faults are not read and statistic-fault-info is not written"
SERVICES = "the daemon serves no gRPC"
UCE = "the UCE-accompany processor is missing"
MANUAL = "manual separation is missing"
CUSTOM_FILTER = "the custom filter is missing"
RELATIONS = "relation faults are not judged, no pod gets the label fault-type"
JOBS = "the job view is missing"

_DEVICE = "cluster-info-device-0"
_STATISTIC = "statistic-fault-info"
_SEND = "PubFault/SendPublicFault"
_GET = "fault.Fault/GetFaultMsgSignal"
_REGISTER = "fault.Fault/Register"
_STREAM = "fault.Fault/SubscribeFaultMsgSignal"


class Entry(NamedTuple):
    """From which point on, and why."""

    since: str
    reason: str


EXAMPLES_NOT_YET: dict[tuple[str, str], Entry] = {
    ("E20", _DEVICE): Entry("@9030", PUBLIC_FAULTS),
    ("E20", _STATISTIC): Entry("@9030", PUBLIC_FAULTS),
    ("E21", _DEVICE): Entry("@5030", PUBLIC_FAULTS),
    ("E22", _DEVICE): Entry("@5030", PUBLIC_FAULTS),
    ("E26", _DEVICE): Entry("@5010", UCE),
    ("E27", _DEVICE): Entry("@5030", MANUAL),
    ("E29", _DEVICE): Entry("@5030", CUSTOM_FILTER),
    ("E31", _GET): Entry("@13060", JOBS),
}
"""The same for the worked examples."""

NOT_YET: dict[tuple[str, str], Entry] = {
    ("fault-query", _GET): Entry("@11577", SERVICES),
    ("job-fault-stream", _REGISTER): Entry("@12635", SERVICES),
    ("job-fault-stream", _STREAM): Entry("@12635", SERVICES),
    ("public-fault-add-and-recover", _DEVICE): Entry("@8512", PUBLIC_FAULTS),
    ("public-fault-add-and-recover", _STATISTIC): Entry("@8512", PUBLIC_FAULTS),
    ("public-fault-detail-cap", _DEVICE): Entry("@7521", SERVICES),
    ("public-fault-detail-cap", _SEND): Entry("@7521", SERVICES),
    ("public-fault-detail-cap", _STATISTIC): Entry("@7521", SERVICES),
    ("public-fault-malformed", _DEVICE): Entry("@11548", PUBLIC_FAULTS),
    ("public-fault-malformed", _STATISTIC): Entry("@11548", PUBLIC_FAULTS),
    ("public-fault-rate-limit", _DEVICE): Entry("@7607", SERVICES),
    ("public-fault-rate-limit", _SEND): Entry("@7607", SERVICES),
    ("public-fault-rate-limit", _STATISTIC): Entry("@7607", SERVICES),
    ("public-fault-survives-restart", _DEVICE): Entry("@8510", PUBLIC_FAULTS),
    ("public-fault-survives-restart", _STATISTIC): Entry("@8510", PUBLIC_FAULTS),
    ("relation-fault-escalates-at-once", "Pod default/sub-0"): Entry("@16598", RELATIONS),
    ("relation-fault-escalates-at-once", "Pod default/train-0"): Entry("@16598", RELATIONS),
    ("relation-fault-escalates-at-once", _REGISTER): Entry("@12590", SERVICES),
    ("relation-fault-escalates-at-once", _STREAM): Entry("@12590", SERVICES),
    ("statistic-and-manual-outputs-edited", _DEVICE): Entry("@5509", PUBLIC_FAULTS),
    ("statistic-and-manual-outputs-edited", _STATISTIC): Entry("@5509", PUBLIC_FAULTS),
    ("time-only-updates-travel-with-another-change", _DEVICE): Entry("@16537", PUBLIC_FAULTS),
    ("time-only-updates-travel-with-another-change", _STATISTIC): Entry("@16537", PUBLIC_FAULTS),
    ("uce-accompany-window", _DEVICE): Entry("@8508+557", UCE),
}
"""By recording and output, as ``Found`` has them."""
