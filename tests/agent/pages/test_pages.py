"""Health, metrics and API pages, over real HTTP."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.fault_state import EpisodeCounts
from agent.pages import status
from agent.pages.history import JournalHistory
from agent.pages.routes import application
from agent.policy.state import Blindness, ChipState, Fault, PolicyState, SubjectState
from agent.publishing.publication import Publication
from contract.codes.levels import ChipLevel, NodeLevel, Severity
from contract.codes.policies import AUTOFILL_CODE
from contract.observation import NODE, chip_subject, host_subject
from contract.operator_rules.fault_configuration import InForce, judge_texts
from contract.pages.agent_status import (
    AgentStatus,
    AllocationStatus,
    HeartbeatStatus,
    JournalStatus,
    OldHeartbeatStatus,
    Upgrade,
)
from contract.pages.faults import FaultsPage, FaultStatus, names_of
from dcmi_shim.values import Chip, Inventory, StuckCall
from service.owned_documents.foreign_writes import ForeignWrites
from service.pages.daemon_pages import serving
from service.pages.event_stream import Stream
from tests.parts.deadlines import until

NOW_MS = 1_800_000_000_000
CHIP_3 = Chip(physical_id=3, logic_id=3, card_id=3, device_id=0)
INVENTORY = Inventory((CHIP_3,), "Ascend910B", "910B3", None, "24.1", None, "/driver/libdcmi.so")
FAULT = Fault(
    code="80E01801",
    episode="e1",
    source="chip-faults",
    level=ChipLevel.RESTART_BUSINESS,
    because="the level table",
    first_seen_ms=NOW_MS - 1000,
    revision=1,
    severity=Severity.CRITICAL,
)
ALARM = Fault(
    code="06000025",
    episode="e2",
    source="bmc",
    level=NodeLevel.PRE_SEPARATE_FAULT,
    because="the level table",
    first_seen_ms=NOW_MS - 9,
    revision=2,
)
STATE = PolicyState(
    "node-1",
    "boot",
    7,
    {
        3: ChipState(faults={FAULT.code: FAULT}, answered=("chip-faults",)),
        4: ChipState(blind={"chip-faults": Blindness(NOW_MS - 500, 'it answers "no"\nand more')}),
    },
    {
        str(host_subject("Fan", 1)): SubjectState(faults={ALARM.code: ALARM}),
        str(NODE): SubjectState(blind={"bmc": Blindness(NOW_MS - 400, "no answer")}),
    },
)


HEARTBEAT = HeartbeatStatus(
    holder="host-a_1",
    interval_seconds=5.0,
    standing="ours",
    conflict=None,
    beats=4,
    failures=1,
    beaten_at_ms=NOW_MS - 6000,
    trouble=None,
    withheld="no progress: links",
)
WELL = msgspec.structs.replace(HEARTBEAT, withheld=None)
OLD = OldHeartbeatStatus("annotation", "label nodeDEnable=on: it is not there", None, "no")
CONFLICT = "conflict: another agent with the node name node-1 runs on host-b_2"


JUDGED = judge_texts({"faultCode.json": "{", "PollInterval": "5m"}, {}, InForce())
READINGS = {(chip_subject(3), "health"): 2.0, (chip_subject(3), "link_up"): 1.0}


def picture(
    record: Publication, stalled: dict[str, float], heartbeat: HeartbeatStatus
) -> AgentStatus:
    publications = (
        status.publication_status("device-info", "doc", "directory:/x", record),
        status.publication_status(
            "node-info", "other", "directory:/x", Publication(ForeignWrites())
        ),
    )
    stuck = (StuckCall("dcmi_get_device_health", CHIP_3, NOW_MS),)
    driver = status.driver_status("/driver", INVENTORY, None, None, 2, stuck)
    chips = status.chip_statuses(STATE, "Ascend910", READINGS)
    return AgentStatus(
        gauges=status.gauges_of(READINGS),
        node="node-1",
        version="1",
        at_ms=NOW_MS,
        started_at_ms=NOW_MS - 5000,
        revision=7,
        not_ready=status.not_ready(publications, chips, driver, heartbeat, at_ms=NOW_MS),
        stalled=stalled,
        chips=chips,
        faults=status.fault_statuses(STATE, "Ascend910"),
        driver=driver,
        answered=(),
        blind=status.blind_about_node(STATE),
        publications=publications,
        fault_configuration=status.fault_configuration_status(JUDGED, None),
        heartbeat=heartbeat,
        journal=JournalStatus(None, None, 1, 10, 0, 3, None),
        usage=AllocationStatus(1, ("Ascend910-3",), ()),
        store="directory:/x",
        missed_changes=2,
    )


def published() -> Publication:
    record = Publication(ForeignWrites())
    record.record_write(NOW_MS - 100, NOW_MS)
    record.record_agreement(NOW_MS, NOW_MS // 1000, 7)
    record.waiting_since_ms = NOW_MS - 2500
    return record


class Pages:
    """A server with pages and what they show."""

    def __init__(self) -> None:
        self.record = published()
        self.stalled: dict[str, float] = {}
        self.heartbeat = WELL
        self.application = application(
            lambda: picture(self.record, self.stalled, self.heartbeat),
            {"device-info": self.record, "node-info": Publication(ForeignWrites())},
            JournalHistory(Path("/nowhere"), "node-1"),
            Stream("run"),
            lambda: judge_texts({}, {}, InForce()),
            EpisodeCounts(),
        )


async def fetch(state_dir: Path, path: str) -> tuple[int, str]:
    url = (state_dir / "listen").read_text().strip()
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        return response.status, await response.text()


async def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    pages = Pages()
    pages.record.trouble = "no route to host"
    async with serving(pages.application, "127.0.0.1:0", tmp_path):
        code, text = await fetch(tmp_path, "/metrics")
    assert code == 200
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert len(samples) == sum(
        len(family.samples) for family in text_string_to_metric_families(text)
    ), "a series appears twice"
    assert samples["npu_vigil_chips",] == 1, "a blind chip was never read"
    assert samples["npu_vigil_chip_health", ("chip", "3")] == 2
    assert samples["npu_vigil_link_up", ("chip", "3")] == 1
    assert ("npu_vigil_chip_health", ("chip", "4")) not in samples
    fault = {
        "chip": "3",
        "subject": "chip 3",
        "part": "",
        "code": "80E01801",
        "level": "RestartBusiness",
        "severity": "critical",
        "device_fault": "true",
    }
    assert samples["npu_vigil_faults", *sorted(fault.items())] == 1
    since = samples["npu_vigil_fault_since_timestamp_seconds", *sorted(fault.items())]
    assert since == pytest.approx(NOW_MS / 1000, abs=3600)
    names = {name: labels for name, *labels in samples if name == "npu_vigil_fault_info"}
    assert ("name_zh", "HBM用户内存空间内存颗粒访问多bit ECC错误") in names["npu_vigil_fault_info"]
    assert samples["npu_vigil_fault_episodes_total", ("level", "RestartBusiness")] == 0
    blind = {"source": "chip-faults", "chip": "4"}
    assert samples["npu_vigil_blind", *sorted(blind.items())] == 1
    assert samples["npu_vigil_blind", ("chip", ""), ("source", "bmc")] == 1
    alarm = {"chip": "", "subject": "host 1", "part": "Fan", "code": "06000025"}
    alarm |= {"level": "PreSeparateFault", "severity": "", "device_fault": "false"}
    assert samples["npu_vigil_faults", *sorted(alarm.items())] == 1
    of_chips, of_node = ("document", "device-info"), ("document", "node-info")
    store = ("store", "directory:/x")
    assert samples["npu_vigil_publication_lag_seconds", of_chips, store] == 2.5
    assert samples["npu_vigil_publication_lag_seconds", of_node, store] == 0
    assert samples["npu_vigil_publication_failing", of_chips, store] == 1
    assert samples["npu_vigil_publication_failing", of_node, store] == 0
    written = "npu_vigil_publication_writes_total"
    assert samples[written, of_chips, ("result", "acknowledged"), store] == 1
    assert samples[written, of_chips, ("result", "failed"), store] == 0
    assert samples["npu_vigil_store_missed_changes_total", store] == 2
    assert samples["npu_vigil_journal_gaps_total",] == 1
    assert samples["npu_vigil_journal_rows_lost_total",] == 3
    assert samples["npu_vigil_driver_gaps_total",] == 2
    assert samples["npu_vigil_heartbeat_successes_total",] == 4
    assert samples["npu_vigil_heartbeat_failures_total",] == 1
    assert samples["npu_vigil_heartbeat_last_success_timestamp_seconds",] == NOW_MS / 1000 - 6
    assert samples["npu_vigil_heartbeat_withheld",] == 0
    assert samples["npu_vigil_heartbeat_conflict",] == 0
    assert samples["npu_vigil_publication_seconds_bucket", of_chips, ("le", "0.1")] == 1
    assert samples["npu_vigil_publication_seconds_bucket", of_chips, ("le", "0.03")] == 0
    assert samples["npu_vigil_publication_seconds_count", of_chips] == 1
    assert ("npu_vigil_publication_seconds_count", of_node) not in samples


async def test_health_names_the_task_that_stalls(tmp_path: Path) -> None:
    pages = Pages()
    async with serving(pages.application, "127.0.0.1:0", tmp_path):
        assert (await fetch(tmp_path, "/healthz"))[0] == 200
        pages.stalled = {"chip-faults": 33.5}
        code, text = await fetch(tmp_path, "/healthz")
        assert code == 503
        assert msgspec.json.decode(text)["stalled"] == {"chip-faults": 33.5}


async def test_readiness_names_the_reason(tmp_path: Path) -> None:
    pages = Pages()
    async with serving(pages.application, "127.0.0.1:0", tmp_path):
        assert (await fetch(tmp_path, "/readyz"))[0] == 200
        pages.record.conflict_since_ms = NOW_MS
        pages.record.trouble = "no route to host"
        pages.heartbeat = msgspec.structs.replace(WELL, standing="conflict", conflict=CONFLICT)
        code, text = await fetch(tmp_path, "/readyz")
        assert code == 503
        page = msgspec.json.decode(text)
        assert page["reasons"] == [
            CONFLICT,
            "conflict: another program writes doc",
            "doc cannot be published: no route to host",
        ]
        assert page["messages"]["doc cannot be published: no route to host"] == {
            "id": "{document} cannot be published: {reason}",
            "parameters": {"document": "doc", "reason": "no route to host"},
        }
        assert "npu_vigil_heartbeat_conflict 1.0" in (await fetch(tmp_path, "/metrics"))[1]


@pytest.mark.slow
async def test_a_heartbeat_that_fails_is_not_ready(tmp_path: Path) -> None:
    pages = Pages()
    async with serving(pages.application, "127.0.0.1:0", tmp_path):
        refused = "no heartbeat can be written: forbidden"
        pages.heartbeat = msgspec.structs.replace(HEARTBEAT, trouble=refused, old=OLD)
        code, text = await fetch(tmp_path, "/readyz")
        assert code == 503
        assert msgspec.json.decode(text)["reasons"] == [
            "it does not beat: no progress: links",
            f"the heartbeat fails: {refused}",
            "the heartbeat on the Node fails: no",
        ]
        metrics = (await fetch(tmp_path, "/metrics"))[1]
        for name in ("heartbeat", "legacy_heartbeat"):
            assert f"npu_vigil_{name}_failing 1.0" in metrics
        assert "npu_vigil_legacy_heartbeat_label_missing 1.0" in metrics
        assert "npu_vigil_heartbeat_withheld 1.0" in metrics
        pages.heartbeat = WELL

        async def works() -> bool:
            return "npu_vigil_heartbeat_failing 0.0" in (await fetch(tmp_path, "/metrics"))[1]

        # One exposition is good for a second.
        await until(works, step_seconds=0.1)


async def test_a_watch_that_fails_for_30_s_is_not_ready(tmp_path: Path) -> None:
    pages = Pages()
    async with serving(pages.application, "127.0.0.1:0", tmp_path):
        assert (await fetch(tmp_path, "/readyz"))[0] == 200
        pages.record.begin_watch_trouble("refused", NOW_MS - 29_999)
        pages.record.begin_watch_trouble("refused again", NOW_MS - 1)
        assert (await fetch(tmp_path, "/readyz"))[0] == 200
        pages.record.end_watch_trouble()
        pages.record.begin_watch_trouble("forbidden", NOW_MS - 30_000)
        code, text = await fetch(tmp_path, "/readyz")
        assert code == 503
        why = "the watch of doc has failed for 30 s: forbidden"
        assert msgspec.json.decode(text)["reasons"] == [why]


@pytest.mark.slow
async def test_faults_answer_the_questions_of_people_and_trainers(tmp_path: Path) -> None:
    pages = Pages()
    async with serving(pages.application, "127.0.0.1:0", tmp_path):
        code, text = await fetch(tmp_path, "/api/v1/faults")
        assert code == 200
        page = msgspec.json.decode(text, type=FaultsPage, strict=True)
        assert (page.at_ms, page.stream, page.more) == (NOW_MS, "run-0", None)
        chip, fan = page.faults
        assert chip == FaultStatus(
            node="node-1",
            subject="Ascend910-3",
            kind="chip",
            code="80E01801",
            level="RestartBusiness",
            **names_of("80E01801"),
            since_ms=NOW_MS - 1000,
            severity="critical",
            device_fault=True,
            severity_source="agent",
            episode="e1",
            reason="the level table",
            source="chip-faults",
            reported_by=("chip-faults",),
            rules=chip.rules,
        )
        assert [(one.file, one.key) for one in chip.rules] == [
            ("contract/data/levels.json", "RestartBusiness"),
            ("contract/data/policies.json", "frequency"),
        ]
        assert chip.name is not None
        assert chip.name_zh is not None
        assert (fan.subject, fan.kind, fan.code, fan.since_ms) == (
            *("Fan 1", "host", "06000025"),
            NOW_MS - 9,
        )
        for query, found in (("level=RestartBusiness", [chip]), ("code=06000025", [fan])):
            text = (await fetch(tmp_path, f"/api/v1/faults?{query}"))[1]
            assert msgspec.json.decode(text, type=FaultsPage).faults == tuple(found)
        code, text = await fetch(tmp_path, "/api/v1/status")
        shown = msgspec.json.decode(text)
        assert shown["blind"] == [
            {"source": "bmc", "since_ms": NOW_MS - 400, "reason": "no answer", "chip": None}
        ]
        assert [one["kind"] for one in shown["publications"]] == ["device-info", "node-info"]
        assert shown["chips"][1]["blind"][0]["since_ms"] == NOW_MS - 500
        assert shown["driver"]["stuck_calls"] == [
            "dcmi_get_device_health on chip 3 (card 3 device 0)"
        ]
        assert (await fetch(tmp_path, "/nonsense"))[0] == 404
        code, text = await fetch(tmp_path, "/")
        assert code == 200
        assert text.startswith("NPU Vigil agent ")
        paths = [line.split()[0] for line in text.splitlines() if line.startswith("/")]
        assert {"/metrics", "/api/v1/openapi.json", "/api/v1/faults", "/api/v1/stream"} < {*paths}
        assert {(await fetch(tmp_path, path))[0] for path in paths if "stream" not in path} == {
            200,
            503,
        }, "the journal of this test is nowhere"


def test_isolation_without_a_fault_has_a_row_as_at_the_aggregator() -> None:
    manual = ChipLevel.MANUALLY_SEPARATE_NPU
    by = Upgrade(AUTOFILL_CODE, "FaultAutofill", manual, NOW_MS - 5, "alice isolated it", "e7")
    gone = Upgrade("80E18005", "FaultFrequency", manual, NOW_MS - 6, "3 times", "e8")
    holds = Upgrade(FAULT.code, "FaultFrequency", manual, NOW_MS - 7, "2 times", "e9")
    lower = Upgrade("81078603", "FaultDuration", ChipLevel.PRE_SEPARATE_NPU, NOW_MS, "held", "e0")
    chips = {
        3: ChipState(faults={FAULT.code: FAULT}, upgrades=(holds, lower)),
        5: ChipState(upgrades=(by, gone)),
    }
    state = PolicyState("node-1", "boot", chips=chips)
    shown = status.chip_statuses(state, "Ascend910", {})
    faults = status.fault_statuses(state, "Ascend910")
    rows = list(status.isolation_rows("node-1", shown, faults))
    assert [(row.subject, row.code, row.level, row.since_ms, row.reason) for row in rows] == [
        ("Ascend910-5", manual, manual, NOW_MS - 5, "alice isolated it"),
        ("Ascend910-5", "80E18005", manual, NOW_MS - 6, "3 times"),
    ]


def test_a_chip_that_only_its_tool_reported_was_not_read() -> None:
    reported = PolicyState("node-1", "boot", chips={3: ChipState(answered=("links",))})
    driver = status.driver_status("/driver", INVENTORY, None, None, 0, ())
    chips = status.chip_statuses(reported, "Ascend910", {})
    assert status.not_ready((), chips, driver, WELL) == ("no chip was read yet",)


def test_an_agent_that_is_blind_is_not_ready_whatever_it_read_before() -> None:
    driver = status.driver_status("/driver", INVENTORY, "the driver is gone", None, 0, ())
    chips = status.chip_statuses(STATE, "Ascend910", {})
    why = Blindness(NOW_MS, "the driver is gone")
    assert status.not_ready((), chips, driver, WELL) == ()
    assert status.not_ready((), chips, driver, WELL, blind=why) == (
        "blind: no chip gives an answer: the driver is gone",
    )
