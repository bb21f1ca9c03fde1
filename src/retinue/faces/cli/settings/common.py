"""What the settings commands share: how a value is shown, and how one is explained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError

if TYPE_CHECKING:
    from retinue.settings.load import Explanation, Loaded

_SECRET = ("apikey", "token", "secret", "password", "authorization")
HIDDEN = "[hidden]"


def shown(value: Any) -> str:
    """The value as a settings file would hold it, without keys someone wrote into one."""
    return "(not set)" if value is None else json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any, key: str = "") -> Any:
    """JSON for a value. What looks like a key or a token is hidden, unless it names a variable."""
    if isinstance(value, Mapping):
        return {name: plain(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, key) for each in value]
    is_secret = any(word in key.replace("-", "").lower() for word in _SECRET) and not key.endswith("Env")
    return HIDDEN if is_secret and isinstance(value, str) and value and not value.startswith("$") else value


def explained(loaded: Loaded, name: str) -> Explanation:
    from retinue.settings.suggest import nearest_name

    try:
        return loaded.explain(name)
    except KeyError:
        meant = nearest_name(name)
        hint = f" Did you mean {meant}?" if meant else ""
        raise UsageError(
            f"There is no setting '{name}'.{hint}", remedy="See all of them with: retinue settings list --all"
        ) from None


def data(found: Explanation) -> dict[str, Any]:
    """One setting as `--json` prints it; `layers` are all that say something, the winner last."""
    field = found.field
    return {
        "name": field.name,
        "value": plain(found.value),
        "default": plain(field.default),
        "origin": {"layer": found.origin.layer, "where": found.origin.where},
        "layers": [
            {"layer": origin.layer, "where": origin.where, "name": name, "value": plain(value)}
            for origin, name, value in found.layers
        ],
        "accepts": field.kind.accepts,
        "applies": field.applies,
        "section": field.section,
        "aliases": [alias.name for alias in field.aliases],
        "variables": list(field.variables),
        "doc": field.doc,
    }


def explanation(found: Explanation) -> str:
    """The same for people."""
    field = found.field
    lines = [
        f"{field.name} = {shown(found.value)}",
        f"  {field.doc}",
        f"  accepts   {field.kind.accepts}",
        f"  applies   {field.applies}",
        f"  default   {shown(field.default)}",
    ]
    for origin, name, value in reversed(found.layers):
        mark = "from" if origin == found.origin else "under"
        written = f" (as {name})" if name != field.name else ""
        lines.append(f"  {mark:<8}  {origin}{written}: {shown(value)}")
    if not found.layers:
        lines.append("  from      default")
    if field.variables:
        lines.append(f"  variable  {', '.join(field.variables)}")
    if field.aliases:
        lines.append(f"  aliases   {', '.join(alias.name for alias in field.aliases)}")
    return "\n".join(lines)
