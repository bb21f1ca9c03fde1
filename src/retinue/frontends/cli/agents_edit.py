"""`retinue agents new`, `agents eject`, `agents disable` and `agents enable`.

`new` asks on the terminal for missing options. End of input or Ctrl-C leaves nothing behind,
because the file is written after the last answer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from retinue.app.agent_files import (
    WRITABLE,
    AgentDraft,
    SwitchedAgent,
    check_name,
    create_agent,
    eject_agent,
    switch_agent,
)
from retinue.app.agents import describe_agent, load_catalog
from retinue.app.output import put
from retinue.errors import UsageError
from retinue.frontends.cli.agents import LOOK_FROM_HELP
from retinue.frontends.cli.agents_check import describe, text_report
from retinue.frontends.cli.project import add_where, folder, say, write_json

_MODEL_EXAMPLES = ("inherit", "haiku", "sonnet", "opus")
_THINKING_LEVELS = ("inherit", "off", "minimal", "low", "medium", "high", "xhigh", "max")


def ask(args: argparse.Namespace) -> None:
    """Ask for missing options. Raise KeyboardInterrupt if the user aborts."""
    if args.name is None:
        args.name = _name()
    if not args.user:
        args.user = _choose("Where", ("project", "user")) == "user"
    args.description = _required("When should it be used")
    if args.tools is None and not args.readonly:
        args.tools = _free("Tools (all, none, read-only, or names)", "all")
    if args.model is None:
        args.model = _free(f"Model ({', '.join(_MODEL_EXAMPLES)}, or provider/model)", "inherit")
    if args.thinking is None:
        args.thinking = _choose("Thinking", _THINKING_LEVELS)
    if args.prompt is None:
        args.body = _lines("Instructions, ended by a line with only a dot (empty: a short default)")


def _name() -> str:
    while True:
        try:
            return check_name(_required("Name"))
        except UsageError as error:
            _show(f"{error}\n")


def _required(question: str) -> str:
    while True:
        answer = _line(f"{question}: ")
        if answer:
            return answer
        _show("An answer is needed.\n")


def _choose(question: str, options: tuple[str, ...]) -> str:
    while True:
        answer = _free(f"{question} ({', '.join(options)})", options[0])
        if answer in options:
            return answer
        _show(f"Please choose one of {', '.join(options)}.\n")


def _free(question: str, default: str) -> str:
    return _line(f"{question} [{default}]: ") or default


def _lines(question: str) -> str:
    _show(f"{question}:\n")
    lines: list[str] = []
    while (line := _line("", strip=False)).strip() != ".":
        lines.append(line)
        # An empty first line asks for the default.
        if not line and len(lines) == 1:
            break
    return "\n".join(lines)


def _line(question: str, *, strip: bool = True) -> str:
    _show(question)
    try:
        answer = input()
    except EOFError:
        # End of input has the same effect as Ctrl-C: nothing is written.
        raise KeyboardInterrupt from None
    if strip:
        return answer.strip()
    return answer


def _show(text: str) -> None:
    """Print on stderr, because stdout is for the path of the new file."""
    print(text, end="", file=sys.stderr, flush=True)


def configure_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as code-reviewer")
    parser.add_argument("--description", metavar="TEXT", help="when to use it: the main agent decides by this")
    parser.add_argument("--tools", metavar="LIST", help="names, or all, none, read-only (default: inherit)")
    parser.add_argument("--model", metavar="M", help="provider/model or an alias (default: inherit)")
    parser.add_argument("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high, xhigh, max")
    parser.add_argument("--prompt", metavar="TEXT", help="the instructions; - reads stdin, @file a file")
    parser.add_argument("--readonly", action="store_true", help="it changes nothing")
    parser.set_defaults(body="")
    _add_target(parser)
    add_where(parser, LOOK_FROM_HELP)


def _add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options for the file that is written."""
    parser.add_argument("--user", action="store_true", help="in your own folder instead of the project's")
    parser.add_argument(
        "--dialect", choices=WRITABLE, default="retinue", help="whose format and folder (default: retinue)"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that exists")


def execute_new(args: argparse.Namespace) -> int:
    """Create an agent file, from options or interactively.

          retinue agents new reviewer --description "Reviews a change before it is committed" --readonly
          retinue agents new fixer --description "Fixes one failing test" --tools read,edit,bash --prompt @fixer.txt
          retinue agents new                             asks step by step; Ctrl-C leaves nothing behind

    --tools takes names, `all`, `none` or `read-only`. Omitted options are inherited and not
    written. An existing file is replaced only with --force.
    """
    cwd = folder(args.cwd)
    if args.description is None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()) or args.json:
            raise UsageError(
                "An agent needs a description.", remedy='Add --description "when to use it", or run in a terminal.'
            )
        ask(args)
    agent = create_agent(_draft(args), cwd, user=args.user, force=args.force)
    if args.json:
        write_json(agent)
        return 0
    put(f"{agent.path}\n")
    _note_winner(agent.name, agent.effective, cwd)
    print(text_report(agent.findings), end="", file=sys.stderr)
    say(f'Try it: retinue run {agent.name} "…"')
    return 0


def _note_winner(name: str, effective: bool, cwd: Path) -> None:
    if not effective:
        winner = describe_agent(load_catalog(cwd), name).path
        say(f"Note: '{name}' is still loaded from {winner}, which is stronger.")


def _draft(args: argparse.Namespace) -> AgentDraft:
    if args.name is None:
        raise UsageError("An agent needs a name.", remedy="Try: retinue agents new reviewer --description …")
    prompt = args.body
    if args.prompt is not None:
        prompt = _read_text(args.prompt)
    return AgentDraft(
        name=args.name,
        description=args.description,
        tools=args.tools or "",
        model=args.model or "",
        thinking=args.thinking or "",
        prompt=prompt,
        readonly=args.readonly,
        dialect=args.dialect,
    )


def _read_text(argument: str) -> str:
    """Return the text, the content of standard input for `-`, or the content of a file for `@file`. It may be empty."""
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@") and len(argument) > 1:
        try:
            return Path(argument[1:]).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{argument[1:]} cannot be read: {error}.", remedy="Check the path after '@'.") from error
    return argument


def configure_eject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to copy")
    _add_target(parser)
    add_where(parser, LOOK_FROM_HELP)


def execute_eject(args: argparse.Namespace) -> int:
    """Copy an agent into a file you can edit; the copy replaces the original.

    Built-in agents, agents of plugins and your own can be copied. In the same dialect the copy is
    exact; for another dialect, its losses are printed.

          retinue agents eject Explore                   to .retinue/agents/Explore.md
          retinue agents eject reviewer --user           for all your projects
          retinue agents eject Plan --dialect claude     to .claude/agents/Plan.md
    """
    cwd = folder(args.cwd)
    copy = eject_agent(args.name, cwd, dialect=args.dialect, user=args.user, force=args.force)
    if args.json:
        write_json(copy)
        return 0
    put(f"{copy.path}\n")
    for loss in copy.losses:
        say(f"{copy.name}: {describe(loss)}")
    _note_winner(copy.name, copy.effective, cwd)
    return 0


def configure_disable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to disable")
    parser.add_argument("--user", action="store_true", help="hide a built-in agent in all your projects")
    add_where(parser, LOOK_FROM_HELP)


def execute_disable(args: argparse.Namespace) -> int:
    """Disable an agent without deleting it; `agents enable` restores it unchanged.

    Your own file gets one line (enabled: false, or the equivalent of its dialect). A built-in agent
    is hidden by a small file in .retinue/agents, or with --user in your own folder.

          retinue agents disable reviewer
          retinue agents disable Explore --user
    """
    return _report(switch_agent(args.name, folder(args.cwd), on=False, user=args.user), as_json=args.json)


def _report(done: SwitchedAgent, *, as_json: bool) -> int:
    """Print what `enable` and `disable` did."""
    if as_json:
        write_json(done)
        return 0
    put(f"{done.path}\n")
    state = "on" if done.enabled else "off"
    if done.changed:
        say(f"{done.name} is {state}.")
    else:
        say(f"{done.name} was {state} already.")
    if done.action == "stub-written":
        say("It has no editable file, so this file hides it.")
    elif done.action == "stub-deleted":
        say("The file that hid it is deleted.")
    return 0


def configure_enable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to enable")
    add_where(parser, LOOK_FROM_HELP)


def execute_enable(args: argparse.Namespace) -> int:
    """Enable an agent that `agents disable` disabled.

    Its file is restored byte for byte. A file that only hid a built-in agent is deleted.

          retinue agents enable reviewer
    """
    return _report(switch_agent(args.name, folder(args.cwd), on=True), as_json=args.json)
