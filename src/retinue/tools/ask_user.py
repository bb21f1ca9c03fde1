"""ask_user: a question of the main agent to the person it works with."""

from __future__ import annotations

from typing import Any, ClassVar

from retinue.tools.ask_parent import AskParentTool
from retinue.tools.base import Aliases


class AskUserTool(AskParentTool):
    name = "ask_user"
    aliases: ClassVar[Aliases] = {**AskParentTool.aliases, "options": ("choices", "answers")}
    ignored = frozenset({"header", "multiSelect", "allowMultiple"})

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Claude Code sends a list of questions, and options with a label and a description."""
        questions = arguments.pop("questions", None)
        if isinstance(questions, list) and len(questions) == 1 and isinstance(questions[0], dict):
            arguments = {**questions[0], **arguments}
        elif isinstance(questions, list) and questions:
            asked = [each.get("question", "") if isinstance(each, dict) else str(each) for each in questions]
            arguments.setdefault("question", "\n".join(f"{n}. {text}" for n, text in enumerate(asked, 1)))
        options = arguments.get("options")
        if isinstance(options, list):
            arguments["options"] = [each.get("label", "") if isinstance(each, dict) else each for each in options]
        return arguments
