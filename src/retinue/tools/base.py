"""The base of built-in tools: how they read arguments, a spec with its prompt beside it, failure as a result.

The loop has already put a call into the tool's own form (`loop/arguments.py`). For a tool that a
program calls, `Arguments` also accepts the other names of a parameter. A value of another type
raises a `ToolError` that tells what to send; outside this package it is a failed result.

A tool is two files and a line: `tools/NAME.py` with a subclass of `BuiltinTool` whose `name` is NAME,
`tools/prompts/NAME.md`, the description that models see, and an entry in the tables of `core/tool_names.py`: the
most it may do, which parameters are paths, and whether a run has it only where its file names it. Importing this
module loads no tool; a tool is loaded when it is built.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from retinue.core.permission import EffectKind
from retinue.core.tool import ArgumentAliases, Tool, ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.tool_names import PATH_PARAMETERS, TOOL_EFFECTS, fold_name

_OS_ERROR_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.EACCES: "permission was denied by the operating system",
    errno.EPERM: "the operating system does not permit it",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is or became a symbolic link that cannot be followed safely; try again",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EBUSY: "it is in use by the system",
    errno.EMFILE: "too many files are open; try again",
    errno.ENFILE: "too many files are open; try again",
    errno.EIO: "the disk reported an error",
}


class ToolError(Exception):
    """A call that cannot be done as asked. Its text tells the model how to go on."""


def explain(error: OSError, what: str) -> str:
    """`what` could not be done, and the reason in words instead of an errno."""
    reason = _OS_ERROR_REASONS.get(error.errno or 0, error.strerror or str(error))
    return f"{what}: {reason}."


PATH_NAMES = ("file_path", "filePath", "filepath", "file", "filename", "absolute_path", "target_file", "notebook_path")
FOLDER_NAMES = ("directory", "dir", "dir_path", "folder", "cwd", "root", *PATH_NAMES)


class Arguments:
    """The arguments of one call of `tool`. None and absent are the same everywhere."""

    def __init__(
        self, tool: str, values: Mapping[str, Any], aliases: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._tool = tool
        self._values = values
        self._aliases = aliases or {}

    def find(self, name: str, *others: str) -> Any:
        """Return the value under the canonical name or, failing that, under another spelling."""
        for key in (name, *others, *self._aliases.get(name, ())):
            if self._values.get(key) is not None:
                return self._values[key]
        return None

    def text(self, name: str, *others: str) -> str:
        """A required string that is not empty."""
        value = self.optional_text(name, *others)
        if value is None:
            sent = ", ".join(f'"{key}"' for key in list(self._values)[:12]) or "no arguments"
            raise ToolError(f'{self._tool} needs "{name}": a string that is not empty. The call had {sent}.')
        return value

    def optional_text(self, name: str, *others: str) -> str | None:
        """A string, or None when absent or empty."""
        value = self.find(name, *others)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string", value)
        return value or None

    def whole_number(self, name: str, *others: str, least: int = 0) -> int | None:
        """A whole number that is at least `least`; 3.0 is one."""
        value = self.number(name, *others)
        if value is not None and (value != int(value) or value < least):
            raise self.wrong(name, f"a whole number of at least {least}", int(value) if value == int(value) else value)
        return None if value is None else int(value)

    def number(self, name: str, *others: str) -> float | None:
        value = self.find(name, *others)
        # True is a number to Python, but never to a model.
        if value is not None and (type(value) not in (int, float) or not isfinite(value)):
            raise self.wrong(name, "a number", value)
        return None if value is None else float(value)

    def flag(self, name: str, *others: str) -> bool:
        value = self.find(name, *others)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return bool(value)

    def choice(self, name: str, *others: str, allowed: Mapping[str, str], default: str) -> str:
        """One of the words in `allowed`, which maps every accepted spelling to its meaning."""
        word = (self.optional_text(name, *others) or "").strip().lower()
        if word and word not in allowed:
            raise self.wrong(name, "one of " + ", ".join(dict.fromkeys(allowed.values())), word)
        return allowed[word] if word else default

    def items(self, name: str) -> list[Any] | None:
        """A list; a lone object is a list of one."""
        value = self.find(name)
        if isinstance(value, Mapping):
            return [value]
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def wrong(self, name: str, expected: str, value: Any) -> ToolError:
        shown = json.dumps(value, default=str, ensure_ascii=False)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return ToolError(f'{self._tool}: "{name}" must be {expected}, but it was {shown}.')


Properties = Mapping[str, Any]
"""The `properties` of a JSON Schema object: each parameter with its description."""
Aliases = Mapping[str, tuple[str, ...]]
"""A parameter and what other systems call it. `edits.old_string` is one inside `edits`."""


class BuiltinTool(ABC):
    """A subclass states its name and parameters, and does the work in `call`.

    `prompts/NAME.md` beside the subclass's module is the description the model sees. A `ToolError` or
    an `OSError` of the work becomes a failed result; every other exception is a defect.
    """

    name: ClassVar[str]
    properties: ClassVar[Properties]
    required: ClassVar[tuple[str, ...]]
    hidden: ClassVar[Properties] = {}
    """Parameters that are accepted but not shown: few calls need them, and every request would pay."""
    asked_for: ClassVar[tuple[str, ...] | None] = None
    """Required parameters, where they are fewer than models are told."""
    aliases: ClassVar[Aliases] = {}
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    ignored: ClassVar[frozenset[str]] = frozenset()
    exclusive: ClassVar[bool] = False
    confinable: ClassVar[bool] = False
    effects: ClassVar[frozenset[EffectKind] | None] = None
    """The most it may do. None where `core.tool_names` says it, which knows it before the tool is loaded."""
    paths: ClassVar[tuple[str, ...] | None] = None
    """The parameters that are paths. None where `core.tool_names` says it."""

    def __init__(self) -> None:
        parameters = parameters_of(self.properties, self.required)
        self.spec = ToolSpec(
            name=self.name,
            description=read_prompt(type(self), self.name),
            parameters=parameters,
            effects=self.declared_effects(),
            exclusive=self.exclusive,
            confinable=self.confinable,
            aliases=self.argument_aliases(parameters),
            paths=self.paths if self.paths is not None else PATH_PARAMETERS.get(self.name),
        )

    @classmethod
    def declared_effects(cls) -> frozenset[EffectKind]:
        """Return the most the tool may do."""
        return cls.effects if cls.effects is not None else TOOL_EFFECTS[cls.name]

    @classmethod
    def argument_aliases(cls, parameters: Mapping[str, Any]) -> ArgumentAliases:
        """Return what the tool accepts besides `parameters`, which are shown to models."""
        properties = {**cls.hidden, **parameters["properties"]}
        schema = {"required": [], **parameters, "properties": properties, "additionalProperties": False}
        if cls.asked_for is not None:
            schema["required"] = list(cls.asked_for)
        return ArgumentAliases(schema, names_of(cls.aliases), cls.words, cls.ignored, cls.rewrite)

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with forms of other systems turned into this tool's."""
        return arguments

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except ToolError as error:
            return failed(str(error))
        # A file that vanished or a full disk is an answer for the model, not a defect of the tool.
        except OSError as error:
            return failed(explain(error, f"{self.name} failed on {error.filename or 'the file system'}"))

    @abstractmethod
    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput: ...


def read_prompt(tool: type, name: str) -> str:
    """Return the text of `prompts/NAME.md` beside the module that defines `tool`."""
    return (Path(inspect.getfile(tool)).parent / "prompts" / f"{name}.md").read_text("utf-8").strip()


def parameters_of(properties: Properties, required: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON Schema of an object with `properties`, as models see it."""
    # Without `additionalProperties`, which would cost every request: an unknown parameter is dropped with a note.
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return schema


def names_of(aliases: Aliases) -> dict[str, str]:
    """Return the parameter that each other name stands for, by the name as written and folded."""
    parameters: dict[str, str] = {}
    for parameter, others in aliases.items():
        before = parameter[: parameter.rfind(".") + 1]
        for other in others:
            parameters.setdefault(before + other, parameter)
            parameters.setdefault(before + fold_name(other), parameter)
    return parameters


_FIRST_TOOLS = ("read", "write", "edit", "bash", "grep", "find", "ls")
COMPANION_NAMES = ("todo", "bash_output", "ask_parent", "ask_user", "exit_plan")
"""Tools that affect only the run itself and the runs above it."""
_MADE_FOR_ONE_RUN = ("apply_patch", "tool_search")
"""Tools that need something of their run; the code that prepares the run builds them."""
_MODULES = {
    "ls": "find",
    "write": "edit",
    "bash_output": "bash",
    **dict.fromkeys(("todo", "ask_parent", "ask_user", "exit_plan"), "companions"),
}
"""Modules of tools that do not have one of their own."""
_PROMPTS = os.path.join(os.path.dirname(__file__), "prompts")  # noqa: PTH118, PTH120 - before the first request

_built: dict[str, Tool] = {}


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in tools. The seven keep their places: providers cache the list of tools."""
    prompts = {name.removesuffix(".md") for name in os.listdir(_PROMPTS)}  # noqa: PTH208 - before the first request
    # Any other prompt belongs to a tool that somebody has added.
    return (*_FIRST_TOOLS, *sorted(prompts.difference(_FIRST_TOOLS, COMPANION_NAMES, _MADE_FOR_ONE_RUN)))


def builtin_tools(names: Iterable[str] | None = None) -> dict[str, Tool]:
    """Return the built-in tools, or those of `names` that are built in. Tools have no state, so one
    of each serves every run."""
    chosen = None if names is None else frozenset(names)
    return {name: _tool(name) for name in builtin_names() if chosen is None or name in chosen}


def companion_tools() -> dict[str, Tool]:
    """Return the to-do list, background commands, questions to the parent or a person, and the end of plan mode."""
    return {name: _tool(name) for name in COMPANION_NAMES}


def _tool(name: str) -> Tool:
    if name not in _built:
        module = import_module(f"retinue.tools.{_MODULES.get(name, name)}")
        for value in vars(module).values():
            # Its own name, not an inherited one: a variant of a tool is built by those who choose it.
            if isinstance(value, type) and vars(value).get("name") == name:
                _built[name] = value()
    return _built[name]
