"""All parsers of what others write on the device side, with good inputs for each."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, TypeVar, cast
from zlib import crc32

import msgspec

from agent.policy.state import CHIP_SOURCE, PolicyState
from agent.policy.step import step
from agent.publishing.chip_lists import render
from agent.publishing.device_info import DeviceInfoDocument, adopted
from agent.shadow.comparison import ShadowComparison
from agent.shadow.difference import Fact, differences, facts_of
from aggregator.liveness import persisted
from aggregator.state_buckets import decoded
from benchmarks.fuzz import advise, binary, configuration, lint, pages, processors, seeds, support
from benchmarks.fuzz.aggregator import AggregatorInputs
from benchmarks.fuzz.api_server import Answers, events_of
from benchmarks.fuzz.cluster import cluster_jobs, cluster_nodes, cluster_pods
from benchmarks.fuzz.credentials import ExecCredentials, Kubeconfigs, NoProxies
from benchmarks.fuzz.episodes import HistoryAcks, HistoryBatches
from benchmarks.fuzz.jobs import KeptRelations
from benchmarks.fuzz.journal import JournalRows
from benchmarks.fuzz.mqtt import MqttBeats, MqttDocuments
from benchmarks.fuzz.public_faults import LeftPublicFaults, PublicFaultTables, ReceivedPublicFaults
from benchmarks.fuzz.rank_tables import RankTables
from benchmarks.fuzz.storage import PublicFaults, dpc_files, dtfs_files
from collectors.file_systems.host_mounts import OF_PODS
from collectors.file_systems.mounts import local_file_systems
from collectors.kernel_log.messages import DRIVER_PATTERNS, Messages
from collectors.kernel_log.records import Records
from contract.codes.catalogue import shipped
from contract.codes.families import FAMILIES
from contract.documents.device_info import DEVICE_INFO_KEY, decode, encode, verify_published
from contract.documents.node_info import (
    DATA_KEY,
    Generation,
    decode_node_info,
    encode_beating_node_info,
    encode_node_beat,
    encode_node_info,
    render_node_entry,
)
from contract.documents.separation import read_names, read_reasons
from contract.documents.switch_info import decode_switch_info
from contract.errors import DocumentError, VigilError
from contract.go import encode as go_json
from contract.observation import SourceAnswered, chip_subject
from contract.operator_rules.customization import CUSTOMIZATION_KEY
from contract.operator_rules.fault_codes import FAULT_CODE_KEY
from contract.operator_rules.fault_configuration import (
    DOCUMENTS,
    ConfigurationPlace,
    InForce,
    catalogue_of,
    judge_texts,
)
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY
from contract.operator_rules.switch_levels import SWITCH_FAULT_CODE_KEY
from contract.pages.agent_status import WriteResult
from dcmi_shim.hccn.answers import parse_counters, parse_link, parse_link_ups
from dcmi_shim.hccn.tables import parse_port_enabled, parse_ports
from dcmi_shim.ipmi.alarms import reading
from dcmi_shim.ipmi.serial_number import serial_number_exchange
from dcmi_shim.ipmi.tool import parse_raw
from dcmi_shim.values import Chip, Inventory
from stores.base import Document
from stores.kubernetes_api.objects import KubernetesObjects
from stores.kubernetes_api.pods_with_chips import follow_pods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from benchmarks.fuzz.running import Target
    from dcmi_shim.ipmi.request import Exchange
    from stores.kubernetes_api.client.connection import ApiConnection

NODE = "node-1"
NOW_MS = 1_800_000_000_000
_HCCN_CHIP = 2
_REPLIES = 50
T = TypeVar("T")
_INVENTORY = Inventory(
    chips=tuple(Chip(number, number, number, 0) for number in range(16)),
    family="Ascend910A3",
    chip_name="910",
    board_id=None,
    driver_version=None,
    super_pod=None,
    library="",
)


@dataclass(frozen=True)
class Parser:
    """One that keeps nothing; ``feed`` may check what it returned."""

    name: str
    seeds: Sequence[str]
    feed: Callable[[str], None]


def _data(text: str) -> dict[str, str]:
    """Return the data of a ConfigMap. Stores have nothing but texts: others are a refused input
    here.
    """
    try:
        data = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise VigilError(str(error)) from None
    return data


def _device_info(text: str) -> Document:
    """Return a document; mostly with the check code of its content, or little else would
    be read.
    """
    data = _data(text)
    if crc32(text.encode("utf-8", "replace")) % 4:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            outer = json.loads(data[DEVICE_INFO_KEY])
            devices = outer["DeviceInfo"]["DeviceList"]
            update_time = outer["DeviceInfo"]["UpdateTime"]
            content = {"DeviceList": go_json.sorted_map(devices), "UpdateTime": update_time}
            outer["CheckCode"] = go_json.check_code(content)
            data[DEVICE_INFO_KEY] = json.dumps(outer)
    return Document("kube-system", f"mindx-dl-deviceinfo-{NODE}", data, {})


@cache
def _before() -> InForce:
    """Return a fault configuration that is in force before a bad one comes."""
    data = json.loads(seeds.fault_configurations()[0])
    return judge_texts(data, {}, InForce()).in_force


def _configure(data: Mapping[str, str]) -> None:
    """Apply the documents of ConfigMaps: what cannot be decoded leaves the one before."""
    before = _before()
    judged = judge_texts(data, {}, before)
    texts = judged.in_force.texts
    for key, member in DOCUMENTS.items():
        if key in judged.kept:
            assert getattr(texts, member) == getattr(before.texts, member)
            assert any(problem.document == key for problem in judged.problems)
        elif key not in data:
            assert getattr(texts, member) is None
        else:
            assert judged.in_force.place_of(key) is ConfigurationPlace.CONFIG_MAP
    if judged.kept:
        raise VigilError("kept what was in force before")
    assert catalogue_of(texts) == judged.catalogue


def _document(name: str, key: str) -> Parser:
    return Parser(name, seeds.fault_texts(key), lambda text: _configure({key: text}))


def _remember(text: str) -> None:
    """Start an agent without a journal from a document: it publishes the state in it, or takes over
    nothing.
    """
    document = _device_info(text)
    state = _healthy()
    made = DeviceInfoDocument(NODE, lambda: state)
    inputs = made.restore_from(document)
    isolation = made.restore_isolation(document, NOW_MS, has_journal=False)
    after, _ = step(state, [*inputs, *isolation], NOW_MS, shipped())
    assert msgspec.json.decode(msgspec.json.encode(after), type=PolicyState) == after
    info = render(after, _INVENTORY, NOW_MS // 1000)
    verify_published(encode(info, FAMILIES[_INVENTORY.family]), "device-info")
    try:
        decode(document.data, document.name)
        decode_switch_info(document.name, document.data)
    except DocumentError:
        assert not inputs
        raise


def _isolate(text: str) -> None:
    data = _data(text)
    names = read_names(data)
    reasons = read_reasons(data.get("UpgradeFaultReason", "{}"))
    isolated = {item.subject.id for item in adopted(Document("", "", data, {}), None, NOW_MS)}
    assert isolated == (names or frozenset()) | (isolated & reasons.keys())


@cache
def _healthy() -> PolicyState:
    chips = [SourceAnswered(CHIP_SOURCE, chip_subject(chip), NOW_MS) for chip in range(16)]
    return step(PolicyState(NODE, "boot"), chips, NOW_MS, shipped())[0]


def _link(text: str) -> None:
    assert parse_link(text, _HCCN_CHIP) in (True, False)


def _history(text: str) -> None:
    assert parse_link_ups(text, _HCCN_CHIP) >= 0


def _ports(text: str) -> None:
    """Read the table of the ports of an A5, or whether one of them is wired."""
    if text.startswith("+-"):
        assert parse_ports(text, _HCCN_CHIP)
    else:
        assert parse_port_enabled(text, _HCCN_CHIP) in (True, False)


def _statistics(text: str) -> None:
    assert all(value >= 0 for value in parse_counters(text, _HCCN_CHIP).values())


def _kernel_log(text: str) -> None:
    """Read records that are cut anywhere: the result is the same; a line that is not a record is
    refused here.
    """
    data = text.encode("utf-8", "surrogatepass")
    whole, halves = Records(), Records()
    records = whole.feed(data + b"\n")
    middle = len(data) // 2
    assert halves.feed(data[:middle]) + halves.feed(data[middle:] + b"\n") == records
    messages = Messages(DRIVER_PATTERNS)
    for record in records:
        assert 0 <= record.level < 8
        for match in messages.matches(record.level, record.text):
            assert match.text
    if whole.unreadable or not records:
        raise VigilError("has lines that are not a record")


def _mountinfo(text: str) -> None:
    found = local_file_systems(text, ("ext4", "zfs"), OF_PODS)
    assert all(device == one.device and one.mounts for device, one in found.items())
    if not found:
        raise VigilError("no file system")


def _replied(exchange: Exchange[T], text: str) -> T:
    """Return the result of these replies, which come again and again."""
    next(exchange)
    replies = [parse_raw(reply) for reply in text.split(";")]
    for reply in islice(cycle(replies), _REPLIES):
        try:
            exchange.send(reply)
        except StopIteration as done:
            return cast("T", done.value)
    raise VigilError("it would go on asking")


def _alarms(text: str) -> None:
    alarms = _replied(reading(None), text)
    assert len({alarm.identity for alarm in alarms}) == len(alarms)


def _serial_number(text: str) -> None:
    number = _replied(serial_number_exchange(), text)
    assert number is None or (number and number.isprintable() and number == number.strip())


@dataclass(frozen=True)
class Watched:
    """What an API server lists, or the frames of its watch behind the list ``listed``.

    What is refused interrupts the watch, and is not an event.
    """

    name: str
    seeds: Sequence[str]
    follow: Callable[[ApiConnection], AsyncIterator[object]]
    listed: str = ""

    def feed(self, text: str) -> None:
        """Parse ``text``; what is refused changes nothing."""
        body = text.encode("utf-8", "replace")
        answers = Answers(self.listed.encode(), body) if self.listed else Answers(body, b"")
        events = pages.loop().run_until_complete(events_of(self.follow(answers.connection)))
        if len(events) <= bool(self.listed):
            raise VigilError("interrupted")


def _follow_node(connection: ApiConnection) -> AsyncIterator[object]:
    return KubernetesObjects(connection).watch_node(NODE)


def _follow_pods_of_node(connection: ApiConnection) -> AsyncIterator[object]:
    return follow_pods(connection, NODE)


@cache
def _wanted() -> tuple[Document, dict[Fact, str]]:
    document = _device_info(seeds.device_infos()[0])
    return document, facts_of(document)


def _compare(text: str) -> None:
    """Check the shadow: a write that cannot be read is reported, and the next good one is the same
    again.
    """
    foreign, (wanted, node_context) = _device_info(text), _wanted()
    if crc32(text.encode("utf-8", "replace")) % 8:
        differences(node_context, facts_of(foreign))
        return
    judge = ShadowComparison()
    judge.set_desired(NOW_MS, wanted)
    judge.observe_write(NOW_MS, wanted)
    judge.observe_write(NOW_MS + 1000, foreign)
    judge.observe_write(NOW_MS + 2000, wanted)
    results = [one.result for one in judge.pop_results(NOW_MS + 60_000)]
    assert results.count(WriteResult.SAME) >= 2
    if WriteResult.UNREADABLE in results:
        raise VigilError("unreadable")


def _node_info(text: str) -> None:
    """Node-info of any generation, mostly signed anew: what is read is written, and read again."""
    data = _data(text)
    if crc32(text.encode("utf-8", "replace")) % 4:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            outer = json.loads(data[DATA_KEY])
            outer["CheckCode"] = go_json.check_code(outer["NodeInfo"])
            data[DATA_KEY] = json.dumps(outer)
    read = decode_node_info("node-info", data)
    beat, status = read.beat, read.status
    if read.generation is Generation.D:
        assert beat is None
        again = encode_node_info(read.faults, status, "")
    else:
        assert beat is not None
        again = (
            encode_beating_node_info(read.faults, status, beat)
            if read.generation is Generation.C
            else encode_node_beat(beat)
        )
    same = decode_node_info("node-info", again)
    assert (same.faults, same.status, same.beat) == (read.faults, status, beat)
    assert json.loads(render_node_entry(NODE, read))["UpdateTime"] == read.update_time_ms


def _last_seen(text: str) -> None:
    found, problems = decoded({"0": text}, persisted.decode)
    if problems:
        raise VigilError(problems[0])
    seen = found["0"]
    assert set(persisted.decode(persisted.encode(seen))) == set(seen)


TARGETS: dict[str, Callable[[], Target]] = {
    "fault-code": lambda: _document("fault-code", FAULT_CODE_KEY),
    "customization": lambda: _document("customization", CUSTOMIZATION_KEY),
    "switch-fault-code": lambda: _document("switch-fault-code", SWITCH_FAULT_CODE_KEY),
    "node-fault-code": lambda: _document("node-fault-code", NODE_CONFIGURATION_KEY),
    "config-map": lambda: Parser(
        "config-map", seeds.fault_configurations(), lambda text: _configure(_data(text))
    ),
    "device-info": lambda: Parser("device-info", seeds.device_infos(), _remember),
    "node-info": lambda: Parser("node-info", seeds.node_infos(), _node_info),
    "last-seen": lambda: Parser("last-seen", seeds.LAST_SEEN, _last_seen),
    "isolation": lambda: Parser("isolation", seeds.isolations(), _isolate),
    "hccn-link": lambda: Parser("hccn-link", seeds.LINKS, _link),
    "hccn-link-stat": lambda: Parser("hccn-link-stat", seeds.HISTORIES, _history),
    "hccn-stat": lambda: Parser("hccn-stat", seeds.STATISTICS, _statistics),
    "hccn-ports": lambda: Parser("hccn-ports", seeds.PORTS, _ports),
    "kernel-log": lambda: Parser("kernel-log", seeds.KERNEL_LOGS, _kernel_log),
    "mountinfo": lambda: Parser("mountinfo", seeds.MOUNTS, _mountinfo),
    "ipmi-alarms": lambda: Parser("ipmi-alarms", seeds.ALARMS, _alarms),
    "ipmi-serial": lambda: Parser("ipmi-serial", seeds.SERIAL_NUMBERS, _serial_number),
    "shadow": lambda: Parser("shadow", seeds.device_infos(), _compare),
    "pod-list": lambda: Watched("pod-list", seeds.PODS, _follow_pods_of_node),
    "pod-frame": lambda: Watched(
        "pod-frame", seeds.POD_FRAMES, _follow_pods_of_node, seeds.PODS[0]
    ),
    "node": lambda: Watched("node", seeds.NODES, _follow_node),
    "node-frame": lambda: Watched("node-frame", seeds.NODE_FRAMES, _follow_node, seeds.NODES[0]),
    "kubeconfig": Kubeconfigs,
    "exec-credential": ExecCredentials,
    "no-proxy": NoProxies,
    "mqtt-document": MqttDocuments,
    "mqtt-beat": MqttBeats,
    "history-batch": HistoryBatches,
    "history-ack": HistoryAcks,
    "journal": JournalRows,
    "dpc-status": dpc_files,
    "dtfs-status": dtfs_files,
    "public-fault": PublicFaults,
    **{name: partial(Parser, name, *parts) for name, parts in processors.PARSERS.items()},
    **{
        name: partial(Parser, name, *parts)
        for name, parts in (
            advise.PARSERS | configuration.PARSERS | lint.PARSERS | pages.PARSERS | support.PARSERS
        ).items()
    },
    "cluster-pods": cluster_pods,
    "cluster-nodes": cluster_nodes,
    "cluster-jobs": cluster_jobs,
    "public-fault-document": ReceivedPublicFaults,
    "public-fault-table": PublicFaultTables,
    "public-fault-state": LeftPublicFaults,
    "aggregator-input": AggregatorInputs,
    **binary.TARGETS,
    "relation-book": KeptRelations,
    "rank-table": RankTables,
}
"""By name, as they are chosen. Each call begins anew."""
