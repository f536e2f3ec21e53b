"""What a chip does: utilisation, processes, traffic, virtual devices, by hand and in scenarios."""

from __future__ import annotations

import subprocess
from ctypes import byref, c_int, c_uint
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import ConfigurationError
from dcmi_shim.emulator.install import HCCN_TOOL
from dcmi_shim.emulator.scenario import parse_scenario, play
from dcmi_shim.library.abi import ProcessMemory
from tests.dcmi_shim.emulator.driver import Hbm, wait_until
from tests.parts.verbs import vigil_process

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server

AI_CORE, HBM, VECTOR_CORE = 2, 6, 12
IDLE_HBM = 5


def _percent(server: Server, chip: int, kind: int) -> int:
    value = c_uint(77)
    answer = server.driver.library.dcmi_get_device_utilization_rate(chip, 0, kind, byref(value))
    assert answer == 0
    return value.value


def _processes(server: Server, chip: int) -> list[int]:
    found = (ProcessMemory * 32)(*[ProcessMemory(9, 9)] * 32)
    count = c_int(-1)
    answer = server.driver.library.dcmi_get_device_resource_info(chip, 0, found, byref(count))
    assert answer == 0
    assert not any(one.proc_id or one.proc_mem_usage for one in found[count.value :])
    return [one.proc_id for one in found[: count.value]]


def _power(server: Server, chip: int) -> int:
    """Return the power of a chip in 0.1 W."""
    power = c_int()
    assert server.driver.library.dcmi_get_device_power_info(chip, 0, byref(power)) == 0
    return power.value


def _virtual(server: Server, chip: int) -> list[int]:
    # A number, the ids of up to 32 virtual devices, and what is left of the chip.
    total, size = (c_uint * 90)(), c_uint(360)
    answer = server.driver.library.dcmi_get_device_info(chip, 0, 52, 1, byref(total), byref(size))
    assert (answer, size.value) == (0, 360)
    return total[1 : 1 + total[0]]


def _packets(server: Server, chip: int) -> int:
    tool = server.library.parents[2] / HCCN_TOOL
    printed = subprocess.run(
        [tool, "-i", str(chip), "-stat", "-g"], capture_output=True, text=True, check=True
    )
    counters = dict(line.split(":") for line in printed.stdout.splitlines()[1:])
    return int(counters["roce_tx_all_pkt_num"]) + int(counters["roce_rx_all_pkt_num"])


def test_a_chip_is_idle_works_and_is_idle_again(a2: Server) -> None:
    assert (_percent(a2, 3, AI_CORE), _percent(a2, 3, HBM)) == (0, IDLE_HBM)
    assert _processes(a2, 3) == []
    a2.emulator.load(3, aicore=80, hbm=60, processes=range(100, 132))
    assert (_percent(a2, 3, AI_CORE), _percent(a2, 3, HBM)) == (80, 60)
    assert _processes(a2, 3) == list(range(100, 132))
    a2.emulator.load(3, processes=[17])
    assert (_percent(a2, 3, AI_CORE), _processes(a2, 3)) == (80, [17]), "the rest stays"
    assert (_percent(a2, 4, AI_CORE), _processes(a2, 4)) == (0, [])
    status: Any = a2.emulator.status()
    assert status["chips"][3]["processes"] == [17]
    a2.emulator.reset()
    assert (_percent(a2, 3, AI_CORE), _processes(a2, 3)) == (0, [])


def test_power_and_vector_cores_follow_the_load(a2: Server) -> None:
    """An exporter shows both for a chip that trains."""
    idle = _power(a2, 3)
    assert _percent(a2, 3, VECTOR_CORE) == 0
    a2.emulator.load(3, aicore=50)
    half = _power(a2, 3)
    assert _percent(a2, 3, VECTOR_CORE) == 50
    a2.emulator.load(3, aicore=100)
    assert idle < half < _power(a2, 3)
    assert _power(a2, 4) == idle, "each chip for itself"
    a2.emulator.load(3, aicore=0)
    assert (_power(a2, 3), _percent(a2, 3, VECTOR_CORE)) == (idle, 0)


def test_traffic_stands_still_and_flows_again(a2: Server) -> None:
    a2.emulator.load(3, traffic=False)
    still = _packets(a2, 3)
    flowing = _packets(a2, 4)
    assert _packets(a2, 3) == still
    wait_until(lambda: _packets(a2, 4) > flowing)
    a2.emulator.load(3, traffic=True)
    assert still <= _packets(a2, 3)
    wait_until(lambda: _packets(a2, 3) > still)


def test_virtual_devices(a2: Server) -> None:
    assert _virtual(a2, 5) == []
    a2.emulator.virtual(5, 2)
    assert _virtual(a2, 5) == [100, 101]
    a2.emulator.virtual(5, 0)
    assert _virtual(a2, 5) == []


def test_more_than_a_driver_can_report(a2: Server) -> None:
    with pytest.raises(ConfigurationError, match="100 percent"):
        a2.emulator.load(3, aicore=101)
    with pytest.raises(ConfigurationError, match="32 processes"):
        a2.emulator.load(3, processes=range(33))
    with pytest.raises(ConfigurationError, match="32 processes or devices"):
        a2.emulator.virtual(3, 33)
    with pytest.raises(ConfigurationError, match="8 is not a chip"):
        a2.emulator.load(8, aicore=1)
    with pytest.raises(ConfigurationError, match="-1 is not a chip"):
        a2.emulator.virtual(-1, 1)
    assert (_percent(a2, 3, AI_CORE), _processes(a2, 3)) == (0, [])


@pytest.mark.daemon
def test_by_hand(a2: Server) -> None:
    def simulate(*arguments: object) -> tuple[int, str]:
        result = vigil_process("simulate", *arguments, VIGIL_EMULATOR_DIR=a2.emulator_dir)
        return result.returncode, result.stderr

    received = simulate("load", 3, "--aicore", 7, "--traffic", "still", "--processes", "17,18")
    assert received == (0, "")
    assert (_percent(a2, 3, AI_CORE), _processes(a2, 3)) == (7, [17, 18])
    assert simulate("load", 3, "--processes", "") == (0, "")
    assert (_percent(a2, 3, AI_CORE), _processes(a2, 3)) == (7, [])
    assert simulate("virtual", 3, 4) == (0, "")
    assert len(_virtual(a2, 3)) == 4
    status, text = simulate("load", 3, "--processes", "a")
    assert status == 2
    assert "'a' is not a valid list of process ids" in text


def test_in_a_scenario(a2: Server) -> None:
    text = """
        steps = [
            {at_ms = 0, do = "load", chip = 2, aicore = 9, traffic = "still", processes = [5]},
            {at_ms = 0, do = "load", chip = 2, hbm = 70},
            {at_ms = 1, do = "virtual", chip = 2, count = 1},
        ]
    """
    play(parse_scenario(text, "scenario.toml"), a2.emulator)
    assert (_percent(a2, 2, AI_CORE), _percent(a2, 2, HBM), _processes(a2, 2)) == (9, 70, [5])
    assert _virtual(a2, 2) == [100]


def test_calls_of_an_exporter_show_the_load(a2: Server) -> None:
    """The calls of the vendor's exporter: several figures at once, and the HBM's size."""
    library = a2.driver.library
    size = 65536
    for aicore, hbm in ((80, 60), (0, 1)):
        a2.emulator.load(3, aicore=aicore, hbm=hbm)
        figures = (c_uint * 12)(*[7] * 12)
        assert library.dcmi_get_device_multi_utilization_rate(3, 0, byref(figures)) == 0
        assert list(figures) == [aicore, aicore, aicore, aicore, *[0] * 8]
        again = (c_uint * 12)(*[7] * 12)
        period = c_int(1)
        call = library.dcmi_get_device_multi_utilization_rate_period
        assert call(3, 0, byref(again), period) == 0
        assert list(again) == list(figures)
        assert [_percent(a2, 3, kind) for kind in (2, 12, 13, 14)] == [aicore] * 4
        found = Hbm()
        assert library.dcmi_get_device_hbm_info(3, 0, byref(found)) == 0
        assert found.used == size * hbm // 100
    a2.emulator.reset()
    found = Hbm()
    assert library.dcmi_get_device_hbm_info(3, 0, byref(found)) == 0
    assert found.used == 3395


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("110000002", "link CHIP down"),
        ("110001024", "link CHIP down --ports 2"),
        ("020001002", "occur CHIP 81B18603"),
        ("020000002", "on every chip"),
        ("200001002", "--traffic still"),
    ],
)
def test_a_code_that_no_driver_reports_names_its_cause(a2: Server, code: str, cause: str) -> None:
    for text in (code, f"0x{code}"):
        with pytest.raises(ConfigurationError, match="vigil simulate") as caught:
            a2.emulator.occur(3, text)
        assert cause in str(caught.value)
    scenario = f'steps = [{{at_ms = 0, do = "occur", chip = 3, code = "{code}"}}]'
    with pytest.raises(ConfigurationError, match="vigil simulate"):
        parse_scenario(scenario, "scenario")
