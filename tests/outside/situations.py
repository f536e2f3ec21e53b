"""The calls of ``vigil`` that are recorded, in the order in which they run.

``{name}`` in an argument is a path of ``tests/outside/running.py``.
"""

from __future__ import annotations

import json
from typing import NamedTuple

_STORE = "--store directory:{store} --state-dir {nothing}"
_AGENT = "--state-dir {agent}"
_AGGREGATOR = "--state-dir {aggregator}"
_EMPTY = "--store directory:{empty} --state-dir {nothing}"
_DUMP = "advise --dump {repository}/docs/examples/cluster.json"
_MANIFEST = "{repository}/docs/examples/job-with-findings.yaml"
_RULES = json.dumps({"SeparateNPUCodes": ["80E01801", "80E0"], "Other": 1})


class Call(NamedTuple):
    """One call of ``vigil``: its arguments, separated by spaces, and its standard input.

    ``{_}`` in an argument is a space.
    """

    arguments: str
    text: str = ""

    @property
    def verb(self) -> str:
        """Return the verb that is called: the name of the file that has the recording."""
        return self.arguments.split()[0].lstrip("-")


BEFORE = (
    Call("--version"),
    Call("--help"),
    Call("nonsense"),
    Call("status --nonsense"),
    Call("status --state-dir {nothing}"),
    Call(f"status {_EMPTY}"),
    Call(f"status {_EMPTY} --json"),
    Call("status --store nowhere: --state-dir {nothing}"),
    Call("status --server ftp://x"),
    Call("status --kubeconfig {nothing}/kubeconfig --state-dir {nothing}"),
    Call("faults --state-dir {nothing}"),
    Call(f"faults {_EMPTY}"),
    Call(f"faults {_EMPTY} --level Nonsense"),
    Call(f"faults {_EMPTY} --code nonsense"),
    Call("jobs --state-dir {nothing}"),
    Call(f"jobs {_EMPTY}"),
    Call("timeline --state-dir {nothing}"),
    Call(f"timeline {_EMPTY}"),
    Call("timeline --since yesterday --state-dir {nothing}"),
    Call("support --nonsense"),
    Call("support --state-dir {nothing} --output {nothing}/away/a.tar.gz"),
    Call("explain 80E18402"),
    Call("explain 80E18402 --lang zh"),
    Call("explain 80E18402 --json"),
    Call("explain 80ABCDEF"),
    Call("explain [0x00f1ff09,155912,cpu,na]"),
    Call(f"explain node-1 {_EMPTY}"),
    Call(_DUMP),
    Call(f"{_DUMP} --what-if chip{{_}}3{{_}}of{{_}}node-2{{_}}SeparateNPU"),
    Call(f"{_DUMP} --what-if node-2{{_}}gone --profile corrected --json"),
    Call(f"{_DUMP} --what-if nonsense"),
    Call(f"{_DUMP} --job team/nothing"),
    Call("advise --dump {nothing}/dump.json"),
    Call("advise --dump -", "[]"),
    Call(f"lint {_MANIFEST}"),
    Call(f"lint {_MANIFEST} --json"),
    Call("lint {repository}/docs/examples/job-corrected.yaml"),
    Call("lint {nothing}/job.yaml"),
    Call("lint -", "a: [\n"),
    Call("validate {repository}/daemonset/base/nothing.yaml"),
    Call("validate - --kind fault-code", _RULES),
    Call("validate - --kind agent", 'node_name = "node-1"\nnonsense = 1\n'),
    Call("validate - --kind aggregator", 'store = ["nowhere"]\ntouch_period_seconds = 0\n'),
    Call("validate - --kind fault-duration", '[{"FaultCode": "80E0", "FaultTimeout": -1}]'),
    Call("validate - --kind scaling-rule", "{}"),
    Call("agent --store nowhere: --state-dir {nothing} --heartbeat-interval-seconds 0"),
    Call("aggregator --store nowhere: --listen 9821 --touch-period-seconds 0"),
    Call("elastic --kubeconfig {nothing}/kubeconfig --listen 9821"),
    Call("elastic list --kubeconfig {nothing}/kubeconfig"),
    Call("emulator status --emulator-dir {nothing}"),
    Call("simulate occur 3 80E18402 --emulator-dir {nothing}"),
    Call("replay --state-dir {nothing}"),
    Call("uninstall --store directory:{empty}"),
    Call("forget --store directory:{empty} node-9"),
    Call("isolate node-9 Ascend910-0 --reason test --store directory:{empty} --dry-run"),
    Call("release node-9 Ascend910-0 --store directory:{empty} --dry-run"),
)
"""Nothing runs."""

FAULTS = {
    Call("simulate occur 3 80E18402 --emulator-dir {emulator}"): "80E18402",
    Call("simulate occur 1 0x80E01801 --emulator-dir {emulator}"): "80E01801",
    Call("simulate occur 99 80E18402 --emulator-dir {emulator}"): "bmc of node-1",
}
"""An agent and an aggregator run; two chips fail. Each with the text that a status has then."""

RUNNING = (
    Call(f"status {_AGENT}"),
    Call(f"status {_AGENT} --json"),
    Call(f"status {_AGENT} --lang zh"),
    Call(f"status {_AGGREGATOR}"),
    Call(f"status {_AGGREGATOR} --json"),
    Call(f"status node-1 {_AGGREGATOR}"),
    Call(f"status node-9 {_AGGREGATOR}"),
    Call(f"status {_STORE}"),
    Call(f"status {_STORE} --json"),
    Call(f"faults {_AGENT}"),
    Call(f"faults {_AGENT} --json"),
    Call(f"faults {_AGGREGATOR}"),
    Call(f"faults {_AGGREGATOR} --level SeparateNPU --json"),
    Call(f"faults {_AGGREGATOR} --code 80E01801 --lang zh"),
    Call(f"faults {_AGGREGATOR} --node node-9"),
    Call(f"faults {_STORE}"),
    Call(f"faults {_STORE} --json"),
    Call(f"jobs {_AGENT}"),
    Call(f"jobs {_AGGREGATOR}"),
    Call(f"jobs {_AGGREGATOR} --json"),
    Call(f"jobs {_STORE}"),
    Call(f"explain node-1 {_AGENT}"),
    Call(f"explain node-1 {_AGENT} --json"),
    Call(f"explain node-1/Ascend910-3 {_AGENT}"),
    Call(f"explain node-1/Ascend910-0 {_AGENT}"),
    Call(f"explain node-1 {_AGGREGATOR}"),
    Call(f"explain node-1 {_AGGREGATOR} --json"),
    Call(f"explain node-1/Ascend910-9 {_AGGREGATOR}"),
    Call(f"explain node-9 {_AGGREGATOR}"),
    Call(f"explain node-1 {_STORE}"),
    Call(f"explain node-1 {_STORE} --json"),
    Call(f"timeline {_AGENT}"),
    Call(f"timeline {_AGENT} --json"),
    Call(f"timeline {_AGGREGATOR}"),
    Call(f"timeline node-1/Ascend910-3 {_AGGREGATOR} --json"),
    Call(f"timeline {_STORE}"),
    Call("advise --server unix:{aggregator}/aggregator.sock"),
    Call("isolate node-1 Ascend910-9 --reason test --store directory:{store} --dry-run"),
    Call("isolate node-1 Ascend910-0 --reason test --store directory:{store} --dry-run"),
    Call("release node-1 Ascend910-0 --store directory:{store} --dry-run"),
    Call("forget --store directory:{store} node-9"),
    Call("emulator status --emulator-dir {emulator}"),
)
"""Both faults are published."""

AFTER = (
    Call("simulate recover 3 80E18402 --emulator-dir {emulator}"),
    Call("replay --state-dir {agent}"),
    Call("replay --state-dir {agent} --json"),
    Call("uninstall --store directory:{store}"),
    Call(f"status {_AGENT}"),
)
"""The agent and the aggregator have ended."""
