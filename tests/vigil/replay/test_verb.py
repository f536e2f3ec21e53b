"""``vigil replay`` on the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from agent.journal.file import FILE_NAME
from contract.errors import ConfigurationError
from contract.operator_rules.fault_configuration import FaultTexts
from tests.agent.node_history import a_history, changed
from vigil.file_checks import read_fault_files
from vigil.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

CODES = '{"SubHealthFaultCodes":["80E3A201"]}'
RULES = (
    '{"FaultDuration":[{"EventId":["80E3A201"],"FaultTimeout":60,"FaultHandling":"SeparateNPU"}]}'
)


def vigil(*options: str | Path) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, options)])


async def test_the_recorded_verdicts_are_checked(tmp_path: Path) -> None:
    await a_history(tmp_path)
    result = vigil("--state-dir", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"all \d+ recorded verdicts are reproduced", result.stdout)
    assert "SeparateNPU 2.0 h" in result.stdout
    changed(tmp_path, "UPDATE rows SET body = replace(body, 'Separate', 'Restart')")
    result = vigil("--state-dir", tmp_path)
    assert result.exit_code == 1
    assert "recorded verdicts are NOT reproduced" in result.stdout
    assert "chip 3 80E3A201 began: nothing -> RestartNPU" in result.stdout


@pytest.mark.slow
async def test_differences_are_reported_to_people_and_machines(tmp_path: Path) -> None:
    await a_history(tmp_path)
    (tmp_path / "faultCode.json").write_text(CODES)
    options = ("--journal", tmp_path / FILE_NAME, "--fault-config", tmp_path)
    result = vigil(*options)
    assert result.exit_code == 0, result.stderr
    assert "80E3A201 is SubHealthFault in the level table" in result.stdout
    first, second = (vigil(*options, "--json", "--since", "2027-01-16") for _ in range(2))
    assert first.stdout == second.stdout
    found = json.loads(first.stdout)
    assert {day["day"] for day in found["days"]} == {"2027-01-16"}
    (day,) = [day for day in found["days"] if day["subject"] == "chip 3"]
    assert day["recorded"]["unhealthy_seconds"] == 2 * 3600
    assert day["replayed"]["unhealthy_seconds"] == 0
    (difference,) = day["differences"]
    assert difference["code"] == "80E3A201"
    assert difference["seconds"] == 2 * 3600


async def test_wrong_use_and_a_journal_that_is_not_there(tmp_path: Path) -> None:
    missing = vigil("--state-dir", tmp_path)
    assert missing.exit_code == 3
    assert FILE_NAME in missing.stderr
    (tmp_path / "faultCode.json").write_text('{"SeparateNPUCodes":[80]}')
    wrong = vigil("--state-dir", tmp_path, "--fault-config", tmp_path)
    assert isinstance(wrong.exception, ConfigurationError), "exit status 2"
    assert "faultCode.json $.SeparateNPUCodes[0]" in str(wrong.exception)
    assert vigil("--since", "yesterday").exit_code == 2


def test_a_fault_configuration_is_found_in_files_directories_and_config_maps(
    tmp_path: Path,
) -> None:
    (tmp_path / "faultCode.json").write_text(CODES)
    (tmp_path / "my-rules.json").write_text(RULES)
    indented = "\n".join(f"    {line}" for line in (CODES,))
    (tmp_path / "map.yaml").write_text(
        "kind: ConfigMap\nmetadata:\n  name: mindx-dl-fault-config\ndata:\n"
        f"  faultCode.json: |\n{indented}\n  PollInterval: '300'\n"
    )
    found, problems = read_fault_files([tmp_path])
    assert found == FaultTexts(fault_code=CODES)
    assert ["network codes in no list" in str(one) for one in problems] == [True]
    both, _ = read_fault_files([tmp_path / "faultCode.json", tmp_path / "my-rules.json"])
    assert both == FaultTexts(fault_code=CODES, customization=RULES)
    reported, _ = read_fault_files([tmp_path / "map.yaml"])
    assert reported.fault_code is not None
    assert reported.fault_code.strip() == CODES


def test_the_codes_of_the_servers_parts_are_one_of_them(tmp_path: Path) -> None:
    text = '{"FaultTypeCode":{"SeparateFaultCodes":["2C000031"]}}'
    (tmp_path / "any.json").write_text(text)
    assert read_fault_files([tmp_path / "any.json"]) == (FaultTexts(node=text), ())
    (tmp_path / "any.json").rename(tmp_path / "NodeDConfiguration.json")
    assert read_fault_files([tmp_path]) == (FaultTexts(node=text), ())
    (tmp_path / "any.json").write_text('{"FaultTypeCode":{"SeparateFaultCodes":["1","2"]}}')
    with pytest.raises(ConfigurationError) as caught:
        read_fault_files([tmp_path / "any.json"])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("scenario.toml", "steps = []", "is not a valid fault configuration"),
        ("x.json", "{", "cannot be known"),
        ("x.yaml", "kind: Secret\ndata: {}\n", "kind"),
    ],
)
def test_a_file_that_is_no_fault_configuration_is_refused(
    tmp_path: Path, name: str, content: str, what: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigurationError, match=what):
        read_fault_files([tmp_path / name])
    with pytest.raises(ConfigurationError, match="has none of"):
        read_fault_files([tmp_path])


def test_the_same_document_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "faultCode.json").write_text(CODES)
    with pytest.raises(ConfigurationError, match="given twice"):
        read_fault_files([tmp_path, tmp_path / "faultCode.json"])
