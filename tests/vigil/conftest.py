"""What the tests of the verbs for people share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.vigil.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    thread = threading.Thread(target=stand.server.serve_forever, args=(0.01,))
    thread.start()
    yield stand
    stand.server.shutdown()
    thread.join()
    stand.server.server_close()
