"""``docs/configuration.md`` has a row for every option, with its names and its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.config import AgentConfiguration
from aggregator.api.operations import OPERATIONS
from aggregator.config import AggregatorConfiguration
from elastic.config import ElasticConfiguration
from tests.parts.configuration_keys import flags, leaves
from vigil.agent import agent
from vigil.aggregator import aggregator
from vigil.elastic.verb import elastic

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.settings import Section

DOCS = Path(__file__).parents[1] / "docs" / "configuration.md"


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below ``heading``, without its head."""
    below = DOCS.read_text(encoding="utf-8").split(f"\n## `{heading}`\n")[1]
    table = below.split("| flag |")[1].split("\n\n")[0]
    lines = table.splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def written(default: object) -> str:
    """Return ``default`` as the table writes it; nothing where it has it in words."""
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case float():
            return f"{default:g}"
        case tuple() if default:
            return f"`{','.join(map(str, default))}`"
        case str() | Path():
            return f"`{default}`"
    return ""


@pytest.mark.parametrize(
    ("heading", "model", "verb"),
    [
        ("vigil agent", AgentConfiguration, agent),
        ("vigil aggregator", AggregatorConfiguration, aggregator),
        ("vigil elastic", ElasticConfiguration, elastic),
    ],
    ids=["agent", "aggregator", "elastic"],
)
def test_every_option_has_its_row(
    heading: str, model: type[Section], verb: Callable[..., None]
) -> None:
    by_key = {cells[2].partition(" ")[0].strip("`"): cells for cells in rows(heading)}
    options = dict(leaves(model))
    assert by_key.keys() - {""} == options.keys()
    output = {match[0] for cells in rows(heading) for match in re.finditer(r"--[a-z-]+", cells[0])}
    assert output == flags(verb)
    for key, default in options.items():
        flag, variable, _, shown, meaning = by_key[key]
        name = key.replace(".", "_")
        assert variable.startswith(f"`VIGIL_{name.upper()}`"), key
        assert flag == "" or flag.startswith(f"`--{name.replace('_', '-')}"), key
        assert shown.startswith(written(default)), f"{key}: {shown}, not {default}"
        assert shown, key
        assert meaning, key


def test_every_page_of_the_aggregator_is_there() -> None:
    below = DOCS.read_text(encoding="utf-8").split("\n## `vigil aggregator`\n")[1]
    table = below.split("| path | answer |")[1].split("\n\n")[0]
    shown = {path.partition("?")[0] for path in re.findall(r"`(/[^`]*)`", table)}
    pages = {one.path.replace("{", "<").replace("}", ">") for one in OPERATIONS}
    assert pages <= shown, pages - shown
