"""The `retinue` program: finds the command, runs it, and turns errors into exit codes."""

from __future__ import annotations

import os
import sys

from retinue.errors import RetinueError
from retinue.faces.cli.command import EXIT_CODES, Command, Group, dispatch, listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMANDS: dict[str, Command | Group] = {
    "run": Command("run one agent in the foreground and print its answer", "retinue.faces.cli.run"),
    "attach": Command("watch runs of another process in the terminal app, and step in", "retinue.faces.cli.attach"),
    "runs": Group(
        "see what ran, watch what runs, go on with what was cut off",
        {
            "list": Command("runs of this project, newest first", "retinue.faces.cli.runs:list"),
            "show": Command("one run: how it stands, what it did and said", "retinue.faces.cli.runs:show"),
            "tail": Command("watch a run of any process until it ends", "retinue.faces.cli.runs:tail"),
            "steer": Command("say something to a run of any process", "retinue.faces.cli.runs_control:steer"),
            "stop": Command("stop a run of any process, its tree, or all", "retinue.faces.cli.runs_control:stop"),
            "background": Command(
                "let whoever waits for a run go on without it", "retinue.faces.cli.runs_control:background"
            ),
            "resume": Command(
                "go on with an interrupted, stopped or ended run", "retinue.faces.cli.runs_control:resume"
            ),
            "effects": Command(
                "what a run really did: files, commands, hosts, denials", "retinue.faces.cli.runs_changes:effects"
            ),
            "undo": Command("put back the files a run has changed", "retinue.faces.cli.runs_changes:undo"),
            "prune": Command(
                "remove what runs of long ago have left on the disk", "retinue.faces.cli.runs_changes:prune"
            ),
        },
    ),
    "inbox": Group(
        "see what waits for an answer, and answer it",
        {
            "list": Command("approvals, questions and quotes of every run", "retinue.faces.cli.inbox:list"),
            "answer": Command("answer one, for a run of any process", "retinue.faces.cli.inbox:answer"),
        },
    ),
    "agents": Group(
        "see, check, convert and manage agent files",
        {
            "list": Command("every agent visible from here, and which file won", "retinue.faces.cli.agents:list"),
            "show": Command(
                "one agent: its spec, the fate of every field, what it shadows", "retinue.faces.cli.agents:show"
            ),
            "lint": Command(
                "problems with file, line, reason and remedy; --fix repairs", "retinue.faces.cli.agents_check:lint"
            ),
            "convert": Command("write an agent in another dialect", "retinue.faces.cli.agents_check:convert"),
            "parse": Command(
                "files to JSON lines, without discovery (for editors)", "retinue.faces.cli.agents_check:parse"
            ),
            "new": Command("create an agent file", "retinue.faces.cli.agents_edit:new"),
            "eject": Command("copy a built-in agent into a file you can edit", "retinue.faces.cli.agents_edit:eject"),
            "enable": Command("switch an agent on again", "retinue.faces.cli.agents_edit:enable"),
            "disable": Command("switch an agent off without deleting it", "retinue.faces.cli.agents_edit:disable"),
        },
    ),
    "schedule": Group(
        "start agents at a time, once or again and again",
        {
            "list": Command("jobs, when each is due, how it went last", "retinue.faces.cli.schedule:list"),
            "add": Command("start an agent at a time", "retinue.faces.cli.schedule:add"),
            "remove": Command("remove a job", "retinue.faces.cli.schedule:remove"),
            "enable": Command("switch a job on again", "retinue.faces.cli.schedule:enable"),
            "disable": Command("switch a job off without removing it", "retinue.faces.cli.schedule:disable"),
            "run": Command("run a job now and print its answer", "retinue.faces.cli.schedule:run"),
            "daemon": Command("keep firing without a terminal", "retinue.faces.cli.schedule:daemon"),
        },
    ),
    "servers": Group(
        "see the MCP servers that agents may use, and whether they work",
        {
            "list": Command("every configured server, and who brought it", "retinue.faces.cli.servers:list"),
            "check": Command("start servers, list their tools, stop them", "retinue.faces.cli.servers:check"),
        },
    ),
    "plugins": Group(
        "see the plugins of this project, and whether they work",
        {
            "list": Command("every plugin, who brought it and what it has", "retinue.faces.cli.plugins:list"),
            "check": Command("import their tools and say what is wrong", "retinue.faces.cli.plugins:check"),
        },
    ),
    "settings": Group(
        "see and change settings, and where each value comes from",
        {
            "list": Command("every setting with its value and origin", "retinue.faces.cli.settings:list"),
            "get": Command("one setting; --explain shows every layer that has a say", "retinue.faces.cli.settings:get"),
            "set": Command("change one setting in one file", "retinue.faces.cli.settings:set"),
            "unset": Command("remove one setting from one file", "retinue.faces.cli.settings:unset"),
        },
    ),
    "worktrees": Group(
        "copies of the repository that agents work in, and what dead ones left",
        {
            "list": Command("worktrees of this project and who has them", "retinue.faces.cli.worktrees:list"),
            "clean": Command("save and remove those nobody works in", "retinue.faces.cli.worktrees:clean"),
        },
    ),
    "integrate": Command("merge branches of agents: rebase, check, merge or park", "retinue.faces.cli.integrate"),
    "memory": Group(
        "what agents remember from one run to the next",
        {
            "show": Command("every memory that can be seen from here, or one whole", "retinue.faces.cli.memory:show"),
            "snapshot": Command("pack a memory into one file that can travel", "retinue.faces.cli.memory:snapshot"),
            "restore": Command("unpack one; nothing that is there is lost", "retinue.faces.cli.memory:restore"),
            "sync": Command("merge two memories of an agent", "retinue.faces.cli.memory:sync"),
        },
    ),
    "skills": Group(
        "instructions that agents load when they need them",
        {
            "list": Command(
                "every skill that can be seen from here, and which file won", "retinue.faces.cli.skills:list"
            ),
            "show": Command("one skill: its text as a model gets it, and its files", "retinue.faces.cli.skills:show"),
        },
    ),
    "trust": Command("consent to hooks, servers and rights that this project brings", "retinue.faces.cli.trust"),
    "cost": Command("what agents have cost, by agent, run, tree, day or model", "retinue.faces.cli.cost"),
    "activity": Command(
        "searches, pages, documents, language servers: counts, errors, speed", "retinue.faces.cli.activity"
    ),
    "logs": Command("warnings and errors of runs, newest last", "retinue.faces.cli.logs"),
    "doctor": Command("what this host can enforce, what is missing, and what to do", "retinue.faces.cli.doctor"),
    "models": Group(
        "which models there are, and which one would be used",
        {
            "list": Command("every model that could be used here", "retinue.faces.cli.models:list"),
            "resolve": Command("which model a name means, and why", "retinue.faces.cli.models:resolve"),
        },
    ),
}

HEADLESS = Command("talk to the main agent: one prompt in, one answer out", "retinue.faces.cli.headless")

APP = Command("open the terminal app", "retinue.faces.cli.terminal")

HELP = f"""usage: retinue [options]               the terminal app
       retinue COMMAND ...
       retinue -p PROMPT [options]

Sub-agents for Python, on any model: Markdown files become isolated, limited, watchable runs.

commands:
{listing(COMMANDS)}

options:
  --resume [ID]  go on with an earlier conversation in the terminal app
  -p PROMPT      {HEADLESS.help}; `retinue -p --help` has the details
  -h, --help     this text; `retinue COMMAND --help` has the details
  --version      the installed version

{EXIT_CODES}
"""


def run(argv: Sequence[str]) -> int:
    """The whole program. Never raises: every error becomes a sentence and an exit code."""
    return guarded_run(lambda: _run(argv))


def guarded_run(work: Callable[[], int]) -> int:
    """The same for a part of it."""
    try:
        return work()
    except RetinueError as error:
        print(f"retinue: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"  {error.remedy}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("retinue: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`retinue … | head`): nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(argv: Sequence[str]) -> int:
    word = argv[0] if argv else "" if at_terminal() else "--help"
    if word in COMMANDS:
        return dispatch(f"retinue {word}", COMMANDS[word], argv[1:])
    if word in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if word == "--version":
        from retinue import __version__

        print(f"retinue {__version__}")
        return 0
    if not word or (word.startswith("-") and at_terminal() and not _headless(argv)):
        return dispatch("retinue", APP, argv)
    if word.startswith("-"):
        return dispatch("retinue", HEADLESS, argv)
    print(f"retinue: there is no command '{word}'\nTry: retinue --help", file=sys.stderr)
    return 2


def at_terminal() -> bool:
    """All three: the app reads keys from the first and draws on the last."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _headless(argv: Sequence[str]) -> bool:
    """Whether a prompt is given: the other options mean the same with and without one."""
    return any(word.startswith(("-p", "--print", "--output-format")) for word in argv)
