"""How a command of the program is declared: one line of help, and the module to load.

Modules are imported when their command is chosen and not before, and argparse with them, so that
`retinue --help` costs no more than starting Python. A module offers two functions for each command:

    configure_NAME(parser)   add its arguments
    execute_NAME(args)       do the work and return the exit code; its docstring is the text of --help

In a module of one command they are `configure` and `execute`, and the module's docstring is the text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXIT_CODES = "exit codes: 0 success, 1 the run failed, 2 usage or configuration, 124 timeout, 130 interrupted"


class Command:
    """One leaf. `home` is `module`, or `module:name` for one of several commands in it."""

    __slots__ = ("help", "home")

    def __init__(self, help: str, home: str) -> None:
        self.help = help
        self.home = home


class Group:
    """Several commands under one word, such as `retinue agents list`."""

    __slots__ = ("commands", "help")

    def __init__(self, help: str, commands: Mapping[str, Command]) -> None:
        self.help = help
        self.commands = commands


def listing(commands: Mapping[str, Command | Group]) -> str:
    width = max(len(name) for name in commands)
    return "\n".join(f"  {name:<{width}}  {entry.help}" for name, entry in commands.items())


def dispatch(path: str, entry: Command | Group, argv: Sequence[str]) -> int:
    """Runs `entry`, reached by the words of `path`, on the rest of the command line."""
    if isinstance(entry, Command):
        return _execute(path, entry, argv)
    word = argv[0] if argv else ""
    if word in entry.commands:
        return dispatch(f"{path} {word}", entry.commands[word], argv[1:])
    text = f"usage: {path} COMMAND ...\n\n{entry.help}\n\ncommands:\n{listing(entry.commands)}\n"
    if word in ("", "-h", "--help"):
        print(text, end="")
        return 0 if word else 2
    from retinue.errors import UsageError

    raise UsageError(f"'{path}' has no command '{word}'.", remedy=f"Choose one of: {', '.join(entry.commands)}")


def _execute(path: str, command: Command, argv: Sequence[str]) -> int:
    import importlib
    import inspect

    from retinue.faces.cli.options import Parser

    home, _, name = command.home.partition(":")
    module = importlib.import_module(home)
    ending = f"_{name}" if name else ""
    execute = getattr(module, f"execute{ending}")
    text = inspect.cleandoc(execute.__doc__) if name else module.__doc__
    parser = Parser(prog=path, description=text, epilog=EXIT_CODES)
    getattr(module, f"configure{ending}")(parser)
    code: int = execute(parser.parse_args(argv))
    return code
