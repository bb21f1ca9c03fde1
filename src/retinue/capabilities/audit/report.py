"""Notices for the person while a main run works, each once: the branch it works on, that it has begun to change files,
and that it ended without a check of its changes.

They are devkit-pi's guards, given in its vocabulary only; they stop nothing, and no model sees them.

What a run did: as one line of record beside its result, and turn by turn for people who ask.

The line names the files that changed, the commands with their exit codes, which of them were checks, and what was
denied. Whether the answer fits them is for its reader to judge. The report by turns also says what was read and
reached, who allowed it, and what nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.core.events import Event, ToolEnded, Undone, Warned
from retinue.core.format import relative, replace_unprintable
from retinue.core.messages import ToolCall
from retinue.core.outcome import RECORD
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.story import Entry, Story
from retinue.runs.prompt import detect

if TYPE_CHECKING:
    from retinue.core.permission import ToolEffect
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


_CHECKS = (
    r"\b(?:pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|jest|vitest|mocha|eslint|biome|tsc|rspec|phpunit|ctest)\b"
    r"|\b(?:cargo|go|dotnet|swift|gradle|gradlew|mvn|mix|bazel|make|just|task|npm|pnpm|yarn|bun)\b[^|;&\n]*"
    r"\b(?:tests?|check|lint|verify|build|vet|clippy|typecheck|ci)\b"
)
"""Commands that test, lint, check types or build. Compiled when a command ran."""


def notices_wanted(settings: Settings) -> bool:
    return settings.delegation_vocabulary == "devkit"


class ChangeNotices:
    """Of one main run. What an earlier attempt of it has said is not said again."""

    def __init__(self, node: Run, project: Project, *, resumed: bool) -> None:
        self._node = node
        self._project = project
        self._wrote = self._checked = False
        self._said: set[str] = set()
        if resumed:
            earlier = project.log.reader.ordered(node.id, ("run.warned",))
            self._said = {event.body.code for _, event in earlier if isinstance(event.body, Warned)}

    def observe(self, body: ToolEnded) -> None:
        self._tell_branch()
        self._checked = self._checked or is_check(body.effect)
        changed = [write.path for write in body.effect.writes if write.before != write.after]
        if changed:
            self._wrote = True
            undo = f"retinue runs undo {self._node.id}"
            first = relative(changed[0], str(self._node.launch.request.cwd))
            self._say("first_write", f"It begins to change files: {first}. To put them back: {undo}")

    def finish(self) -> None:
        """The run is over, and its end is not in the log yet."""
        if self._wrote and not self._checked:
            self._say("not_verified", "It changed files, and no test, lint, type check or build command ran.")

    def _tell_branch(self) -> None:
        if "git_context" in self._said:
            return
        environment = detect(self._node.launch.request.cwd)
        if environment.branch:
            self._say("git_context", f"It works on branch {environment.branch}.")

    def _say(self, code: str, text: str) -> None:
        if code not in self._said:
            self._said.add(code)
            self._project.log.append(self._node.place, Warned(code, text))


def is_check(effect: ToolEffect) -> bool:
    """Tell whether the call ran a command that tests, lints, checks types or builds."""
    return effect.command is not None and re.search(_CHECKS, effect.command) is not None


MOST_FILES = 8
MOST_COMMANDS = 4
_LONGEST_COMMAND = 80


def record_line(
    effects: Sequence[ToolEffect], files: Sequence[str], *, below: Sequence[int] = (), complete: bool = True
) -> str:
    """Return the line for a run with these `effects` that changed `files`, also by agents below it.

    `below` has the number of commands of each of those agents. `complete` is False when changes
    made by commands were not recorded.
    """
    if not effects and not files and not below:
        return f"{RECORD}no tool calls."
    checks: list[ToolEffect] = []
    others: list[ToolEffect] = []
    denied = unknown = 0
    for effect in effects:
        if effect.denied is not None:
            denied += 1
        elif effect.command is not None:
            group = checks if is_check(effect) else others
            group.append(effect)
        if effect.status in ("unknown", "started"):
            unknown += 1
    parts = [_describe_files(files)]
    if others or not checks:
        parts.append(_describe_commands("commands", others))
    else:
        parts.append("no other commands")
    if files or checks or others:
        parts.append(_describe_commands("checks", checks))
    if below:
        parts.append(f"{counted(len(below), 'agent')} started, with {counted(sum(below), 'command')}")
    if denied:
        parts.append(f"{counted(denied, 'call')} denied")
    if unknown:
        parts.append(f"{counted(unknown, 'call')} with unknown effect")
    if (checks or others) and not complete:
        parts.append("files changed by commands are not recorded")
    return f"{RECORD}{'; '.join(parts)}."


def counted(number: int, noun: str) -> str:
    """Return `number` with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def name_first(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(map(show_on_one_line, names[:most]))
    if len(names) > most:
        shown += f" and {len(names) - most} more"
    return shown


def show_on_one_line(text: str) -> str:
    """Return `text` without line breaks and control characters: a name must not look like a line of ours."""
    return " ".join(replace_unprintable(text).split())


def _describe_files(files: Sequence[str]) -> str:
    if not files:
        return "no files changed"
    return f"{counted(len(files), 'file')} changed ({name_first(files, MOST_FILES)})"


def _describe_commands(title: str, effects: Sequence[ToolEffect]) -> str:
    """Name the last commands: how a run ended matters more than how it began."""
    last = list(_last_of_each(effects))
    if not last:
        return f"no {title}"
    earlier = len(last) - MOST_COMMANDS
    before = f"{earlier} earlier, " if earlier > 0 else ""
    return f"{title}: {before}{', '.join(last[-MOST_COMMANDS:])}"


def _last_of_each(effects: Sequence[ToolEffect]) -> Iterable[str]:
    """Each command once, in the order and with the exit code of its last use."""
    last: dict[str, int | None] = {}
    for effect in effects:
        command = show_on_one_line(effect.command or "")
        last.pop(command, None)
        last[command] = effect.exit_code
    for command, code in last.items():
        shown = command
        if len(command) > _LONGEST_COMMAND:
            shown = f"{command[: _LONGEST_COMMAND - 1]}…"
        exited = "no exit code" if code is None else f"exit {code}"
        yield f"`{shown}` {exited}"


WriteStatus = Literal["created", "changed", "deleted", "unchanged"]
CallStatus = Literal["finished", "failed", "denied", "unknown", "running"]


class WrittenFile(Struct, frozen=True):
    path: str
    status: WriteStatus
    before: str | None = None
    after: str | None = None


class CallEffect(Struct, frozen=True, kw_only=True):
    """One call. `unknown`: it started and never reported back. `allowed` says who let it happen
    and why; `approval` what a person answered."""

    call_id: str
    tool: str
    status: CallStatus
    reads: tuple[str, ...] = ()
    writes: tuple[WrittenFile, ...] = ()
    command: str | None = None
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()
    denied: str | None = None
    allowed: str | None = None
    approval: str | None = None


class TurnEffects(Struct, frozen=True):
    turn: int
    calls: tuple[CallEffect, ...] = ()


class RunEffects(Struct, frozen=True):
    run_id: str
    agent: str
    turns: tuple[TurnEffects, ...] = ()
    undone: tuple[Undone, ...] = ()


def effects_of(
    events: Iterable[Event],
    run_id: str,
    agent: str,
    *,
    live: bool = False,
    meanwhile: Mapping[str, tuple[WrittenFile, ...]] | None = None,
) -> RunEffects:
    """Return what a run did, by turns. `meanwhile` has what changed during calls that gave no report, by call id;
    `live` says that a call without an end may still be at work."""
    story = Story()
    calls: list[Entry] = []
    undone: list[Undone] = []
    for event in events:
        for step in story.take(event.body, event.seq, event.at):
            if step.change == "added" and step.entry.call is not None:
                calls.append(step.entry)
        if isinstance(event.body, Undone):
            undone.append(event.body)
    return RunEffects(run_id, agent, call_effects(calls, live=live, meanwhile=meanwhile), tuple(undone))


def call_effects(
    calls: Iterable[Entry], *, live: bool = False, meanwhile: Mapping[str, tuple[WrittenFile, ...]] | None = None
) -> tuple[TurnEffects, ...]:
    """Return the same by turns, for the calls that began or ended."""
    turns: dict[int, dict[str, CallEffect]] = {}
    for entry in calls:
        if entry.call is not None and entry.state != "pending":
            effect = _effect(entry, entry.call, live, (meanwhile or {}).get(entry.call.id, ()))
            turns.setdefault(entry.turn, {})[entry.call.id] = effect
    return tuple(TurnEffects(number, tuple(calls.values())) for number, calls in sorted(turns.items()))


def written(touched: TouchedPath) -> WrittenFile:
    status: WriteStatus = "changed"
    if touched.before is None:
        status = "created"
    elif touched.after is None:
        status = "deleted"
    elif touched.before == touched.after:
        status = "unchanged"
    return WrittenFile(touched.path, status, touched.before, touched.after)


def _effect(entry: Entry, call: ToolCall, live: bool, meanwhile: tuple[WrittenFile, ...]) -> CallEffect:
    effect, approval = entry.effect, entry.approval or None
    asked = call.arguments.get("command")
    command = asked if isinstance(asked, str) else None
    if entry.result is None:
        status: CallStatus = "running" if live and entry.state == "running" else "unknown"
        return CallEffect(
            call_id=call.id, tool=call.name, status=status, command=command, writes=meanwhile, approval=approval
        )
    writes = tuple(map(written, effect.writes))
    # The call gave no report: what the ledger and its start say has to do.
    is_unknown = effect.status == "unknown"
    return CallEffect(
        call_id=call.id,
        tool=call.name,
        status=_status(effect, entry.result.is_error),
        reads=effect.reads,
        writes=writes or meanwhile if is_unknown else writes,
        command=effect.command or command if is_unknown else effect.command,
        exit_code=effect.exit_code,
        hosts=effect.hosts,
        denied=effect.denied,
        allowed=effect.allowed,
        approval=approval,
    )


def _status(effect: ToolEffect, is_error: bool) -> CallStatus:
    if effect.denied is not None:
        return "denied"
    if effect.status in ("unknown", "started"):
        return "unknown"
    return "failed" if is_error or effect.status == "failed" else "finished"
