"""Every exception that crosses a border of Retinue, as one tree.

    RetinueError                     base: a stable `code`, a message, a `remedy`
    ├── UsageError                   the caller asked for something impossible      exit 2
    │   ├── UnknownAgentError        no agent of that name is visible
    │   ├── UnknownModelError        no model matches that name
    │   ├── UnknownRunError          no run of that id is in the log
    │   ├── UnknownItemError         nothing of that id is in the inbox
    │   └── UnknownJobError          no schedule of that id or name is here
    ├── ConfigurationError           a file or variable of the user's is wrong      exit 2
    │   ├── DefinitionError          an agent file cannot be used
    │   └── MissingExtraError        an optional part is not installed
    ├── StateError                   the log or the state folder cannot be used     exit 1
    ├── AnsweredError                someone else has answered already              exit 1
    └── LaunchError                  a run could not be started                     exit 1
        ├── DisabledAgentError       the agent is switched off
        ├── RefusedAgentError        a key that restricts the agent cannot be used  exit 2
        ├── OverBudgetError          nothing is left to start an agent with
        ├── SpawnDeniedError         a hook does not let the agent start
        └── PromptBlockedError       a hook or a rule does not let the prompt through

Inside the loop failure is data (`retinue.core.outcome.Failure`), never an exception.
"""

from __future__ import annotations


class RetinueError(Exception):
    """Base of the tree. `code` is stable; `remedy` says what to do next."""

    code = "RETINUE_ERROR"
    exit_code = 1
    run_id: str | None = None
    """The run that it interrupted, and that can be resumed."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip() if self.remedy else self.message


class UsageError(RetinueError):
    code = "USAGE"
    exit_code = 2


class UnknownAgentError(UsageError):
    code = "UNKNOWN_AGENT"


class UnknownModelError(UsageError):
    code = "UNKNOWN_MODEL"


class UnknownRunError(UsageError):
    code = "UNKNOWN_RUN"


class UnknownItemError(UsageError):
    code = "UNKNOWN_ITEM"


class UnknownJobError(UsageError):
    code = "UNKNOWN_JOB"


class ConfigurationError(RetinueError):
    code = "CONFIGURATION"
    exit_code = 2


class DefinitionError(ConfigurationError):
    code = "BAD_DEFINITION"


class MissingExtraError(ConfigurationError):
    """An optional part is needed. `extra` names it, so the remedy is one command."""

    code = "MISSING_EXTRA"

    def __init__(self, extra: str, what: str) -> None:
        from retinue.core.install import install_command

        super().__init__(
            f"{what} needs the optional part '{extra}', which is not installed.",
            remedy=f"Install it with: {install_command(extra)}",
        )
        self.extra = extra


class StateError(RetinueError):
    code = "STATE"


class AnsweredError(RetinueError):
    code = "ALREADY_ANSWERED"


class LaunchError(RetinueError):
    code = "LAUNCH"


class DisabledAgentError(LaunchError):
    code = "AGENT_DISABLED"


class RefusedAgentError(LaunchError):
    code = "INVALID_INPUT"
    exit_code = 2


class OverBudgetError(LaunchError):
    code = "BUDGET"


class SpawnDeniedError(LaunchError):
    code = "TOOL_NOT_ALLOWED"


class PromptBlockedError(LaunchError):
    code = "PROMPT_BLOCKED"
