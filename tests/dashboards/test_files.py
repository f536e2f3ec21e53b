"""The files are those of the source, and valid by the models of Grafana's SDK."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from tests.alerts.files import all_rules
from tests.dashboards.cases import CASES, Cause
from tests.dashboards.files import (
    CONFIG_MAPS,
    DOCUMENT,
    FOLDER,
    all_dashboards,
    config_maps,
    document,
    files,
)
from tests.dashboards.grafana import RUNBOOKS, UID
from tests.parts.exposition import DOCUMENT as METRICS
from tests.parts.exposition import listed
from tests.parts.tree import ROOT

_CORE = {"stat", "timeseries", "table", "state-timeline", "heatmap"}
_MAX_BYTES = 64_000
"""Of a dashboard; ``kubectl apply`` takes four times as much."""


@pytest.mark.slow
def test_the_files_are_made_of_the_source() -> None:
    made = {**files(), CONFIG_MAPS: config_maps(), DOCUMENT: document()}
    for file, text in made.items():
        assert file.read_text(encoding="utf-8") == text, "run python -m tests.dashboards.files"
    assert {*FOLDER.iterdir()} == {*files()}


@pytest.mark.parametrize("text", files().values(), ids=[file.stem for file in files()])
def test_a_file_is_valid_by_the_models_and_has_core_panels_only(text: str) -> None:
    register_default_plugins()
    content = json.loads(text)
    dashboard = Dashboard.from_json(content)
    again = json.loads(json.dumps(dashboard, cls=JSONEncoder))
    assert again == content, "the models drop what they do not have"
    assert dashboard.panels is not None
    for panel in dashboard.panels:
        assert isinstance(panel, Panel)
        assert panel.type_val in _CORE
        assert panel.targets
    assert len(text.encode()) <= _MAX_BYTES


def test_panels_fill_the_grid_without_overlap() -> None:
    for text in files().values():
        cells = [
            (x, y)
            for panel in json.loads(text)["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len({*cells}) == len(cells) == 24 * (1 + max(y for _, y in cells))


@pytest.mark.slow
def test_config_maps_have_the_label_of_the_sidecar_and_the_same_files() -> None:
    maps = list(yaml.safe_load_all(CONFIG_MAPS.read_text(encoding="utf-8")))
    for item, (file, text) in zip(maps, files().items(), strict=True):
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert item["metadata"]["name"] == f"{UID}{file.stem}"
        assert item["data"] == {f"{UID}{file.stem}.json": text}


def test_each_metric_is_documented() -> None:
    sections = re.findall(r"^## (.+)$", METRICS.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name for section in sections for name in listed(section)}
    named = {name for text in files().values() for name in re.findall(r"npu_vigil_\w+", text)}
    assert {name.removesuffix("_bucket") for name in named} <= documented


def test_each_link_to_a_runbook_leads_to_a_heading() -> None:
    assert (ROOT / RUNBOOKS).exists()
    headings = {rule.name.lower() for rule in all_rules()}
    for text in files().values():
        anchors = re.findall(r"\$\{runbooks:raw\}#(\w+)", text)
        assert anchors
        assert {*anchors} <= headings


def test_each_link_to_the_page_is_a_view_of_it() -> None:
    views = re.findall(r"\| `(#/\w+)", (ROOT / "docs" / "page.md").read_text(encoding="utf-8"))
    for text in files().values():
        links = re.findall(r"\$\{page:raw\}/(#/\w+)", text)
        assert links
        assert {*links} <= {*views}


def test_each_query_has_a_cause_and_each_cause_a_query() -> None:
    queries = {
        (dashboard.name, panel.key, letter)
        for dashboard in all_dashboards()
        for panel in dashboard.panels
        for letter in "ABC"[: len(panel.queries)]
    }
    assert queries == CASES.keys()
    assert {case.cause for case in CASES.values()} == {*Cause}


def test_each_title_is_in_two_languages() -> None:
    for dashboard in all_dashboards():
        keys = [panel.key for panel in dashboard.panels]
        assert len({*keys}) == len(keys)
        for panel in dashboard.panels:
            assert panel.english.isascii()
            assert re.search(r"[\u4e00-\u9fff]", panel.chinese)
            assert '"' not in panel.english + panel.chinese, "the query of the title quotes it"
