"""The shape of a tool, its context and its result. The loop knows tools only through this file.

`Companion` is what a run may do beside its work: keep a to-do list, and ask its parent or a person.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from retinue.core.messages import Content, Text, text_of
from retinue.core.permission import EffectKind, ToolEffect
from retinue.core.programs import Clearance, Confinement

TodoStatus = Literal["pending", "in_progress", "completed"]


class Todo(Struct, frozen=True):
    """One thing to do. `active_form` is how it is shown while it is being done."""

    content: str
    status: TodoStatus = "pending"
    active_form: str = ""


class Reply(Struct, frozen=True):
    """What became of a question: `answered` with `text`, `passed-on` (the answer comes later, as a
    message), or `nobody` could answer, for the reason in `text`. `by` is who answered."""

    kind: Literal["answered", "passed-on", "nobody"]
    text: str = ""
    by: str = ""


class Question(Struct, frozen=True):
    """What a run asks. `notes` says more about each option; `several`: more than one option may be chosen. Any words
    are an answer as well."""

    text: str
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    several: bool = False


class Companion(Protocol):
    """The to-do list and the questions of one attempt of a run."""

    def reminder(self) -> str:
        """Return the list as text, for a conversation that has just been shortened."""
        ...

    def hear(self, text: str) -> bool:
        """Take a message from above as the answer to the oldest open question. Return True if a call waits for it:
        then it must not be delivered as a message as well."""
        ...

    def write_todos(self, todos: tuple[Todo, ...]) -> None:
        """The whole list as it is now; in the log before the tool that wrote it has ended."""
        ...

    async def hand_in(self, plan: str, call_id: str) -> Reply:
        """Put a plan to a person. After a yes the run may carry it out; `text` says what holds now."""
        ...

    async def ask(self, question: Question, call_id: str) -> Reply:
        """Put a question to the run above, or to a person. Cancelling it takes it back."""
        ...


class Spellings(Struct, frozen=True):
    """What a tool takes beyond the parameters that a model is shown. Models write calls as the
    tools they were trained on want them; the loop turns such a call into this tool's own form
    before anything judges or runs it.

    `edits.old_string` names a parameter inside the objects of `edits`.
    """

    schema: Mapping[str, Any]
    """The parameters that are taken: those that are shown, and those that are not."""
    names: Mapping[str, str] = {}
    """Another name to the parameter it stands for."""
    words: Mapping[str, Mapping[str, str]] = {}
    """For a parameter with an enum: other words for its values."""
    ignored: frozenset[str] = frozenset()
    """Names that change nothing here and are dropped silently."""
    rewrite: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """What names and words cannot express; sees the arguments first."""


class ToolSpec(Struct, frozen=True):
    """What the model sees, plus the effects the tool may have.

    `exclusive` tools of one turn run one after another, in call order; the others overlap.
    `ends_run` marks a tool whose successful call is the run's answer (structured output).
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effects: frozenset[EffectKind] = frozenset()
    exclusive: bool = False
    ends_run: bool = False
    confinable: bool = False
    """It starts programs only through the run's confinement, so a read-only run may have it."""
    spellings: Spellings | None = None
    """None for a tool that accepts calls only as its schema has them."""
    shown: bool = True
    """False for a tool that works when a model calls it, but is in no request: another one does the same."""
    unavailable: Mapping[str, str] = {}
    """Parameters that it has elsewhere and not here, and why: told to a model that sends one."""
    paths: tuple[str, ...] | None = None
    """The parameters that are paths of files or folders, all of them; `edits.path` is a field inside of `edits`. Rules
    about files are held against these. None where the tool does not say: then any text of a call may be a path."""


class ToolOutput(Struct, frozen=True):
    """The result of one call. A failing tool returns `is_error` with a text that tells the
    model how to go on; exceptions are defects and are turned into the same shape."""

    content: tuple[Content, ...]
    is_error: bool = False
    effect: ToolEffect = ToolEffect()
    value: Any = None

    @property
    def text(self) -> str:
        return text_of(self.content)


def ok(text: str, effect: ToolEffect | None = None) -> ToolOutput:
    return ToolOutput((Text(text),), False, effect or ToolEffect())


def failed(text: str, effect: ToolEffect | None = None) -> ToolOutput:
    return ToolOutput((Text(text),), True, effect or ToolEffect(status="failed"))


class Walls(Protocol):
    """The confinements of one run."""

    def __call__(self, clearance: Clearance) -> Confinement | None:
        """Return how a program starts, depending on who approved it, if anyone."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether no program of the run can make a lasting change or reach another host, whoever approved it."""
        ...

    def widens(self, clearance: Clearance) -> bool:
        """Return whether a person's approval would show a program of this clearance more."""
        ...

    @property
    def in_use(self) -> bool:
        """Whether a confinement was made, so that there may be scratch folders."""
        ...

    def hidden(self) -> tuple[str, ...]:
        """Return the paths whose content rules keep from the run at this moment. Raise OSError."""
        ...

    def renew(self) -> None:
        """Confine programs that start from now on by the changed rights of the run."""
        ...

    def close(self) -> None:
        """Remove the scratch folders, when no program of the run lives any more."""
        ...


class Ledger(Protocol):
    """Who changed which file, across the runs of all processes of this project."""

    def lease(self, path: Path) -> AbstractContextManager[None]:
        """Held while a file is rewritten: no other run of any process writes it meanwhile."""
        ...

    def writing(self, path: Path, old: bytes | None, new: bytes | None, mode: int | None) -> None:
        """Under the lease, right before the file gets the content `new`, or goes (None): keeps what
        was there. `old` is None when there was no file; `mode` is then the one asked for, if any."""
        ...

    def wrote(self, path: Path, before: str | None, after: str | None) -> None:
        """This run has changed the file; the arguments are content hashes."""
        ...

    def changed_by(self, path: Path, current: str) -> str | None:
        """The agent and run that gave the file the content of that hash (empty: that took it
        away), for people and models; None when no run of another did."""
        ...


class ToolContext(Struct):
    """What a call may use. One per run, shared by its calls.

    `roots` are the resolved folders that paths are confined to; `root` (the first) is the
    working directory. `outputs` is where whole outputs go when the model gets a part.
    `seen` maps a resolved path to the content hash the run last read or wrote, which is how
    stale writes are noticed. `progress` feeds the idle clock and live displays.
    """

    run_id: str
    roots: tuple[Path, ...]
    outputs: Path
    environment: Mapping[str, str] = {}
    seen: dict[str, str] = {}
    progress: Callable[[str, str], None] = lambda call_id, text: None
    tool_timeout: float | None = None
    clearance: Clearance = "inside"
    """Who approved this call. The gate sets it for each call; without it a program starts inside a sandbox only."""
    confine: Walls | None = None
    """None where nothing is confined."""
    ledger: Ledger | None = None
    child: bool = False
    """Another run has started this one."""
    instead: tuple[Path, Path] | None = None
    """A folder that must not be touched, and the copy of it where the run works instead."""
    companion: Companion | None = None
    """The to-do list and questions of the run; None where there is no run."""
    commands: object | None = None
    """The background commands of the run; None where there may be none."""
    transcripts: Callable[[], Iterable[str]] = tuple
    """Files outside the workspace that the run may read: the transcripts of the runs it started."""
    reach: Callable[[str], str | None] = lambda url: None
    """Whether the rules of the run let it talk to the host of a URL that the call did not name,
    such as that of a redirect: None, or why not."""
    takes_documents: Callable[[], bool] = lambda: False
    """Whether the model of the run reads PDFs itself."""
    convert: Callable[[str, str, ToolContext], Awaitable[str]] | None = None
    """Makes text of a document, given the call's id, the path and the context."""
    withheld: Callable[[], Callable[[str], bool] | None] = lambda: None
    """For one search: tells of an absolute path whether the rules of the run keep its content
    from it; None where none does."""

    @property
    def root(self) -> Path:
        return self.roots[0]

    @property
    def confinement(self) -> Confinement | None:
        """How programs of this call start; None for the rights of this process."""
        return None if self.confine is None else self.confine(self.clearance)


Preview = Callable[[Mapping[str, Any], ToolContext], Awaitable[str]]
"""What a call with these arguments would change, as a diff for people; it changes nothing. A
tool that can tell has it as `preview`."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Guaranteed safe to cancel: no process, lock or half-written file stays behind."""
        ...


Wrap = Callable[[tuple[Tool, ...]], tuple[Tool, ...]]
"""Puts something around each tool of a run."""


def shown_specs(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools that a request shows. A model that writes patches is not shown edit as well;
    a call of it works all the same."""
    shown = tuple(spec for spec in specs if spec.shown)
    if any(spec.name == "apply_patch" for spec in shown):
        shown = tuple(spec for spec in shown if spec.name != "edit")
    return shown
