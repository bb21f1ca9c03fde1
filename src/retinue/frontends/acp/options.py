"""The choices of an editor's user for a session: permission mode, model, thinking level, main agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.app.models import THINKING_LEVELS, ModelView
from retinue.app.modes import BY_MODE, offered_modes
from retinue.core.spec import PermissionMode
from retinue.frontends.acp.rpc import INVALID_PARAMS, RpcError

DEFAULT = "default"
MAIN = "main"
_MODE_NAMES = {
    "default": "Ask before changes",
    "acceptEdits": "Accept edits",
    "plan": "Plan only",
    "dontAsk": "Never ask, deny",
    "auto": "A model approves",
    "bypassPermissions": "Ask nothing",
}


class SessionChoices:
    """The choices of one session. None means that files and settings decide."""

    def __init__(self, mode: PermissionMode) -> None:
        self._first_mode = mode
        self.mode = mode
        self.new_mode: PermissionMode | None = None
        """A chosen mode that no run has received yet."""
        self.model: str | None = None
        self.thinking: str | None = None
        self.agent: str | None = None
        self.models: Sequence[ModelView] = ()
        self.agents: Sequence[tuple[str, str]] = ()
        """Agents that can replace the main one, each with its description."""
        self.agent_is_fixed = False
        """A run exists, so its agent cannot change."""

    def modes(self) -> dict[str, Any]:
        """Return the modes as `modes` of a session."""
        offered = []
        for mode in self._offered():
            offered.append({"id": mode, "name": _MODE_NAMES[mode], "description": BY_MODE[mode].help})
        return {"currentModeId": self.mode, "availableModes": offered}

    def choose_mode(self, value: object) -> PermissionMode:
        """Choose a mode. Raise RpcError if it is not offered."""
        for mode in self._offered():
            if mode == value:
                self.mode = self.new_mode = mode
                return mode
        raise RpcError(INVALID_PARAMS, f"There is no mode {value!r}: {', '.join(self._offered())}.")

    def _offered(self) -> tuple[PermissionMode, ...]:
        return tuple(dict.fromkeys((*offered_modes(self._first_mode), self.mode)))

    def options(self) -> list[dict[str, Any]]:
        """Return all choices as `configOptions`."""
        modes = [(mode, _MODE_NAMES[mode], BY_MODE[mode].help) for mode in self._offered()]
        return [
            _select("mode", "Permissions", "mode", self.mode, modes),
            _select("model", "Model", "model", self._current_model(), self._model_values()),
            _select("thinking", "Thinking", "thought_level", self.thinking or DEFAULT, _thinking_values()),
            _select("agent", "Agent", None, self.agent or MAIN, self._agent_values()),
        ]

    def choose(self, option: object, value: object) -> None:
        """Choose a value of an option. Raise RpcError if it is not offered."""
        options = {entry["id"]: entry for entry in self.options()}
        if not isinstance(option, str) or option not in options:
            raise RpcError(INVALID_PARAMS, f"There is no option {option!r}: {', '.join(options)}.")
        offered = [entry["value"] for entry in options[option]["options"]]
        if value not in offered:
            raise RpcError(INVALID_PARAMS, f"{value!r} is not offered for '{option}'.")
        chosen = str(value)
        if option == "mode":
            self.choose_mode(chosen)
        elif option == "model":
            self.model = chosen if chosen != DEFAULT else None
        elif option == "thinking":
            self.thinking = chosen if chosen != DEFAULT else None
        elif self.agent_is_fixed and chosen != (self.agent or MAIN):
            raise RpcError(INVALID_PARAMS, "The agent of a conversation stays: choose it before the first prompt.")
        else:
            self.agent = chosen if chosen != MAIN else None

    def _current_model(self) -> str:
        if self.model is not None:
            return self.model
        return next((model.model for model in self.models if model.active), DEFAULT)

    def _model_values(self) -> list[tuple[str, str, str]]:
        values = []
        for model in self.models:
            values.append((model.model, model.name, f"{model.provider}, {model.window:,} tokens"))
        if self._current_model() not in {value for value, _, _ in values}:
            values.insert(0, (self._current_model(), self.model or "As the settings say", ""))
        return values

    def _agent_values(self) -> list[tuple[str, str, str]]:
        values = [(MAIN, "Main agent", "Works itself, and starts other agents")]
        values += [(name, name, description) for name, description in self.agents if name != MAIN]
        if self.agent is not None and self.agent not in {value for value, _, _ in values}:
            values.append((self.agent, self.agent, ""))
        return values


def _thinking_values() -> list[tuple[str, str, str]]:
    return [(DEFAULT, "As the model and the agent say", ""), *((level, level, "") for level in THINKING_LEVELS)]


def _select(
    option: str, name: str, category: str | None, current: str, values: Sequence[tuple[str, str, str]]
) -> dict[str, Any]:
    offered = []
    for value, title, description in values:
        entry = {"value": value, "name": title}
        if description:
            entry["description"] = description
        offered.append(entry)
    setting: dict[str, Any] = {"id": option, "name": name, "type": "select", "currentValue": current}
    setting["options"] = offered
    if category is not None:
        setting["category"] = category
    return setting
