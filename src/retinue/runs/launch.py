"""The plan of a run, which is filled in step by step, and the launch, which is made from it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct, field

from retinue.core.permission import NO_HOOKS, Hooks
from retinue.core.request import RunRequest
from retinue.core.run_state import RunPlace
from retinue.core.spec import PermissionMode, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.usage import Limits
from retinue.runs.guard import NO_PATTERNS, Bound, Patterns
from retinue.runs.prompt import SectionName

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
"""The state of capabilities for one run, by type."""


class ModelSource(Protocol):
    """Replaces the providers for all runs of a project: a recording in tests and replays."""

    def select(self, request: RunRequest) -> ModelSelection:
        """Return the model selection for a request. It may be called more than once."""
        ...

    def build(self, request: RunRequest, run_id: str) -> Model:
        """Return the model of a run that begins now."""
        ...


class LateTools(Protocol):
    """The tools that a run may get after its launch."""

    @property
    def names(self) -> frozenset[str]:
        """The known ones that the run may use."""
        ...

    def limit_to(self, names: frozenset[str]) -> None:
        """Admit only `names`: a resumed run without its parent has its former tools only."""
        ...


Discard = Callable[[], Awaitable[None]]
"""Removes resources of a run that does not start."""


class Launch(Struct, frozen=True):
    """All decisions about a run, made before it exists and never changed. Later changes by a person are state of the
    `Run`. The outcome contains the `notes`."""

    request: RunRequest
    model: Model
    model_name: str
    system: str
    tools: tuple[Tool, ...]
    limits: Limits
    thinking: str | None
    gate: LimiterGate | None = None
    """Delays requests while the provider's limits are reached."""
    transcript: str | None = None
    isolation: Isolation | None = None
    """Its worktree, which may belong to a run above it."""
    readonly: bool = False
    """Whether it and its children must not change anything."""
    mode: PermissionMode = "default"
    patterns: Patterns = NO_PATTERNS
    """The patterns of calls in its file."""
    bounds: tuple[Bound, ...] = ()
    """The patterns of the runs above it."""
    inherited: int = 0
    """How many characters of `system` are those of its parent."""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """The notes about missing tools that its file lists."""
    late: LateTools | None = None
    state: State = field(default_factory=dict)

    @property
    def later_tool_names(self) -> frozenset[str]:
        """The names of tools that the run may get after its launch."""
        return frozenset() if self.late is None else self.late.names


class LaunchPlan(Struct, eq=False):
    """The decisions about a run while it is planned. `launching` (plan.py) and the capabilities fill it in."""

    request: RunRequest
    project: Project
    parent: Run | None = None
    """The run that starts this one."""
    delegation: Delegation | None = None
    """The run's access to other runs."""
    run_id: str = ""
    """Empty if no run will start, so that nothing may be created."""
    description: str = ""
    heard: bool = False
    """Whether the run that starts this one can answer its questions."""
    past: Conversation | None = None
    """The conversation of a resumed run."""
    preview: bool = False
    """Whether this is a preview, for which nothing is started or created."""
    mode_above: PermissionMode | None = None
    """The mode of the run that starts this one."""
    limits: Limits = Limits()
    mode: PermissionMode = "default"
    readonly: bool = False
    isolation: Isolation | None = None
    may_spawn: bool = False
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    """The rules of the run's file about its tools."""
    policy_changes: list[Callable[[ToolPolicy], ToolPolicy]] = field(default_factory=list)
    """Changes of the policy by capabilities, applied whenever tools are selected by it."""
    available: dict[str, Tool] = field(default_factory=dict)
    """The candidates for its tools, by name."""
    permit: Callable[[Mapping[str, Tool], list[str]], tuple[Tool, ...]] = lambda tools, notes: tuple(tools.values())
    """Leaves out the tools that a rule denies by name."""
    tools: dict[str, Tool] = field(default_factory=dict)
    """The selected tools, by name."""
    readable: tuple[Path, ...] = ()
    """Folders outside of its workspace that its `read` may access."""
    beyond: Beyond | None = None
    """Returns the folder outside of its workspace that a path leads into, if its `read` may access it."""
    above: str | None = None
    """The prompt of the run that starts this one, without sections that this one must not have."""
    model_name: str = ""
    window: int = 0
    """The context window of its model."""
    transcript: str | None = None
    hooks: Hooks = NO_HOOKS
    """The hooks of the run, which the capability `hooks` sets."""
    patterns: Patterns = NO_PATTERNS
    missing: tuple[str, ...] = ()
    sections: dict[SectionName, str] = field(default_factory=dict)
    """Sections of the system prompt besides the agent's file."""
    notes: list[str] = field(default_factory=list)
    late: LateTools | None = None
    """The tools that it may get after its launch."""
    discards: list[Discard] = field(default_factory=list)
    """Called if the run does not start."""
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
        """Add a note to the run's outcome."""
        self.notes.append(text)

    def tell(self, section: SectionName, text: str) -> None:
        """Set a section of the system prompt."""
        self.sections[section] = text

    def put(self, value: object) -> None:
        """Keep `value` for the run, under its type."""
        self.state[type(value)] = value

    def get(self, kind: type[T]) -> T | None:
        """Return the value that was stored under this type, or None."""
        value = self.state.get(kind)
        return value if isinstance(value, kind) else None
