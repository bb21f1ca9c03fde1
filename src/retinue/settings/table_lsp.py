"""The settings of language servers and of converting documents: a part of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from retinue.settings.field import Alias, Values, setting
from retinue.settings.kinds import Anything, Choice, Flag, Items, Number, Record, Table, Text, Texts, Whole

_DAY = 86_400
_MS = Whole(1, _DAY * 1000)
_SERVER = Record(
    command=Items(Text("a program or an argument")),
    languages=Table(Text("a language id"), "endings of file names"),
    rootMarkers=Texts(),
    initializationOptions=Table(Anything(), "names"),
    settings=Table(Anything(), "sections"),
    env=Table(Text(), "variable names"),
    disabled=Flag(),
)


def _seconds(milliseconds: Any) -> Any:
    return milliseconds / 1000


def _after_edit(enabled: Any) -> Any:
    return "main" if enabled else "off"


# fmt: off
class EyesSettings(Values):
    lsp_servers: Mapping[str, Mapping[str, Any]] = setting(
        {}, Table(_SERVER, "server names"), name="lsp.servers", section="language servers", applies="next session",
        merges=True,
        doc="Language servers by name, over the known ones or besides them: command (a list), languages (file ending "
        "to language id), rootMarkers, initializationOptions, settings, env, disabled. In a project's files they "
        "need your consent: retinue trust.",
    )
    lsp_timeout_seconds: float = setting(
        30.0, Number(0.1, 3_600, unit="seconds"), name="lsp.timeoutSeconds", section="language servers",
        applies="next session", doc="How long a language server may take to answer.",
    )
    lsp_start_timeout_seconds: float = setting(
        30.0, Number(0.1, 3_600, unit="seconds"), name="lsp.startTimeoutSeconds", section="language servers",
        applies="next session", doc="How long a language server may take to start.",
    )
    lsp_idle_seconds: float = setting(
        300.0, Number(0, _DAY, unit="seconds"), name="lsp.idleSeconds", section="language servers",
        applies="next session", doc="A language server that nobody has asked for this long is ended.",
    )
    lsp_sandbox: Literal["on", "off"] = setting(
        "on", Choice("on", "off"), name="lsp.sandbox", section="language servers", applies="next session",
        personal_when="off".__eq__,
        doc="Start language servers in a sandbox where they can change nothing and reach nobody. `off` counts only in "
        "your own settings. Without a sandbox, servers that run a project's own programs are started only with `off`.",
    )
    lsp_allow_mutating_actions: bool = setting(
        False, Flag(), name="lsp.allowMutatingActions", section="language servers", applies="next session",
        aliases=("lsp.tool.allowMutatingActions",),
        doc="Let agents that no other agent started propose renames and code actions and restart language servers.",
    )
    lsp_diagnostics_after_edit: Literal["off", "main", "all"] = setting(
        "main", Choice("off", "main", "all"), name="lsp.diagnosticsAfterEdit", section="language servers",
        applies="next run", aliases=(Alias("lsp.hook.enabled", _after_edit, Flag()),),
        doc="Whose edits are followed by what language servers find wrong with the file: nobody's, those of agents "
        "that no other agent started, or those of all agents that may ask language servers.",
    )
    lsp_diagnostics_seconds: float = setting(
        2.0, Number(0.1, 60, unit="seconds"), name="lsp.diagnosticsSeconds", section="language servers",
        applies="next run", doc="How long the result of an edit waits for them at most.",
    )

    convert_enabled: bool = setting(
        True, Flag(), name="convert.enabled", section="documents", applies="next session",
        aliases=("convertContent.enabled",), doc="Offer the tool that turns documents into Markdown.",
    )
    convert_timeout_seconds: float = setting(
        30.0, Number(0.1, 3_600, unit="seconds"), name="convert.timeoutSeconds", section="documents",
        applies="next session", aliases=(Alias("convertContent.timeoutMs", _seconds, _MS),),
        doc="How long converting one document may take.",
    )
    convert_max_file_bytes: int = setting(
        10_485_760, Whole(1, 2**31), name="convert.maxFileBytes", section="documents", applies="next session",
        aliases=("convertContent.maxFileBytes",), doc="The largest document that is converted.",
    )
    convert_max_content_chars: int = setting(
        50_000, Whole(100, 10_000_000), name="convert.maxContentChars", section="documents", applies="next session",
        aliases=("convertContent.maxContentChars",), doc="How much text of a document a model gets at once.",
    )
    convert_memory_mb: int = setting(
        2048, Whole(256, 1_000_000), name="convert.memoryMb", section="documents", applies="next session",
        doc="Megabytes of memory that converting one document may use.",
    )
# fmt: on
