"""The interface of a tool, its context and its result. The loop knows tools only through this file.

`RunDialogue` is the to-do list of a run, and its questions to its parent or a person.
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
    """An item of a to-do list. `active_form` is its text while it is in progress."""

    content: str
    status: TodoStatus = "pending"
    active_form: str = ""


class Reply(Struct, frozen=True):
    """The result of a question: `answered` with `text`, `passed-on` (the answer comes later, as a message), or `nobody`
    could answer, for the reason in `text`. `by` is who answered."""

    kind: Literal["answered", "passed-on", "nobody"]
    text: str = ""
    by: str = ""


class Question(Struct, frozen=True):
    """A question of a run. `notes` explain the options. With `several` more than one option may be chosen. A free text
    is always a valid answer."""

    text: str
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    several: bool = False


class RunDialogue(Protocol):
    """The to-do list and the questions of one attempt of a run."""

    def reminder(self) -> str:
        """Return the to-do list as text, for a conversation that has just been shortened."""
        ...

    def answer_question(self, text: str) -> bool:
        """Use a message from above as the answer to the oldest open question. Return True if a call waits for it: then
        it must not be delivered as a message as well."""
        ...

    def write_todos(self, todos: tuple[Todo, ...]) -> None:
        """Replace the to-do list. It is in the log before the tool that wrote it has ended."""
        ...

    async def submit_plan(self, plan: str, call_id: str) -> Reply:
        """Ask a person to approve a plan. After that the run may carry it out; `text` states the new permissions."""
        ...

    async def ask(self, question: Question, call_id: str) -> Reply:
        """Ask the run above, or a person. Cancelling the call withdraws the question."""
        ...


class ArgumentAliases(Struct, frozen=True):
    """Other forms of a tool's arguments. Models write calls as in the tools on which they were trained. The loop turns
    such a call into the form of this tool before it is judged or run.

    `edits.old_string` names a parameter inside the objects of `edits`.
    """

    schema: Mapping[str, Any]
    """All accepted parameters, including those that the model is not shown."""
    names: Mapping[str, str] = {}
    """Another name, and the parameter that it means."""
    words: Mapping[str, Mapping[str, str]] = {}
    """Other words for the values of a parameter with an enum."""
    ignored: frozenset[str] = frozenset()
    """Names without effect, which are dropped silently."""
    rewrite: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """A change that names and words cannot express. It is applied first."""


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it, and its possible effects.

    `exclusive` tools of one turn run one after another, in call order; the others overlap.
    A successful call of a tool with `ends_run` is the result of the run (structured output).
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effects: frozenset[EffectKind] = frozenset()
    exclusive: bool = False
    ends_run: bool = False
    confinable: bool = False
    """It starts programs only inside the run's sandbox, so a read-only run may have it."""
    aliases: ArgumentAliases | None = None
    """None for a tool that only accepts the arguments of its schema."""
    shown: bool = True
    """False for a tool that can be called but is not in the requests, because another one does the same."""
    unavailable: Mapping[str, str] = {}
    """Parameters that it does not have here, with the reason for a model that sends one."""
    paths: tuple[str, ...] | None = None
    """All parameters that are paths of files or folders; `edits.path` is a field inside of `edits`. Rules about files
    are applied to them. None if the tool does not declare them: then any text of a call may be a path."""


class ToolOutput(Struct, frozen=True):
    """The result of one call. A failed call returns `is_error` with a text that tells the model how to continue. An
    exception of a tool is a defect, and becomes such a result."""

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
    """The sandboxes of one run."""

    def __call__(self, clearance: Clearance) -> Confinement | None:
        """Return the sandbox for a program of this clearance; None if it needs none."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether no program of the run can make a lasting change or reach another host, even with an approval."""
        ...

    def widens(self, clearance: Clearance) -> bool:
        """Return whether a person's approval would give a program of this clearance more access."""
        ...

    @property
    def in_use(self) -> bool:
        """Whether a sandbox was made, so that there may be scratch folders."""
        ...

    def hidden(self) -> tuple[str, ...]:
        """Return the paths whose content rules hide from the run at this moment. Raise OSError."""
        ...

    def renew(self) -> None:
        """Apply the changed rights of the run to programs that start from now on."""
        ...

    def close(self) -> None:
        """Remove the scratch folders. No program of the run is running any more."""
        ...


class Ledger(Protocol):
    """The changes of files by all runs of this project, in all processes."""

    def lease(self, path: Path) -> AbstractContextManager[None]:
        """Hold the lock of a file while it is rewritten. No other run of any process writes it meanwhile."""
        ...

    def writing(self, path: Path, old: bytes | None, new: bytes | None, mode: int | None) -> None:
        """Save the content `old` of a file, under the lease, right before it becomes `new` or is removed (None). `old`
        is None for a new file; `mode` is then its mode, if one was given."""
        ...

    def wrote(self, path: Path, before: str | None, after: str | None) -> None:
        """Record that this run has changed a file. The arguments are content hashes."""
        ...

    def changed_by(self, path: Path, current: str) -> str | None:
        """Return the agent and run that gave the file the content of that hash (empty: that removed it); None if it was
        no other run."""
        ...


class ToolContext(Struct):
    """The context of the calls of one run.

    `roots` are the resolved folders to which paths are confined; the first one, `root`, is the working directory.
    Complete outputs are stored in `outputs` if the model gets only a part. `seen` maps a resolved path to the content
    hash that the run last read or wrote, by which outdated writes are noticed. `progress` updates the idle clock and
    live displays."""

    run_id: str
    roots: tuple[Path, ...]
    outputs: Path
    environment: Mapping[str, str] = {}
    seen: dict[str, str] = {}
    progress: Callable[[str, str], None] = lambda call_id, text: None
    tool_timeout: float | None = None
    clearance: Clearance = "inside"
    """Who approved this call. The gate sets it for each call; by default a program only starts inside a sandbox."""
    confine: Walls | None = None
    """None if programs start without a sandbox."""
    ledger: Ledger | None = None
    child: bool = False
    """Whether another run has started this one."""
    instead: tuple[Path, Path] | None = None
    """A folder that must not be touched, and its copy in which the run works."""
    dialogue: RunDialogue | None = None
    """The to-do list and questions of the run; None outside of a run."""
    commands: object | None = None
    """The background commands of the run; None if it may have none."""
    transcripts: Callable[[], Iterable[str]] = tuple
    """Files outside of the workspace that the run may read: the transcripts of the runs that it started."""
    reach: Callable[[str], str | None] = lambda url: None
    """Returns why the rules of the run forbid the host of a URL that the call did not name, such as that of a redirect;
    None if they allow it."""
    takes_documents: Callable[[], bool] = lambda: False
    """Whether the model of the run accepts PDFs."""
    convert: Callable[[str, str, ToolContext], Awaitable[str]] | None = None
    """Converts a document to text, given the call's id, the path and the context."""
    withheld: Callable[[], Callable[[str], bool] | None] = lambda: None
    """Returns, for one search, a function that says whether the rules of the run hide the content of an absolute path;
    None if they hide nothing."""

    @property
    def root(self) -> Path:
        return self.roots[0]

    @property
    def confinement(self) -> Confinement | None:
        """The sandbox for programs of this call; None for the rights of this process."""
        return None if self.confine is None else self.confine(self.clearance)


Preview = Callable[[Mapping[str, Any], ToolContext], Awaitable[str]]
"""Returns what a call with these arguments would change, as a diff for people. A tool that supports this has it as
`preview`."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run a call. It can be cancelled safely: no process, lock or half-written file stays behind."""
        ...


Wrap = Callable[[tuple[Tool, ...]], tuple[Tool, ...]]
"""Wraps each tool of a run."""


def shown_specs(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools that a request shows. A model that writes patches is not shown `edit`, although it can call
    it."""
    shown = tuple(spec for spec in specs if spec.shown)
    if any(spec.name == "apply_patch" for spec in shown):
        shown = tuple(spec for spec in shown if spec.name != "edit")
    return shown
