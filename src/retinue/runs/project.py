"""What all runs of one process share, made on first use, and the consent to what a project's files bring.

Many runs that start at once ask the same: which agents there are, which model a name means, which branch is checked
out. Within one tick of the event loop nothing else of this process can happen, so one answer is right for all of them;
in the next tick it is asked anew.

The capability `trust` decides what runs lose for want of consent; the functions here are what everybody else needs.
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
    """Empty again in every round. Without a running event loop nothing is kept."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """What was kept under `key` in this round, or None."""
        return self._known.get(key)

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """What `find` gives, which is not None; it is called once in this round."""
        known: T | None = self._known.get(key)
        return self.keep(key, find()) if known is None else known

    def keep(self, key: Hashable, value: T) -> T:
        with contextlib.suppress(RuntimeError):
            if not self._known:
                asyncio.get_running_loop().call_soon(self._known.clear)
            self._known[key] = value
        return value


class Project:
    """One project seen from one process: its agents, settings, log and connections.

    Made by `cluster.open_project`, which knows the capabilities."""

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
        """`trust`: what the project's files bring takes effect without asking, in this process. `state` is where the
        record is kept, if not in the user's own folder."""
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
        """What parts that were made want done when the project is closed; the newest first."""
        self.round = TickCache()
        self._trust_everything = trust
        self._settings_seen: Signature = ()
        self.session_settings: dict[str, Any] = {}
        """Raw values by setting name that hold in this process alone, before any file."""
        self._cleaned = False
        self.clock: Clock = SYSTEM_CLOCK
        self.connect_remote_sender: Callable[[Project], Any] = lambda project: None
        """Returns the sender of runs to other machines (`runs.remote.RemoteSender`), or None."""
        self.moved: tuple[Path, Path] | None = None
        """The project's folder on the machine that offered a run, and the same one here."""
        self.brought: Path | None = None
        """What a run that another machine offered has from the sender's home: skills, memories."""
        self.allowed: Collection[Right] | None = None
        """What the operator of this worker lets senders bring; None where no worker runs."""
        self.consents: Mapping[Path, Collection[str]] = {}
        """Hashes of contents that the sender of such a run has consented to, by files here."""
        self.model_source: ModelSource | None = None
        """Answers in place of the providers, where this process plays a recording."""
        self.approvers: list[Approver] = []
        """Who is asked in this process what needs a person: a terminal, a program."""
        self.on_wait: Callable[[str, float], None] = lambda what, seconds: None
        """Hears every second what the launch of a run waits for, and since how many seconds."""

    @cached_property
    def settings(self) -> Loaded:
        self._settings_seen = settings_signature(self.cwd, self.environment)
        loaded = load_settings(self.cwd, environment=self.environment, flags=self.session_settings)
        found = loaded
        if not all(layer.origin.personal for layer in loaded.layers):
            from retinue.guard.trust import effective_settings

            found = effective_settings(loaded, lambda: self.trust)
        theirs = found.settings.providers
        learn_keys({name: theirs[name] for name in theirs if found.settings.origin(f"providers.{name}").believed})
        return found

    @property
    def settings_changed(self) -> bool:
        """Whether someone has changed a settings file since it was read; asked once a round."""
        if "settings" not in self.__dict__ or self.round.get("settings"):
            return False
        self.round.keep("settings", True)
        return settings_signature(self.cwd, self.environment) != self._settings_seen

    @cached_property
    def trust(self) -> Trust:
        from retinue.guard.trust import Trust

        return Trust(self.home, everything=self._trust_everything, allowed=self.allowed, consents=self.consents)

    def part(self, kind: type[T]) -> T:
        """Return what a capability shares among all runs of the project, or does for others; made from the project
        when it is first asked for."""
        if kind not in self._parts:
            make = self.capabilities.services.get(kind, kind)
            self._parts[kind] = make(self)
        made: T = self._parts[kind]
        return made

    def has_part(self, kind: type) -> bool:
        return kind in self._parts

    @property
    def extensions(self) -> Extensions:
        """What the plugins of this project add to it."""
        return self.part(Extensions)

    async def expand_prompt(self, prompt: PersonPrompt) -> PersonPrompt:
        """Return the prompt with what its words stand for: commands, skills and files."""
        for capability in self.capabilities.plan:
            await capability.expand_prompt(prompt, self)
        return prompt

    def prompt_commands(self) -> dict[str, PromptCommand]:
        """Return what a person can say as `/name`, by name; of one name the first."""
        found: dict[str, PromptCommand] = {}
        for capability in self.capabilities.plan:
            for each in capability.prompt_commands(self):
                found.setdefault(each.name, each)
        return found

    def judge_call(self, use: ToolUse, grants: Sequence[str] = (), mode: PermissionMode | None = None) -> Decision:
        """Decide about a call outside of any run by the permission rules; without rules a person is to be asked."""
        permissions = self.permissions_before_run(grants, mode)
        if permissions is None:
            return Decision("ask", "No permission rules are in force here.", "mode")
        return permissions.decide(use)

    def permissions_before_run(
        self, grants: Sequence[str] = (), mode: PermissionMode | None = None
    ) -> PermissionPolicy | None:
        """Return the permissions of calls outside of any run; None where no rules are in force."""
        return self.part(Rules).permissions(grants, mode)

    def preview_initial_prompt(self, spec: AgentSpec, task: str) -> str:
        """Return the same without expanding it: a preview starts no program and reads no file that the words name."""
        return f"{spec.initial_prompt}\n\n{task}" if spec.initial_prompt else task

    async def with_initial_prompt(self, spec: AgentSpec, task: str) -> str:
        """Return `task` after the words with which the agent's file begins every conversation."""
        if not spec.initial_prompt:
            return task
        first = await self.expand_prompt(PersonPrompt(spec.initial_prompt))
        return f"{first.render()}\n\n{task}"

    def place_of(self, path: Path) -> Path:
        """Return where a folder of the machine that offered a run is here. Raise StateError for one that is not in
        its project."""
        if self.moved is None:
            return path
        there, here = self.moved
        # A run that another one has started here works in its worktree.
        if ".." not in path.parts and path.is_relative_to(self.state):
            return path
        if ".." in path.parts or not path.is_relative_to(there):
            raise StateError(f"The run would work in {path}, which is not in its project ({there}).")
        return here / path.relative_to(there)

    def real_path(self, path: Path) -> Path:
        """The same as a path, of which `~` may be a part."""
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
        """The folders that hold keys, consent and logs: no program of an agent may see them."""
        return own_folders(self.environment)

    def real(self, path: str) -> str:
        """Where `path` leads, links followed; the same for all who ask in one round."""
        return self.round.once(("real", path), lambda: os.path.realpath(path))

    def catalog(self) -> Catalog:
        """The agents as they are on disk now; unchanged files are not read again."""
        from retinue.agents.catalog import Catalog

        found: Catalog | None = self.round.get("catalog")
        if found is None:
            plugins = self.extensions.agents
            found = Catalog.load(
                self.cwd,
                agents_json=self.agents_json,
                plugin_folders=plugins,
                environment=self.environment,
                settings=self.settings.settings,
            )
            self.round.keep("catalog", found)
        return found

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
        """Where runs ask people. Made when one first has to."""
        from retinue.guard.inbox_service import InboxService

        return InboxService(self.log, self.approvers, policy=self._policy, redact=self.redactor.data, clock=self.clock)

    @property
    def can_ask(self) -> bool:
        """Whether anyone may answer what a run asks, here or in another process."""
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
        """Every tool a run could have, by canonical name; custom ones may replace built-ins."""
        from retinue.tools.base import builtin_tools, companion_tools

        own = {tool.spec.name: tool for tool in self.custom_tools}
        shipped = {**builtin_tools(), **companion_tools()}
        for capability in self.capabilities.plan:
            shipped |= capability.tools(self)
        working = {name: tool for name, tool in shipped.items() if name not in self.unavailable}
        return {**working, **own}

    @cached_property
    def unavailable(self) -> dict[str, str]:
        """Tools that cannot work on this machine, each with the reason. They are left out, because offering one
        costs tokens in every request and a turn to find out that it does nothing."""
        found: dict[str, str] = {}
        for capability in self.capabilities.plan:
            found |= capability.unavailable_tools(self)
        return found

    @cached_property
    def tool_environment(self) -> Mapping[str, str]:
        """What programs that tools start may see: everything but values that are secret, and those
        that the user passes on by name."""
        from retinue.guard.redact import secret_values

        passed = self.settings.settings.sandbox_pass_environment
        hidden = set(secret_values(self.environment))
        without = without_keys(self.environment, passed)
        return {name: value for name, value in without.items() if name in passed or value not in hidden}

    def end_leftovers(self, *, again: bool = False) -> tuple[str, ...]:
        """End what commands of dead processes still do, and return what that was; once is enough
        unless one died since."""
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
            part = self.__dict__.pop(name, None)
            if part is not None:
                await part.close()


@contextmanager
def consent_stays(project: Project, path: Path) -> Iterator[None]:
    """A person changes a settings file of the project through us, in here: what they put there
    is theirs. Consent is given to the new content, unless there was something in the old one
    that nobody had consented to."""
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
    """What to do about something that is missing, where a setting without consent may be why."""
    from retinue.guard.trust import untrusted

    lines = [remedy] if remedy else []
    lines += untrusted(project.settings, setting)
    return "\n  ".join(lines)


def has_git_consent(project: Project, folder: Path) -> bool:
    """Whether someone has consented to all programs that git would start in the repository of
    `folder`, as its files are now."""
    from retinue.guard.gitconfig import git_programs

    if project.trust.everything:
        return True
    found = git_programs(folder, checkout=True)
    return found is not None and project.trust.permits("git", "project", found.path, lambda: found.content)
