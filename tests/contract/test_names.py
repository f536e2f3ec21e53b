"""Names and paths that other programs accept."""

from __future__ import annotations

from contract.names import MAX_SOCKET_PATH_BYTES, socket_path_problem


def test_a_path_of_107_bytes_can_be_a_socket_and_a_longer_one_cannot() -> None:
    assert MAX_SOCKET_PATH_BYTES == 107
    assert socket_path_problem("/" + "s" * 106) is None
    assert socket_path_problem("/" + "s" * 107) is not None
    assert socket_path_problem("/" + "é" * 54) is not None
