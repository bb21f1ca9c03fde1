"""Reports about failures for the operator of a worker: at most one line an hour for each cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MAX_CAUSES = 1000
MAX_REPORT_CHARACTERS = 500
REPEAT_SECONDS = 3600.0


class CauseLog:
    """Limits reports by cause. Thread-safe."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._reported: dict[str, float] = {}
        self._lock = threading.Lock()

    def report_failure(self, cause: str, text: str, error: Exception) -> None:
        """Write that something failed, unless the same cause was reported within the last hour."""
        self.report(f"{cause} {type(error).__name__}", f"{text}: {error}")

    def report(self, cause: str, text: str) -> None:
        """Write `text`, unless this cause was reported within the last hour."""
        now = time.monotonic()
        with self._lock:
            if now - self._reported.get(cause, -REPEAT_SECONDS) < REPEAT_SECONDS:
                return
            if len(self._reported) > MAX_CAUSES:
                self._reported = {cause: at for cause, at in self._reported.items() if now - at < REPEAT_SECONDS}
            if len(self._reported) > MAX_CAUSES:
                return
            self._reported[cause] = now
            if len(self._reported) > MAX_CAUSES:
                text = f"More than {MAX_CAUSES} different failures in an hour: further ones are not reported."
        self._write(" ".join(text.split())[:MAX_REPORT_CHARACTERS])
