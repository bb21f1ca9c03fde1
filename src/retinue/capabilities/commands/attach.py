"""A command that a person calls: its text with the arguments filled in, and what it runs before it is sent.

    .retinue/commands/**/*.md    .claude/commands/**/*.md    .pi/prompts/*.md     of the project, nearest folder first
    ~/.retinue/commands          ~/.claude/commands          ~/.pi/agent/prompts  of the user
    prompts/ of this folder                                                       shipped: /init

A command is called by the name of its file. Of several files of one name the first in this order has it; a file in a
subfolder can also be called `/folder:name`. Links are not followed. In its text

    $ARGUMENTS, $@    is everything behind the name
    $1, $2, …         the first word, the second, …, split as a shell would; empty where there is none
    !`git status`     becomes the output of that command

A command line runs if the permission rules allow it. What they would ask about is asked, and refused where nobody can
be asked. `allowed-tools` of a file count as such rules, for its own command lines and for the rest of the run, if the
file is the user's own or somebody has consented to exactly that file of the project.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from retinue.agents.folders import levels
from retinue.agents.frontmatter import read, split
from retinue.agents.scan import read_bytes
from retinue.core.format import replace_unprintable
from retinue.core.permission import ToolUse
from retinue.core.spec import provenance_of
from retinue.core.toolnames import TOOLS, canonical
from retinue.errors import PromptBlockedError
from retinue.runs.person_prompt import PromptCommand
from retinue.settings.places import home, pi_home, retinue_home
from retinue.tools.filter import split_entry
from retinue.tools.safe_dir import is_safe

if TYPE_CHECKING:
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.person_prompt import PersonPrompt
    from retinue.runs.project import Project


PROJECT = (".retinue/commands", ".claude/commands", ".pi/prompts")
_SHIPPED = Path(__file__).parent / "prompts"
MOST = 2_000
DEEPEST = 5
_DESCRIBED = 200
_KEYS = frozenset({"description", "argument-hint", "allowed-tools", "model"})
_ALSO = {"argument_hint": "argument-hint", "allowed_tools": "allowed-tools"}

CommandSource = Literal["project", "user", "builtin"]


class CommandFolder(Struct, frozen=True):
    """One folder of commands. pi's prompts lie side by side, and run nothing."""

    path: Path
    source: CommandSource
    pi: bool = False


class CommandFile(Struct, frozen=True, kw_only=True):
    """One command. `namespace` is the subfolder it lies in, its parts joined by colons."""

    name: str
    namespace: str
    path: Path
    source: CommandSource
    content: bytes
    body: str
    description: str = ""
    hint: str = ""
    allowed_tools: tuple[str, ...] = ()
    model: str | None = None
    runs_commands: bool = True
    problem: str = ""
    """Why it cannot be used; empty for one that can."""

    @property
    def origin(self) -> str:
        """Where it comes from, for the menu: `project` or `project:frontend`."""
        return ":".join(filter(None, (self.source, self.namespace)))


def command_folders(cwd: Path, environment: Mapping[str, str]) -> list[CommandFolder]:
    """Return every folder to look in, strongest first, whether it exists or not."""
    house = home(environment)
    user = [retinue_home(environment) / "commands", house / ".claude" / "commands", pi_home(environment) / "prompts"]
    found = []
    for level in levels(cwd):
        for name in PROJECT:
            # In the user's home folder a project's folder and the user's are one, and it is the user's.
            if level / name not in user:
                found.append(CommandFolder(level / name, "project", pi=name == PROJECT[-1]))
    found += [CommandFolder(path, "user", pi=path == user[-1]) for path in user]
    found.append(CommandFolder(_SHIPPED, "builtin"))
    return found


def find_commands(cwd: Path, environment: Mapping[str, str]) -> dict[str, CommandFile]:
    """Return the commands by every name they can be called by."""
    found: dict[str, CommandFile] = {}
    for folder in command_folders(cwd, environment):
        for path, namespace in _files(folder):
            command = _read(path, namespace, folder)
            found.setdefault(command.name, command)
            if namespace:
                found.setdefault(f"{namespace}:{command.name}", command)
            if len(found) >= MOST:
                return found
    return found


def _files(folder: CommandFolder) -> Iterator[tuple[Path, str]]:
    if folder.path.is_symlink() or not folder.path.is_dir():
        return
    for here, folders, names in os.walk(folder.path):
        inner = Path(here).relative_to(folder.path).parts
        folders[:] = sorted(name for name in folders if is_safe(name))
        if folder.pi or len(inner) >= DEEPEST:
            folders.clear()
        for name in sorted(names):
            path = Path(here, name)
            if path.suffix == ".md" and is_safe(path.stem) and not path.is_symlink():
                yield path, ":".join(inner)


def _read(path: Path, namespace: str, folder: CommandFolder) -> CommandFile:
    data = read_bytes(str(path))
    if not isinstance(data, bytes):
        return CommandFile(
            name=path.stem,
            namespace=namespace,
            path=path,
            source=folder.source,
            content=b"",
            body="",
            problem=data.message,
        )
    parts = split(data)
    said: dict[str, Any] = {}
    problem = ""
    if parts.error is not None and not parts.body:
        problem = parts.error.message
    if parts.block is not None:
        matter = read(parts.block, _KEYS.__contains__)
        if matter.error is not None:
            problem = matter.error.message
        for item in matter.items:
            key = item.key.lower()
            said[_ALSO.get(key, key)] = item.value
    body = parts.body.strip()
    return CommandFile(
        name=path.stem,
        namespace=namespace,
        path=path,
        source=folder.source,
        content=data,
        body=body,
        description=_one_line(said.get("description")) or _first_line(body),
        hint=_hint(said.get("argument-hint")),
        allowed_tools=tuple(_tools(said.get("allowed-tools"))),
        model=_one_line(said.get("model")) or None,
        runs_commands=not folder.pi,
        problem=problem,
    )


def _one_line(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return " ".join(replace_unprintable(value).split())[:_DESCRIBED]


def _hint(value: Any) -> str:
    """Return the hint for arguments. YAML reads `[pr] [priority]` as a list."""
    if isinstance(value, list | tuple):
        return " ".join(f"[{_one_line(str(each))}]" for each in value)
    return _one_line(value)


def _first_line(body: str) -> str:
    for line in body.splitlines():
        text = _one_line(line.lstrip("#"))
        if text:
            return text
    return ""


def _tools(value: Any) -> Iterator[str]:
    """Yield the entries of a list, or of a string with commas between them; what is in parentheses stays together."""
    if isinstance(value, list | tuple):
        yield from filter(None, map(_one_line, value))
        return
    if not isinstance(value, str):
        return
    depth, word = 0, ""
    for letter in f"{value},":
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            if split_entry(word.strip())[0]:
                yield word.strip()
            word = ""
        else:
            word += letter


SHELL_SECONDS = 120.0
_ARGUMENT = re.compile(r"\$(?:(ARGUMENTS\b|@)|([1-9]\d?)\b)")
_SHELL = re.compile(r"(?<!\S)!`([^`\n]+)`")


def commands_of(project: Project) -> dict[str, CommandFile]:
    """Return the commands of the project and the user, as they are on disk now."""
    return project.round.once("commands", lambda: find_commands(project.cwd, project.environment))


def list_commands(project: Project) -> list[PromptCommand]:
    """Return the commands for the menu, each once, under the shortest of its names that is its own."""
    names: dict[str, list[str]] = {}
    commands = commands_of(project)
    for name, command in commands.items():
        if not command.problem:
            names.setdefault(str(command.path), []).append(name)
    found = []
    for first, *others in names.values():
        command = commands[first]
        origin = f"command, {command.origin}"
        found.append(PromptCommand(first, command.description, command.hint, origin, tuple(others)))
    return found


async def expand_command(prompt: PersonPrompt, name: str, arguments: str, project: Project) -> None:
    """Add the text of the command, and note the model and the rules it brings. Raise PromptBlockedError when a
    command line of it may not run."""
    command = commands_of(project).get(name)
    if command is None:
        return
    if command.problem:
        prompt.notes.append(f"The command /{name} cannot be used ({command.path}): {command.problem}")
        return
    rules = _rules(command, prompt, project)
    text = fill_in(command.body, arguments)
    if command.runs_commands:
        text = await _with_outputs(text, command, rules, prompt, project)
    prompt.model = command.model
    prompt.grants += rules
    prompt.add("command", name, text)


def fill_in(body: str, arguments: str) -> str:
    """Return a text with its arguments. Those that a text does not use are added at its end."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    used = False

    def put(found: re.Match[str]) -> str:
        nonlocal used
        used = True
        if found[1]:
            return arguments
        number = int(found[2])
        return words[number - 1] if number <= len(words) else ""

    filled = _ARGUMENT.sub(put, body)
    if arguments and not used:
        filled += f"\n\nARGUMENTS: {arguments}"
    return filled


def _rules(command: CommandFile, prompt: PersonPrompt, project: Project) -> list[str]:
    """Return what the file allows, as rules with the names of our tools."""
    if not command.allowed_tools:
        return []
    provenance = provenance_of(command.source)
    if not project.trust.permits("permissions", provenance, command.path, lambda: command.content):
        prompt.notes.append(
            f"The allowed-tools of /{command.name} do not count: {command.path} is not trusted. "
            f"{project.trust.remedy('permissions', command.path)}"
        )
        return []
    rules = []
    for entry in command.allowed_tools:
        name, pattern = split_entry(entry)
        for own in canonical(name) or (name,):
            rules.append(own if pattern is None else f"{own}({pattern})")
    return rules


async def _with_outputs(
    text: str, command: CommandFile, rules: list[str], prompt: PersonPrompt, project: Project
) -> str:
    """Return the text with the output of each command line in its place. All are judged before one runs."""
    lines = list(dict.fromkeys(found[1].strip() for found in _SHELL.finditer(text)))
    for line in lines:
        await _judge(line, command, rules, prompt, project)
    outputs = {line: await _run(line, project) for line in lines}
    return _SHELL.sub(lambda found: outputs[found[1].strip()], text)


async def _judge(line: str, command: CommandFile, rules: list[str], prompt: PersonPrompt, project: Project) -> None:
    use = ToolUse("bash", {"command": line}, TOOLS["bash"])
    decision = project.judge_call(use, rules, prompt.mode)
    if decision.verdict == "allow":
        return
    about = f"/{command.name} of the {command.source} ({command.path}) runs this before it is sent. {decision.reason}"
    if decision.verdict == "ask" and prompt.ask is not None and await prompt.ask(line, about):
        return
    allow = f"Bash({line})"
    if decision.rule:
        allow = decision.rule
    remedy = f"Allow it by the rule {allow} under permissions.allow, or by allowed-tools in that file"
    if command.source == "project":
        remedy += f" and `retinue trust add {command.path}`"
    raise PromptBlockedError(
        f"/{command.name} was not sent: it would run `{line}`, which is not allowed. {decision.reason}",
        remedy=f"{remedy}.",
    )


async def _run(line: str, project: Project) -> str:
    from retinue.core.tool import ToolContext
    from retinue.tools.bash import BashTool

    context = ToolContext(
        run_id="command",
        roots=(project.real_path(project.cwd),),
        outputs=project.state / "outputs" / "commands",
        environment=project.tool_environment,
        tool_timeout=SHELL_SECONDS,
    )
    output = await BashTool().run("command", {"command": line}, context)
    return project.redactor(output.text)


def command_subjects(project: Project) -> list[TrustSubject]:
    """Return the commands of the project that would allow something, as subjects of consent."""
    from retinue.guard.trust_subjects import TrustSubject

    found: dict[str, TrustSubject] = {}
    for command in commands_of(project).values():
        if command.source != "project" or not command.allowed_tools:
            continue
        what = [f"command /{command.name} allows: {', '.join(command.allowed_tools)}"]
        lines = _SHELL.findall(command.body)
        if lines:
            what.append(f"command /{command.name} runs: {'; '.join(lines)}")
        found[str(command.path)] = TrustSubject(command.path, (command.content,), tuple(what))
    return list(found.values())
