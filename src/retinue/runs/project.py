"""The objects that all runs of a project in one process share, created on first use, and consent to a project's files.

Many runs that start at once need the same facts: the agents, the model of a name, the checked out branch. Within one
tick of the event loop nothing else happens in this process, so these facts are computed once for all of them; in the
next tick they are computed again.

The capability `trust` decides what runs lose without consent. The functions here are for all other modules.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.files import read_file
from retinue.core.permission import Decision
from retinue.core.person_prompt import PersonPrompt
from retinue.core.tool import Tool
from retinue.errors import StateError, UsageError
from retinue.models.build import ProgramModels
from retinue.models.keys import environment as process_environment
from retinue.models.keys import learn_keys, without_keys
from retinue.runs.capability import Capabilities, Extensions, Rules
from retinue.settings.foreign import parse_object
from retinue.settings.load import Signature, load_settings, settings_signature
from retinue.settings.places import own_folders, retinue_home, state_folder

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog
    from retinue.core.foreign import Right
    from retinue.core.permission import ToolUse
    from retinue.core.person_prompt import PromptCommand
    from retinue.core.spec import AgentSpec, PermissionMode
    from retinue.guard.inbox_service import Approver, InboxPolicy, InboxService
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.redact import Redactor
    from retinue.guard.trust import Trust
    from retinue.http.transport import Transport
    from retinue.log.store import Log
    from retinue.runs.launch import ModelSource
    from retinue.settings.load import Loaded


T = TypeVar("T")


class TickCache:
    """A cache that is emptied in every tick of the event loop. Without a running event loop it stores nothing."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """Return the value of `key` in this tick, or None."""
        return self._values.get(key)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, which is not None. It is called once in this tick."""
        value: T | None = self._values.get(key)
        return self.keep(key, compute()) if value is None else value

    def keep(self, key: Hashable, value: T) -> T:
        with contextlib.suppress(RuntimeError):
            if not self._values:
                asyncio.get_running_loop().call_soon(self._values.clear)
            self._values[key] = value
        return value


class Project:
    """A project in one process: its agents, settings, log and connections.

    `cluster.open_project` creates it with all capabilities."""

    def __init__(
        self,
        cwd: Path,
        *,
        environment: Mapping[str, str] | None = None,
        agents_json: str | None = None,
        tools: Sequence[Tool] = (),
        trust: bool = False,
        capabilities: Capabilities | None = None,
        state: Path | None = None,
    ) -> None:
        """`trust`: all rights of the project's files take effect in this process without consent. `state` is the folder
        of the log, by default below the user's own folder."""
        try:
            self.cwd = cwd.resolve()
        except FileNotFoundError:
            raise UsageError("The working directory does not exist any more.", remedy="Choose another one.") from None
        self.environment: Mapping[str, str] = process_environment() if environment is None else environment
        self._chosen_state = state
        self.agents_json = agents_json
        self.custom_tools = tuple(tools)
        self.program_models = ProgramModels()
        self.capabilities = capabilities or Capabilities()
        self._parts: dict[type, Any] = {}
        self.closing = contextlib.AsyncExitStack()
        """Called when the project is closed, the newest first."""
        self.round = TickCache()
        self._trust_everything = trust
        self._settings_seen: Signature = ()
        self.session_settings: dict[str, Any] = {}
        """Raw values by setting name for this process alone. They take precedence over files."""
        self._cleaned = False
        self.clock: Clock = SYSTEM_CLOCK
        self.connect_remote_sender: Callable[[Project], Any] = lambda project: None
        """Returns the sender of runs to other machines (`runs.remote.RemoteSender`), or None."""
        self.moved: tuple[Path, Path] | None = None
        """The project's folder on the machine that offered a run, and the same one here."""
        self.brought: Path | None = None
        """The folder with skills and memories from the home of the sender of a run."""
        self.allowed: Collection[Right] | None = None
        """The rights that the operator of this worker grants to senders; None outside of workers."""
        self.consents: Mapping[Path, Collection[str]] = {}
        """Hashes of contents to which the sender of a run has consented, by local file."""
        self.model_source: ModelSource | None = None
        """Replaces the providers while this process plays a recording."""
        self.approvers: list[Approver] = []
        """Answer requests to a person in this process: a terminal, a program."""
        self.on_wait: Callable[[str, float], None] = lambda subject, seconds: None
        """Called every second while the launch of a run waits, with the subject and the seconds so far."""

    @cached_property
    def settings(self) -> Loaded:
        self._settings_seen = settings_signature(self.cwd, self.environment)
        loaded = load_settings(self.cwd, environment=self.environment, flags=self.session_settings)
        if not all(layer.origin.personal for layer in loaded.layers):
            from retinue.guard.trust import effective_settings

            loaded = effective_settings(loaded, lambda: self.trust)
        settings = loaded.settings
        providers = settings.providers
        learn_keys({name: providers[name] for name in providers if settings.origin(f"providers.{name}").believed})
        return loaded

    @property
    def settings_changed(self) -> bool:
        """Whether a settings file has changed since it was read, checked once in a tick."""
        if "settings" not in self.__dict__ or self.round.get("settings"):
            return False
        self.round.keep("settings", True)
        return settings_signature(self.cwd, self.environment) != self._settings_seen

    @cached_property
    def trust(self) -> Trust:
        from retinue.guard.trust import Trust

        return Trust(self.home, everything=self._trust_everything, allowed=self.allowed, consents=self.consents)

    def part(self, kind: type[T]) -> T:
        """Return the object of a capability that all runs of the project share, or a service. It is created from the
        project on first use."""
        if kind not in self._parts:
            create = self.capabilities.services.get(kind, kind)
            self._parts[kind] = create(self)
        shared: T = self._parts[kind]
        return shared

    def has_part(self, kind: type) -> bool:
        return kind in self._parts

    @property
    def extensions(self) -> Extensions:
        """The additions of plugins to this project."""
        return self.part(Extensions)

    async def expand_prompt(self, prompt: PersonPrompt) -> PersonPrompt:
        """Return the prompt with the text of the commands, skills and files that it names."""
        for capability in self.capabilities.plan:
            await capability.expand_prompt(prompt, self)
        return prompt

    def prompt_commands(self) -> dict[str, PromptCommand]:
        """Return the commands that a person can type as `/name`, by name. Of several with one name, return the
        first."""
        commands: dict[str, PromptCommand] = {}
        for capability in self.capabilities.plan:
            for command in capability.prompt_commands(self):
                commands.setdefault(command.name, command)
        return commands

    def judge_call(self, use: ToolUse, grants: Sequence[str] = (), mode: PermissionMode | None = None) -> Decision:
        """Decide about a call outside of any run by the permission rules. Without rules, a person is asked."""
        permissions = self.permissions_before_run(grants, mode)
        if permissions is None:
            return Decision("ask", "No permission rules are in force here.", "mode")
        return permissions.decide(use)

    def permissions_before_run(
        self, grants: Sequence[str] = (), mode: PermissionMode | None = None
    ) -> PermissionPolicy | None:
        """Return the permissions of calls outside of any run; None without rules."""
        return self.part(Rules).permissions(grants, mode)

    def preview_initial_prompt(self, spec: AgentSpec, task: str) -> str:
        """Return the same without expansion, because a preview starts no program and reads no file of the prompt."""
        return f"{spec.initial_prompt}\n\n{task}" if spec.initial_prompt else task

    async def with_initial_prompt(self, spec: AgentSpec, task: str) -> str:
        """Return `task` after the initial prompt of the agent's file."""
        if not spec.initial_prompt:
            return task
        first = await self.expand_prompt(PersonPrompt(spec.initial_prompt))
        return f"{first.render()}\n\n{task}"

    def place_of(self, path: Path) -> Path:
        """Return the local folder for a folder of the machine that offered a run. Raise StateError if it is not in its
        project."""
        if self.moved is None:
            return path
        there, here = self.moved
        # A run that was started here works in the worktree of its parent.
        if ".." not in path.parts and path.is_relative_to(self.state):
            return path
        if ".." in path.parts or not path.is_relative_to(there):
            raise StateError(f"The run would work in {path}, which is not in its project ({there}).")
        return here / path.relative_to(there)

    def real_path(self, path: Path) -> Path:
        """Do the same for a path that may begin with `~`."""
        return self.round.once(("real path", path), lambda: Path(self.real(str(path.expanduser()))))

    @cached_property
    def remote_sender(self) -> Any:
        """Sends runs to other machines (`runs.remote.RemoteSender`); None if the log is not shared."""
        return self.connect_remote_sender(self)

    @cached_property
    def home(self) -> Path:
        return retinue_home(self.environment)

    @cached_property
    def own_folders(self) -> tuple[Path, ...]:
        """The folders with keys, consent and logs, which no program of an agent may read."""
        return own_folders(self.environment)

    def real(self, path: str) -> str:
        """Return `path` with links resolved, computed once in a tick."""
        return self.round.once(("real", path), lambda: os.path.realpath(path))

    def catalog(self) -> Catalog:
        """Return the present agents. Unchanged files are not read again."""
        from retinue.agents.catalog import Catalog

        catalog: Catalog | None = self.round.get("catalog")
        if catalog is None:
            plugins = self.extensions.agents
            catalog = Catalog.load(
                self.cwd,
                agents_json=self.agents_json,
                plugin_folders=plugins,
                environment=self.environment,
                settings=self.settings.settings,
            )
            self.round.keep("catalog", catalog)
        return catalog

    @cached_property
    def state(self) -> Path:
        return self._chosen_state or state_folder(self.cwd, self.environment)

    @cached_property
    def log(self) -> Log:
        from retinue.log.store import Log

        return Log.open(self.state, redact=self.redactor)

    @cached_property
    def redactor(self) -> Redactor:
        from retinue.guard.redact import Redactor
        from retinue.models.keys import secret_variables

        return Redactor({**self.environment, **secret_variables(self.environment)})

    @cached_property
    def inbox_service(self) -> InboxService:
        """The service with which runs ask people, created on first use."""
        from retinue.guard.inbox_service import InboxService

        return InboxService(self.log, self.approvers, policy=self._policy, redact=self.redactor.data, clock=self.clock)

    @property
    def can_ask(self) -> bool:
        """Whether a person may answer questions of runs, in this or another process."""
        if self.approvers or self.settings.settings.permissions_headless == "wait":
            return True
        return "inbox_service" in self.__dict__ and self.inbox_service.interactive

    def _policy(self) -> InboxPolicy:
        from retinue.guard.inbox_service import InboxPolicy

        settings = self.settings.settings
        return InboxPolicy(settings.permissions_headless, settings.permissions_expiry_seconds)

    @cached_property
    def transport(self) -> Transport:
        from retinue.http.transport import Transport

        return Transport()

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """All tools that a run could have, by canonical name. Tools of the program may replace built-in ones."""
        from retinue.tools.base import builtin_tools, companion_tools

        own = {tool.spec.name: tool for tool in self.custom_tools}
        shipped = {**builtin_tools(), **companion_tools()}
        for capability in self.capabilities.plan:
            shipped |= capability.tools(self)
        working = {name: tool for name, tool in shipped.items() if name not in self.unavailable}
        return {**working, **own}

    @cached_property
    def unavailable(self) -> dict[str, str]:
        """The tools that cannot work on this machine, each with the reason. They are not offered, because each would
        cost tokens in every request, and a turn to find out that it does not work."""
        reasons: dict[str, str] = {}
        for capability in self.capabilities.plan:
            reasons |= capability.unavailable_tools(self)
        return reasons

    @cached_property
    def tool_environment(self) -> Mapping[str, str]:
        """The environment of programs that tools start: all variables without secret values, and those that the user
        passes by name."""
        from retinue.guard.redact import secret_values

        passed = self.settings.settings.sandbox_pass_environment
        hidden = set(secret_values(self.environment))
        without = without_keys(self.environment, passed)
        return {name: value for name, value in without.items() if name in passed or value not in hidden}

    def end_leftovers(self, *, again: bool = False) -> tuple[str, ...]:
        """End the commands of dead processes, and return notes about them. This is done once; with `again` also for
        processes that have died since."""
        if self._cleaned and not again:
            return ()
        self._cleaned = True
        from retinue.runs.cleanup import end_leftovers

        return end_leftovers(self.log.reader)

    async def close(self) -> None:
        await self.closing.aclose()
        if self.settings.settings.log_keep_days is not None and "log" in self.__dict__:
            from retinue.runs.cleanup import tidy_log

            await tidy_log(self)
        for name in ("remote_sender", "transport", "log"):
            resource = self.__dict__.pop(name, None)
            if resource is not None:
                await resource.close()


@contextmanager
def consent_stays(project: Project, path: Path) -> Iterator[None]:
    """Within this context a person changes a settings file of the project through our own command. Consent to the new
    content, unless the old content had rights without consent."""
    from retinue.guard.trust import settings_subject

    def content() -> bytes:
        try:
            return read_file(path)
        except OSError:
            return b""

    before = content()
    subject = settings_subject(path, parse_object(before)[0], before)
    agreed = subject is None or project.trust.permits("settings", "project", path, lambda: before)
    yield
    after = content()
    brought = settings_subject(path, parse_object(after)[0], after) if agreed and after != before else None
    if brought is not None and path.parent != project.home:
        project.trust.grant(path, after, what=brought.what)


def with_consent(remedy: str, setting: str, project: Project) -> str:
    """Return the remedy for a missing object, with the settings without consent that may be the cause."""
    from retinue.guard.trust import untrusted

    lines = [remedy] if remedy else []
    lines += untrusted(project.settings, setting)
    return "\n  ".join(lines)


def has_git_consent(project: Project, folder: Path) -> bool:
    """Return whether the user has consented to all programs that git would start in the repository of `folder`, with
    the present files."""
    from retinue.guard.gitconfig import git_programs

    if project.trust.everything:
        return True
    config = git_programs(folder, checkout=True)
    return config is not None and project.trust.permits("git", "project", config.path, lambda: config.content)
