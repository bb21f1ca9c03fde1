"""The built-in tools by name, and what they share: a spec with its prompt beside it, and failure as a result.

A tool is two files: `tools/NAME.py` with a subclass of `BuiltinTool` whose `name` is NAME, and
`tools/prompts/NAME.md`, the description that models see. Importing this module loads no tool; a tool is loaded when it
is built.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from retinue.core.permission import EffectKind
from retinue.core.tool import Spellings, Tool, ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.toolnames import TOOLS, fold_name
from retinue.tools.arguments import Arguments, ToolError, explain

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
    """The most it may do. None where `core.toolnames` says it, which knows it before the tool is loaded."""

    def __init__(self) -> None:
        parameters = parameters_of(self.properties, self.required)
        self.spec = ToolSpec(
            name=self.name,
            description=read_prompt(type(self), self.name),
            parameters=parameters,
            effects=self.declared_effects(),
            exclusive=self.exclusive,
            confinable=self.confinable,
            spellings=self.spellings(parameters),
        )

    @classmethod
    def declared_effects(cls) -> frozenset[EffectKind]:
        """Return the most the tool may do."""
        return cls.effects if cls.effects is not None else TOOLS[cls.name]

    @classmethod
    def spellings(cls, parameters: Mapping[str, Any]) -> Spellings:
        """Return what the tool accepts besides `parameters`, which are shown to models."""
        properties = {**cls.hidden, **parameters["properties"]}
        schema = {"required": [], **parameters, "properties": properties, "additionalProperties": False}
        if cls.asked_for is not None:
            schema["required"] = list(cls.asked_for)
        return Spellings(schema, names_of(cls.aliases), cls.words, cls.ignored, cls.rewrite)

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
    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput: ...


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
    found: dict[str, str] = {}
    for parameter, others in aliases.items():
        before = parameter[: parameter.rfind(".") + 1]
        for other in others:
            found.setdefault(before + other, parameter)
            found.setdefault(before + fold_name(other), parameter)
    return found


_SEVEN = ("read", "write", "edit", "bash", "grep", "find", "ls")
COMPANION_NAMES = ("todo", "bash_output", "ask_parent", "ask_user", "exit_plan")
"""Tools that affect only the run itself and the runs above it."""
_MADE_FOR_ONE_RUN = ("apply_patch", "tool_search")
"""Tools that need something of their run; the code that prepares the run builds them."""
_MODULES = {"ls": "find", **dict.fromkeys(("ask_parent", "ask_user", "exit_plan"), "questions")}
"""Modules of tools that do not have one of their own."""
_PROMPTS = os.path.join(os.path.dirname(__file__), "prompts")  # noqa: PTH118, PTH120 - before the first request

_built: dict[str, Tool] = {}


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in tools. The seven keep their places: providers cache the list of tools."""
    known = {*_SEVEN, *COMPANION_NAMES, *_MADE_FOR_ONE_RUN}
    # Any other prompt belongs to a tool that somebody has added.
    prompts = {name.removesuffix(".md") for name in os.listdir(_PROMPTS)}  # noqa: PTH208 - before the first request
    return (*_SEVEN, *sorted(prompts - known))


def builtin_tools(names: Iterable[str] | None = None) -> dict[str, Tool]:
    """Return the built-in tools, or those of `names` that are built in. Tools have no state, so one
    of each serves every run."""
    wanted = builtin_names()
    if names is not None:
        asked = set(names)
        wanted = tuple(filter(asked.__contains__, wanted))
    return {name: _tool(name) for name in wanted}


def companion_tools() -> dict[str, Tool]:
    """Return the to-do list, background commands, questions to the parent or a person, and the end of plan mode."""
    return {name: _tool(name) for name in COMPANION_NAMES}


def _tool(name: str) -> Tool:
    if name not in _built:
        module = import_module(f"retinue.tools.{_MODULES.get(name, name)}")
        for made in vars(module).values():
            # Its own name, not an inherited one: a variant of a tool is built by those who choose it.
            if isinstance(made, type) and vars(made).get("name") == name:
                _built[name] = made()
    return _built[name]
