"""Which dialect a file is written in: by where it lies, and by its keys where that is not enough.

    .retinue/agents    retinue        .opencode/agent(s)   opencode
    .claude/agents     claude         .gemini/agents       gemini
    .codingcode/agents codingcode     *.agent.md, .github  copilot
    .cursor/agents     cursor         *.yaml, *.yml        kimi
    .pi/agents, .agents/agents, ~/.pi/agent/agents         pi, or devkit by its keys
    .agents, *.markdown                                    devkit

The last such folder in the path counts. Anywhere else the keys decide, and without any sign a
file is taken for Claude Code's, by far the most common.
"""

from __future__ import annotations

from collections.abc import Collection

from retinue.core.spec import DialectName

_HOMES: dict[tuple[str, str], DialectName] = {
    (".retinue", "agents"): "retinue",
    (".claude", "agents"): "claude",
    (".claude-plugin", "agents"): "claude",
    (".pi", "agents"): "pi",
    (".agents", "agents"): "pi",
    (".pi", "agent"): "pi",
    (".codingcode", "agents"): "codingcode",
    (".opencode", "agent"): "opencode",
    (".opencode", "agents"): "opencode",
    ("opencode", "agent"): "opencode",
    ("opencode", "agents"): "opencode",
    (".gemini", "agents"): "gemini",
    (".github", "agents"): "copilot",
    (".cursor", "agents"): "cursor",
    **{(f".{tool}", "agents"): "generic" for tool in ("agy", "ai", "kiro", "kilo", "qwen", "junie", "continue")},
}

_SIGNS: tuple[tuple[DialectName, frozenset[str]], ...] = (
    ("codingcode", frozenset({"maxSteps"})),
    ("opencode", frozenset({"permission", "permissions"})),
    ("gemini", frozenset({"timeout_mins", "mcp_servers"})),
    ("copilot", frozenset({"mcp-servers", "handoffs"})),
    ("cursor", frozenset({"is_background"})),
    (
        "pi",
        frozenset(
            {
                "prompt_mode",
                "systemPromptMode",
                "inherit_context",
                "inheritProjectContext",
                "inheritSkills",
                "run_in_background",
                "display_name",
                "exclude_extensions",
                "allowed_subagents",
            }
        ),
    ),
    ("claude", frozenset({"disallowedTools", "permissionMode", "maxTurns", "effort", "mcpServers", "color"})),
)

_DEVKIT = frozenset({"name", "description", "readonly", "tools", "model"})


def guess_dialect(path: str, keys: Collection[str] | None = None) -> DialectName:
    """`keys` are those of the frontmatter, where it has been read."""
    return refine(by_place(path), keys or ())


def refine(home: DialectName | None, keys: Collection[str]) -> DialectName:
    """The dialect of a file with these keys in a place that belongs to `home`, or to no dialect.
    pi and devkit-pi share their folders; in every other place the place alone decides."""
    if home is None:
        return _by_keys(keys)
    return "devkit" if home == "pi" and _devkit_shaped(keys) else home


def by_place(path: str) -> DialectName | None:
    """What the path alone says; None where it says nothing."""
    parts = path.replace("\\", "/").split("/")
    name = parts[-1].lower()
    if name.endswith((".yaml", ".yml")):
        return "kimi"
    if name.endswith(".agent.md"):
        return "copilot"
    if name.endswith(".markdown"):
        return "devkit"
    for index in range(len(parts) - 2, 0, -1):
        home = _HOMES.get((parts[index - 1], parts[index]))
        if home is not None:
            return home
    return "devkit" if parts[-2:-1] == [".agents"] else None


def _by_keys(keys: Collection[str]) -> DialectName:
    for dialect, signs in _SIGNS:
        if not signs.isdisjoint(keys):
            return dialect
    return "devkit" if _devkit_shaped(keys) else "claude"


def _devkit_shaped(keys: Collection[str]) -> bool:
    """A name, a readonly key, and nothing beyond devkit-pi's five keys."""
    return "readonly" in keys and "name" in keys and _DEVKIT.issuperset(keys)
