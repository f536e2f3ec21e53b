"""Every finding of ``vigil advise`` is in ``docs/advise.md``."""

from __future__ import annotations

import re
from pathlib import Path

from advisor.report import Finding

ROOT = Path(__file__).parents[2]
_SOURCES = (
    "scheduler_view/cluster_cache",
    "checks/cluster",
    "scheduler_view/device_lists",
    "checks/elastic_parts",
    "checks/motor",
    "controllers/motor_scaling_rule",
)
_CODE = re.compile(r'"([A-Z]+(?:_[A-Z]+)+)"')


def test_codes_are_in_the_table() -> None:
    found = {
        code
        for name in (*_SOURCES, "scheduler_view/nodes")
        for code in _CODE.findall((ROOT / f"advisor/{name}.py").read_text())
    }
    found.add(Finding.divergence("", "", 0).code)
    section = (
        (ROOT / "docs/advise.md").read_text().partition("## Findings")[2].partition("\n## ")[0]
    )
    documented = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", section))
    assert documented == found
    assert len(found) > 25
