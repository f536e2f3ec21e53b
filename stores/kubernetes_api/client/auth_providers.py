"""Users of a kubeconfig with an ``auth-provider`` (``oidc``, ``gcp``), read by the official client.

Only such a kubeconfig costs the memory of that client: some 10 MiB.
"""

from __future__ import annotations

import asyncio
import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from stores.kubernetes_api.client.unusable import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def authorization_by(
    provider: Mapping[str, Any], run: Callable[[Sequence[str]], bytes], seconds: float
) -> str:
    """Return the ``Authorization`` header that ``provider`` gives. Blocks, with a loop of its own.

    ``run`` is what runs the command of ``gcp``. Raises ``Unusable``, and what ``run`` does.
    """
    return asyncio.run(_ask(provider, run, seconds))


async def _ask(
    provider: Mapping[str, Any], run: Callable[[Sequence[str]], bytes], seconds: float
) -> str:
    from stores.kubernetes_api.client.official_client import Configuration, KubeConfigLoader

    def of_command() -> SimpleNamespace:
        config = provider["config"]
        printed = run([config["cmd-path"], *shlex.split(config["cmd-args"])])
        credential = msgspec.json.decode(printed)["credential"]
        return SimpleNamespace(
            token=credential["access_token"], expiry=credential.get("token_expiry")
        )

    content = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {}}],
        "users": [{"name": "one", "user": {"auth-provider": dict(provider)}}],
    }
    configuration = Configuration()
    try:
        async with asyncio.timeout(seconds):
            loader = KubeConfigLoader(content, get_google_credentials=of_command)
            await loader.load_and_set(configuration)
    except TimeoutError:
        raise Unusable(f"gives no answer within {seconds:g} s") from None
    token = configuration.api_key.get("BearerToken")
    if not isinstance(token, str):
        raise Unusable("gives no token")
    return token
