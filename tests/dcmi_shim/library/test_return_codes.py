"""Return codes and their meanings."""

from __future__ import annotations

from dcmi_shim.library.return_codes import MEANINGS, meaning


def test_every_return_code_has_a_meaning() -> None:
    assert len(MEANINGS) == 25
    assert meaning(-8012) == "not ready"
    assert "no such function" in meaning(-99998)
    assert meaning(-4711) == "unknown return code"
