"""Codes, levels and resources: where they are from, what is refused, and what changes with them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from aggregator.public_faults import fault_table
from aggregator.public_faults.fault_table import CONFIG_MAP, follow_table
from aggregator.public_faults.plugin import PublicFaultsPlugin
from contract.codes.levels import ChipLevel
from contract.errors import DocumentError
from contract.operator_rules.public_fault_table import (
    TABLE_KEY,
    read_public_fault_table,
    shipped_table,
)
from stores.base import Changed, Deleted, Document, DocumentsListed
from tests.aggregator.public_faults.messages import (
    at,
    begun,
    eight,
    fault_message,
    one,
    places,
    standing,
)
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from pathlib import Path


def table(resources: tuple[str, ...] = ("CCAE",), **lists: list[str]) -> str:
    return json.dumps({"publicFaultCode": lists, "publicFaultResource": list(resources)})


def config_map(text: str) -> Document:
    return Document("cluster-system", "npu-vigil-public-faults", {TABLE_KEY: text})


MILD = table(NotHandleFaultCodes=["220001001"])


def test_the_worst_list_of_a_code_counts() -> None:
    text = table(
        NotHandleFaultCodes=["100000001", "100000002"],
        SubHealthFaultCodes=["100000001"],
        PreSeparateNPUCodes=["100000003", "100000001"],
        SeparateNPUCodes=["100000001", "short"],
    )
    found, problems = read_public_fault_table(text, "file")
    assert found.levels == {
        "100000001": ChipLevel.SEPARATE_NPU,
        "100000002": ChipLevel.NOT_HANDLE_FAULT,
        "100000003": ChipLevel.PRE_SEPARATE_NPU,
    }
    assert found.resources == {"CCAE"}
    assert "$.publicFaultCode.SeparateNPUCodes[1]: 'short' has no effect" in str(problems[0])
    assert len(problems) == 4


def test_the_shipped_table_has_the_codes_and_resources_of_upstream() -> None:
    shipped = shipped_table()
    assert len(shipped.levels) == 30
    assert shipped.resources == {
        *("CCAE", "fd-online", "pingmesh", "Netmind"),
        *("dpcStorage", "dtfsStorage"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"publicFaultCode":{"SeparateNPUCodes":["220001001"]}}',
        '{"publicFaultResource":["CCAE"]}',
        '{"publicFaultCode":{"SeparateNPUCodes":"220001001"},"publicFaultResource":["CCAE"]}',
        table(("",), SeparateNPUCodes=["220001001"]),
        table(SeparateNPUCodes=["short"]),
        " " * (10 * 1024 * 1024) + MILD,
    ],
)
def test_a_bad_table_never_replaces_a_good_one(text: str) -> None:
    """Cover defect B21."""
    with pytest.raises(DocumentError):
        read_public_fault_table(text, "file")
    faults = begun()
    faults.configure(MILD)
    faults.send(fault_message(one()), at(0))
    faults.configure(text)
    assert standing(faults) == {"0": ("220001001", "NotHandleFault")}
    assert faults.status().table == "file"
    assert faults.status().table_problems != ()


def test_faults_that_hold_are_judged_again_by_a_new_table() -> None:
    """Cover defect B21."""
    faults = begun()
    faults.send(fault_message(one()), at(0))
    faults.pop_changed_nodes()
    assert faults.configure(MILD) == {"n1"}
    assert standing(faults) == {"0": ("220001001", "NotHandleFault")}
    assert faults.add_public_faults("n1", eight(), at(0)).unhealthy == ()
    assert '"level":"NotHandleFault"' in str(faults.views())
    assert faults.configure(None) == {"n1"}
    assert standing(faults) == {"0": ("220001001", "SeparateNPU")}


def test_a_fault_whose_code_or_resource_is_gone_keeps_its_level_and_may_recover() -> None:
    faults = begun()
    faults.send(fault_message(one(), one("fault-0002", devices=(1,))), at(0))
    faults.configure(table(SeparateNPUCodes=["100000001"]))
    assert standing(faults).keys() == {"0", "1"}
    assert faults.send(fault_message(one("fault-0003")), at(10)).code == 409
    assert faults.send(fault_message(one(assertion="recover")), at(10)).code == 0
    assert standing(faults).keys() == {"1"}
    faults.configure(table(("Netmind",), SeparateNPUCodes=["100000001"]))
    assert faults.send(fault_message(one("fault-0003", code="100000001")), at(10)).code == 409
    assert faults.send(fault_message(one("fault-0002", "recover")), at(10)).code == 0
    assert standing(faults) == {}
    assert faults.send(fault_message(one("fault-0002", "recover")), at(10)).code == 409


def test_the_config_map_goes_before_the_file() -> None:
    faults = begun()
    faults.send(fault_message(one()), at(0))
    faults.configure(table(SubHealthFaultCodes=["220001001"]))
    faults.observe(0, CONFIG_MAP, DocumentsListed((config_map(MILD),)), at(0))
    assert standing(faults) == {"0": ("220001001", "NotHandleFault")}
    faults.observe(0, CONFIG_MAP, Changed(config_map("nonsense")), at(0))
    assert standing(faults) == {"0": ("220001001", "NotHandleFault")}
    faults.observe(0, CONFIG_MAP, Deleted("cluster-system", "npu-vigil-public-faults"), at(0))
    assert standing(faults) == {"0": ("220001001", "SubHealthFault")}
    assert faults.status().table_problems == ()
    faults.configure(None)
    assert faults.status().table == "shipped"


def test_pending_message_is_judged_by_the_table_of_its_turn() -> None:
    known = places("n1", synced=False)
    faults = begun(known)
    faults.send(fault_message(one()), at(0))
    faults.configure(table(SeparateNPUCodes=["100000001"]))
    known.synced = True
    faults.step(at(1))
    assert standing(faults) == {}
    assert "220001001 is not configured any more" in faults.status().refused[-1].what


async def test_the_file_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_table, "_POLL_SECONDS", 0.02)
    file = tmp_path / "publicCustomization.json"
    seen: asyncio.Queue[str | None] = asyncio.Queue()
    task = asyncio.create_task(follow_table(file, seen.put_nowait))
    async with asyncio.timeout(patience(30)):
        file.write_text("one")
        while await seen.get() != "one":
            pass
        (tmp_path / "new").write_text("other")
        (tmp_path / "new").rename(file)
        assert await seen.get() == "other"
        file.unlink()
        assert await seen.get() is None
        file.mkdir()
        await until(lambda: "cannot be read" in caplog.text)
        file.rmdir()
        (tmp_path / "large").write_bytes(b"\xff" + b"x" * (11 * 1024 * 1024))
        (tmp_path / "large").rename(file)
        text = await seen.get()
        assert text is not None
        assert len(text) == 10 * 1024 * 1024 + 1
    task.cancel()
    await asyncio.wait([task])
    assert seen.empty()
    assert caplog.text.count("cannot be read") == 1


def test_it_begins_with_what_is_shipped() -> None:
    assert PublicFaultsPlugin(places()).status().table == "shipped"
