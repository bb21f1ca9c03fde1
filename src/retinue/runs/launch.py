"""A run before it exists: the plan that is filled in step by step, and the launch that is built from it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.permission import NO_HOOKS, Hooks
from retinue.core.request import RunRequest
from retinue.core.run_state import RunPlace
from retinue.core.spec import PermissionMode, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.usage import Limits
from retinue.runs.guard import NO_PATTERNS, Bound, Patterns
from retinue.runs.prompt import Extras

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.core.delegation import Delegation
    from retinue.core.spec import AgentSpec
    from retinue.log.replay import Conversation
    from retinue.models.limiter import LimiterGate
    from retinue.models.protocol import Model
    from retinue.models.select import ModelSelection
    from retinue.runs.guard import Isolation
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings
    from retinue.tools.paths import Beyond


T = TypeVar("T")
State = dict[type, object]
"""What capabilities keep for one run, by type."""


class ModelSource(Protocol):
    """Answers in place of providers for all runs of a project: a recording in tests and replays."""

    def select(self, request: RunRequest) -> ModelSelection:
        """Return what a run with this request is asked to use. It may be asked more than once."""
        ...

    def build(self, request: RunRequest, run_id: str) -> Model:
        """Return the model of the run that begins now."""
        ...


class LateTools(Protocol):
    """The tools that a run may get after its launch."""

    @property
    def names(self) -> frozenset[str]:
        """Those that are known and that the run may use."""
        ...

    def limit_to(self, names: frozenset[str]) -> None:
        """Admit nothing but `names`: a resumed run whose parent is gone has what it had."""
        ...


Discard = Callable[[], Awaitable[None]]
"""Removes what was made for a run that does not start after all."""


class Launch(Struct, frozen=True):
    """Built once, before the run exists, and never changed: what a person changes later is state of the `Run`. `notes`
    reach the outcome."""

    request: RunRequest
    model: Model
    model_name: str
    system: str
    tools: tuple[Tool, ...]
    limits: Limits
    thinking: str | None
    gate: LimiterGate | None = None
    """Where requests wait while the provider has had enough of us."""
    transcript: str | None = None
    isolation: Isolation | None = None
    """The worktree it works in, its own or that of a run above it."""
    readonly: bool = False
    """It may change nothing, and neither may its children."""
    mode: PermissionMode = "default"
    patterns: Patterns = NO_PATTERNS
    """What its file lets its tools do, where it says more than their names."""
    bounds: tuple[Bound, ...] = ()
    """The same of the runs above it."""
    inherited: int = 0
    """How many characters of `system` are its parent's."""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Those of the notes that name tools which its file asks for and which are not there."""
    late: LateTools | None = None
    state: State = field(default_factory=dict)

    @property
    def later_tool_names(self) -> frozenset[str]:
        """The names of tools that the run may get after its launch."""
        return frozenset() if self.late is None else self.late.names


class LaunchPlan(Struct, eq=False):
    """What is decided about a run while it is planned. `prepare` (plan.py) and the capabilities fill it in."""

    request: RunRequest
    project: Project
    parent: Run | None = None
    """The run that starts this one."""
    delegation: Delegation | None = None
    """The run's way to other runs."""
    run_id: str = ""
    """Empty where nothing may be made, because no run is going to start."""
    description: str = ""
    heard: bool = False
    """Whether the run that starts this one can answer its questions."""
    past: Conversation | None = None
    """The record of a run that is resumed."""
    preview: bool = False
    """Whether only what the model would see is wanted: nothing is started or made."""
    mode_above: PermissionMode | None = None
    """The mode of the run that starts this one."""
    limits: Limits = Limits()
    mode: PermissionMode = "default"
    readonly: bool = False
    isolation: Isolation | None = None
    may_spawn: bool = False
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    """What the run's file says about its tools."""
    policy_changes: list[Callable[[ToolPolicy], ToolPolicy]] = field(default_factory=list)
    """What capabilities make of the policy whenever tools are selected by it."""
    available: dict[str, Tool] = field(default_factory=dict)
    """The candidates for its tools, by name."""
    permit: Callable[[Mapping[str, Tool], list[str]], tuple[Tool, ...]] = lambda tools, notes: tuple(tools.values())
    """Leaves out the tools that a rule denies by name."""
    tools: dict[str, Tool] = field(default_factory=dict)
    """The selected tools, by name."""
    readable: tuple[Path, ...] = ()
    """Folders outside of its workspace that its `read` reaches."""
    beyond: Beyond | None = None
    """Finds the folder outside of its workspace that a path leads into, if its `read` may reach it."""
    above: str | None = None
    """The prompt of the run that starts this one, as far as this one may know it."""
    model_name: str = ""
    window: int = 0
    """The context window of its model."""
    transcript: str | None = None
    hooks: Hooks = NO_HOOKS
    """Who is told about the run, once the capability `hooks` has found out."""
    patterns: Patterns = NO_PATTERNS
    missing: tuple[str, ...] = ()
    extras: Extras = field(default_factory=Extras)
    notes: list[str] = field(default_factory=list)
    late: LateTools | None = None
    """The tools that it may get after its launch."""
    discards: list[Discard] = field(default_factory=list)
    """What is done if the run does not start."""
    state: State = field(default_factory=dict)

    @property
    def spec(self) -> AgentSpec:
        return self.request.spec

    @property
    def place(self) -> RunPlace:
        return RunPlace(self.run_id, self.request.parent_id, self.request.root_id or self.run_id)

    @property
    def resumed(self) -> bool:
        return self.past is not None

    @property
    def settings(self) -> Settings:
        return self.project.settings.settings

    def note(self, text: str) -> None:
        """Say something that the run's outcome must tell."""
        self.notes.append(text)

    def tell(self, part: str, text: str) -> None:
        """Put `text` into a part of the system prompt."""
        self.extras = replace(self.extras, **{part: text})

    def put(self, value: object) -> None:
        """Keep `value` for the run, under its type."""
        self.state[type(value)] = value

    def get(self, kind: type[T]) -> T | None:
        """Return what was kept under this type, or None."""
        found = self.state.get(kind)
        return found if isinstance(found, kind) else None
