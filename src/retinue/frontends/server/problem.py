"""Errors as RFC 9457 problems, with our stable code and what to do next."""

from __future__ import annotations

from msgspec import Struct

from retinue.app.feed import ConflictError
from retinue.app.projects import UnknownProjectError
from retinue.errors import (
    AnsweredError,
    ConfigurationError,
    LaunchError,
    MissingExtraError,
    RetinueError,
    SpawnDeniedError,
    StateError,
    UnknownAgentError,
    UnknownItemError,
    UnknownJobError,
    UnknownRunError,
    UsageError,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"


class ProblemDetails(Struct, frozen=True, kw_only=True):
    """The reason why a request was refused (RFC 9457). `code` is stable; `remedy` states what to do next."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    remedy: str = ""


class RequestError(Exception):
    """A request that is refused before it is processed."""

    def __init__(self, status: int, code: str, detail: str, remedy: str = "", headers: dict[str, str] | None = None):
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.remedy = remedy
        self.headers = headers or {}


# The first matching class is used.
_STATUS_OF_ERROR: tuple[tuple[type[RetinueError], int], ...] = (
    (UnknownAgentError, 404),
    (UnknownRunError, 404),
    (UnknownItemError, 404),
    (UnknownJobError, 404),
    (UnknownProjectError, 404),
    (ConflictError, 409),
    (UsageError, 422),
    (AnsweredError, 409),
    (SpawnDeniedError, 403),
    (LaunchError, 409),
    (MissingExtraError, 422),
    (ConfigurationError, 422),
    (StateError, 409),
)
STATUS_TITLES = {
    400: "The request cannot be read",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Not this method",
    408: "The request took too long",
    409: "The request conflicts with the current state",
    413: "Too large",
    415: "Not JSON",
    422: "Something in the request is wrong",
    429: "Too many attempts",
    500: "Retinue failed",
}


def problem(status: int, code: str, detail: str, remedy: str = "") -> ProblemDetails:
    """Return the document for one refusal."""
    title = STATUS_TITLES.get(status, "Refused")
    return ProblemDetails(
        type=f"urn:retinue:error:{code}", title=title, status=status, detail=detail, code=code, remedy=remedy
    )


def problem_of(error: Exception) -> ProblemDetails:
    """Return the document for an error. A defect is reported without details."""
    if isinstance(error, RequestError):
        return problem(error.status, error.code, error.detail, error.remedy)
    if isinstance(error, RetinueError):
        for kind, status in _STATUS_OF_ERROR:
            if isinstance(error, kind):
                return problem(status, error.code, error.message, error.remedy)
        return problem(409, error.code, error.message, error.remedy)
    return problem(500, "INTERNAL", "Retinue failed.", "See the output of `retinue serve`.")
