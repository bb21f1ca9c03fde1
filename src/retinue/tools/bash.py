"""bash and bash_output: run one command in a new shell, in the foreground or in the background.

A background command runs like any other program: in the run's sandbox, marked, in a separate session, and stopped when
the run ends. Its output is stored in a file of the run's outputs, and a model reads the new part of it.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from retinue.core.messages import Text
from retinue.core.permission import EffectStatus, ToolEffect
from retinue.core.programs import NotConfinedError, PreparedProgram, prepare
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.content import Capture, StreamCleaner, head_and_tail
from retinue.tools.processes import ProcessEnd, own_variables, run_program

MAX_COMMANDS = 8
MAX_NEW_OUTPUT_CHARACTERS = 20_000
MAX_FILE_BYTES = 16 * 1024 * 1024
_SETTLE_SECONDS = 0.3
"""The time that a start waits, so that its result reports a command which fails immediately."""


class BackgroundCommand:
    """One background command, with the output that the model has not read yet."""

    def __init__(self, number: int, command: str, path: Path) -> None:
        self.id = f"shell-{number}"
        self.command = command
        self.path = path
        self.task: asyncio.Task[ProcessEnd] | None = None
        self._cleaner = StreamCleaner()
        self._unread: list[str] = []
        self._stored = 0

    @property
    def live(self) -> bool:
        return self.task is not None and not self.task.done()

    def receive(self, stream: int, data: bytes) -> None:
        """Keep a piece of output, for the model and in the file."""
        text = self._cleaner.feed(data)
        self._unread.append(text)
        # A model may never read the output: memory stays bounded, and the file has all of it.
        if sum(map(len, self._unread)) > 4 * MAX_NEW_OUTPUT_CHARACTERS:
            self._unread = ["".join(self._unread)[-2 * MAX_NEW_OUTPUT_CHARACTERS :]]
        raw = text.encode("utf-8", "replace")
        if self._stored + len(raw) <= MAX_FILE_BYTES:
            self._stored += len(raw)
            # A full disk does not end the command.
            with suppress(OSError), self.path.open("ab") as file:
                file.write(raw)

    def take(self) -> str:
        """Return the output since the last call. A long output is cut in the middle."""
        if not self.live:
            self._unread.append(self._cleaner.feed(b"", final=True))
        text = "".join(self._unread)
        self._unread.clear()
        return head_and_tail(text, MAX_NEW_OUTPUT_CHARACTERS, f"the whole is in {self.path}").rstrip() if text else ""

    def state(self) -> str:
        """Return its state in a few words."""
        if self.task is None or not self.task.done():
            return "still running"
        if self.task.cancelled():
            return "stopped"
        error = self.task.exception()
        if error is not None:
            return f"could not be run: {error}"
        return f"ended with exit code {self.task.result().code}"


class BackgroundCommands:
    """The background commands of one run. `close` ends those still running."""

    def __init__(self) -> None:
        self._commands: dict[str, BackgroundCommand] = {}

    async def start(self, command: str, program: PreparedProgram, *, outputs: Path, owner: str) -> BackgroundCommand:
        live = self.live()
        if len(live) >= MAX_COMMANDS:
            names = ", ".join(running.id for running in live)
            raise ToolError(
                f"{MAX_COMMANDS} commands are at work already: {names}. Stop one with bash_output and stop: true."
            )
        number = len(self._commands) + 1
        outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
        started = BackgroundCommand(number, command, outputs / f"shell-{number}.txt")
        # Created before the command starts, so that a model can read it immediately.
        started.path.touch(mode=0o600)
        started.task = asyncio.create_task(run_program(program, receive=started.receive, seconds=None, owner=owner))
        self._commands[started.id] = started
        await asyncio.wait({started.task}, timeout=_SETTLE_SECONDS)
        return started

    def find(self, name: str) -> BackgroundCommand:
        command = self._commands.get(name) or self._commands.get(f"shell-{name}")
        if command is None:
            names = ", ".join(self._commands) or "none"
            raise ToolError(f"There is no background command {name!r}. There is: {names}.")
        return command

    def every(self) -> list[BackgroundCommand]:
        return list(self._commands.values())

    async def stop(self, command: BackgroundCommand) -> None:
        """Stop the command and all processes that it has started."""
        if command.task is not None and not command.task.done():
            command.task.cancel()
            await asyncio.wait({command.task})

    async def close(self) -> list[str]:
        """Stop all running commands and return a line for each."""
        live = self.live()
        for command in live:
            await self.stop(command)
        return [f"{command.id}: {command.command[:200]}" for command in live]

    def live(self) -> list[BackgroundCommand]:
        return [command for command in self._commands.values() if command.live]


async def stop_commands(context: ToolContext) -> tuple[str, ...]:
    """Stop the background commands of a run that ends. Return a line for each, for the outcome."""
    if not isinstance(context.commands, BackgroundCommands) or not context.commands.every():
        return ()
    # A run that is cancelled must not leave its commands behind.
    stopped = await asyncio.shield(context.commands.close())
    return tuple(f"Still running in the background when the run ended, and stopped: {command}" for command in stopped)


MAX_WAIT_SECONDS = 120.0


class BashOutputTool(BuiltinTool):
    name = "bash_output"
    required = ()
    properties: ClassVar[Properties] = {
        "id": {"type": "string", "description": "Without one: a list"},
        "wait": {"type": "number", "description": "Seconds"},
        "stop": {"type": "boolean"},
    }
    aliases: ClassVar[Aliases] = {
        "id": ("bash_id", "shell_id", "task_id", "pid", "session_id"),
        "wait": ("timeout",),
        "stop": ("kill",),
    }
    ignored = frozenset({"filter", "block"})

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        commands = context.commands
        if not isinstance(commands, BackgroundCommands):
            raise ToolError("No command can be in the background here.")
        name = arguments.optional_text("id")
        if name is None:
            lines = [
                f"{background.id} ({background.state()}): {background.command[:160]}" for background in commands.every()
            ]
            return ok("\n".join(lines) or "You have started no command in the background.")
        command = commands.find(name.strip())
        if arguments.flag("stop"):
            await commands.stop(command)
        elif command.task is not None:
            seconds = min(arguments.number("wait") or 0.0, MAX_WAIT_SECONDS)
            await asyncio.wait({command.task}, timeout=seconds)
        return ok(show_command(command), ToolEffect(command=None))


def show_command(command: BackgroundCommand) -> str:
    """Return new output, then the state of the command."""
    new = command.take()
    return f"{new or '(no new output)'}\n[{command.id} {command.state()}]"


DEFAULT_SECONDS = 120.0
MAX_COMMAND_BYTES = 100_000
"""Linux accepts at most 128 KiB in one argument."""
_PROGRESS_SECONDS = 0.1
LONG_SECONDS = 10.0
"""Results of commands that took longer state the time, so that the model can choose the next timeout."""

_QUIET_VARIABLES = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "PIP_NO_INPUT": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Variables that keep programs from waiting for a person or drawing on a terminal."""


class BashTool(BuiltinTool):
    name = "bash"
    exclusive = True
    confinable = True
    required = ("command",)
    properties: ClassVar[Properties] = {
        "command": {"type": "string"},
        "timeout": {"type": "number", "description": "Seconds (default 120, at most 595)"},
    }
    hidden: ClassVar[Properties] = {"description": {"type": "string"}, "run_in_background": {"type": "boolean"}}
    aliases: ClassVar[Aliases] = {
        "command": ("cmd", "script", "command_line", "shell_command", "code"),
        "timeout": ("timeout_seconds", "timeout_secs"),
        "description": ("explanation", "justification", "purpose", "reason"),
        "run_in_background": ("background", "is_background"),
    }

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept a list of words, a folder beside the command, and milliseconds."""
        for name in ("command", "cmd"):
            if isinstance(arguments.get(name), list):
                arguments[name] = _line(arguments[name])
        folder = _take(arguments, _FOLDER_PARAMETERS)
        key = next((key for key in ("command", "cmd", "script") if isinstance(arguments.get(key), str)), None)
        if isinstance(folder, str) and folder not in ("", ".", "./") and key is not None:
            arguments[key] = f"cd {shlex.quote(folder)} && {{\n{arguments[key]}\n}}"
        milliseconds = _take(arguments, ("timeout_ms", "yield_time_ms"))
        if isinstance(milliseconds, (int, float)) and "timeout" not in arguments:
            arguments["timeout"] = milliseconds / 1000
        return arguments

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        command = arguments.text("command")
        # The system would cut the command there, although the complete command was judged.
        if "\0" in command:
            raise ToolError("The command holds a NUL character, which no shell accepts. Leave it out.")
        if len(command.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
            raise ToolError(f"The command is longer than {MAX_COMMAND_BYTES:,} bytes. Write it to a file and run that.")
        seconds, at_most = _seconds(arguments, context)
        if not context.root.is_dir():
            raise ToolError(
                f"The working directory {context.root} no longer exists, so no command can run. Report this."
            )
        if arguments.flag("run_in_background"):
            return await _leave_running(command, context)
        program = await _prepare(command, context)
        capture = Capture(context.outputs, "bash")
        confinement = context.confinement
        try:
            began = time.monotonic()
            ended = await run_program(
                program,
                receive=_receiver(capture, call_id, context.progress),
                seconds=seconds,
                owner=context.run_id,
            )
            shown = capture.text().rstrip()
        except (OSError, ValueError) as error:
            raise ToolError(f"The shell could not be started: {error}") from None
        finally:
            capture.close()
        stopped = confinement.explain(shown, ended.code) if confinement is not None else ""
        limit, remedy = "its timeout", "Set a longer timeout, or do less at once"
        if at_most:
            limit, remedy = "the most one call may take", "Do less at once"
            if context.commands is not None:
                remedy += ", or use run_in_background"
        timeout = f"stopped after {seconds:g} s, {limit}, with everything it had started. {remedy}"
        return _output(command, shown, ended, time.monotonic() - began, timeout, stopped)


async def _prepare(command: str, context: ToolContext) -> PreparedProgram:
    """Return the command as a program with the run's clearance. Raise ToolError if its sandbox cannot be built: the
    command then does not run at all."""

    def confined() -> PreparedProgram:
        path = context.environment.get("PATH")
        return prepare(
            [shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh", "-c", command],
            clearance=context.clearance,
            environment=environment(context),
            cwd=context.root,
            confine=context.confine,
        )

    try:
        if context.confine is None:
            return confined()
        # In a thread: files that rules hide may have to be looked up first.
        return await asyncio.to_thread(confined)
    except NotConfinedError as error:
        raise ToolError(f"Not run: the walls around this shell cannot be built. {error.strerror}") from None


async def _leave_running(command: str, context: ToolContext) -> ToolOutput:
    """Start the command in the same sandbox as a foreground command, without waiting for it."""
    commands = context.commands
    if not isinstance(commands, BackgroundCommands):
        raise ToolError("Commands cannot stay in the background here. Run it in the foreground, with a timeout.")
    program = await _prepare(command, context)
    started = await commands.start(command, program, outputs=context.outputs, owner=context.run_id)
    text = f"{started.take()}\n[{started.id} {started.state()} in the background. bash_output reads what it prints, "
    text += f"also in {started.path}; it is stopped when you end.]"
    return ToolOutput((Text(text.lstrip()),), effect=ToolEffect("started", command=command))


_FOLDER_PARAMETERS = ("workdir", "cwd", "working_directory", "directory", "dir", "dir_path")


def _line(words: list[Any]) -> Any:
    """Return a command line for a list of words. The command line for `["bash", "-lc", "…"]` is its last word."""
    if not words or not all(isinstance(word, str) for word in words):
        return words
    if len(words) == 3 and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[1] in ("-c", "-lc"):
        return words[2]
    return words[0] if len(words) == 1 else shlex.join(words)


def _take(arguments: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of these arguments that has a value, and remove all of them."""
    values = [arguments.pop(name, None) for name in names]
    return next((value for value in values if value is not None), None)


def environment(context: ToolContext) -> dict[str, str]:
    """Return the run's environment with variables that keep programs quiet. Only PATH and HOME come from this process:
    the code that starts the run decides which other variables a command gets."""
    variables = {**own_variables("PATH", "HOME"), **context.environment, **_QUIET_VARIABLES, "PWD": str(context.root)}
    # The permissions must know where `cd` leads.
    variables.pop("CDPATH", None)
    return variables


def _seconds(arguments: Arguments, context: ToolContext) -> tuple[float, bool]:
    """Return how many seconds the command may run, and whether this is the limit of every call."""
    seconds = arguments.number("timeout") or DEFAULT_SECONDS
    if seconds < 0:
        raise arguments.wrong("timeout", "a number of seconds above 0", seconds)
    if seconds >= _MIN_MILLISECONDS:
        seconds /= 1000
    if context.tool_timeout is None:
        return seconds, False
    limit = _limit(context.tool_timeout)
    return min(seconds, limit), seconds >= limit


def _limit(tool_timeout: float) -> float:
    """Return slightly less than the loop's limit for a call, so that the partial output is still returned."""
    return max(tool_timeout * 0.9, tool_timeout - 5)


@cache
def bash_within(tool_timeout: float | None, *, background: bool) -> BashTool:
    """Return the tool for runs with this limit of a call, with or without background commands. The schema states both,
    because some providers let a model pass only parameters that a schema names. Runs with the same limit share one
    tool, so that their requests begin alike."""
    tool = BashTool()
    description = f"Seconds (default {DEFAULT_SECONDS:g})"
    if tool_timeout is not None:
        limit = _limit(tool_timeout)
        description = f"Seconds (default {min(DEFAULT_SECONDS, limit):g}, at most {limit:g})"
    properties = {**tool.properties, "timeout": {"type": "number", "description": description}}
    if background:
        properties["run_in_background"] = tool.hidden["run_in_background"]
    tool.spec = replace(tool.spec, parameters={**tool.spec.parameters, "properties": properties})
    return tool


_MIN_MILLISECONDS = 10_000
"""A timeout of at least this value is in milliseconds, the unit of Claude Code."""


def _receiver(capture: Capture, call_id: str, progress: Callable[[str, str], None]) -> Callable[[int, bytes], None]:
    """Return a function that feeds the capture and, at most ten times a second, the display. The display also shows an
    unfinished line, as a sign of progress."""
    waiting: list[str] = []
    last = 0.0

    def receive(stream: int, data: bytes) -> None:
        nonlocal last
        text = capture.feed(data)
        if text:
            waiting.append(text[-4000:])
        now = time.monotonic()
        if now - last >= _PROGRESS_SECONDS:
            last = now
            progress(call_id, "".join(waiting)[-4000:] or capture.pending)
            waiting.clear()

    return receive


def _output(command: str, shown: str, ended: ProcessEnd, seconds: float, timeout: str, stopped: str) -> ToolOutput:
    """Return the result of a command that took `seconds`. `timeout` is the note for a command that took too long, and
    `stopped` describes the action that the sandbox prevented."""
    notes: list[str] = []
    code = ended.code
    if ended.timed_out:
        notes.append(f"[{timeout}]")
        code = 124
    elif code is None:
        notes.append("[the command ended but its exit code is not known]")
    elif code < 0:
        notes.append(f"[killed by {_signal(-code)}]")
        code = 128 - code
    elif code > 0:
        # Models take silence for success, so every other code is stated.
        # A shell reports a child that died by signal N as 128 + N.
        died = f", {_signal(code - 128)}" if 128 < code < 160 else ""
        notes.append(f"[exit code {code}{died}]")
    if seconds >= LONG_SECONDS and not ended.timed_out:
        notes.append(f"[took {seconds:.0f} s]")
    if ended.stopped:
        notes.append(f"[still running in the background, and stopped: {'; '.join(ended.stopped[:5])}]")
    if stopped:
        notes.append(f"[{stopped}]")
    text = "\n".join(filter(None, [shown, *notes])) or "(no output)"
    # A command that exits with an error has run. Only a timeout is a failure of the call.
    status: EffectStatus = "failed" if ended.timed_out else "finished"
    effect = ToolEffect(status, command=command, exit_code=code, stopped=stopped or None)
    return ToolOutput((Text(text),), code != 0, effect)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
