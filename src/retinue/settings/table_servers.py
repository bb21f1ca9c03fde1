"""The settings of MCP servers and of tools that are loaded on demand: a part of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Anything, Choice, Flag, Number, Table, Whole

_DAY = 86_400


# fmt: off
class ServerSettings(Values):
    mcp_servers: Mapping[str, Any] = setting(
        {}, Table(Anything(), "server names"), section="servers", applies="next run", merges=True,
        aliases=("mcp_servers",),
        doc="MCP servers by name: command, args, env and cwd for a program, or url and headers (type: http or sse); "
        "also timeout, concurrency, autoReconnect, disabled and, in your own settings only, trustAnnotations. "
        "${VAR} and ${VAR:-default} are filled in.",
    )
    mcp_start_timeout_seconds: float = setting(
        10.0, Number(0.1, 600, unit="seconds"), name="mcp.startTimeoutSeconds", section="servers", applies="next run",
        doc="How long a launch waits for the servers of its agent; three times as long for required ones. Tools of a "
        "server that is ready later are admitted then.",
    )
    mcp_call_timeout_seconds: float = setting(
        300.0, Number(0.1, _DAY, unit="seconds"), name="mcp.callTimeoutSeconds", section="servers", applies="next run",
        doc="How long a call of a server's tool may go without an answer or a word of progress.",
    )
    mcp_linger_seconds: float = setting(
        30.0, Number(0, _DAY, unit="seconds"), name="mcp.lingerSeconds", section="servers", applies="next run",
        doc="How long a server is kept after the last run that may use it has ended.",
    )
    mcp_output_characters: int = setting(
        50_000, Whole(1_000, 10_000_000), name="mcp.outputCharacters", section="servers", applies="next run",
        doc="How much text of one result of a server's tool a model gets; the rest is kept in a file.",
    )
    mcp_claude_servers: bool = setting(
        True, Flag(), name="mcp.claudeServers", section="servers", applies="next run",
        doc="Use the servers of your ~/.claude.json, too.",
    )
    tool_search_mode: Literal["auto", "always", "never"] = setting(
        "auto", Choice("auto", "always", "never"), name="toolSearch.mode", section="servers", applies="next run",
        doc="Whether tools of servers are told to the model by name only, and loaded when it searches for them.",
    )
    tool_search_threshold: int | None = setting(
        40, Whole(0, 100_000, zero_is_none=True), name="toolSearch.threshold", section="servers", applies="next run",
        doc="More tools of servers than this are loaded by search.",
    )
    tool_search_share: float | None = setting(
        0.1, Number(0, 1, zero_is_none=True), name="toolSearch.share", section="servers", applies="next run",
        doc="Tools of servers that take more than this share of the model's window are loaded by search.",
    )
# fmt: on
