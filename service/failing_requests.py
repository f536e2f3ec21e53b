"""Whether requests to a store have failed for 30 s, which makes a daemon unready. Pure.

Times are steady milliseconds.
"""

from __future__ import annotations

from contract.sentences import sentence

LONG_MS = 30_000


class FailingRequests:
    """The failures since the last success, by the name of the request."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}
        self._why = ""

    def failed(self, name: str, reason: str, requested_ms: int) -> None:
        """Record the failure of a request of this time."""
        self._since_ms.setdefault(name, requested_ms)
        self._why = reason

    def forget(self, name: str) -> None:
        """Record that this one need not be requested any more."""
        self._since_ms.pop(name, None)

    def succeeded(self) -> None:
        """Record a success, or that nothing is requested any more."""
        self._since_ms.clear()

    def seconds(self, now_ms: int) -> float:
        """Return for how long all requests have failed; 0 without a failure."""
        return (now_ms - min(self._since_ms.values(), default=now_ms)) / 1000

    def problem(self, request: str, now_ms: int, *, of_many: bool = False) -> str | None:
        """Return a sentence that ``request``, a sentence, has failed for too long; else ``None``.

        ``of_many``: others of its kind may work and have nothing to request, so a single name that
        fails is not a problem.
        """
        seconds = self.seconds(now_ms)
        if seconds * 1000 < LONG_MS or (of_many and len(self._since_ms) == 1):
            return None
        return sentence(
            "{request} has failed for {seconds} s: {reason}",
            request=request,
            seconds=f"{seconds:.0f}",
            reason=self._why,
        )
