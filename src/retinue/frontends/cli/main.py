"""The `retinue` program: finds the command, runs it, and turns errors into exit codes.

Modules are imported when their command is chosen and not before, and argparse with them, so that `retinue --help`
costs no more than starting Python. A module offers two functions for each of its commands:

    configure_NAME(parser)   add its arguments
    execute_NAME(args)       do the work and return the exit code; its docstring is the text of --help

In a module of one command they are `configure` and `execute`, and the module's docstring is the text.
"""

from __future__ import annotations

import os
import sys

from retinue.errors import RetinueError, UsageError

# `typing` takes longer to import than everything else that `retinue --help` needs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

EXIT_CODES = "exit codes: 0 success, 1 the run failed, 2 usage or configuration, 124 timeout, 130 interrupted"


class Command:
    """One command. `home` is a module of this package, or `module:name` if the module has several commands."""

    __slots__ = ("help", "home")

    def __init__(self, help: str, home: str) -> None:
        self.help = help
        self.home = home


class Group:
    """Several commands under one word, such as `retinue agents list`. `alone` is the command of the word itself. With
    `takes_words` it has arguments, so a word that is not a command is one of them."""

    __slots__ = ("alone", "commands", "help", "takes_words")

    def __init__(
        self,
        help: str,
        commands: Mapping[str, Command],
        alone: Command | None = None,
        takes_words: bool = False,
    ) -> None:
        self.help = help
        self.commands = commands
        self.alone = alone
        self.takes_words = takes_words


def list_commands(commands: Mapping[str, Command | Group]) -> str:
    """Return the commands with their help, one a line."""
    width = max(map(len, commands))
    return "\n".join(f"  {name:<{width}}  {entry.help}" for name, entry in commands.items())


COMMANDS: dict[str, Command | Group] = {
    "run": Command("run one agent in the foreground and print its answer", "run:agent"),
    "attach": Command("watch runs of another process in the terminal app, and step in", "terminal:attach"),
    "runs": Group(
        "list, watch, control and resume runs",
        {
            "list": Command("runs of this project, newest first", "runs:list"),
            "show": Command("one run: its status, actions and answers", "runs:show"),
            "tail": Command("watch a run of any process until it ends", "runs:tail"),
            "steer": Command("send a message to a run of any process", "runs_control:steer"),
            "stop": Command("stop a run of any process, its tree, or all", "runs_control:stop"),
            "background": Command("let the parent of a run continue without waiting for it", "runs_control:background"),
            "resume": Command("resume an interrupted, stopped or ended run", "runs_control:resume"),
            "effects": Command("recorded effects of a run: files, commands, hosts, denials", "runs:effects"),
            "fork": Command("start a new run from an earlier event of a run", "runs_recordings:fork"),
            "diff": Command("two runs side by side: calls, files, cost, answer", "runs_recordings:diff"),
            "export": Command("write a run and its whole tree to a cassette", "runs_recordings:export"),
            "undo": Command("put back the files a run has changed", "runs_control:undo"),
            "prune": Command("remove data of old runs from the disk", "runs_control:prune"),
        },
    ),
    "test": Group(
        "test agents offline by their actions, with tests beside their files",
        {"new": Command("draft a test of an agent from a past run", "test:new")},
        alone=Command("run the tests beside agent files", "test:run"),
        takes_words=True,
    ),
    "eval": Command("compare agents on the same cases with a live model", "eval"),
    "replay": Command("replay a recorded run and print the differences", "replay"),
    "inbox": Group(
        "see what waits for an answer, and answer it",
        {
            "list": Command("approvals, questions and quotes of every run", "inbox:list"),
            "answer": Command("answer one, for a run of any process", "inbox:answer"),
        },
    ),
    "agents": Group(
        "see, check, convert and manage agent files",
        {
            "list": Command("every agent visible from here, and the file that defines it", "agents:list"),
            "show": Command("one agent: its spec, the handling of every field, the files it replaces", "agents:show"),
            "lint": Command("problems with file, line, reason and remedy; --fix repairs", "agents_check:lint"),
            "convert": Command("write an agent in another dialect", "agents_check:convert"),
            "parse": Command("files to JSON lines, without discovery (for editors)", "agents_check:parse"),
            "schema": Command("the JSON Schema of the frontmatter, for editors", "schemas:agents"),
            "new": Command("create an agent file", "agents_edit:new"),
            "eject": Command("copy a built-in agent into a file you can edit", "agents_edit:eject"),
            "enable": Command("enable an agent", "agents_edit:enable"),
            "disable": Command("disable an agent without deleting it", "agents_edit:disable"),
        },
    ),
    "schedule": Group(
        "run agents at a time, once or repeatedly",
        {
            "list": Command("jobs with their next run and last result", "schedule:list"),
            "add": Command("run an agent at a time", "schedule:add"),
            "remove": Command("remove a job", "schedule:remove"),
            "enable": Command("enable a job", "schedule:enable"),
            "disable": Command("disable a job without removing it", "schedule:disable"),
            "run": Command("run a job now and print its answer", "schedule:run"),
            "daemon": Command("run jobs without a terminal", "schedule:daemon"),
        },
    ),
    "worker": Command("execute runs of other machines that share a database", "worker:serve"),
    "workers": Group(
        "list the workers of the shared database",
        {
            "list": Command("workers with their capabilities and runs", "worker:list"),
            "fetch": Command("fetch the branch of a run on another machine", "worker:fetch"),
        },
    ),
    "servers": Group(
        "list and check the MCP servers that agents may use",
        {
            "list": Command("every configured server with its origin", "servers:list"),
            "check": Command("start servers, list their tools, stop them", "servers:check"),
        },
    ),
    "mcp": Group(
        "offer agents to other programs as tools (Model Context Protocol)",
        {"install": Command("print the configuration for a host", "mcp_install")},
        Command("serve on stdin and stdout", "mcp"),
    ),
    "plugins": Group(
        "list and check the plugins of this project",
        {
            "list": Command("every plugin with its origin and contents", "plugins:list"),
            "check": Command("import their tools and print their problems", "plugins:check"),
        },
    ),
    "settings": Group(
        "see and change settings, with the origin of each value",
        {
            "list": Command("every setting with its value and origin", "settings:list"),
            "get": Command("one setting; --explain shows every layer that sets it", "settings:get"),
            "set": Command("change one setting in one file", "settings:set"),
            "unset": Command("remove one setting from one file", "settings:unset"),
            "schema": Command("the JSON Schema of settings files, for editors", "schemas:settings"),
        },
    ),
    "worktrees": Group(
        "copies of the repository that agents work in, or have left",
        {
            "list": Command("worktrees of this project and their agents", "worktrees:list"),
            "clean": Command("save and remove unused worktrees", "worktrees:clean"),
        },
    ),
    "integrate": Command("merge branches of agents: rebase, check, merge or park", "worktrees:integrate"),
    "memory": Group(
        "memories of agents, which last from run to run",
        {
            "show": Command("every memory visible from here, or one in detail", "memory:show"),
            "snapshot": Command("pack a memory into one file that can travel", "memory:snapshot"),
            "restore": Command("unpack one; existing files are kept", "memory:restore"),
        },
    ),
    "skills": Group(
        "instructions that agents load when they need them",
        {
            "list": Command("every skill visible from here, and the file that defines it", "skills:list"),
            "show": Command("one skill: its text as a model receives it, and its files", "skills:show"),
        },
    ),
    "serve": Command("the HTTP API and the page: see every agent in a browser, and step in", "serve:serve"),
    "acp": Command("serve an editor that starts this program: Zed, JetBrains, Neovim, Emacs", "acp:acp"),
    "open": Command("open the page of the server that is running, at a run", "serve:open"),
    "trust": Command("consent to hooks, servers and rights that this project brings", "trust"),
    "cost": Command("the cost of agents, by agent, run, tree, day or model", "reports:cost"),
    "activity": Command("searches, pages, documents, language servers: counts, errors, speed", "reports:activity"),
    "logs": Command("warnings and errors of runs, newest last", "reports:logs"),
    "completion": Command("print the script that completes commands in bash, zsh or fish", "completion"),
    "doctor": Command("check what this host can enforce, and print remedies", "doctor"),
    "models": Group(
        "set up models, list them, and resolve names",
        {
            "list": Command("every available model", "models:list"),
            "resolve": Command("which model a name means, and why", "models:resolve"),
            "add": Command("set up a provider: test its key or address, and store it", "models_setup:add"),
            "remove": Command("remove the key and the address of a provider", "models_setup:remove"),
            "test": Command("test that a model answers", "models_setup:test"),
            "default": Command("set the default model", "models_setup:default"),
        },
    ),
}

HEADLESS = Command("talk to the main agent: one prompt in, one answer out", "run:prompt")

APP = Command("open the terminal app", "terminal:app")

HELP = f"""usage: retinue [options] [PROMPT]      the terminal app, with an optional first message
       retinue COMMAND ...
       retinue -p PROMPT [options]

Sub-agents for Python, on any model: Markdown files become isolated, limited, watchable runs.

commands:
{list_commands(COMMANDS)}

options of the terminal app:
  -c, --continue          continue the newest conversation here
  -r, --resume [ID]       continue an earlier one; without ID choose from a list
  --model M               provider/model or a part of its name: retinue models list
  --permission-mode MODE  default, acceptEdits, plan, dontAsk, auto or bypassPermissions
  --agent NAME            talk to this agent instead of the main one
  --thinking LEVEL        off, minimal, low, medium, high, xhigh or max
  --cwd DIR               work in this folder instead of the current one
  --agents JSON           more agents, as Claude Code's --agents takes them
  --trust                 let the project's hooks, servers and rights take effect
  --allowedTools RULE, --disallowedTools RULE, --add-dir DIR, --mcp-config FILE, --settings FILE,
  --append-system-prompt TEXT: for this call only, as `retinue -p --help` describes them

other options:
  -p PROMPT               {HEADLESS.help}; `retinue -p --help` has the details
  -h, --help              this text; `retinue COMMAND --help` and `retinue help COMMAND` have the details
  -V, --version           the installed version

{EXIT_CODES}
"""


def run(argv: Sequence[str]) -> int:
    """Run the whole program. Never raise: every error becomes a message and an exit code."""
    return guarded_run(lambda: _run(argv))


def guarded_run(work: Callable[[], int]) -> int:
    """Run a part of the program in the same way."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except RetinueError as error:
        print(f"retinue: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"  {error.remedy}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("retinue: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has disconnected (`retinue … | head`), which is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # Errors of our files have a file name. This one is about standard output, for example on a full disk.
        if error.filename is not None or error.errno is None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"retinue: The output could not be written: {error.strerror}.", file=sys.stderr)
        return 1


def _run(argv: Sequence[str]) -> int:
    word = argv[0] if argv else ""
    if argv[:2] == ["completion", "--answer"]:
        from retinue.frontends.cli.completion import answer

        return answer(argv[2:])
    if word in COMMANDS:
        return dispatch(f"retinue {word}", COMMANDS[word], argv[1:])
    if word == "help" and len(argv) > 1:
        return _run([*argv[1:], "--help"])
    if word in ("-h", "--help", "help") or (not word and not at_terminal()):
        print(HELP, end="")
        return 0
    if word in ("-V", "--version", "version"):
        from retinue.core.version import __version__

        print(f"retinue {__version__}")
        return 0
    if not word or (word.startswith("-") and at_terminal() and not _has_prompt(argv)):
        return dispatch("retinue", APP, argv)
    if word.startswith("-"):
        return dispatch("retinue", HEADLESS, argv)
    # A sentence is a prompt. A single word is more likely a mistyped command.
    if any(map(str.isspace, word)):
        return dispatch("retinue", APP, argv)
    raise UsageError(
        f"There is no command '{word}'.{did_you_mean(word, COMMANDS)}",
        remedy=f"All commands: retinue --help. To say it to the main agent: retinue -p {word}",
    )


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return ` Did you mean 'agents'?` for the closest candidate; empty if none is close."""
    from retinue.core.spelling import nearest

    meant = nearest(word, candidates)
    return "" if meant is None else f" Did you mean '{meant}'?"


def at_terminal() -> bool:
    """Return whether all three streams are terminals: the app reads keys from the first and draws on the last."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _has_prompt(argv: Sequence[str]) -> bool:
    """Return whether a prompt is given. The other options exist with and without one."""
    return any(word.startswith(("-p", "--print", "--output-format")) for word in argv)


def dispatch(path: str, entry: Command | Group, argv: Sequence[str]) -> int:
    """Run `entry`, reached by the words of `path`, with the remaining arguments."""
    if isinstance(entry, Command):
        return _execute(path, entry, argv)
    word = argv[0] if argv else ""
    if word in entry.commands:
        return dispatch(f"{path} {word}", entry.commands[word], argv[1:])
    if entry.alone is not None and (not word or word.startswith("-") or entry.takes_words):
        return _execute(path, entry.alone, argv)
    if word in ("", "-h", "--help"):
        print(f"usage: {path} COMMAND ...\n\n{entry.help}\n\ncommands:\n{list_commands(entry.commands)}")
        return 0 if word else 2
    raise UsageError(
        f"'{path}' has no command '{word}'.{did_you_mean(word, entry.commands)}",
        remedy=f"Choose one of: {', '.join(entry.commands)}",
    )


def _execute(path: str, command: Command, argv: Sequence[str]) -> int:
    import importlib
    import inspect

    from retinue.frontends.cli.project import Parser

    home, _, name = command.home.partition(":")
    module = importlib.import_module(f"retinue.frontends.cli.{home}")
    ending = f"_{name}" if name else ""
    execute = getattr(module, f"execute{ending}")
    text = inspect.cleandoc(execute.__doc__) if name else module.__doc__
    parser = Parser(prog=path, description=text, epilog=EXIT_CODES)
    getattr(module, f"configure{ending}")(parser)
    try:
        args = parser.parse_args(argv)
    except UsageError as error:
        if parser.get_default("documents"):
            from retinue.frontends.cli.run import print_refusal, requested_output

            print_refusal(error, requested_output(argv))
        raise
    code: int = execute(args)
    return code
