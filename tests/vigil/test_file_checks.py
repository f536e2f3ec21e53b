"""``vigil validate`` on fault configurations: what it takes a text for, and what it reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from contract.errors import ConfigurationError
from contract.operator_rules.fault_configuration import CHIP_CONFIG_MAP, DOCUMENTS
from tests.fault_texts import shipped_texts
from tests.parts.verbs import run_verb
from vigil.file_checks import check_config_map, check_document, kind_of
from vigil.validate import FileKind

DOCS = Path(__file__).parents[2] / "docs"
SHIPPED = shipped_texts()
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "mindx-dl-fault-config", "namespace": "kube-system"},
    "data": {key: SHIPPED[key] for key in CHIP_CONFIG_MAP.documents} | {"PollInterval": "300"},
}
KINDS = dict(
    zip(
        DOCUMENTS,
        ("fault-code", "fault-customization", "switch-fault-code", "node-fault-code"),
        strict=True,
    )
)


def vigil(*arguments: str, text: str = "") -> tuple[int, str, str]:
    status, output, errors = run_verb("validate", *arguments, text=text)
    return status, output.decode(), errors


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        check_config_map(text, "x")
    return [problem.where for problem in caught.value.problems]


@pytest.mark.parametrize("key", DOCUMENTS)
def test_documents_by_name_and_by_content(key: str) -> None:
    assert kind_of(SHIPPED[key], "-", "x") == KINDS[key]
    assert kind_of(SHIPPED[key].swapcase().replace("NULL", "null"), "-", "x") == KINDS[key]
    assert kind_of("{", key, "x") == KINDS[key]
    assert kind_of("null", f"my-{key}", "x") == KINDS[key]
    check_document(key, SHIPPED[key], "x")
    assert set(KINDS.values()) < set(FileKind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"FaultDuration": []}', "fault-customization"),
        ('{"GraceTolerance": {}}', "fault-customization"),
        ('{"NotHandleFaultCodes": ["[0x00f1fef5,155913,npu,na]"]}', "switch-fault-code"),
        ('{"ResetFaultCodes": []}', "switch-fault-code"),
        ('{"NotHandleFaultCodes": ["80E21007"]}', "fault-code"),
        ('{"data": {}}', "fault-config"),
        ("kind: ConfigMap\n", "fault-config"),
        ('{"kind": "ConfigMapList", "apiVersion": "v1", "items": []}', "fault-config"),
        ('\ufeff{"FaultDuration": []}', "fault-customization"),
        ("[chip_faults]\n", "agent"),
    ],
)
def test_kinds_by_content(text: str, kind: str) -> None:
    assert kind_of(text, "-", "x") == kind


@pytest.mark.parametrize("text", ["{", "{}", '{"x": 1}'])
def test_a_file_of_unknown_kind_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--kind"):
        kind_of(text, "-", "x")


@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_is_no_configuration(text: str) -> None:
    """``kubectl get … | vigil validate -`` where kubectl failed."""
    with pytest.raises(ConfigurationError, match="is empty"):
        kind_of(text, "agent.toml", "x")


def test_a_few_lines_of_yaml_that_are_billions() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    lines += ["kind: *a11", "metadata: {name: *a11}", "data: {faultCode.json: *a11}"]
    assert {"kind", "metadata.name", "data['faultCode.json']"} == set(problems("\n".join(lines)))


def test_a_byte_order_mark_is_named() -> None:
    with pytest.raises(ConfigurationError, match="byte order mark"):
        check_document("faultCustomization.json", '\ufeff{"FaultDuration": []}', "x")


def test_a_whole_config_map_as_kubectl_prints_it() -> None:
    check_config_map(json.dumps(CONFIG_MAP, indent=1), "x")
    check_config_map(json.dumps({"labels": {}, "data": CONFIG_MAP["data"]}), "x")
    (example,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "installation.md").read_text(), re.DOTALL)
    assert kind_of(example, "-", "x") == "fault-config"
    check_config_map(example, "x")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"kind": "Secret"}, "kind"),
        ({"metadata": {"name": "fault-config", "namespace": "kube-system"}}, "metadata.name"),
        ({"metadata": {"namespace": "default"}}, "metadata.namespace"),
        ({"binaryData": {"faultCode.json": "e30="}}, "binaryData"),
        ({"data": None}, "data"),
        ({"data": {"PollInterval": 300}}, "data['PollInterval']"),
        ({"data": {"PollInterval": "5m"}}, "data['PollInterval'] $"),
        ({"data": {"faultcode.json": "{}"}}, "data['faultcode.json'] $"),
        ({"data": {"faultCode.json": "{"}}, "data['faultCode.json'] $"),
        (
            {"data": {"faultCustomization.json": '{"FaultDuration":[{"FaultTimeout":601}]}'}},
            "data['faultCustomization.json'] $.FaultDuration[0].EventId",
        ),
    ],
)
def test_each_problem_of_a_config_map_is_named(change: dict[str, Any], where: str) -> None:
    assert where in problems(json.dumps(CONFIG_MAP | change))


@pytest.mark.parametrize(
    "text", ["data: [", "data:\n\t- x", "- data:", "{", "data: *absent", "data: !!bool x", ""]
)
def test_a_text_that_is_no_config_map_is_refused(text: str) -> None:
    assert problems(text)


NODE_CONFIG_MAP = {
    "kind": "ConfigMap",
    "metadata": {"name": "mindx-dl-node-fault-config", "namespace": "mindx-dl"},
    "data": {"NodeDConfiguration.json": SHIPPED["NodeDConfiguration.json"]},
}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({}, []),
        ({"metadata": {}}, []),
        ({"metadata": {"name": "mindx-dl-node-fault-config"}}, []),
        ({"data": {"NodeDConfiguration.json": '{"FaultTypeCode":{}}'}}, []),
        ({"metadata": {"namespace": "kube-system"}}, ["metadata.namespace"]),
        ({"metadata": CONFIG_MAP["metadata"]}, ["data['NodeDConfiguration.json'] $"]),
        (
            {"data": {"faultCode.json": "{}"}},
            ["data['NodeDConfiguration.json'] (key)", "data['faultCode.json'] $"],
        ),
    ],
)
def test_the_config_map_of_the_servers_parts(change: dict[str, Any], where: list[str]) -> None:
    text = json.dumps(NODE_CONFIG_MAP | change)
    assert kind_of(text, "-", "x") == "fault-config"
    if where:
        assert problems(text) == where
    else:
        check_config_map(text, "x")


def test_everything_that_is_wrong_with_the_codes_of_the_servers_parts(tmp_path: Path) -> None:
    lists = {"SeparateFaultCodes": ["1", "2C000031"], "NotHandleFaultCodes": ["2c000031", "z"]}
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"faultTypeCode": lists}))
    status, _, errors = vigil(str(file))
    assert status == 2
    assert f"{file}: 3 problems" in errors
    assert "$.FaultTypeCode.SeparateFaultCodes[0]: '1' is not a valid code" in errors
    assert "$.FaultTypeCode.NotHandleFaultCodes[0]: 2C000031 is on another level" in errors
    file.write_text('{"FaultTypeCode":{}}')
    assert vigil(str(file))[1] == f"{file}: ok (node-fault-code)\n"


def test_the_command(tmp_path: Path) -> None:
    status, output, _ = vigil("-", text=json.dumps(CONFIG_MAP))
    assert (status, output) == (0, "standard input: ok (fault-config)\n")
    file = tmp_path / "faultCode.json"
    file.write_text('{"NotHandleFaultCodes": ["zz"], "SeperateNPUCodes": ["80E21007"]}')
    status, output, errors = vigil(str(file))
    assert (status, output) == (2, "")
    assert f"{file}: 3 problems" in errors
    assert "  $.NotHandleFaultCodes[0]: 'zz'" in errors
    assert "did you mean SeparateNPUCodes?" in errors
    assert vigil(str(file), "--kind", "switch-fault-code")[0] == 2
    status, _, errors = vigil("-", "--kind", "fault-code", text="{}")
    assert status == 2
    assert "names no code" in errors
    file.write_bytes(b'{"NotHandleFaultCodes": ["80E21007"], "\xff": 1}')
    assert "is not known and has no effect" in vigil(str(file))[2]


def test_wrong_types_are_reported_with_everything_else() -> None:
    text = json.dumps(
        {
            "GraceTolerance": {"WaitDeviceResetTime": "150"},
            "FaultFrequency": [
                {"EventId": ["80E01801"], "TimeWindow": "abc", "Times": 1.5},
                {"EventId": "80E01801", "TimeWindow": 60, "Times": 0, "Fault": 1},
                "nonsense",
                {
                    "EventId": ["80E01801", 7],
                    "TimeWindow": 5,
                    "Times": 2,
                    "FaultHandling": "SeparateNPU",
                    "ReleaseTimeWindow": True,
                },
            ],
            "FaultDuration": [{"EventId": ["81078603"], "FaultTimeout": [], "RecoverTimeout": {}}],
        }
    )
    with pytest.raises(ConfigurationError) as caught:
        check_document("faultCustomization.json", text, "x")
    problems_of = {one.where: one.what for one in caught.value.problems}
    assert len(problems_of) == len(caught.value.problems), "nothing is reported twice"
    types = {
        "$.GraceTolerance.WaitDeviceResetTime": "must be an integer from 60 to 180, is the text",
        "$.FaultFrequency[0].TimeWindow": "must be an integer from 60 to 864000, is the text 'abc'",
        "$.FaultFrequency[0].Times": "must be an integer from 1 to 100, is the number 1.5",
        "$.FaultFrequency[1].EventId": "must be an array, is the text '80E01801'",
        "$.FaultFrequency[2]": "must be an object, is the text 'nonsense'",
        "$.FaultFrequency[3].EventId[1]": "must be a text, is the number 7",
        "$.FaultFrequency[3].ReleaseTimeWindow": "must be an integer from 60 to 4294967296, is",
        "$.FaultDuration[0].FaultTimeout": "must be an integer from 0 to 600, is an array",
        "$.FaultDuration[0].RecoverTimeout": "must be an integer from 0 to 86400, is an object",
    }
    for where, what in types.items():
        assert problems_of.pop(where).startswith(what), where
    others = {
        "$.FaultFrequency[0].FaultHandling",
        "$.FaultFrequency[1].Times",
        "$.FaultFrequency[1].Fault",
        "$.FaultFrequency[1].FaultHandling",
        "$.FaultFrequency[3].TimeWindow",
        "$.FaultDuration[0].FaultHandling",
    }
    assert problems_of.keys() >= others
    assert not [where for where in problems_of if where.startswith("$.FaultFrequency[2]")]


@pytest.mark.parametrize(
    ("key", "text", "where"),
    [
        (
            "faultCode.json",
            '{"SeparateNPUCodes": 1, "NotHandleFaultCodes": ["zz", 7, "80E21007"]}',
            ["$.SeparateNPUCodes", "$.NotHandleFaultCodes[1]", "$.NotHandleFaultCodes[0]"],
        ),
        (
            "SwitchFaultCode.json",
            '{"SeparateFaultCodes": {}, "NotHandleFaultCodes": [[], "x"]}',
            ["$.SeparateFaultCodes", "$.NotHandleFaultCodes[0]", "$.NotHandleFaultCodes[1]"],
        ),
    ],
)
def test_wrong_types_of_lists_of_codes(key: str, text: str, where: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_document(key, text, "x")
    assert sorted(one.where for one in caught.value.problems) == sorted(where)


def test_very_many_wrong_types_are_not_all_listed() -> None:
    text = json.dumps({"FaultFrequency": [0] * 100_000})
    with pytest.raises(ConfigurationError) as caught:
        check_document("faultCustomization.json", text, "x")
    first, *others = caught.value.problems
    assert (first.where, len(others)) == ("$", 250)
    assert "has 250 wrong types at least" in first.what


PUBLIC = (
    '{"publicFaultCode": {"SubHealthFaultCodes": ["010001001"]}, "publicFaultResource": ["CCAE"]}'
)
RULE = """{"version": "1.0", "elastic_scaling_list": [{"group_list": [
  {"group_name": "a", "group_num": "1", "server_num_per_group": "1"}]}]}"""
DURATIONS = '[{"FaultCode": "81078603", "FaultType": "faultDevice", "TimeOutInterval": 300}]'
RELATIONS = """[{"TriggerFault": "8C1F8609", "RelationFaults": ["81078603"],
  "FaultStrategy": "SubHealth"}]"""


@pytest.mark.parametrize("name", ["-", "relationFaultCustomization.json", "faultCode.json"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PUBLIC, "ok (public-fault-codes)"),
        (RULE, "ok (scaling-rule)"),
        (DURATIONS, "not judged (fault-duration): only ClusterD reads faultDuration.json"),
        (RELATIONS, "not judged (relation-faults): only ClusterD reads relationFaultCustom"),
    ],
)
def test_files_of_the_vendor_are_known_by_content(
    name: str, text: str, shown: str, tmp_path: Path
) -> None:
    if name == "-":
        status, output, _ = vigil("-", text=text)
    else:
        (tmp_path / name).write_text(text)
        status, output, _ = vigil(str(tmp_path / name))
    assert status == 0
    assert shown in output


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        (
            PUBLIC.replace('["010001001', '["1", "010001001'),
            "public-fault-codes",
            "a code has 9 bytes",
        ),
        ('{"publicFaultCode": {}}', "public-fault-codes", "has no code"),
        (
            RULE.replace('"group_num": "1"', '"group_num": "0"'),
            "scaling-rule",
            "NO_NUMBER: group_num 0",
        ),
        (RULE.replace("]}]}", "]}, ]}"), "scaling-rule", "line 2: SCALING_RULE_NO_JSON: "),
        (RULE.replace('"elastic_', '"elastic-'), "scaling-rule", "UNKNOWN_KIND"),
        ('[{"TriggerFault": "x"}, 1]', "relation-faults", "is not a list of objects"),
    ],
)
def test_problems_of_files_of_the_vendor_name_the_kind(text: str, kind: str, problem: str) -> None:
    status, output, errors = vigil("-", text=text)
    assert (status, output) == (2, "")
    assert f"standard input: checked as {kind}\n" in errors
    assert problem in errors


def config_map_of(rule: str) -> str:
    """Return the ConfigMap of a scaling rule, in YAML."""
    text = "".join(f"    {line}\n" for line in rule.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r, namespace: n}\ndata:\n"
    return f"{head}  elastic_scaling.json: |\n{text}"


def test_a_scaling_rule_is_judged_as_lint_does() -> None:
    assert vigil("-", text=config_map_of(RULE)) == (0, "standard input: ok (scaling-rule)\n", "")
    entry = RULE.partition("[")[2].rpartition("]")[0]
    larger = entry.replace('"1"', '"2"', 1)
    grows = RULE.replace(entry, f"{entry}, {larger}")
    for text, line in ((grows, 3), (config_map_of(grows), 8)):
        status, output, errors = vigil("-", text=text)
        assert (status, output) == (2, "")
        assert f"line {line}: SCALING_RULE_GROWS: group_num of a grows from 1 to 2" in errors


def test_warnings_of_a_scaling_rule_are_shown() -> None:
    status, output, errors = vigil("-", text=RULE.replace('"1.0"', '"2.0"'))
    assert (status, output) == (0, "standard input: ok (scaling-rule)\n")
    assert errors.startswith("standard input: warning: line 1: SCALING_RULE_VERSION: ")


@pytest.mark.parametrize("text", ["{}", '{"version": "1.0"}', "kind: Job\n"])
def test_what_has_no_scaling_rule_is_not_one(text: str) -> None:
    status, output, errors = vigil("-", "--kind", "scaling-rule", text=text)
    assert (status, output) == (2, "")
    assert "checked as scaling-rule" in errors
