"""What is left of a node's record without some of its faults."""

from __future__ import annotations

from aggregator.processors.record_edits import remove_faults
from contract.documents.cluster_device import CodeFault, DeviceRecord

CHIPS = ("Ascend910-0", "Ascend910-1")


def test_a_chip_leaves_the_list_of_a_class_with_its_last_serious_fault_of_it() -> None:
    def fault(kind: str, chip: str, code: str, level: str = "SeparateNPU") -> CodeFault:
        return CodeFault(kind, chip, level, code, 1, level)

    card, other_card = (fault("CardUnhealthy", CHIPS[0], code) for code in ("80C98000", "80C98002"))
    network = fault("CardNetworkUnhealthy", CHIPS[0], "81078603")
    other_network = fault("CardNetworkUnhealthy", CHIPS[1], "81078603")
    harmless = fault("CardNetworkUnhealthy", CHIPS[0], "81078605", "NotHandleFault")
    faults = (card, other_card, network, other_network, harmless)
    record = DeviceRecord("Ascend910", (), (CHIPS[0],), CHIPS, (), faults, 1, -1, -1, -1)
    assert remove_faults(record, []) is record
    assert remove_faults(record, [card]).unhealthy == (CHIPS[0],)
    left = remove_faults(record, [card, other_card])
    assert left.unhealthy == ()
    assert left.network_unhealthy == CHIPS
    left = remove_faults(record, [network])
    assert left.network_unhealthy == (CHIPS[1],)
    assert left.unhealthy == (CHIPS[0],)
    assert left.faults == (card, other_card, other_network, harmless)
