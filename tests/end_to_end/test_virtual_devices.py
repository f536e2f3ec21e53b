"""A node with virtual devices is unsupported: that is reported, and nothing wrong is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.parts.deadlines import nothing_happens_for

if TYPE_CHECKING:
    from tests.end_to_end.node import Node


def test_no_device_info_while_a_chip_is_cut(folder_node: Node) -> None:
    node = folder_node
    node.give_bmc(node.state_dir.parent)
    node.emulator.virtual(3, 2)
    node.start()
    node.up()
    node.wait(lambda: node.status()["driver"]["virtual_chips"] == [3], "the agent knows")
    nothing_happens_for(
        2.5, because="the first document waits FIRST_DOCUMENT_SECONDS, 1.5, at most"
    )
    assert node.shown() is None
    status, reasons = node.ask("/readyz")
    assert status == 503
    assert "virtual devices are not supported" in str(reasons)
    node.waits_for_text("device-info is not written: virtual devices are not supported")
    assert "npu_vigil_driver_virtual_chips 1.0" in node.ask("/metrics")[1]
    assert node.ask("/healthz")[0] == 200
    node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "it beats", 10)
    node.wait(lambda: node.status()["blind"] == [], "the BMC is asked as ever")


def test_document_is_kept_while_a_chip_has_virtual_devices(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    node.stop()
    before = node.place.read(node.document)
    node.emulator.virtual(0, 1)
    node.emulator.occur(5, "80E01801")
    node.start()
    node.up()
    node.wait(lambda: node.status()["driver"]["virtual_chips"] == [0], "the agent knows")
    nothing_happens_for(
        2.5, because="the first document waits FIRST_DOCUMENT_SECONDS, 1.5, at most"
    )
    assert node.place.read(node.document) == before
    node.emulator.virtual(0, 0)
    node.stop()
    node.start()
    node.until(lambda now: "80E01801" in now.codes(5), "a whole node is published")
