"""Values from outside: types that are checked when they are decoded, and the provenance of definitions.

Values: a value of one of the types below is checked when it is decoded (`decode_json`, `decode_row`, `check`), so that
later code can use it in a path, a git ref or an SQL identifier. Constructing a struct checks nothing, because it holds
values of this process.

Provenance: definitions of agents, MCP servers, hooks, plugins, settings, skills and test files. Their reader records
the provenance, and `requirement` is the only place that turns a provenance into a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, assert_never

import msgspec
from msgspec import Meta

from retinue.errors import StateError

Decoded = TypeVar("Decoded")

RunId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")]
ProjectName = Annotated[str, Meta(pattern=r"\A[a-z0-9_][a-z0-9_-]{0,47}\Z")]
"""As `settings.database.project_name` makes them."""
Commit = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")]
CommitOrNone = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64}|)\Z")]
PackName = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}(?:-[A-Za-z0-9][A-Za-z0-9_-]{0,63})?\Z")]
"""The SHA-256 of a pack of files, and the run that it belongs to."""
BranchName = Annotated[str, Meta(pattern=r"\A(?:retinue-agent-[A-Za-z0-9][A-Za-z0-9_-]{0,100})?\Z")]
WorkerId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{24}\Z")]
QueueName = Annotated[str, Meta(pattern=r"\A(?:retinue-[0-9a-f]{12})?\Z")]
RemoteUrl = Annotated[str, Meta(pattern=r"\A(?!-)[^\x00-\x20\x7f-\x9f]{0,2000}\Z")]
"""A git repository. `cluster.git_remote.check_url` decides whether it can be used."""
Word = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{0,255}\Z")]
"""A label, a provider, a version, a machine: shown to people and compared, never a path."""
Words = Annotated[tuple[Word, ...], Meta(max_length=256)]
MAX_TEXT_CHARACTERS = 1 << 20
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)]
"""For people or models, never a path."""
AttemptNumber = Annotated[int, Meta(ge=1, le=2**31 - 2)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]

MAX_JSON_CHARACTERS = 1 << 18
"""Of one JSON value in a column: the largest, the profile of a worker, has about 600."""


class UnreadableValueError(StateError):
    """A value of a database is not of the type that its column has."""


def decode_json(text: object, kind: type[Decoded], where: str, max_characters: int = MAX_JSON_CHARACTERS) -> Decoded:
    """Return the JSON value of a column. Raise UnreadableValueError."""
    if not isinstance(text, str) or len(text) > max_characters:
        raise UnreadableValueError(f"{where} cannot be read: it is no text, or too long.")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableValueError(f"{where} cannot be read: {error}.") from None


def decode_row(values: Mapping[str, object], kind: type[Decoded], where: str) -> Decoded:
    """Return a row as a struct whose fields have the names of its columns. Raise UnreadableValueError."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UnreadableValueError(f"{where} cannot be read: {error}.") from None


def check(value: object, kind: Any, where: str) -> None:
    """Raise UnreadableValueError unless `value` is of that type."""
    decode_row(value, kind, where)  # type: ignore[arg-type]


def is_valid(value: object, kind: Any) -> bool:
    """Return whether `value` is of that type."""
    try:
        check(value, kind, "")
    except UnreadableValueError:
        return False
    return True


Provenance = Literal["person", "project", "plugin", "machine", "recording"]
"""`person`: this user, on this machine: own files, flags, programs that use the library, and what Retinue ships.
`project`: files of the project, which a repository may have brought. `plugin`: an agent's file in a plugin.
`machine`: another machine, by way of a shared database. `recording`: a test file or a recorded run."""

Right = Literal["hooks", "servers", "extensions", "permissions", "shell", "commands", "folders", "git", "settings"]
"""`hooks`: programs at events. `servers`: MCP and language servers. `extensions`: Python code of plugins.
`permissions`: allow rules, allowed tools and permission modes. `shell`: a shell on a host without a sandbox.
`commands`: shell lines of command files. `folders`: folders outside of the workspace. `git`: programs that git starts.
`settings`: every other setting that widens rights."""

Requirement = Literal["none", "consent", "operator", "never"]
"""`none`: it takes effect. `consent`: a person has consented to exactly this content. `operator`: whoever started
this worker allows senders the right (`retinue worker --allow`). `never`: it has no effect."""

OPERATOR_RIGHTS: tuple[Right, ...] = ("hooks", "servers", "extensions", "permissions", "shell")
"""The rights that the operator of a worker may allow senders. The others would expose files, keys or settings of the
worker."""


def requirement(provenance: Provenance, right: Right) -> Requirement:
    """Return the requirement for a value of this provenance to give `right`."""
    match provenance:
        case "person":
            return "none"
        case "project" | "recording":
            return "consent"
        case "plugin":
            return "never"
        case "machine":
            return "operator" if right in OPERATOR_RIGHTS else "never"
        case _:
            assert_never(provenance)
