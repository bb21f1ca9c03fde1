"""The settings files of pi, devkit-pi and CodingCode: read as layers below ours, never written.

Each has a table of the settings that Retinue also has. `retinue settings list` and `retinue doctor` report the other
settings of such a file, so that nobody expects them to have an effect. `read_object` reads any JSON object that a
person may have damaged; it never raises and never creates a file."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from retinue.core.files import read_file
from retinue.settings.field import Layer
from retinue.settings.places import home, pi_home, project_levels

EMPTY = "is empty"
MAX_SETTINGS_BYTES = 4 * 1024 * 1024


class JsonObject(NamedTuple):
    """The content of a JSON file. `data` is {} if it cannot be used, for the reason in `problem`, which is None for a
    missing file. `repeated` are names that occur twice in one object, of which the last is used; only an exact reading
    finds them. `refused` is the reason why the content of an existing file is unknown."""

    data: dict[str, Any]
    problem: str | None = None
    repeated: tuple[str, ...] = ()
    refused: str = ""


def read_object(path: Path, *, exact: bool = False) -> JsonObject:
    """Read a JSON file. For files that people write, `exact` keeps numbers of any size and finds repeated names."""
    text = _read(path)
    return text if isinstance(text, JsonObject) else parse_object(text, exact=exact)


def _read(path: Path) -> bytes | JsonObject:
    """Return the content of a file, or the result for a file that cannot be read."""
    try:
        return read_file(path, MAX_SETTINGS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return JsonObject({})
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        return JsonObject({}, problem, refused=problem)


def parse_object(text: bytes, *, exact: bool = False) -> JsonObject:
    text = text.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return JsonObject({}, EMPTY)
    if not exact:
        import orjson

        # The slower reader accepts NaN, which then falls as one bad value, and tells the line.
        with contextlib.suppress(orjson.JSONDecodeError):
            return _as_object(orjson.loads(text))
    return _parse_exactly(text, exact=exact)


def _parse_exactly(text: bytes, *, exact: bool) -> JsonObject:
    import json

    repeated: dict[str, None] = {}

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if exact and len(members) < len(pairs):
            repeated.update((name, None) for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return members

    try:
        return _as_object(json.loads(text.decode("utf-8"), object_pairs_hook=build), tuple(repeated))
    except json.JSONDecodeError as error:
        return JsonObject({}, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except UnicodeDecodeError:
        return JsonObject({}, "is not UTF-8 text")
    except (ValueError, RecursionError):
        return JsonObject({}, "is not JSON that can be read")


def _as_object(data: Any, repeated: tuple[str, ...] = ()) -> JsonObject:
    return JsonObject(data, None, repeated) if isinstance(data, dict) else JsonObject({}, "does not hold a JSON object")


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|\n')


def line_of(path: Path, name: str) -> int | None:
    """Return the line of a JSON file on which a setting stands, `permissions.deny[2]` or `hooks.Stop`; that of what
    surrounds it where it cannot be told exactly. None for another file."""
    try:
        lines = _lines(read_file(path, MAX_SETTINGS_BYTES).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return None
    while name and name not in lines:
        name = re.sub(r"(?:\[\d+\]|\.?[^.\[]+)\Z", "", name)
    return lines.get(name)


def _lines(text: str) -> dict[str, int]:
    """Return the line of every name of a JSON text, and of every entry of a list."""
    lines: dict[str, int] = {}
    open_names: list[str] = []
    name, line, key = "", 1, ""
    counts: list[int] = []
    for mark in _JSON_TOKEN.findall(text):
        if mark == "\n":
            line += 1
        elif mark in "{[":
            open_names.append(name)
            counts.append(0 if mark == "[" else -1)
            if mark == "[":
                name = f"{open_names[-1]}[0]"
        elif mark in "}]" and open_names:
            name = open_names.pop()
            counts.pop()
        elif mark == "," and counts and counts[-1] >= 0:
            counts[-1] += 1
            name = f"{open_names[-1]}[{counts[-1]}]"
        elif mark == ":" and open_names:
            name = f"{open_names[-1]}.{key}".lstrip(".")
            lines.setdefault(name, line)
        elif mark[0] == '"':
            key = mark[1:-1]
            if name:
                lines.setdefault(name, line)
    return lines


def explain_repeated(name: str) -> str:
    """Return the sentence about a name that occurs twice in one object of a file."""
    lost = ""
    if name in ("permissions", "deny", "ask"):
        lost = " Rules in the first one do NOT protect anything."
    return f"stands twice in one object, and only the last one counts: keep one of the two.{lost}"


PI_SETTINGS = (
    *("maxConcurrent", "defaultMaxTurns", "graceTurns", "defaultJoinMode", "schedulingEnabled", "scopeModels"),
    *("disableDefaultAgents", "toolDescriptionMode", "waitTimeoutSeconds", "abortResendKey", "widgetDisplayMode"),
    *("fleetView", "widgetMode", "outputTranscript", "backgroundByDefault", "maxSubagentDepth", "fallbackSubagent"),
    *("strictAgentFiles", "agentMentions", "worktreeIsolation", "showCost"),
)
"""The settings of pi-subagents that Retinue also has."""

DEVKIT_SETTINGS = (
    *("subagents.enabled", "subagents.maxDepth", "subagents.timeoutMs", "subagents.idleTimeoutMs"),
    *("subagents.allowWrite", "subagents.allowLspTools", "subagents.allowedLspActions"),
    *("subagents.injectDelegationPolicy", "subagents.retry.enabled", "subagents.retry.maxAttempts"),
    *("web.provider", "convertContent.enabled", "lsp.tool.allowMutatingActions", "lsp.hook.enabled"),
    *("lsp.enabled", "lsp.tool.enabled"),
)


class ForeignFile(NamedTuple):
    """A settings file of another program. With `reports` its other settings are reported, because the file is only
    about agents."""

    layer: Layer
    path: str
    takes: Mapping[str, str]
    """The settings of Retinue for those of the file."""
    reports: bool = True

    def read(self) -> JsonObject:
        path = Path(self.path)
        return read_object(path) if path.suffix == ".json" else _read_yaml(path)


_PI = dict(zip(PI_SETTINGS, PI_SETTINGS, strict=True))
_PI_OWN = {"enabledModels": "enabledModels"}
_DEVKIT = dict(zip(DEVKIT_SETTINGS, DEVKIT_SETTINGS, strict=True))
_DISABLED_AGENTS = "subagent.disabledAgents"
_CODINGCODE = {"subagent.enabled": "subagents.enabled", _DISABLED_AGENTS: "permissions.deny"}


def convert_value(name: str, value: Any) -> Any:
    """Return the value of a setting of another program as that of ours: agents that are disabled are denied."""
    if name != _DISABLED_AGENTS or not isinstance(value, list):
        return value
    return [f"Agent({agent})" for agent in value if isinstance(agent, str) and agent.strip()]


def foreign_files(cwd: Path, environment: Mapping[str, str]) -> tuple[ForeignFile, ...]:
    """Return the settings files of other programs for `cwd`, weakest first, including those that do not exist."""
    pi, own = str(pi_home(environment)), str(home(environment))
    levels = project_levels(os.path.abspath(cwd))  # noqa: PTH100
    codingcode = _nearest([level for level in levels if level != own] or levels, ".codingcode/config.yaml")
    return (
        ForeignFile("devkit-pi", f"{pi}/extensions/devkit-pi/config.json", _DEVKIT),
        ForeignFile("codingcode", f"{own}/.codingcode/config.yaml", _CODINGCODE),
        ForeignFile("pi", f"{pi}/settings.json", _PI_OWN, reports=False),
        ForeignFile("pi", f"{pi}/subagents.json", _PI),
        ForeignFile("codingcode project", codingcode, _CODINGCODE),
        ForeignFile("pi project", _nearest(levels, ".pi/settings.json"), _PI_OWN, reports=False),
        ForeignFile("pi project", _nearest(levels, ".pi/subagents.json"), _PI),
    )


def opened(data: Mapping[str, Any], takes: Mapping[str, str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values without groups. An object that is the value of a setting stays an object."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in takes:
            yield from opened(value, takes, f"{name}.")
        else:
            yield name, value


def _nearest(levels: list[str], name: str) -> str:
    """Return the nearest file of that name, or else the path for a new one."""
    for level in levels:
        path = f"{level}/{name}"
        if os.path.isfile(path):  # noqa: PTH113 (at every start)
            return path
    return f"{levels[0]}/{name}"


def _read_yaml(path: Path) -> JsonObject:
    text = _read(path)
    if isinstance(text, JsonObject):
        return text
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return JsonObject({}, "is not YAML that can be read")
    if data is None or isinstance(data, dict):
        return JsonObject(data or {})
    return JsonObject({}, "does not hold a mapping")
