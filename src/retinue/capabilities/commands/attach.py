"""A command that a person calls: its text with the arguments filled in, and what it runs before it is sent.

    $ARGUMENTS, $@    everything behind the name
    $1, $2, …         the first word, the second, …, split as a shell would; empty where there is none
    !`git status`     becomes the output of that command

A command line runs if the permission rules allow it. What they would ask about is asked, and refused where nobody can
be asked. `allowed-tools` of a file count as such rules, for its own command lines and for the rest of the run, if the
file is the user's own or somebody has consented to exactly that file of the project.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from retinue.capabilities.commands.files import CommandFile, find_commands
from retinue.core.permission import ToolUse
from retinue.core.toolnames import TOOLS, canonical
from retinue.errors import PromptBlockedError
from retinue.runs.person_prompt import PromptCommand
from retinue.tools.filter import split_entry

if TYPE_CHECKING:
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.person_prompt import PersonPrompt
    from retinue.runs.project import Project

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
    trusted = command.source != "project" or project.trust.is_trusted(command.path, command.content)
    if not trusted:
        prompt.notes.append(
            f"The allowed-tools of /{command.name} do not count: {command.path} is not trusted. "
            f"Consent with: retinue trust add {command.path}"
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
