"""Commands: Markdown files that a person calls, with their arguments filled in and their command lines run.

    .retinue/commands/**/*.md    .claude/commands/**/*.md    .pi/prompts/*.md     of the project, nearest folder first
    ~/.retinue/commands          ~/.claude/commands          ~/.pi/agent/prompts  of the user
    prompts/ of this folder                                                       shipped: /init

A command has the name of its file. Of several files with one name the first in this order is used; a file in a
subfolder can also be called `/folder:name`. Links are not followed. In its text

    $ARGUMENTS, $@    is the text after the name
    $1, $2, …         the first word, the second, …, split as a shell would; empty where there is none
    !`git status`     becomes the output of that command

Command lines of a project's file run only if the user has consented to exactly that file, or has approved the line
when asked. With consent the permission rules decide: an allowed line runs, a line that nobody approved runs inside the
read-only sandbox, and a line that needs a person is asked about, or refused if nobody can be asked. `allowed-tools` of
a file are such rules, for its own command lines and for the rest of the run, if the file is the user's own or the user
has consented to it. A preview of a prompt expands no command.

In a command line arguments are quoted, so that the shell takes them as words and never as commands. The quoting depends
on their place: between words, in double quotes or in single quotes. A line in which the place cannot be determined with
certainty takes no arguments.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.frontmatter import split
from retinue.agents.parse import read_bytes
from retinue.agents.prompt_files import one_line, project_folders, read_keys, split_arguments
from retinue.core.permission import Decision, ToolUse
from retinue.core.person_prompt import PromptCommand
from retinue.core.spec import provenance_of
from retinue.core.tool import ToolContext
from retinue.core.tool_names import TOOL_EFFECTS, canonical, split_entries, split_entry
from retinue.errors import PromptBlockedError
from retinue.guard.trust import TrustSubject
from retinue.runs.guard import SandboxScope, make_walls
from retinue.settings.places import home, pi_home, retinue_home
from retinue.tools.bash import BashTool
from retinue.tools.safe_dir import is_safe

if TYPE_CHECKING:
    from retinue.core.person_prompt import PersonPrompt
    from retinue.core.programs import Clearance
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.trust import Trust
    from retinue.runs.project import Project


ARGUMENT = re.compile(r"\$(?:(ARGUMENTS\b|@)|([1-9]\d?)\b)")
"""The first group matches all arguments, the second the number of one."""

_UNCLEAR_SYNTAX = (
    ("a backslash", re.compile(r"\\")),
    ("a substitution", re.compile(r"\$[({]|[<>]\(")),
    ("a here-document", re.compile(r"<<")),
    ("a string with escapes", re.compile(r"\$['\"]")),
    ("a comment", re.compile(r"(?:^|\s)#")),
)
_DOUBLE_QUOTED = re.compile(r'([\\"$`])')


class UnclearQuotingError(ValueError):
    """The line has a construct in which arguments cannot be quoted. The message names it."""


def quote_arguments(line: str, arguments: str) -> str:
    """Return a command line with its arguments filled in. Raise UnclearQuotingError if it takes arguments and has more
    than plain and quoted words."""
    if ARGUMENT.search(line) is None:
        return line
    for name, pattern in _UNCLEAR_SYNTAX:
        if pattern.search(line):
            raise UnclearQuotingError(name)
    words = split_arguments(arguments)
    parts: list[str] = []
    quote, at = "", 0
    for match in ARGUMENT.finditer(line):
        before = line[at : match.start()]
        quote, at = _quote_after(before, quote), match.end()
        parts += [before, _value(match, words, arguments, quote)]
    return "".join([*parts, line[at:]])


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after `text`, which starts inside `quote`; "" for none."""
    for character in text:
        if character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
    return quote


def _value(match: re.Match[str], words: list[str], arguments: str, quote: str) -> str:
    chosen = words
    if match[2]:
        chosen = words[int(match[2]) - 1 : int(match[2])]
    if not quote:
        return shlex.join(chosen)
    text = arguments if match[1] else "".join(chosen)
    if quote == "'":
        return text.replace("'", "'\\''")
    return _DOUBLE_QUOTED.sub(r"\\\1", text)


PROJECT_FOLDERS = (".retinue/commands", ".claude/commands", ".pi/prompts")
_BUILTIN_FOLDER = Path(__file__).parent / "prompts"
MAX_COMMANDS = 2_000
MAX_SUBFOLDERS = 5
MAX_COMMAND_DESCRIPTION = 200
_COMMAND_KEYS = frozenset({"description", "argument-hint", "allowed-tools", "model"})
_KEY_ALIASES = {"argument_hint": "argument-hint", "allowed_tools": "allowed-tools"}

CommandSource = Literal["project", "user", "builtin"]


class CommandFolder(Struct, frozen=True):
    """One folder of commands. A folder of pi's prompts has no subfolders, and its files run no command lines."""

    path: Path
    source: CommandSource
    pi: bool = False


class CommandFile(Struct, frozen=True, kw_only=True):
    """One command. `namespace` is its subfolder, joined by colons."""

    name: str
    namespace: str
    path: Path
    source: CommandSource
    content: bytes = b""
    body: str = ""
    description: str = ""
    hint: str = ""
    allowed_tools: tuple[str, ...] = ()
    model: str | None = None
    runs_commands: bool = True
    problem: str = ""
    """Why it cannot be used; empty for one that can."""

    @property
    def origin(self) -> str:
        """Its source, for the menu: `project` or `project:frontend`."""
        return ":".join(filter(None, (self.source, self.namespace)))


def command_folders(cwd: Path, environment: Mapping[str, str]) -> list[CommandFolder]:
    """Return every folder of commands, in order of precedence, whether it exists or not."""
    house = home(environment)
    user = [retinue_home(environment) / "commands", house / ".claude" / "commands", pi_home(environment) / "prompts"]
    project = project_folders(cwd, PROJECT_FOLDERS, user)
    return [
        *(CommandFolder(path, "project", pi=path.name == "prompts") for path in project),
        *(CommandFolder(path, "user", pi=path == user[-1]) for path in user),
        CommandFolder(_BUILTIN_FOLDER, "builtin"),
    ]


def find_commands(cwd: Path, environment: Mapping[str, str]) -> dict[str, CommandFile]:
    """Return the commands by each of their names."""
    commands: dict[str, CommandFile] = {}
    for folder in command_folders(cwd, environment):
        for path, namespace in _files(folder):
            command = _read(path, namespace, folder)
            commands.setdefault(command.name, command)
            if namespace:
                commands.setdefault(f"{namespace}:{command.name}", command)
            if len(commands) >= MAX_COMMANDS:
                return commands
    return commands


def _files(folder: CommandFolder) -> Iterator[tuple[Path, str]]:
    if folder.path.is_symlink() or not folder.path.is_dir():
        return
    for here, folders, names in os.walk(folder.path):
        inner = Path(here).relative_to(folder.path).parts
        folders[:] = sorted(name for name in folders if is_safe(name))
        if folder.pi or len(inner) >= MAX_SUBFOLDERS:
            folders.clear()
        for name in sorted(names):
            path = Path(here, name)
            if path.suffix == ".md" and is_safe(path.stem) and not path.is_symlink():
                yield path, ":".join(inner)


def _read(path: Path, namespace: str, folder: CommandFolder) -> CommandFile:
    data = read_bytes(str(path))
    command = CommandFile(name=path.stem, namespace=namespace, path=path, source=folder.source)
    if not isinstance(data, bytes):
        return replace(command, problem=data.message)
    parts = split(data)
    values, problem = read_keys(parts, _COMMAND_KEYS, _KEY_ALIASES)
    if parts.error is not None and not parts.body:
        problem = parts.error.message
    body = parts.body.strip()
    return replace(
        command,
        content=data,
        body=body,
        description=_short(values.get("description")) or _first_line(body),
        hint=_hint(values.get("argument-hint")),
        allowed_tools=tuple(_tools(values.get("allowed-tools"))),
        model=_short(values.get("model")) or None,
        runs_commands=not folder.pi,
        problem=problem,
    )


def _short(value: Any) -> str:
    return one_line(value)[:MAX_COMMAND_DESCRIPTION] if isinstance(value, str) else ""


def _hint(value: Any) -> str:
    """Return the hint for arguments. YAML reads `[pr] [priority]` as a list."""
    if isinstance(value, list | tuple):
        return " ".join(f"[{_short(str(name))}]" for name in value)
    return _short(value)


def _first_line(body: str) -> str:
    return next(filter(None, (_short(line.lstrip("#")) for line in body.splitlines())), "")


def _tools(value: Any) -> Iterator[str]:
    """Yield the entries of a list, or of a text."""
    listed = value if isinstance(value, list | tuple) else (value,)
    for text in listed:
        if isinstance(text, str):
            yield from split_entries(one_line(text))


SHELL_SECONDS = 120.0
_COMMAND_LINE = re.compile(r"(?<!\S)!`([^`\n]+)`")


def commands_of(project: Project) -> dict[str, CommandFile]:
    """Return the present commands of the project and the user."""
    return project.round.once("commands", lambda: find_commands(project.cwd, project.environment))


def list_commands(project: Project) -> list[PromptCommand]:
    """Return the commands for the menu, each once, under its shortest unique name."""
    names: dict[str, list[str]] = {}
    commands = commands_of(project)
    for name, command in commands.items():
        if not command.problem:
            names.setdefault(str(command.path), []).append(name)
    listed = []
    for first, *others in names.values():
        command = commands[first]
        origin = f"command, {command.origin}"
        listed.append(PromptCommand(first, command.description, command.hint, origin, tuple(others)))
    return listed


async def expand_command(prompt: PersonPrompt, name: str, arguments: str, project: Project) -> None:
    """Add the text of the command, its model and its rules to the prompt. Raise PromptBlockedError if one of its
    command lines may not run."""
    command = commands_of(project).get(name)
    if command is None:
        return
    if command.problem:
        prompt.notes.append(f"The command /{name} cannot be used ({command.path}): {command.problem}")
        return
    rules = _rules(command, prompt, project)
    outputs: dict[str, str] = {}
    if command.runs_commands:
        outputs = await _run_lines(command, arguments, rules, prompt, project)
    prompt.model = command.model
    prompt.grants += rules
    prompt.add("command", name, fill_in(command.body, arguments, outputs))


def fill_in(body: str, arguments: str, outputs: Mapping[str, str] | None = None) -> str:
    """Return a text with its arguments and the outputs of its command lines filled in. Arguments that the text does not
    use are added at its end. Command lines in the filled-in text are ignored."""
    words = split_arguments(arguments)

    def argument(match: re.Match[str]) -> str:
        if match[1]:
            return arguments
        number = int(match[2])
        return words[number - 1] if number <= len(words) else ""

    parts: list[str] = []
    at = 0
    for line in _COMMAND_LINE.finditer(body) if outputs else ():
        parts += [ARGUMENT.sub(argument, body[at : line.start()]), (outputs or {})[line[1]]]
        at = line.end()
    parts.append(ARGUMENT.sub(argument, body[at:]))
    if arguments and ARGUMENT.search(body) is None:
        parts.append(f"\n\nARGUMENTS: {arguments}")
    return "".join(parts)


def _rules(command: CommandFile, prompt: PersonPrompt, project: Project) -> list[str]:
    """Return the permissions of a file, as rules with the names of our tools."""
    if not command.allowed_tools:
        return []
    provenance = provenance_of(command.source)
    if not project.trust.permits("permissions", provenance, command.path, lambda: command.content):
        prompt.notes.append(
            f"The allowed-tools of /{command.name} have no effect: {command.path} is not trusted. "
            f"{project.trust.remedy('permissions', command.path)}"
        )
        return []
    rules = []
    for entry in command.allowed_tools:
        name, pattern = split_entry(entry)
        for own in canonical(name) or (name,):
            rules.append(own if pattern is None else f"{own}({pattern})")
    return rules


async def _run_lines(
    command: CommandFile, arguments: str, rules: list[str], prompt: PersonPrompt, project: Project
) -> dict[str, str]:
    """Return the output of each command line of the file, by its text. All are judged before the first runs. Raise
    PromptBlockedError if one may not run."""
    written = dict.fromkeys(_COMMAND_LINE.findall(command.body))
    if not written:
        return {}
    permissions = project.permissions_before_run(rules, prompt.mode)
    lines: dict[str, tuple[str, Clearance]] = {}
    for text in written:
        line = _quoted(text.strip(), arguments, command)
        lines[text] = line, await _judge(line, command, permissions, prompt, project.trust)
    context = ToolContext(
        run_id="command",
        roots=(project.real_path(project.cwd),),
        outputs=project.state / "outputs" / "commands",
        environment=project.tool_environment,
        tool_timeout=SHELL_SECONDS,
    )
    if permissions is not None:
        scope = SandboxScope(context.roots, context.outputs)
        context.confine = make_walls(project, "command", scope, lambda: permissions, context.environment)
    try:
        return {text: await _run(line, clearance, context, project) for text, (line, clearance) in lines.items()}
    finally:
        if context.confine is not None:
            await asyncio.to_thread(context.confine.close)


def _quoted(line: str, arguments: str, command: CommandFile) -> str:
    try:
        return quote_arguments(line, arguments)
    except UnclearQuotingError as error:
        raise PromptBlockedError(
            f"/{command.name} was not sent: `{line}` takes arguments and has {error}, so they cannot be quoted safely.",
            remedy=f"Write the command line in {command.path} with plain and quoted words.",
        ) from None


async def _judge(
    line: str, command: CommandFile, permissions: PermissionPolicy | None, prompt: PersonPrompt, trust: Trust
) -> Clearance:
    """Return the clearance of a command line. Raise PromptBlockedError if it may not run."""
    decision = Decision("ask", "No permission rules are in force here.", "mode")
    if permissions is not None:
        decision = permissions.decide(ToolUse("bash", {"command": line}, TOOL_EFFECTS["bash"]))
    consented = trust.permits("commands", provenance_of(command.source), command.path, lambda: command.content)
    if decision.verdict != "deny" and not consented:
        decision = Decision("ask", f"{command.path} is not trusted.", "policy")
    match decision.verdict:
        case "allow":
            return "rule" if decision.by == "rule" else "mode"
        case "confine":
            return "inside"
        case "ask" if prompt.ask is not None:
            about = f"/{command.name} of the {command.source} ({command.path}) runs this before it is sent."
            if await prompt.ask(line, f"{about} {decision.reason}"):
                return "person"
        case _:
            pass
    allow = decision.rule or f"Bash({line})"
    remedy = f"Allow it by the rule {allow} under permissions.allow, or by allowed-tools in that file."
    if not consented:
        remedy = trust.remedy("commands", command.path)
    raise PromptBlockedError(
        f"/{command.name} was not sent: it would run `{line}`, which is not allowed. {decision.reason}", remedy=remedy
    )


async def _run(line: str, clearance: Clearance, context: ToolContext, project: Project) -> str:
    cleared = replace(context, clearance=clearance)
    output = await BashTool().run("command", {"command": line}, cleared)
    return project.redactor(output.text)


def command_subjects(project: Project) -> list[TrustSubject]:
    """Return the commands of the project that would allow or run something, as subjects of consent."""
    subjects: dict[Path, TrustSubject] = {}
    for command in commands_of(project).values():
        what = []
        if command.allowed_tools:
            what.append(f"command /{command.name} allows: {', '.join(command.allowed_tools)}")
        if command.runs_commands:
            what += [f"command /{command.name} runs: {line}" for line in _COMMAND_LINE.findall(command.body)]
        if what and command.source == "project":
            subjects[command.path] = TrustSubject(command.path, (command.content,), tuple(what))
    return list(subjects.values())
