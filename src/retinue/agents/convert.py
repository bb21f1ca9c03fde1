"""An agent in another dialect, with an account of what that dialect cannot express.

The account is not a list of rules: the result is read again by the real reader, and every field
that comes back different is a loss. No conversion and no automatic repair adds rights (`adds_rights`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.dialects.table import Dialect
from retinue.agents.dialects.tables import DIALECTS, in_dialect
from retinue.agents.dialects.tools import NOT_TOOLS, is_servers
from retinue.agents.folders import by_place
from retinue.agents.frontmatter import Parsed, place_of
from retinue.agents.parse import parse
from retinue.agents.write import encode, file_name, rows, statements, value_of, write_agent
from retinue.core.spec import AgentSpec, DialectName, HookSpec, PermissionMode, ServerRef, Source, ToolPolicy
from retinue.core.tool_names import base_name, canonical
from retinue.errors import DefinitionError

_LICENCE: dict[PermissionMode | None, int] = {
    "plan": 0,
    "dontAsk": 1,
    "default": 1,
    None: 2,
    "acceptEdits": 3,
    "auto": 4,
    "bypassPermissions": 5,
}
"""How freely a mode lets a run act. None inherits, so a stricter mode is a loss of rights and a freer one a gain."""

Choice = bool | tuple[str, ...] | None


def adds_rights(old: AgentSpec, new: AgentSpec) -> bool:
    """Return whether `new` may do anything that `old` may not. In doubt the answer is True."""
    return (
        _more_tools(old.tools, new.tools)
        or _LICENCE[new.permission_mode] > _LICENCE[old.permission_mode]
        or (bool(old.readonly) and not new.readonly)
        or (old.isolated is True and new.isolated is not True)
        or (old.isolation == "worktree" and new.isolation != "worktree")
        or (new.inherit_context is True and old.inherit_context is not True)
        or (new.memory is not None and new.memory != old.memory)
        or any(server not in (old.servers or ()) for server in new.servers or ())
        or any(hook not in old.hooks or hook not in new.hooks for hook in (*old.hooks, *new.hooks))
        or _wider(old.subagents, new.subagents, unsaid=None)
        or _wider(old.skills, new.skills)
        or not _limit_holds(old.max_turns, new.max_turns)
        or not _limit_holds(old.timeout_seconds, new.timeout_seconds)
        or (old.budget is not None and (new.budget is None or old.budget.within(new.budget) != new.budget))
        or (new.enabled and not old.enabled)
        or (old.refusal is not None and new.refusal is None)
        or old.tools.rules != new.tools.rules
        or (old.output_schema is not None and old.output_schema != new.output_schema)
    )


def _more_tools(old: ToolPolicy, new: ToolPolicy) -> bool:
    if old.allow is not None and (new.allow is None or not set(new.allow) <= set(old.allow)):
        return True
    if old.selectors and (not new.selectors or not set(new.selectors) <= set(old.selectors)):
        return True
    if old.allow is not None and not old.selectors and new.selectors:
        return True
    return (
        not set(old.deny) <= set(new.deny)
        or not set(old.exclude_extensions) <= set(new.exclude_extensions)
        or _wider(old.extensions, new.extensions)
    )


def _wider(old: Choice, new: Choice, unsaid: Choice = True) -> bool:
    # `unsaid` is what None means: everything, or (None itself) something that cannot be known here, so that any
    # step away from it or back to it counts.
    if new == old or new is False or new == ():
        return False
    had = unsaid if old is None else old
    gets = unsaid if new is None else new
    if had is True:
        return gets is None
    if isinstance(had, tuple) and isinstance(gets, tuple):
        return not set(gets) <= set(had)
    return True


def _limit_holds(old: float | None, new: float | None) -> bool:
    # 0 is "explicitly unlimited"; None inherits a limit, so it may become a number.
    if new == old:
        return True
    if new is None or new == 0:
        return False
    return not old or new <= old


IGNORED_FIELDS = frozenset({"source", "path", "dialect", "fates", "problems", "hash"})
_NESTED_FIELDS = ("tools", "model", "session")


def differences(old: AgentSpec, new: AgentSpec) -> tuple[str, ...]:
    """Return the fields that differ, dotted for parts of tools, model and session."""
    fields: list[str] = []
    for name in AgentSpec.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if name in IGNORED_FIELDS or before == after:
            continue
        if name not in _NESTED_FIELDS:
            fields.append(name)
            continue
        for member in before.__struct_fields__:
            if getattr(before, member) != getattr(after, member):
                fields.append(f"{name}.{member}")
    return tuple(fields)


def reread(before: Parsed, data: bytes) -> Parsed:
    """Return what the file `before` was read from would mean with this content instead."""
    source: Source = "project" if before.spec is None else before.spec.source
    dialect = before.dialect if by_place(before.file) is None else None
    return parse(data, path=before.file, dialect=dialect, source=source)


def why_none(parsed: Parsed, otherwise: str) -> str:
    """Return why a file is no agent; `otherwise` if its reader has no reason."""
    return otherwise if parsed.error is None else parsed.error.message


LossKind = Literal["lost", "renamed", "added", "ignored-there", "unknown"]
"""lost: not in the result. renamed: there under another name, so the way back differs.
added: written out, since a file that leaves it out would mean more in that dialect.
ignored-there: written and honoured by Retinue, but not by the dialect's own program.
unknown: a name that could not be translated, since nobody knows what it means."""


class Loss(Struct, frozen=True):
    """`field` is the field of the spec (or `extra.KEY`), `what` its value in words."""

    field: str
    what: str
    why: str
    kind: LossKind = "lost"


class Conversion(Struct, frozen=True):
    name: str
    text: str
    file_name: str
    dialect: DialectName
    losses: tuple[Loss, ...] = ()


def convert(parsed: Parsed, to: DialectName) -> Conversion:
    """Raise DefinitionError for a file that is no agent, UsageError for a dialect that cannot
    be written."""
    if parsed.spec is None:
        reason = why_none(parsed, "It cannot be read.")
        raise DefinitionError(f"{parsed.file} is no agent: {reason}", remedy="Repair it first: retinue agents lint")
    refusal = parsed.spec.refusal
    if refusal is not None:
        raise DefinitionError(f"{place_of(parsed.file, refusal)}: {refusal.message}", remedy=refusal.remedy)
    table = DIALECTS[to]
    losses: list[Loss] = []
    spec = parsed.spec
    if to != parsed.dialect:
        spec = _fit_name(spec, table, losses)
        spec = _drop_unfit_fields(spec, table, losses)
        spec = _add_servers(spec, parsed.dialect, table, losses)
    spec = _rename_tools(spec, parsed.dialect, to, losses)
    spec = _drop_live_extras(spec, table, losses)
    text = write_agent(spec, to)
    # Kimi's files name the file of their prompt instead of holding it.
    if not parsed.spec.prompt:
        for key in ("system_prompt_path", "systemPromptPath"):
            if key in parsed.spec.extra:
                what = describe(parsed.spec.extra[key])
                losses.append(Loss("prompt", what, "the prompt is in that file, which is not read"))
    losses += _find_losses(spec, _read(spec, text, to), table)
    if to != parsed.dialect:
        losses += _find_ignored(spec, table)
        losses += _find_unknown_tools(parsed.spec)
    return Conversion(spec.name, text, file_name(spec.name, to), to, tuple(losses))


def _read(spec: AgentSpec, text: str, to: DialectName) -> AgentSpec:
    again = parse(text.encode("utf-8", "replace"), path=f"agents/{file_name(spec.name, to)}", dialect=to)
    if again.spec is None:
        reason = why_none(again, "It cannot be read back.")
        raise DefinitionError(f"'{spec.name}' cannot be written for {DIALECTS[to].title}: {reason}")
    return again.spec


def _fit_name(spec: AgentSpec, table: Dialect, losses: list[Loss]) -> AgentSpec:
    name = spec.name
    for mark in table.forbidden_in_name:
        name = name.replace(mark, "-")
    if table.name == "claude":
        name = name.lstrip("-") or "agent"
    if name != spec.name:
        losses.append(
            Loss("name", spec.name, f"{table.title} does not allow this name; written as '{name}'", "renamed")
        )
    return replace(spec, name=name)


def _add_servers(spec: AgentSpec, origin: DialectName, table: Dialect, losses: list[Loss]) -> AgentSpec:
    """Return the spec with the servers that a profile of CodingCode has: none, written out."""
    # Elsewhere a file that names no servers has all of them, so leaving the key out would add rights.
    if origin != "codingcode" or spec.servers is not None or spec.tools.allow is not None:
        return spec
    if any(field.to == "servers" for field in table.fields):
        why = f"in {table.title} a file that names no servers has all of them"
        losses.append(Loss("servers", "none", why, "added"))
    return replace(spec, servers=())


def _rename_tools(spec: AgentSpec, origin: DialectName, to: DialectName, losses: list[Loss]) -> AgentSpec:
    def rename(names: tuple[str, ...], field: str) -> tuple[str, ...]:
        renamed: dict[str, None] = {}
        for name in names:
            new = in_dialect(name, to)
            renamed.update(dict.fromkeys(new))
            back = [old for tool in new for old in in_dialect(tool, origin)]
            if back != [name]:
                why = f"written as {', '.join(new)}; converting back would give {', '.join(back)}"
                losses.append(Loss(field, name, why, "renamed"))
        return tuple(renamed)

    tools = spec.tools
    allow = None if tools.allow is None else rename(tools.allow, "tools.allow")
    return replace(spec, tools=replace(tools, allow=allow, deny=rename(tools.deny, "tools.deny")))


def _find_unknown_tools(spec: AgentSpec) -> Iterator[Loss]:
    """Yield names of tools that are in the result as they were, since there is no such tool."""
    for field, names in (("tools.allow", spec.tools.allow or ()), ("tools.deny", spec.tools.deny)):
        for name in names:
            base = base_name(name)
            of_server = is_servers(name) or (spec.dialect == "opencode" and "_" in base) or ":" in base
            if canonical(name) or of_server or base in NOT_TOOLS:
                continue
            yield Loss(field, name, "there is no tool of this name; it is written as it stands", "unknown")


def _drop_unfit_fields(spec: AgentSpec, table: Dialect, losses: list[Loss]) -> AgentSpec:
    """Return the spec without what would only confuse the dialect's own program."""
    # That is a list of models where it takes one, and other dialects' keys that do not limit.
    if spec.model.fallbacks and table.one_model:
        what = ", ".join(spec.model.fallbacks)
        losses.append(Loss("model.fallbacks", what, f"{table.title} takes one model"))
        spec = replace(spec, model=replace(spec.model, fallbacks=()))
    own = {row.to for row in table.fields}
    for field in ("readonly", "max_turns", "isolation", "subagents"):
        value = value_of(spec, field)
        if field not in own and value is not None and not _limits(field, value):
            losses.append(Loss(field, describe(value), f"{table.title} has no key for it"))
            unsaid: dict[str, Any] = {field: None}
            spec = replace(spec, **unsaid)
    return spec


def _limits(field: str, value: object) -> bool:
    if field == "subagents":
        return value is False or isinstance(value, tuple)
    if field == "isolation":
        return value == "worktree"
    return bool(value)


def _drop_live_extras(spec: AgentSpec, table: Dialect, losses: list[Loss]) -> AgentSpec:
    """Return the spec without unused keys that would begin to add rights."""
    # Another dialect may know the key, or a plugin's file, where it is ignored, becomes the project's.
    live = []
    for key in sorted(spec.extra):
        match = table.match(key)
        if match is not None and match.field.to is not None:
            live.append(key)
    if not live:
        return spec
    inert = replace(spec, extra={key: value for key, value in spec.extra.items() if key not in live})
    without = _read(inert, write_agent(inert, table.name), table.name)
    with_them = _read(spec, write_agent(spec, table.name), table.name)
    if not adds_rights(without, with_them):
        return spec
    why = f"it had no effect, and would have one in a file of {table.title}"
    for key in live:
        losses.append(Loss(f"extra.{key}", describe(spec.extra[key]), why))
    return inert


def _find_losses(spec: AgentSpec, result: AgentSpec, table: Dialect) -> Iterator[Loss]:
    for field in differences(spec, result):
        if field == "extra":
            for key, value in spec.extra.items():
                if key not in result.extra:
                    why = f"{table.title} reads it as something else"
                    yield Loss(f"extra.{key}", describe(value), why, "renamed")
            continue
        now = value_of(result, field)
        has_key = any(row.to == field for row in rows(table))
        why = f"{table.title} cannot say this value" if has_key else f"{table.title} has no key for it"
        if now not in (None, (), "", True, False):
            why = f"{why}; it becomes {describe(now)}"
        yield Loss(field, describe(value_of(spec, field)), why)


def _find_ignored(spec: AgentSpec, table: Dialect) -> Iterator[Loss]:
    """Yield what is written for Retinue alone."""
    written = statements(spec, table.name)
    own = {row.to for row in table.fields}
    for row in table.foreign:
        if row.key in written and row.to not in own:
            value = encode(spec, row, table.name)
            why = f"written as '{row.key}', which Retinue honours and {table.title} itself ignores"
            yield Loss(row.to or row.key, describe(value), why, "ignored-there")
    if table.refuses_unknown_keys:
        for key in spec.extra:
            yield Loss(f"extra.{key}", key, f"{table.title} itself refuses files with unknown keys", "ignored-there")
    if table.simple and any(isinstance(value, str) and "\n" in value for value in written.values()):
        yield Loss("description", "several lines", f"{table.title} itself reads one line for each key", "ignored-there")


def describe(value: object) -> str:
    """Return the value for a sentence: short, on one line."""
    if isinstance(value, tuple):
        value = ", ".join(map(_label, value)) or "none"
    elif isinstance(value, bool):
        value = "true" if value else "false"
    text = " ".join(str(value).split())
    return f"{text[:77]}…" if len(text) > 78 else text


def _label(item: object) -> str:
    if isinstance(item, HookSpec):
        return f"{item.event} hook"
    return item.name if isinstance(item, ServerRef) else str(item)
