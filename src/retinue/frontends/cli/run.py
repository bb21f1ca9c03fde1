"""`retinue run` and `retinue -p`, and the options of a run as the library takes them."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import stat
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from retinue.app.documents import Output, delivery_document, refusal_document
from retinue.app.output import print_json
from retinue.app.session_options import SessionOptions, read_object, read_prompt, read_schema, read_task, servers_in
from retinue.core.person_prompt import PersonPrompt, PromptBlock
from retinue.core.spec import PermissionMode
from retinue.core.usage import Budget
from retinue.errors import RetinueError, StateError, UsageError
from retinue.frontends.cli.console.progress import show_run
from retinue.frontends.cli.console.questions import ask_for_trust, terminal
from retinue.frontends.cli.project import (
    Parser,
    add_cwd,
    amount,
    count,
    folder,
    positive,
    say,
)

if TYPE_CHECKING:
    from retinue.app.dialogue import MessageReceipt
    from retinue.app.retinue import Retinue


# Options


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the common options of `run` and the headless main agent."""
    parser.add_argument("--model", metavar="M", help="provider/model or a part of its name: retinue models list")
    parser.add_argument("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high, xhigh or max")
    parser.add_argument("--schema", metavar="FILE", help="JSON Schema that the answer must match")
    add_limits(parser)
    parser.add_argument(
        "--permission-mode",
        choices=get_args(PermissionMode),
        help="default: reads run, the rest asks; acceptEdits: edits run as well; plan: only reads; dontAsk: what is "
        "not allowed by a rule is denied; auto: a classifier decides; bypassPermissions: everything runs",
    )
    add_cwd(parser, "work in this folder instead of the current one")
    parser.add_argument("--agents", metavar="JSON", help="more agents, as Claude Code's --agents takes them")
    add_trust(parser)
    add_session_flags(parser)
    add_quiet(parser)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the limits of a run. A resumed run may get more."""
    parser.add_argument("--max-turns", type=count, metavar="N", help="ask to wrap up after N turns; 0: no limit")
    parser.add_argument("--timeout", type=positive, metavar="SECONDS", help="end the run after this time (exit 124)")
    parser.add_argument(
        "--max-budget-usd", type=amount, metavar="X", help="the limit on the cost of the run and all agents below it"
    )
    parser.add_argument(
        "--budget",
        action="append",
        metavar="KIND=N,…",
        help="limits on the run and all agents below it: tokens, usd, turns, toolCalls, seconds, spawns",
    )


def add_continuation(parser: argparse.ArgumentParser) -> None:
    """Add the options of a resumed run that a new run has as well."""
    parser.add_argument("--model", metavar="MODEL", help="continue with this model, of any provider")
    add_output(parser)
    add_limits(parser)
    add_cwd(parser)
    add_trust(parser)
    add_quiet(parser)


async def resume_run(retinue: Retinue, run_id: str, prompt: str | None, args: argparse.Namespace) -> int:
    """Resume a run with the options of `add_continuation`, show it, and return the exit code."""
    limits, budget = limits_of(args) or None, budget_of(args)
    run = await retinue.resume(run_id, prompt, model=args.model, limits=limits, budget=budget)
    return await show_run(retinue, run, output_of(args), quiet=args.quiet)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error, only warnings")


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and rights take effect")


def add_newest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--continue",
        dest="newest",
        action="store_true",
        help="continue the newest conversation here",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result object as one JSON document")
    parser.add_argument("--mode", choices=["text", "json"], default="text", help="json: every event as a JSON line")
    parser.add_argument(
        "--output-format",
        choices=["text", "json", "stream-json"],
        default="text",
        help="as in Claude Code: json is one document; stream-json is one line per event, the outcome last",
    )
    # `print_refusal` prints refusals in the requested format.
    parser.set_defaults(documents=True)


def requested_output(argv: Sequence[str]) -> Output:
    """Return the output format that an invalid command line requests."""
    reader = Parser(add_help=False)
    reader.add_argument("--json", action="store_true")
    reader.add_argument("--mode", nargs="?")
    reader.add_argument("--output-format", nargs="?")
    return output_of(reader.parse_known_args(argv)[0])


def output_of(args: argparse.Namespace) -> Output:
    """Return the output format that `add_output` parsed."""
    if args.mode == "json" or args.output_format == "stream-json":
        return "events"
    if args.output_format == "json":
        return "summary"
    return "result" if args.json else "text"


def add_session_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of a session by their names in Claude Code; the first two also in the spelling of pi and
    others."""
    _add_list(parser, ("--allowedTools", "--allowed-tools"), "RULE", "needs no question: Edit, 'Bash(npm test:*)'")
    _add_list(parser, ("--disallowedTools", "--disallowed-tools"), "RULE", "never happens: Write, 'Bash(git push:*)'")
    _add_list(parser, ("--add-dir",), "DIR", "a folder to work in beside the project")
    _add_list(parser, ("--mcp-config",), "FILE", "MCP servers of a file such as .mcp.json, or as JSON")
    parser.add_argument("--settings", metavar="FILE", help="settings from a file, or as JSON, that override all others")
    parser.add_argument("--append-system-prompt", metavar="TEXT", help="append this to the agent's prompt")


def _add_list(parser: argparse.ArgumentParser, names: tuple[str, ...], metavar: str, help: str) -> None:
    dest = names[-1].removeprefix("--").replace("-", "_")
    parser.add_argument(*names, dest=dest, nargs="+", action="extend", default=[], metavar=metavar, help=help)


def read_session_flags(args: argparse.Namespace) -> SessionOptions:
    """Return the options of a session. Raise UsageError for a file or JSON that cannot be read."""
    servers: dict[str, Any] = {}
    for source in args.mcp_config:
        servers |= servers_in(read_object(source, "--mcp-config"), "--mcp-config")
    settings: dict[str, Any] = {}
    if args.settings is not None:
        settings = read_object(args.settings, "--settings")
    return SessionOptions(
        allowed_tools=tuple(args.allowed_tools),
        disallowed_tools=tuple(args.disallowed_tools),
        add_dirs=tuple(args.add_dir),
        mcp_servers=servers,
        settings=settings,
    )


def limits_of(args: argparse.Namespace) -> dict[str, float | None]:
    """Return the limits given on the command line; 0 turns means no limit."""
    limits: dict[str, float | None] = {}
    if args.max_turns is not None:
        limits["max_turns"] = args.max_turns or None
    if args.timeout is not None:
        limits["seconds"] = args.timeout
    if args.max_budget_usd is not None:
        limits["max_cost_usd"] = args.max_budget_usd
    return limits


def budget_of(args: argparse.Namespace) -> Budget | None:
    """Return the values of all `--budget tokens=200000,spawns=3` options. Raise UsageError."""
    if not args.budget:
        return None
    budget: dict[str, float] = {}
    for limit in ",".join(args.budget).split(","):
        kind, _, number = limit.partition("=")
        try:
            value = float(number)
            # A whole number is shown as one: `tokens: 200000`, not `200000.0`.
            budget[kind.strip()] = int(value) if value == int(value) else value
        except (ValueError, OverflowError):
            raise UsageError(
                f"'{limit}' is not a valid --budget.", remedy="Say what and how much: --budget tokens=200000,spawns=3"
            ) from None
    return Budget.read(budget, "--budget")


def open_retinue(args: argparse.Namespace, cwd: Path) -> Retinue:
    """Open the project. Questions are asked on the terminal, if there is one."""
    from retinue.app.retinue import Retinue

    mode = getattr(args, "permission_mode", None)
    trust = args.trust or ask_for_trust(cwd)
    retinue = Retinue(cwd, agents=getattr(args, "agents", None), permission_mode=mode, approve=terminal(), trust=trust)
    if hasattr(args, "allowed_tools"):
        retinue.set_options(read_session_flags(args))
    if not args.quiet:
        retinue.supervisor.project.on_wait = WaitLines().show
    return retinue


class WaitLines:
    """Lines on stderr that state what a launch waits for: immediately, and then every ten seconds."""

    def __init__(self) -> None:
        self._said: tuple[str, float] = ("", 0.0)

    def show(self, what: str, seconds: float) -> None:
        last, at = self._said
        if what == last and at <= seconds < at + 10:
            return
        self._said = (what, seconds)
        print(f"  … {what}, {round(seconds)} s", file=sys.stderr, flush=True)


def run_guarded(work: Callable[[], Coroutine[None, None, int]], output: Output) -> int:
    """Run `work` on an event loop. With JSON on stdout, a refusal is also a document of that format."""
    try:
        return asyncio.run(work())
    except RetinueError as error:
        print_refusal(error, output)
        raise
    except asyncio.CancelledError:
        say("retinue: stopped; see `retinue runs list`")
        return 130


def print_refusal(error: RetinueError, output: Output) -> None:
    """Print the JSON document of a refusal on stdout; nothing in text mode."""
    if output != "text":
        print_json(refusal_document(error, output))


_PIPE_SECONDS = 3
"""How long an open pipe may stay silent. Some programs leave one open for no reason."""


def read_piped() -> PromptBlock | None:
    """Return standard input as a block after the text of a prompt; None for a terminal, a device such as /dev/null, and
    an empty pipe. Raise UsageError for data that is not text."""
    try:
        number = sys.stdin.fileno()
        kind = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        # Standard input is closed.
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISREG(kind)):
        return None
    if not select.select([number], [], [], _PIPE_SECONDS)[0]:
        say("retinue: standard input is open but silent: continuing without it (use < /dev/null to avoid the wait)")
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Standard input could not be read as text: {error}.", remedy="Pipe text, or nothing: < /dev/null"
        ) from error
    if not text.strip():
        return None
    return PromptBlock("standard_input", "stdin", text)


# Commands


def configure_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="name of the agent: retinue agents list")
    parser.add_argument("task", metavar="TASK", help="the task: words, @file, or - for standard input")
    add_output(parser)
    add_run_options(parser)
    parser.add_argument("--isolation", choices=["worktree"], help="work in a copy of the repository")
    parser.add_argument("--on", choices=["local", "cluster"], help="where it works: here, or on a worker")
    parser.add_argument("--labels", metavar="A,B", default="", help="with --on cluster: what the worker must have")
    parser.add_argument(
        "--priority", type=int, metavar="N", help="with --on cluster: from 0, served first, to 9 (default: 5)"
    )


def execute_agent(args: argparse.Namespace) -> int:
    """Run one agent in the foreground and print its answer.

    TASK is the text of the task, @file to read it from a file, or - to read standard input.

        retinue run explorer "Where are requests authenticated?"
        retinue run reviewer @change.diff --model anthropic/claude-sonnet-4-5
        git diff | retinue run reviewer "Review this change" --json

    Piped input is added to the task. Progress goes to standard error, the answer to standard
    output. Ctrl-C stops the run, which keeps its answers so far and can be resumed with `retinue
    runs resume ID`.
    """
    output = output_of(args)

    async def work() -> int:
        if not args.agent.strip():
            raise UsageError("The name of the agent is empty.", remedy="See which there are: retinue agents list")
        task, schema, cwd = read_task(args.task, attaches=True), read_schema(args.schema), folder(args.cwd)
        async with open_retinue(args, cwd) as retinue:
            prompt = PersonPrompt(task)
            # Files are attached only to text that a person typed, not to text from a file or a pipe.
            if task == args.task:
                prompt = await retinue.expand(task)
            if args.task != "-" and (piped := read_piped()):
                prompt.blocks.append(piped)
            run = await retinue.spawn(
                args.agent,
                prompt,
                model=args.model,
                thinking=args.thinking,
                limits=limits_of(args),
                budget=budget_of(args),
                schema=schema,
                isolation=args.isolation,
                placement=_placement(args),
                background=False,
                append_system_prompt=args.append_system_prompt,
            )
            return await show_run(retinue, run, output, quiet=args.quiet)

    return run_guarded(work, output)


def _placement(args: argparse.Namespace) -> str | None:
    if args.labels and args.on != "cluster":
        raise UsageError("--labels are those of a worker.", remedy="Say where it works: --on cluster")
    if args.priority is not None and args.on != "cluster":
        raise UsageError("--priority is for runs that wait for a worker.", remedy="Say where it works: --on cluster")
    words = [args.labels] if args.labels else []
    if args.priority is not None:
        words.append(f"priority={args.priority}")
    return f"{args.on}:{','.join(words)}" if words else args.on


def configure_prompt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--print",
        dest="prompt",
        metavar="PROMPT",
        nargs="?",
        const="-",
        help="words, @file, or - (or nothing): stdin",
    )
    add_output(parser)
    parser.add_argument("--agent", metavar="NAME", help="talk to this agent instead of the main one")
    add_newest(parser)
    parser.add_argument("-r", "--resume", metavar="ID", help="continue an earlier run")
    add_run_options(parser)


def execute_prompt(args: argparse.Namespace) -> int:
    """Talk to the main agent without a terminal app: one prompt in, one answer out.

        retinue -p "What does this project do?"
        retinue -p @task.md --output-format json
        retinue -p "And the tests?" --continue          (the newest conversation)
        retinue -p "And the tests?" --resume 3f2a9c1d
        retinue -p "@explore And the tests?" --resume 3f2a9c1d
        retinue -p "/fix-issue 12"
        retinue -p "Explain @src/app.py"
        git diff | retinue -p "Review this change" --allowedTools "Bash(git log:*)"

    PROMPT is the text itself, @file, or - for standard input; what is piped in beside words joins them.
    `/name arguments` at its start calls a command (.claude/commands, .retinue/commands) or a skill; `@path`
    among words attaches a file or folder. Progress goes to standard error. With --resume, `@name message`
    goes to the agent of that name which the run had started: while it works it hears it there, and otherwise
    it goes on and its answer is printed.
    """
    output = output_of(args)

    async def work() -> int:
        if args.prompt is None:
            raise UsageError("There is no prompt.", remedy="Say what to do: retinue -p 'What does this project do?'")
        prompt, limits, budget = read_prompt(args.prompt), limits_of(args), budget_of(args)
        schema = read_schema(args.schema)
        attached = []
        if args.prompt != "-" and (piped := read_piped()):
            attached.append(piped)
        async with open_retinue(args, folder(args.cwd)) as retinue:
            _check_command(prompt, retinue)
            earlier = args.resume
            if args.newest and not earlier:
                earlier = newest_conversation(retinue)
            if earlier:
                _warn_of_ignored_options(args)
                receipt = await retinue.say(
                    prompt, to=earlier, attached=attached, model=args.model, limits=limits or None, budget=budget
                )
                if receipt.run is None:
                    return _report_delivery(receipt, output)
                run = receipt.run
            else:
                run = await retinue.prompt(
                    prompt,
                    agent=args.agent,
                    model=args.model,
                    thinking=args.thinking,
                    limits=limits,
                    budget=budget,
                    attached=attached,
                    schema=schema,
                    append_system_prompt=args.append_system_prompt,
                )
            return await show_run(retinue, run, output, quiet=args.quiet)

    return run_guarded(work, output)


def newest_conversation(retinue: Retinue) -> str:
    """Return the id of the newest main run. Raise StateError if there is none."""
    for row in retinue.runs:
        if row.depth == 0:
            return row.id
    raise StateError("There is no conversation to continue here.", remedy="Begin one: retinue, or retinue -p PROMPT")


def _check_command(prompt: str, retinue: Retinue) -> None:
    """Raise UsageError for `/name` without such a command, because a model would only guess its meaning."""
    line = retinue.read_line(prompt)
    if line.kind != "unknown":
        return
    remedy = "Commands of the app, such as /model, work only there. Words that begin with a slash: put a space before."
    raise UsageError(line.text, remedy=remedy)


def _report_delivery(receipt: MessageReceipt, form: Output) -> int:
    """Report that an agent of another process has received the message. Its answer is not waited for."""
    say(f"retinue: {receipt.agent} has received it and continues in its process")
    if form != "text":
        print_json(delivery_document(receipt.run_id, receipt.agent))
    return 0


def _warn_of_ignored_options(args: argparse.Namespace) -> None:
    options = {
        "--agent": args.agent,
        "--thinking": args.thinking,
        "--schema": args.schema,
        "--permission-mode": args.permission_mode,
        "--append-system-prompt": args.append_system_prompt,
    }
    ignored = [name for name, value in options.items() if value is not None]
    if ignored:
        say(f"retinue: {', '.join(ignored)} ignored: a resumed run keeps its options")
