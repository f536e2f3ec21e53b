"""Build dashboards with Grafana's own SDK.

Titles follow the variable ``lang``, by a hidden variable for each (decision 63).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from grafana_foundation_sdk.builders import (
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    FieldTextAlignment,
    GraphThresholdsStyleMode,
    HeatmapCellLayout,
    ScaleDistribution,
    TableColorTextCellOptions,
    VisibilityMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tests.dashboards.panel import GREEN, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grafana_foundation_sdk.cog.builder import Builder

    from tests.dashboards.panel import Dashboard, Panel

LANGUAGES = {"en": "English", "zh": "简体中文"}
TITLE = "title_"
"""Begins the name of the variable of a title."""
UID = "npu-vigil-"
RUNBOOKS = "docs/runbooks.md"
_PAGE = "http://localhost:8080"
_SOURCE = models.DataSourceRef("prometheus", "${datasource}")
_NODE_LINK = (
    f"/d/{UID}node?var-node=${{__data.fields.node}}"
    "&${datasource:queryparam}&${job:queryparam}&${lang:queryparam}&${__url_time_range}"
)
_NODE_PAGE = "${page:raw}/#/node/${__data.fields.node}"
_Chart: TypeAlias = (
    stat.Panel | timeseries.Panel | table.Panel | statetimeline.Panel | heatmap.Panel
)


def as_json(dashboard: Dashboard) -> str:
    """Return the file that Grafana imports."""
    content = _built(dashboard)
    return json.dumps(content, cls=JSONEncoder, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _built(dashboard: Dashboard) -> models.Dashboard:
    builder = (
        builders.Dashboard(dashboard.title)
        .uid(f"{UID}{dashboard.name}")
        .description(dashboard.question)
        .tags(["npu-vigil"])
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .links([_others(), _link("NPU Vigil", "${page:raw}/#/fleet")])
        .variables([*_variables(dashboard), *map(_title, dashboard.panels)])
    )
    for number, panel in enumerate(dashboard.panels, 1):
        builder.with_panel(_panel(panel).id(number))
    built = builder.build()
    for variable in built.templating.list_val or ():
        # A title in an address would outlive a change of the language.
        variable.skip_url_sync = variable.hide is models.VariableHide.HIDE_VARIABLE
    return built


def _others() -> builders.DashboardLink:
    return (
        builders.DashboardLink("NPU Vigil")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags(["npu-vigil"])
        .include_vars(True)
        .keep_time(True)
    )


def _link(title: str, url: str) -> builders.DashboardLink:
    return (
        builders.DashboardLink(title)
        .type(models.DashboardLinkType.LINK)
        .url(url)
        .target_blank(True)
    )


def _variables(dashboard: Dashboard) -> Iterator[Builder[models.VariableModel]]:
    yield builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    yield (
        builders.CustomVariable("lang")
        .label("Language / 语言")
        .values(",".join(f"{text} : {name}" for name, text in LANGUAGES.items()))
        .current(models.VariableOption(True, LANGUAGES["en"], "en"))
        .options(
            [models.VariableOption(name == "en", text, name) for name, text in LANGUAGES.items()]
        )
    )
    yield (
        _listing("job", "Job / 任务", "label_values(npu_vigil_http_connections, job)")
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(True, ["All"], ["$__all"]))
    )
    node = _listing("node", "Node / 节点", 'label_values(up{job=~"$job",node!=""}, node)')
    if not dashboard.is_of_one_node:
        # A list of 16,000 names would be longer than a request may be.
        node.multi(True).include_all(True).all_value(".+")
        node.current(models.VariableOption(True, ["All"], ["$__all"]))
    yield node
    for name, label, url in (
        ("page", "NPU Vigil (URL)", _PAGE),
        ("runbooks", "Runbooks (URL)", RUNBOOKS),
    ):
        current = models.VariableOption(True, url, url)
        yield builders.TextBoxVariable(name).label(label).default_value(url).current(current)


def _listing(name: str, label: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(_SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _title(panel: Panel) -> builders.QueryVariable:
    """Return a hidden variable that has the title in the chosen language.

    The query asks for no metric: it makes one series with both titles as labels, and the regular
    expression takes the label of the chosen language.
    """
    both = "vector(1)"
    for language, text in zip(LANGUAGES, (panel.english, panel.chinese), strict=True):
        both = f'label_replace({both}, "{language}", "{text}", "", "")'
    return (
        builders.QueryVariable(TITLE + panel.key)
        .hide(models.VariableHide.HIDE_VARIABLE)
        .query(f"query_result({both})")
        .regex('/$lang="([^"]*)"/')
        .datasource(_SOURCE)
        .refresh(models.VariableRefresh.ON_DASHBOARD_LOAD)
        # Until Prometheus answers, and while it does not.
        .current(models.VariableOption(True, panel.english, panel.english))
    )


def _panel(panel: Panel) -> _Chart:
    chart = _CHARTS[panel.kind](panel)
    chart.title(f"${{{TITLE}{panel.key}}}").description(panel.answers).datasource(_SOURCE)
    chart.span(panel.width).height(panel.height).unit(panel.unit)
    chart.links(
        [
            _link("NPU Vigil", f"${{page:raw}}/{panel.page}"),
            *(_link(name, f"${{runbooks:raw}}#{name.lower()}") for name in panel.alerts),
        ]
    )
    steps = [models.Threshold(None, GREEN), *(models.Threshold(*step) for step in panel.thresholds)]
    chart.thresholds(builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    if panel.states:
        options = {
            str(value): models.ValueMappingResult(text, color=color, index=index)
            for index, (value, text, color) in enumerate(panel.states)
        }
        chart.mappings([models.ValueMap(options)])
    is_instant = panel.kind in (Kind.STAT, Kind.TABLE)
    for letter, query in zip("ABC", panel.queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(query.expression).datasource(_SOURCE)
        target.legend_format(query.legend or "__auto")
        if panel.kind is Kind.HEATMAP:
            target.format(PromQueryFormat.HEATMAP)
        elif panel.kind is Kind.TABLE:
            target.format(PromQueryFormat.TABLE)
        chart.with_target(target.instant() if is_instant else target.range())
    return chart


def _stat(panel: Panel) -> _Chart:
    has_colors = bool(panel.thresholds or panel.states)
    color = BigValueColorMode.BACKGROUND if has_colors else BigValueColorMode.VALUE
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"])
    chart = stat.Panel().graph_mode(BigValueGraphMode.NONE).reduce_options(reduced)
    return chart.color_mode(color)


def _time_series(panel: Panel) -> _Chart:
    chart = timeseries.Panel().axis_soft_min(0).fill_opacity(10)
    if panel.thresholds:
        lines = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        chart.thresholds_style(lines)
    return chart


def _table(panel: Panel) -> _Chart:
    """Return a table whose nodes link to their dashboard and to the page of NPU Vigil."""
    excluded = {"Time": True, "Value": not panel.value}
    renamed = {f"name_{language}": "name" for language in LANGUAGES}
    if panel.value:
        renamed["Value"] = panel.value
    links = [
        {"title": title, "url": url, "targetBlank": True}
        for title, url in (("node", _NODE_LINK), ("NPU Vigil", _NODE_PAGE))
    ]
    chart = table.Panel().align(FieldTextAlignment.AUTO)
    chart.with_transformation(
        models.DataTransformerConfig(
            "organize", options={"excludeByName": excluded, "renameByName": renamed}
        )
    )
    chart.override_by_name("node", [models.DynamicConfigValue("links", links)])
    if panel.value and panel.thresholds:
        colored = models.DynamicConfigValue("custom.cellOptions", TableColorTextCellOptions())
        chart.override_by_name(panel.value, [colored])
    return chart


def _states(panel: Panel) -> _Chart:
    chart = statetimeline.Panel().show_value(VisibilityMode.NEVER).merge_values(True)
    chart.fill_opacity(70).line_width(0)
    return chart.color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))


def _heatmap(panel: Panel) -> _Chart:
    rows = heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE)
    axis = heatmap.YAxisConfig().unit(panel.unit)
    scale = common.ScaleDistributionConfig().type(ScaleDistribution.LINEAR)
    chart = heatmap.Panel().calculate(False).rows_frame(rows).y_axis(axis)
    return chart.scale_distribution(scale)


_CHARTS = {
    Kind.STAT: _stat,
    Kind.TIME_SERIES: _time_series,
    Kind.TABLE: _table,
    Kind.STATES: _states,
    Kind.HEATMAP: _heatmap,
}
