"""The alerts about NPU Vigil itself: what keeps faults from being seen or published.

One cause raises one alert. Where a cause has effects that other rules watch, these rules have an
``unless`` for it: it is part of the expression, so it holds before either alert fires.
"""

from __future__ import annotations

from elastic.decision import VcjobState
from tests.alerts.rule import (
    AGENT,
    AGGREGATOR,
    CRITICAL,
    MANY_SILENT,
    NODE_LOST,
    STORE_AWAY,
    WARNING,
    Rule,
    of_cluster,
    single_or_many,
    summary_of_nodes,
)

_NODE = "node {{ $labels.node }}"
_NOT_AWAY = f"unless on () {STORE_AWAY}"
_STUCK = "npu_vigil_driver_stuck_calls == 1"
_OWN_FAILING = "npu_vigil_heartbeat_failing == 1"
_STALLED = f"npu_vigil_stalled_seconds{{{AGENT}}} > 0"
# A refusal that is over does not count: an API server that starts may know no rights yet.
_REFUSED = (
    f"(npu_vigil_publication_failing{{{AGENT}}} == 1\n"
    '  and on (node, document) increase(npu_vigil_publication_writes_total{result="invalid"}[10m])'
    " > 0)"
)
_CONFLICT = f"npu_vigil_publication_conflict{{{AGENT}}} == 1"
_NAME_CONFLICT = "npu_vigil_heartbeat_conflict == 1"
# The store answers whether pods use a chip, so its own alert covers that source.
_BLIND = 'npu_vigil_blind{source!="pods"}'
_NODE_BLIND = (
    f'(count by (node) ({_BLIND[:-1]},chip=""}})\n'
    f'or count by (node) (count by (node, chip) ({_BLIND[:-1]},chip!=""}}))\n'
    "  > on (node) max by (node) (npu_vigil_chips) / 2)"
)
_UNSEEN = "Faults of these chips are not seen while this lasts; active ones stay published."
_NO_JOBS = "None at once. Faults are seen and published as before."
_STATUS = ("vigil status", "vigil status NODE")


def own_rules() -> list[Rule]:
    """Return all alerts about NPU Vigil itself."""
    return [
        *_nodes(),
        *_sources(),
        *_agents(),
        *_stores(),
        *_aggregators(),
        *_settings(),
        *_elastic(),
    ]


def _nodes() -> list[Rule]:
    return [
        Rule(
            "NpuVigilAgentDown",
            "agent",
            WARNING,
            "5m",
            f"max by (node) (up{{{AGENT}}} == 0)\n"
            f"unless on (node) {NODE_LOST}\n"
            f"unless on () {MANY_SILENT}",
            f"The agent of {_NODE} does not answer Prometheus, but the node is not lost",
            "Prometheus cannot scrape an agent, and no aggregator reports its node as lost.",
            ("vigil status NODE", "kubectl -n mindx-dl get pods -o wide"),
            "None at once: its heartbeats arrive, or no aggregator reads them.",
            "Check the agent, its --listen address and the network between it and Prometheus.",
        ),
        Rule(
            "NpuVigilNodeLost",
            "agent",
            CRITICAL,
            "1m",
            # Where its agent names the reason, that alert covers the lost node.
            f"{NODE_LOST}\nunless on () {MANY_SILENT}\n{_NOT_AWAY}\n"
            f"unless on (node) {_OWN_FAILING}\nunless on (node) {_STALLED}",
            f"{_NODE.capitalize()} is lost: no heartbeat for more than 3 intervals",
            "The aggregator publishes the node as lost, and its agent does not show why.",
            (*_STATUS, "kubectl get node NODE"),
            "Pods on the node are rescheduled, and no new pod is placed on it.",
            "Check whether the node runs and reaches the store. If it does, look at its agent.",
        ),
        Rule(
            "NpuVigilManyNodesSilent",
            "agent",
            CRITICAL,
            "1m",
            MANY_SILENT,
            "Many nodes are silent at once; up to the limit of the brake none is published as lost",
            "More than 3 nodes and more than a fifth of all fell silent, or Prometheus reaches "
            "none of so many agents. It replaces the alerts for each node.",
            _STATUS,
            "While the brake holds, none: no node is published as lost.",
            "Look for one cause: the network, the power, the broker, or a rollout of the agent.",
        ),
    ]


def _sources() -> list[Rule]:
    return [
        Rule(
            "NpuVigilChipBlind",
            "agent",
            WARNING,
            "5m",
            f'count by (node, chip) ({_BLIND[:-1]},chip!=""}})\n'
            f"unless on (node) {_NODE_BLIND}\n"
            f"unless on (node) {_STUCK}",
            f"{{{{ $value }}}} sources give no answer about chip {{{{ $labels.chip }}}} of {_NODE}",
            "A source gives no answer about a chip, while it answers about most other chips.",
            ("vigil status NODE", "vigil explain NODE/CHIP"),
            _UNSEEN,
            "Look up the silent source and its error, then check the chip with npu-smi.",
        ),
        Rule(
            "NpuVigilNodeBlind",
            "agent",
            WARNING,
            "5m",
            single_or_many(f"{_NODE_BLIND} unless on (node) {_STUCK}"),
            summary_of_nodes(
                f"Sources give no answer about {_NODE} or most of its chips",
                "have a source that gives no answer",
            ),
            "A source gives no answer about the node, or about more than half of its chips.",
            ("vigil status NODE", "vigil scan"),
            _UNSEEN,
            "Look up the silent source and its error: driver, hccn_tool, BMC or kernel log.",
        ),
        Rule(
            "NpuVigilDriverCallStuck",
            "agent",
            WARNING,
            "2m",
            single_or_many(f"max by (node, call) ({_STUCK})"),
            summary_of_nodes(
                f"The driver call {{{{ $labels.call }}}} does not return on {_NODE}",
                "have a driver call that does not return",
            ),
            "A driver call does not return, and the agent skips it.",
            ("vigil status NODE", "vigil scan"),
            _UNSEEN,
            "Save the driver logs. Usually only a restart of the node ends such a call.",
        ),
    ]


def _agents() -> list[Rule]:
    return [
        Rule(
            "NpuVigilNotPublished",
            "agent",
            CRITICAL,
            "2m",
            single_or_many(
                f"max by (node, document) (npu_vigil_publication_lag_seconds{{{AGENT}}}) > 60\n"
                f"unless on (node) {_OWN_FAILING}\n"
                f"unless on (node) {_NAME_CONFLICT}\n"
                f"unless on (node, document) {_CONFLICT}\n"
                f"unless on (node, document) {_REFUSED}\n"
                f"{_NOT_AWAY}"
            ),
            summary_of_nodes(
                f"A change of {{{{ $labels.document }}}} of {_NODE} waits for {{{{ $value }}}} s",
                "have a change that the store has not acknowledged",
            ),
            "No store acknowledged a change for more than a minute, although heartbeats arrive.",
            _STATUS,
            "Schedulers do not see the newest faults of the node.",
            "Look up the error of the publication, then check rights and admission webhooks.",
        ),
        Rule(
            "NpuVigilPublicationRefused",
            "agent",
            CRITICAL,
            "1m",
            single_or_many(f"max by (node, document) ({_REFUSED})"),
            summary_of_nodes(
                f"The store refuses {{{{ $labels.document }}}} of {_NODE}",
                "have a document that the store refuses",
            ),
            "The store refuses a document, or its readers would.",
            _STATUS,
            "Schedulers do not see the newest faults of the node.",
            "Look up the answer of the store in the status. Check rights, policies and webhooks.",
        ),
        Rule(
            "NpuVigilTwoWriters",
            "agent",
            CRITICAL,
            "2m",
            single_or_many(
                f"max by (node, document) ({_CONFLICT}) or max by (node) ({_NAME_CONFLICT})"
            ),
            summary_of_nodes(
                f"Another program writes {{{{ with $labels.document }}}}{{{{ . }}}}{{{{ else }}}}"
                f"the heartbeat{{{{ end }}}} of {_NODE}",
                "have a document that another program writes, too",
            ),
            "Another program writes a document of the agent, or another agent has its node name.",
            _STATUS,
            "Schedulers may see the faults of the other program instead of those of the agent.",
            "Stop the other writer. The status names it if the store does.",
        ),
        Rule(
            "NpuVigilJournalFailing",
            "agent",
            WARNING,
            "5m",
            single_or_many("max by (node) (npu_vigil_journal_failing == 1)"),
            summary_of_nodes(
                f"The agent of {_NODE} cannot write its journal", "cannot write their journal"
            ),
            "The agent cannot write its journal, or writes it late.",
            ("vigil status NODE",),
            "None at once. After a restart the agent may lack what it did not write.",
            "Check the space and the state of the disk below the state directory.",
        ),
        Rule(
            "NpuVigilRowsDropped",
            "agent",
            WARNING,
            "1m",
            single_or_many(
                "sum by (node) (increase(npu_vigil_journal_unacknowledged_deleted_total[15m])"
                " + on (instance, node) increase(npu_vigil_journal_rows_lost_total[15m])) > 0"
            ),
            summary_of_nodes(
                f"The journal of {_NODE} lost rows that no aggregator acknowledged",
                "lost rows of their journal",
            ),
            "The journal deleted or lost rows before an aggregator acknowledged them.",
            ("vigil status NODE", "vigil timeline NODE"),
            "None. The history of the cluster has a gap.",
            "Check the disk of the node, and whether an aggregator takes its history.",
        ),
        Rule(
            "NpuVigilTaskStalled",
            "agent",
            CRITICAL,
            "1m",
            single_or_many(f"max by (node, task) ({_STALLED})")
            + f"\nor max by (instance, task) (npu_vigil_stalled_seconds{{{AGGREGATOR}}} > 0)",
            "{{ if $labels.node }}The task {{ $labels.task }} of the agent of "
            f"{_NODE} makes no progress{{{{ else if $labels.task }}}}The task "
            "{{ $labels.task }} of the aggregator {{ $labels.instance }} makes no progress"
            "{{ else }}{{ $value }} nodes have a task that makes no progress{{ end }}",
            "A task of a daemon makes no progress; /healthz is 503 meanwhile.",
            _STATUS,
            "The agent sends no heartbeat meanwhile, so its node may be published as lost.",
            "Save the log and the status, then restart the daemon.",
        ),
        Rule(
            "NpuVigilHistoryNotAcknowledged",
            "agent",
            WARNING,
            "15m",
            single_or_many(
                "max by (node) (npu_vigil_history_forwarding_failing == 1)\n"
                f"unless on (node) {_OWN_FAILING}\n{_NOT_AWAY}"
            ),
            summary_of_nodes(
                f"No aggregator acknowledges the history of {_NODE}",
                "have history that no aggregator acknowledges",
            ),
            "The agent cannot send its history, or no aggregator acknowledges it.",
            _STATUS,
            "None. The history of the cluster lacks the newest changes.",
            "Check whether an aggregator leads and can write its history.",
        ),
    ]


def _stores() -> list[Rule]:
    return [
        Rule(
            "NpuVigilStoreAway",
            "aggregator",
            CRITICAL,
            "1m",
            STORE_AWAY,
            "The store {{ with $labels.store }}{{ . }} {{ end }}does not answer",
            "The aggregator cannot watch a store, or many agents cannot send heartbeats to theirs.",
            ("vigil status",),
            "Schedulers keep the last published state and do not see new faults.",
            "Check the API server or the broker, and the certificates and rights of NPU Vigil.",
        ),
        Rule(
            "NpuVigilAgentStoreAway",
            "agent",
            CRITICAL,
            "2m",
            f"max by (node) ({_OWN_FAILING})\n{_NOT_AWAY}",
            f"The agent of {_NODE} cannot reach its store, while other agents can",
            "The store accepts no heartbeat of an agent.",
            _STATUS,
            "The node is published as lost, so its pods are rescheduled.",
            "Check the network, the certificates and the rights of this node.",
        ),
    ]


def _aggregators() -> list[Rule]:
    document = "store, document"
    return [
        Rule(
            "NpuVigilNoLeader",
            "aggregator",
            CRITICAL,
            "1m",
            f"absent(npu_vigil_aggregator_leader == 1)\n{_NOT_AWAY}",
            "No aggregator leads, so nothing is published for the cluster",
            "Prometheus sees no aggregator that leads. Remove the rule where you run none.",
            (
                "vigil status",
                "kubectl -n mindx-dl get pods -l app.kubernetes.io/component=aggregator",
            ),
            "Schedulers that read the documents of the cluster do not see new faults.",
            "Check the pods or units of the aggregators, and their rights to the lease.",
        ),
        Rule(
            "NpuVigilAggregatorNotPublishing",
            "aggregator",
            CRITICAL,
            "2m",
            "("
            + of_cluster(f"npu_vigil_publication_failing{{{AGGREGATOR}}} == 1", document)
            + "\nor "
            + of_cluster(f"npu_vigil_publication_lag_seconds{{{AGGREGATOR}}} > 60", document)
            + f")\n{_NOT_AWAY}",
            "The aggregator cannot write {{ $labels.document }} to {{ $labels.store }}",
            "The leader cannot write a document, or its store acknowledged none for a minute.",
            ("vigil status",),
            "Schedulers that read this document do not see new faults.",
            "Look up the error of the document, then check rights, quotas and webhooks.",
        ),
        Rule(
            "NpuVigilAggregatorTwoWriters",
            "aggregator",
            CRITICAL,
            "2m",
            of_cluster(f"npu_vigil_publication_conflict{{{AGGREGATOR}}} == 1", document),
            "Another program writes {{ $labels.document }} in {{ $labels.store }}, too",
            "Another program, for example ClusterD, writes a document of the aggregator.",
            ("vigil status",),
            "Schedulers may see the state of the other program.",
            "Stop the other writer. The status names it if the store does.",
        ),
        Rule(
            "NpuVigilNodesLeftOut",
            "aggregator",
            CRITICAL,
            "1m",
            of_cluster("npu_vigil_publication_left_out_nodes > 0", document),
            "{{ $labels.document }} in {{ $labels.store }} leaves out {{ $value }} nodes",
            "The documents of the leader carry fewer nodes than it has.",
            ("vigil status",),
            "Schedulers do not see faults of the nodes that are left out. Healthy ones are first.",
            "Look up why: usually the documents are full. Remove nodes that do not exist any more.",
        ),
        Rule(
            "NpuVigilTaintsWait",
            "aggregator",
            WARNING,
            "5m",
            of_cluster(
                'npu_vigil_scheduler_signals_waiting{reason=~"cap|eviction|toleration"} > 0',
                "option, reason",
            ),
            "{{ $value }} taints of {{ $labels.option }} are not written: {{ $labels.reason }}",
            "Taints wait. Cap: too many stand already. Eviction: too many pods would be evicted. "
            "Toleration: pods with drivers of chips do not tolerate them.",
            ("curl --fail -sS http://AGGREGATOR:9821/api/v1/scheduler-signals",),
            "Schedulers other than Volcano place pods on hardware that is out.",
            "Cap and eviction: check whether so many faults are real, then raise the limit. "
            "Toleration: add it with the command that /readyz shows.",
        ),
    ]


def _settings() -> list[Rule]:
    problems = (
        "max by (node, document) (npu_vigil_fault_configuration_problems > 0\n"
        '  or ignoring (source) npu_vigil_fault_configuration_source{source="kept"})'
    )
    return [
        Rule(
            "NpuVigilFaultConfigurationRefused",
            "agent",
            WARNING,
            "5m",
            f"count by (document) (\n{problems}\n)",
            "{{ $value }} nodes do not apply all of the fault configuration {{ $labels.document }}",
            "Parts of a document of the fault configuration have no effect, or it is unusable.",
            ("vigil status NODE", "vigil validate FILE"),
            "Faults are handled by the last usable document or by the shipped levels.",
            "Correct the document. The status of a node lists the problems.",
        ),
        Rule(
            "NpuVigilClockOff",
            "agent",
            WARNING,
            "10m",
            single_or_many(f"abs({of_cluster('npu_vigil_node_clock_skew_seconds', 'node')}) > 5"),
            summary_of_nodes(
                f"The clock of {_NODE} is off by {{{{ $value }}}} s",
                "have another time than the aggregator",
            ),
            "The clock of a node and that of the aggregator differ by more than 5 s.",
            _STATUS,
            "None at once. Times of faults are wrong, and rules over time may be late.",
            "Check time synchronisation on the node; where many nodes differ, on the aggregator.",
        ),
        Rule(
            "NpuVigilCertificateEnds",
            "agent",
            WARNING,
            "10m",
            single_or_many(_days_left("node, file", AGENT))
            + f"\nor {_days_left('file', AGGREGATOR)}",
            "{{ with $labels.file }}The certificate in {{ . }} of "
            "{{ with $labels.node }}node {{ . }}"
            '{{ else }}the aggregator{{ end }} ends in {{ $value | printf "%.0f" }} days'
            "{{ else }}{{ $value }} nodes have a certificate that ends within 14 days{{ end }}",
            "A certificate that a daemon uses ends within 14 days, or has ended.",
            ("openssl x509 -noout -enddate -in FILE", "vigil scan"),
            "None until it ends. Then the daemon loses its store or its clients.",
            "Renew the certificate. The daemon reads the file again when it changes.",
        ),
    ]


def _days_left(by: str, job: str) -> str:
    expiry = f"npu_vigil_certificate_expiry_timestamp_seconds{{{job}}}"
    return f"min by ({by}) (({expiry} - time()) / 86400) < 14"


def _elastic() -> list[Rule]:
    state = VcjobState.CAUSE_NOT_KNOWN.value
    commands = ("vigil elastic list", "vigil elastic show NAMESPACE/NAME")
    return [
        Rule(
            "NpuVigilElasticStandingStill",
            "elastic",
            WARNING,
            "5m",
            "max(npu_vigil_elastic_blocking_reasons) > 0",
            "Elastic training starts no job at all, for {{ $value }} reasons",
            "`vigil elastic` has a reason to start no job at all.",
            commands,
            "Elastic jobs that ended because of a fault are not started again.",
            "Look up the reasons with the first command, and remove them.",
        ),
        Rule(
            "NpuVigilElasticCauseNotKnown",
            "elastic",
            WARNING,
            "5m",
            f'max by (state) (npu_vigil_elastic_jobs{{state="{state}"}}) > 0',
            "{{ $value }} elastic jobs have ended, and it is not known whether a fault ended them",
            "The record of the scheduler was gone before a daemon saw it, and the history of the "
            "aggregator does not show all.",
            (*commands, "vigil faults", "vigil elastic restore --now NAMESPACE/NAME"),
            "The job stays as it has ended: it is started again only after a fault.",
            "Look at the faults of its nodes. If a fault ended it, start it again.",
        ),
    ]
