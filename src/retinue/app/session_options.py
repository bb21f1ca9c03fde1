"""Options for one session of a program or command line: rules, folders, servers, settings.

They are not written to a file. They override all files and the environment as the settings layer `flag`, and only add
to lists: rules, folders and servers of files remain.

Also tasks, prompts and schemas from the command line: text, `-` for standard input, or `@file`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.core.tool_names import entry_problem, split_entries
from retinue.errors import ConfigurationError, UsageError
from retinue.guard.permissions.rule import parse_rule
from retinue.loop.submission import check_schema
from retinue.settings.load import explain_unknown, flat_names
from retinue.settings.table import spellings
from retinue.tools.content import is_image_file

if TYPE_CHECKING:
    from retinue.guard.permissions.rule import Kind
    from retinue.runs.project import Project


_ALLOW, _DENY = "permissions.allow", "permissions.deny"


class SessionOptions(Struct, frozen=True, kw_only=True):
    """`settings` are by name, as in a settings file, including groups."""

    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    add_dirs: Sequence[str | Path] = ()
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def apply_options(options: SessionOptions, project: Project) -> None:
    """Apply the options to the settings of this session. Raise UsageError for an invalid rule or folder, and
    ConfigurationError for an invalid setting: a requested limit must not be missing."""
    flags = dict(flat_names(options.settings))
    _check_names(flags)
    _add(flags, _ALLOW, _checked_rules(options.allowed_tools, "allow"))
    _add(flags, _DENY, _checked_rules(options.disallowed_tools, "deny"))
    folders = [str(_checked_folder(path, project.cwd)) for path in options.add_dirs]
    if folders:
        _add(flags, "extraRoots", [*project.settings.settings.extra_roots, *folders])
    if options.mcp_servers:
        flags["mcpServers"] = {**flags.get("mcpServers", {}), **options.mcp_servers}
    if not flags:
        return
    project.session_settings.update(flags)
    # Without the cached property, the next use reads the settings again.
    project.__dict__.pop("settings", None)
    for problem in project.settings.problems:
        if problem.where in flags:
            message = f"The setting {problem.field} cannot be used: {problem.message.removeprefix('is ignored; ')}."
            raise ConfigurationError(message, remedy=f"See: retinue settings get {problem.where} --explain")


def split_rules(texts: Sequence[str]) -> list[str]:
    """Return the single rules of `["Edit,Read", "Bash(git log:*) Write"]`."""
    return [rule for text in texts for rule in split_entries(text, blanks=True)]


def read_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object, given as text or as the name of a file. `what` is the option, for errors. Raise
    UsageError."""
    import orjson

    source, content = f"The value of {what}", text.encode()
    if not text.lstrip().startswith("{"):
        source = text
        try:
            content = Path(text).expanduser().read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{what}: {text} could not be read: {reason}.", remedy="Give the path of a JSON file, or JSON itself."
            ) from None
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{source} is not JSON: {error}.", remedy=f"{what} takes a JSON object.") from None
    if not isinstance(data, dict):
        raise UsageError(f"{source} is not a JSON object.", remedy=f"{what} takes a JSON object.")
    return data


def servers_in(data: Mapping[str, Any], what: str) -> dict[str, Mapping[str, Any]]:
    """Return the servers of an object in the form of `.mcp.json`. Raise UsageError if it has no table of servers."""
    table = data.get("mcpServers", data.get("servers"))
    if not isinstance(table, dict):
        raise UsageError(
            f"{what} has no object `mcpServers`.", remedy='It is written as {"mcpServers": {"name": {"command": "…"}}}.'
        )
    return table


def _add(flags: dict[str, Any], name: str, values: list[str]) -> None:
    before = flags.get(name)
    if values:
        flags[name] = [*before, *values] if isinstance(before, list) else values


def _check_names(flags: dict[str, Any]) -> None:
    for name in list(flags):
        row = spellings().get(name)
        if row is not None:
            continue
        problem = explain_unknown(name)
        if problem is not None:
            raise ConfigurationError(f"{name} {problem}", remedy="See all of them with: retinue settings list --all")
        del flags[name]


def _checked_rules(texts: Sequence[str], kind: Kind) -> list[str]:
    rules = split_rules(texts)
    for rule_text in rules:
        rule = parse_rule(rule_text, kind, source="this session", base="/")
        remedy = "Write Tool, or Tool(pattern): Bash(npm test:*)"
        if isinstance(rule, str):
            raise UsageError(f"The {kind} rule '{rule_text}' {rule}.", remedy=remedy)
        slip = entry_problem(rule_text) if kind == "deny" else None
        if slip is not None:
            raise UsageError(f"The {kind} rule '{rule_text}' {slip.why}.", remedy=slip.remedy or remedy)
    return rules


def _checked_folder(path: str | Path, cwd: Path) -> Path:
    folder = Path(cwd, Path(path).expanduser())
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", remedy="Name one that exists.")
    return folder.resolve()


def read_task(value: str, what: str = "task", *, attaches: bool = False) -> str:
    """Return the text, the content of standard input for `-`, or the content of a file for `@path`. `what` names it in
    errors. With `attaches`, the path of an image is returned unchanged, because the image is attached."""
    where = "standard input" if value == "-" else value[1:]
    try:
        if value == "-":
            text = sys.stdin.buffer.read().decode("utf-8")
        elif attaches and value.startswith("@") and is_image_file(Path(value[1:])):
            text = value
        elif value.startswith("@") and len(value) > 1:
            text = Path(value[1:]).expanduser().read_text("utf-8")
        else:
            text = value
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The {what} could not be read from {where}: {error}.", remedy="Give it as words, or name another file."
        ) from error
    if not text.strip():
        raise UsageError(f"The {what} is empty.", remedy="Give it as words, as @file, or as - to read standard input.")
    return text


def read_schema(path: str | None) -> dict[str, Any] | None:
    """Read a JSON Schema from a file and check that it is one."""
    if path is None:
        return None
    import orjson

    try:
        schema = orjson.loads(Path(path).expanduser().read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"The schema {path} could not be read: {error}.") from error
    if not isinstance(schema, dict):
        raise UsageError(f"The schema {path} is not a JSON object.")
    check_schema(schema, f"The schema {path}")
    return schema


def read_prompt(value: str) -> str:
    """Return the prompt. `@name message` and `@path words` are not file names unless such a file exists."""
    from retinue.runs.record import parse_mention

    named = value[1:]
    is_file = "\n" not in named and Path(named).expanduser().exists()
    is_words = parse_mention(value) is not None or len(named.split()) > 1
    if value.startswith("@") and is_words and not is_file:
        return value
    return read_task(value, "prompt", attaches=True)
