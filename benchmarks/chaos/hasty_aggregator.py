"""``vigil`` with a mutant of the world ``mqtt``: a deletion on the broker is assumed at once.

The launcher starts it in place of ``vigil``. The product has no switch.
"""

from __future__ import annotations

from unittest import mock

from aggregator import daemon
from stores.mqtt.store import MqttStore
from vigil.main import main

with (
    mock.patch.object(MqttStore, "absence_is_deletion", True),
    mock.patch.object(daemon, "_DELETED_AFTER_MS", 0),
):
    main()
