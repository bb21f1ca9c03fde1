"""The base of built-in tools: reading of arguments, the spec with its prompt, and failures as results.

The loop has already converted a call to the tool's own form (`loop/arguments.py`). For calls by programs, `Arguments`
also accepts other names of a parameter. A value of the wrong type raises a `ToolError` that states what to send.
Outside this package the error is a failed result.

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
    """A call that cannot be executed. Its text tells the model what to do instead."""


def explain(error: OSError, what: str) -> str:
    """Return a sentence that `what` failed, with the reason in words instead of an errno."""
    reason = _OS_ERROR_REASONS.get(error.errno or 0, error.strerror or str(error))
    return f"{what}: {reason}."


PATH_NAMES = ("file_path", "filePath", "filepath", "file", "filename", "absolute_path", "target_file", "notebook_path")
FOLDER_NAMES = ("directory", "dir", "dir_path", "folder", "cwd", "root", *PATH_NAMES)


class Arguments:
    """The arguments of one call of `tool`. A value of None is treated as absent."""

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
        """Return a required string that is not empty."""
        value = self.optional_text(name, *others)
        if value is None:
            sent = ", ".join(f'"{key}"' for key in list(self._values)[:12]) or "no arguments"
            raise ToolError(f'{self._tool} needs "{name}": a string that is not empty. The call had {sent}.')
        return value

    def optional_text(self, name: str, *others: str) -> str | None:
        """Return a string, or None if it is absent or empty."""
        value = self.find(name, *others)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string", value)
        return value or None

    def whole_number(self, name: str, *others: str, least: int = 0) -> int | None:
        """Return a whole number that is at least `least`. 3.0 is accepted."""
        value = self.number(name, *others)
        if value is not None and (value != int(value) or value < least):
            raise self.wrong(name, f"a whole number of at least {least}", int(value) if value == int(value) else value)
        return None if value is None else int(value)

    def number(self, name: str, *others: str) -> float | None:
        value = self.find(name, *others)
        # Python treats True as a number, but a model does not mean one.
        if value is not None and (type(value) not in (int, float) or not isfinite(value)):
            raise self.wrong(name, "a number", value)
        return None if value is None else float(value)

    def flag(self, name: str, *others: str) -> bool:
        value = self.find(name, *others)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return bool(value)

    def choice(self, name: str, *others: str, allowed: Mapping[str, str], default: str) -> str:
        """Return one of the values of `allowed`, which maps every accepted spelling to its meaning."""
        word = (self.optional_text(name, *others) or "").strip().lower()
        if word and word not in allowed:
            raise self.wrong(name, "one of " + ", ".join(dict.fromkeys(allowed.values())), word)
        return allowed[word] if word else default

    def items(self, name: str) -> list[Any] | None:
        """Return a list. A single object is returned as a list with one entry."""
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
"""A parameter and its names in other systems. `edits.old_string` is a parameter inside `edits`."""


class BuiltinTool(ABC):
    """A subclass states its name and parameters, and does the work in `call`.

    `prompts/NAME.md` beside the subclass's module is the description the model sees. A `ToolError` or
    an `OSError` of the work becomes a failed result; every other exception is a defect.
    """

    name: ClassVar[str]
    properties: ClassVar[Properties]
    required: ClassVar[tuple[str, ...]]
    hidden: ClassVar[Properties] = {}
    """Parameters that are accepted but not shown to models, because few calls need them and every request would
    grow."""
    asked_for: ClassVar[tuple[str, ...] | None] = None
    """The parameters that are really required, if models are told of more."""
    aliases: ClassVar[Aliases] = {}
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    ignored: ClassVar[frozenset[str]] = frozenset()
    exclusive: ClassVar[bool] = False
    confinable: ClassVar[bool] = False
    effects: ClassVar[frozenset[EffectKind] | None] = None
    """The effects that the tool may have. None if `core.tool_names` has them, which knows them before the tool is
    loaded."""
    paths: ClassVar[tuple[str, ...] | None] = None
    """The parameters that are paths. None if `core.tool_names` has them."""

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
        """Return the effects that the tool may have."""
        return cls.effects if cls.effects is not None else TOOL_EFFECTS[cls.name]

    @classmethod
    def argument_aliases(cls, parameters: Mapping[str, Any]) -> ArgumentAliases:
        """Return the aliases that the tool accepts besides `parameters`, which are shown to models."""
        properties = {**cls.hidden, **parameters["properties"]}
        schema = {"required": [], **parameters, "properties": properties, "additionalProperties": False}
        if cls.asked_for is not None:
            schema["required"] = list(cls.asked_for)
        return ArgumentAliases(schema, names_of(cls.aliases), cls.words, cls.ignored, cls.rewrite)

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with forms of other systems converted to this tool's form."""
        return arguments

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except ToolError as error:
            return failed(str(error))
        # A missing file or a full disk is a result for the model, not a defect of the tool.
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
    """Return a mapping of each other name, as written and folded, to its parameter."""
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
"""Tools that need a value of their run, so the code that prepares the run builds them."""
_MODULES = {
    "ls": "find",
    "write": "edit",
    "bash_output": "bash",
    **dict.fromkeys(("todo", "ask_parent", "ask_user", "exit_plan"), "companions"),
}
"""Modules of tools that share a module."""
_PROMPTS = os.path.join(os.path.dirname(__file__), "prompts")  # noqa: PTH118, PTH120 - before the first request

_built: dict[str, Tool] = {}


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in tools. The first tools keep their positions, because providers cache the
    list."""
    prompts = {name.removesuffix(".md") for name in os.listdir(_PROMPTS)}  # noqa: PTH208 - before the first request
    # Any other prompt belongs to a tool that was added.
    return (*_FIRST_TOOLS, *sorted(prompts.difference(_FIRST_TOOLS, COMPANION_NAMES, _MADE_FOR_ONE_RUN)))


def builtin_tools(names: Iterable[str] | None = None) -> dict[str, Tool]:
    """Return the built-in tools, or those of `names` that are built in. Tools have no state, so one
    of each serves every run."""
    chosen = None if names is None else frozenset(names)
    return {name: _tool(name) for name in builtin_names() if chosen is None or name in chosen}


def companion_tools() -> dict[str, Tool]:
    """Return the tools for the to-do list, background commands, questions to the parent or a person, and the end of
    plan mode."""
    return {name: _tool(name) for name in COMPANION_NAMES}


def _tool(name: str) -> Tool:
    if name not in _built:
        module = import_module(f"retinue.tools.{_MODULES.get(name, name)}")
        for value in vars(module).values():
            # Only classes that define the name: code that chooses a variant of a tool builds it itself.
            if isinstance(value, type) and vars(value).get("name") == name:
                _built[name] = value()
    return _built[name]
