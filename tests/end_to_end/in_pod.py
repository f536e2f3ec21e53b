"""``vigil`` that finds the files of its service account in the folder ``SERVICE_ACCOUNT``.

``python -m tests.end_to_end.in_pod VERB …``; everything else is as in a pod.
"""

from __future__ import annotations

import os
from pathlib import Path

from stores.kubernetes_api.client.official_client import incluster_config
from vigil.main import main

if __name__ == "__main__":
    account = Path(os.environ["SERVICE_ACCOUNT"])
    incluster_config.SERVICE_TOKEN_FILENAME = str(account / "token")
    incluster_config.SERVICE_CERT_FILENAME = str(account / "ca.crt")
    main()
