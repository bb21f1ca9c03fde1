"""`retinue completion SHELL`: the script with which a shell completes commands, options and values.

    bash   eval "$(retinue completion bash)"          in ~/.bashrc
    zsh    eval "$(retinue completion zsh)"           in ~/.zshrc, after compinit
    fish   retinue completion fish | source           in ~/.config/fish/config.fish

The script calls the program at every Tab, so it knows the current agents, runs and models and never
needs an update.
"""

from __future__ import annotations

import sys

from retinue.app.completion import cached, values_of
from retinue.frontends.cli.main import APP, COMMANDS, HEADLESS, Command, Group

# A person waits for this at every Tab, and reading the cached table needs only these imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

BASH = r"""
_retinue() {
    local IFS=$'\n' line words
    # bash splits words at "=" and ":"; the program wants them whole.
    words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :files) compopt -o default 2>/dev/null ;;
            :folders) compopt -o dirnames 2>/dev/null ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <(retinue completion --answer "${words[@]}" 2>/dev/null)
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "${COMP_WORDS[COMP_CWORD]}"
    fi
}
complete -F _retinue retinue
"""

ZSH = r"""
_retinue() {
    local line value
    local -a found
    for line in "${(@f)$(retinue completion --answer "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case "$line" in
            "") ;;
            :files) _files ;;
            :folders) _files -/ ;;
            *)
                value="${line%%$'\t'*}"
                if [[ "$line" == *$'\t'* ]]; then
                    found+=("${value//:/\\:}:${line#*$'\t'}")
                else
                    found+=("${value//:/\\:}")
                fi
                ;;
        esac
    done
    (( ${#found} )) && _describe -V retinue found
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _retinue retinue
"""

FISH = r"""
function __retinue_complete
    set -l words (commandline --cut-at-cursor --tokenize) (commandline --current-token --cut-at-cursor)
    for line in (retinue completion --answer $words[2..-1] 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline --current-token)
            case ':folders'
                __fish_complete_directories (commandline --current-token)
            case '*'
                echo $line
        end
    end
end
complete --command retinue --no-files --keep-order --arguments '(__retinue_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SCRIPTS, help="the shell that runs the script")


def execute(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell].strip())
    return 0


def answer(words: Sequence[str]) -> int:
    """Print the completions of the last of `words`, or nothing if none are known."""
    table = cached("completion-table", completion_table)
    typed = words[-1] if words else ""
    lines = []
    for value, about in _candidates(table, words[:-1], typed):
        if value.startswith((":", typed)):
            lines.append(f"{value}\t{about}" if about else value)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _candidates(table: Mapping[str, Any], before: Sequence[str], typed: str) -> Iterator[tuple[str, str]]:
    path, arguments_before = _command(table, before)
    command = table.get(path)
    if not arguments_before:
        # Of a group, such as `retinue runs`.
        yield from table["groups"].get(path, {}).items()
    if command is None:
        return
    value_source, argument_index = _read(command, arguments_before)
    if value_source is not None:
        yield from _values(value_source, typed)
        return
    option, equals, value = typed.partition("=")
    if equals and option in command["options"]:
        for candidate, about in _values(command["options"][option]["value"], value):
            yield candidate if candidate.startswith(":") else f"{option}={candidate}", about
        return
    if typed.startswith("-"):
        for name, option_entry in command["options"].items():
            yield name, option_entry["help"]
        return
    arguments = command["arguments"]
    if arguments:
        kind = arguments[min(argument_index, len(arguments) - 1)]
        if argument_index < len(arguments) or command["many"]:
            yield from _values(kind, typed)


def _command(table: Mapping[str, Any], words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command at the beginning of the words, and the words after it."""
    if words and words[0] == "help":
        words = words[1:]
    path, number = "", 0
    while number < len(words) and words[number] in table["groups"].get(path, {}):
        path = f"{path} {words[number]}".strip()
        number += 1
    return path, words[number:]


def _read(command: Mapping[str, Any], words: Sequence[str]) -> tuple[Any, int]:
    """Return the kind of value that the option before the cursor takes, if any, and the number of arguments so far."""
    place, waiting, many = 0, None, False
    for word in words:
        option = command["options"].get(word)
        if option is not None:
            waiting, many = option["value"], option["many"]
        elif waiting is not None and not word.startswith("-"):
            # The value of an option. An option with several values takes the next words as well.
            if not many:
                waiting = None
        elif not word.startswith("-"):
            place += 1
    if many and waiting is not None and words and words[-1] not in command["options"]:
        return None, place
    return waiting, place


def _values(kind: Any, typed: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, list):
        for word in kind:
            yield word, ""
    elif kind == "file":
        # `@path` of a task or prompt is read by the program, not by the shell.
        if not typed.startswith("@"):
            yield ":files", ""
    elif kind == "folder":
        yield ":folders", ""
    elif kind:
        yield from values_of(kind)


_METAVARS = {"DIR": "folder", "FILE": "file", "M": "model", "AGENT": "agent", "TASK": "file", "PROMPT": "file"}
_OF_RUNS = ("runs", "attach", "open", "replay")
_BY_PLACE = {
    ("agents show", "name"): "agent",
    ("agents convert", "name"): "agent",
    ("agents disable", "name"): "agent",
    ("agents eject", "name"): "agent",
    ("agents enable", "name"): "agent",
    ("agents lint", "paths"): "file",
    ("models default", "name"): "model",
    ("models resolve", "name"): "model",
    ("models test", "name"): "model",
    ("settings get", "name"): "setting",
    ("settings set", "name"): "setting",
    ("settings unset", "name"): "setting",
}


def completion_table() -> tuple[dict[str, Any], list[str]]:
    """Return the table and the source files that it depends on.

    The table has the commands of each group, and the arguments and options of each command.
    """
    groups: dict[str, dict[str, str]] = {"": {name: entry.help for name, entry in COMMANDS.items()}}
    table: dict[str, Any] = {"groups": groups, "": _app()}
    for name, entry in COMMANDS.items():
        if isinstance(entry, Command):
            table[name] = _describe(name, entry)
            continue
        assert isinstance(entry, Group)
        groups[name] = {verb: command.help for verb, command in entry.commands.items()}
        if entry.alone is not None:
            table[name] = _describe(name, entry.alone)
        for verb, command in entry.commands.items():
            table[f"{name} {verb}"] = _describe(f"{name} {verb}", command)
    from pathlib import Path

    return table, [str(path) for path in sorted(Path(__file__).parent.glob("*.py"))]


def _app() -> dict[str, Any]:
    """Return the completions of `retinue` itself: the options of the app and of `-p`."""
    app, headless = _describe("", APP), _describe("", HEADLESS)
    options = {**headless["options"], **app["options"]}
    options["--version"] = {"help": "the installed version", "value": None, "many": False}
    return {"arguments": [], "many": False, "options": options}


def _describe(path: str, command: Command) -> dict[str, Any]:
    import argparse
    import importlib

    from retinue.frontends.cli.project import Parser

    home, _, name = command.home.partition(":")
    module = importlib.import_module(f"retinue.frontends.cli.{home}")
    parser = Parser(prog=f"retinue {path}")
    getattr(module, f"configure{'_' + name if name else ''}")(parser)
    options: dict[str, Any] = {}
    arguments: list[Any] = []
    many = False
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        takes = action.nargs != 0
        kind = _kind(path, action) if takes else None
        repeats = action.nargs in ("+", "*")
        if not action.option_strings:
            arguments.append(kind)
            many = many or repeats
        for option in action.option_strings:
            text = " ".join((action.help or "").split())
            options[option] = {"help": text, "value": kind, "many": repeats}
    return {"arguments": arguments, "many": many, "options": options}


def _kind(path: str, action: argparse.Action) -> Any:
    """Return the possible values: a list of words, or the name of a kind of values."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if (path, action.dest) in _BY_PLACE:
        return _BY_PLACE[path, action.dest]
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if "--agent" in action.option_strings:
        return "agent"
    if metavar == "ID" and (path.split(" ")[0] in ("", *_OF_RUNS) or action.dest in ("run", "resume")):
        return "run"
    return _METAVARS.get(metavar, "")
