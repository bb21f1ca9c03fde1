"""Settings of the sandbox: a part of the table in `table.py`."""

from __future__ import annotations

from typing import Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Choice, Either, Texts, Whole

_MEGABYTES = Whole(0, 10**9, zero_is_none=True)


# fmt: off
class SandboxSettings(Values):
    sandbox_mode: Literal["off", "readonly-only", "workspace"] = setting(
        "readonly-only", Choice("off", "readonly-only", "workspace"), name="sandbox.mode",
        section="sandbox", applies="next run",
        doc="What may run outside of the sandbox. `readonly-only`: commands that you, a rule or the mode allowed; "
        "those nobody was asked about, and those of read-only agents, run inside read-only walls. `workspace`: "
        "nothing; allowed commands change nothing outside their workspace. `off`: everything; then only plain commands "
        "that read run unasked, and read-only agents have no shell.",
    )
    sandbox_network: str | tuple[str, ...] = setting(
        "off", Either(Choice("off", "on"), Texts()), name="sandbox.network", section="sandbox", applies="next run",
        personal_when=lambda value: bool(value) and value != "off",
        doc="What sandboxed shells reach: nobody (off), everybody (on), or the listed hosts (`pypi.org`, "
        "`*.example.com`) through a proxy that lets only them pass. More than `off` counts only in your own settings.",
    )
    sandbox_hidden: tuple[str, ...] = setting(
        (), Texts(), name="sandbox.hidden", section="sandbox", applies="next run",
        doc="Files and folders that sandboxed shells cannot see, besides those where keys are usually kept.",
    )
    sandbox_shown: tuple[str, ...] = setting(
        (), Texts(), name="sandbox.shown", section="sandbox", applies="next run",
        personal_when=bool,
        doc="Folders outside of the workspace that commands nobody was asked about may read, besides the system and "
        "its tools. Counts only in your own settings.",
    )
    sandbox_pass_environment: tuple[str, ...] = setting(
        (), Texts(), name="sandbox.passEnvironment", section="sandbox", applies="next run",
        personal_when=bool,
        doc="Names of environment variables that shells and hooks get although they look like secrets or are keys of "
        "model servers. Counts only in your own settings.",
    )
    sandbox_processes: int | None = setting(
        512, Whole(0, 1_000_000, zero_is_none=True), name="sandbox.processes", section="sandbox", applies="next run",
        doc="How many processes one sandboxed command may have.",
    )
    sandbox_memory_mb: int | None = setting(
        8192, _MEGABYTES, name="sandbox.memoryMb", section="sandbox", applies="next run",
        doc="Megabytes of memory that one process of a sandboxed command may use.",
    )
    sandbox_cpu_seconds: int | None = setting(
        3600, Whole(0, 10**9, zero_is_none=True), name="sandbox.cpuSeconds", section="sandbox", applies="next run",
        doc="Seconds of processor time that one process of a sandboxed command may use.",
    )
    sandbox_file_mb: int | None = setting(
        4096, _MEGABYTES, name="sandbox.fileMb", section="sandbox", applies="next run",
        doc="The largest file, in megabytes, that a sandboxed command may write.",
    )
    sandbox_scratch_mb: int | None = setting(
        1024, _MEGABYTES, name="sandbox.scratchMb", section="sandbox", applies="next run",
        doc="Megabytes that the scratch folder ($TMPDIR) of one run may hold. A sandboxed command that writes more is "
        "stopped; later ones can only remove files until there is room.",
    )
# fmt: on
