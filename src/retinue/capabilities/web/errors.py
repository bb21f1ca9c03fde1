"""How the web tools say no: a stable code, a sentence, and what to do next."""

from __future__ import annotations

from typing import Literal

Problem = Literal[
    "INVALID_URL",
    "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED",
    "DNS_RESOLUTION_FAILED",
    "NOT_PERMITTED",
    "TOO_MANY_REDIRECTS",
    "TIMEOUT",
    "RATE_LIMITED",
    "HTTP_STATUS",
    "ENCODING",
    "NETWORK_ERROR",
]
"""Why a URL could not be fetched, finer than the codes that models see."""


class FetchError(Exception):
    """A URL that could not be fetched. `hosts` are those that were contacted on the way."""

    def __init__(self, problem: Problem, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.problem: Problem = problem
        self.message = message
        self.status = status
        self.hosts: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code that models see."""
        match self.problem:
            case "INVALID_URL" | "UNSUPPORTED_PROTOCOL":
                return "CONTENT_FETCH_INVALID_URL"
            case "TIMEOUT":
                return "CONTENT_FETCH_TIMEOUT"
            case _:
                return "CONTENT_FETCH_FAILED"


class WebError(Exception):
    """A call of a web tool that failed. `hosts` were contacted; `provider` was asked."""

    def __init__(
        self, code: str, message: str, *, hosts: tuple[str, ...] = (), provider: str = "", limited: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hosts = hosts
        self.provider = provider
        self.limited = limited
        """Whether it failed because there were too many requests."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
