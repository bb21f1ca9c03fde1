"""The answer to a fetched URL, and why one could not be fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

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
    "EXTRA_MISSING",
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


class Fetched(Struct, frozen=True):
    """An answer with a status of success. `url` is where it came from in the end; `hosts` are all
    that had a part in it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    hosts: tuple[str, ...] = ()

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")
