"""Scripted runs whose events, requests and listings are frozen under `captures/`.

A scene is a small project, a model that answers by script and the command lines a user would type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.program.model_server import Reply, Request

STREAM = ("--output-format", "stream-json")
LINES = ("--mode", "json")


@dataclass(frozen=True)
class Scene:
    """One scripted run: the files of its project, the model's script, the command line.

    `script` maps the name of an agent (found in its system prompt) to its replies in order; `git` makes the project a
    repository; `after` are further command lines, run when the first one has ended.
    """

    name: str
    command: tuple[str, ...]
    script: dict[str, list[Reply]]
    files: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    mode: str = "bypassPermissions"
    git: bool = False
    after: tuple[tuple[str, ...], ...] = ()

    def answer(self, request: Request) -> Reply:
        system = "".join(block["text"] for block in request.body.get("system", []))
        for marker, replies in self.script.items():
            if marker in system:
                return replies[min(request.turn, len(replies) - 1)]
        return Reply(text="I have no script for this agent.")


def call(tool: str, /, **arguments: Any) -> Reply:
    return Reply(calls=[(tool, arguments)])


def agent(name: str, *lines: str) -> dict[str, str]:
    """Return one agent file whose prompt names the agent, so that the script finds it."""
    head = "\n".join([f"name: {name}", f"description: The {name} of this scene.", *lines])
    return {f".retinue/agents/{name}.md": f"---\n{head}\n---\nYou are the scene's {name}.\n"}


MAIN = "You are the main agent"
BUILTINS = [
    "Explore",
    "explore",
    "explorer",
    "general-purpose",
    "implementer",
    "Plan",
    "plan",
    "researcher",
    "retinue-guide",
    "reviewer",
    "tester",
    "verification",
]
SEEN = {"type": "command", "command": 'echo \'{"systemMessage": "seen"}\''}
HOOKS = {
    "PreToolUse": [{"matcher": "read", "hooks": [SEEN]}],
    "Stop": [{"hooks": [{"type": "command", "command": "true"}]}],
}
SKILL = "---\nname: greeting\ndescription: How to greet.\n---\nSay hello in the language of the person.\n"
ANSWER_SCHEMA = '{"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}'

DOCUMENTS: tuple[tuple[str, ...], ...] = (
    ("run", "worker", "And again.", "--json"),
    ("-p", "Say hello.", "--json"),
    ("-p", "Say hello.", "--output-format", "json"),
    ("runs", "show", "{run}", "--json"),
    ("runs", "tail", "{run}", "--json"),
    ("runs", "effects", "{run}", "--json"),
    ("runs", "diff", "{run}", "{run}", "--json"),
    ("runs", "undo", "{run}", "--dry-run", "--json"),
    ("runs", "steer", "{run}", "Too late.", "--json"),
    ("runs", "stop", "{run}", "--json"),
    ("runs", "prune", "--dry-run", "--json"),
    ("runs", "show", "nosuch", "--json"),
    ("agents", "parse", ".retinue/agents/worker.md"),
    ("agents", "convert", ".retinue/agents/worker.md", "--to", "claude", "--output", "out.md", "--json"),
    ("agents", "new", "made", "--description", "Made.", "--json"),
    ("agents", "disable", "worker", "--json"),
    ("agents", "enable", "worker", "--json"),
    ("agents", "eject", "Plan", "--json"),
    ("schedule", "add", "worker", "Look.", "--when", "0 0 9 * * *", "--tz", "Europe/Berlin", "--json"),
    ("schedule", "list", "--json"),
    ("servers", "check", "--json"),
    ("plugins", "check", "--json"),
    ("settings", "set", "maxConcurrent", "3", "--json"),
    ("settings", "get", "maxConcurrent", "--json"),
    ("settings", "unset", "maxConcurrent", "--json"),
    ("worktrees", "list", "--json"),
    ("skills", "list", "--json"),
    ("trust", "--json"),
    ("models", "list", "--json"),
    ("models", "resolve", "sonnet", "--json"),
    ("inbox", "list", "--all", "--everywhere", "--json"),
    ("inbox", "answer", "nosuch", "allow", "--json"),
)
"""Command lines whose JSON documents are captured, in this order."""

SCENES = [
    Scene(
        "answer",
        ("-p", "Say hello.", *STREAM),
        {MAIN: [Reply(text="Hello.")]},
    ),
    Scene(
        "edit",
        ("-p", "Replace alpha by omega.", *STREAM),
        {
            MAIN: [
                Reply(calls=[("grep", {"pattern": "alpha"}), ("read", {"path": "a.txt"})]),
                call("ls"),
                call("edit", path="a.txt", old_string="alpha", new_string="omega"),
                call("bash", command="cat a.txt"),
                Reply(text="Replaced alpha by omega in a.txt."),
            ]
        },
        files={"a.txt": "alpha\nbeta\n"},
    ),
    Scene(
        "denied",
        ("-p", "Write a file.", *STREAM),
        {
            MAIN: [
                call("write", path="new.txt", content="text\n"),
                call("bash", command="echo text > new.txt"),
                Reply(text="I was not allowed to write."),
            ]
        },
        mode="dontAsk",
    ),
    Scene(
        "foreground",
        ("-p", "Let the scout look.", *STREAM),
        {
            "the scene's scout": [call("read", path="a.txt"), Reply(text="a.txt has the word alpha.")],
            MAIN: [
                call("Agent", description="look", prompt="Read a.txt.", subagent_type="scout", run_in_background=False),
                Reply(text="The scout saw alpha."),
            ],
        },
        files={"a.txt": "alpha\n", **agent("scout", "tools: read")},
    ),
    Scene(
        "background",
        ("-p", "Let the scout look.", *STREAM),
        {
            "the scene's scout": [call("read", path="a.txt"), Reply(text="a.txt has the word alpha.")],
            MAIN: [
                call("Agent", description="look", prompt="Read a.txt.", subagent_type="scout", run_in_background=True),
                Reply(text="The scout is on its way."),
            ],
        },
        files={"a.txt": "alpha\n", **agent("scout", "tools: read")},
    ),
    Scene(
        "worktree",
        ("run", "mover", "Change a.txt.", *LINES),
        {
            "the scene's mover": [
                call("write", path="b.txt", content="new\n"),
                Reply(text="I wrote b.txt."),
            ]
        },
        files={"a.txt": "alpha\n", **agent("mover", "isolation: worktree")},
        git=True,
        after=(("worktrees", "list", "--json"),),
    ),
    Scene(
        "memory",
        ("run", "keeper", "Remember this.", *LINES),
        {
            "the scene's keeper": [
                call("write", path=".retinue/agent-memory/keeper/MEMORY.md", content="- The word is alpha.\n"),
                call("skill", name="greeting"),
                Reply(text="Remembered."),
            ]
        },
        files={".retinue/skills/greeting/SKILL.md": SKILL, **agent("keeper", "memory: project", "skills: greeting")},
        after=(
            ("memory", "show", "keeper", "--json"),
            ("skills", "list", "--json"),
            ("skills", "show", "greeting", "--json"),
        ),
    ),
    Scene(
        "hooks",
        ("-p", "Read a.txt.", "--trust", *STREAM),
        {MAIN: [call("read", path="a.txt"), Reply(text="It says alpha.")]},
        files={"a.txt": "alpha\n", ".claude/settings.json": json.dumps({"hooks": HOOKS})},
        after=(("trust", "--json"),),
    ),
    Scene(
        "schema",
        ("run", "counter", "Count the files.", "--schema", "schema.json", *LINES),
        {"the scene's counter": [Reply(text='{"count": 2}')]},
        files={"schema.json": ANSWER_SCHEMA, **agent("counter", "tools: read")},
    ),
    Scene(
        "limits",
        ("run", "worker", "Read for ever.", *LINES),
        {"the scene's worker": [call("read", path="a.txt"), call("ls"), call("ls", path="."), Reply(text="Stopped.")]},
        files={"a.txt": "alpha\n", **agent("worker", "tools: read, ls", "max_turns: 2")},
    ),
    Scene(
        "refused",
        ("-p", "Say hello.", *STREAM),
        {MAIN: [Reply(status=401, text="invalid x-api-key")]},
    ),
    Scene(
        "cut",
        ("-p", "Tell a long story.", *STREAM),
        {MAIN: [Reply(text="Once upon a time", stop="max_tokens")]},
    ),
    Scene(
        "claude",
        ("run", "reviewer-of-scene", "Look at a.txt.", *LINES),
        {"the scene's reviewer-of-scene": [call("Read", file_path="a.txt"), Reply(text="Nothing wrong.")]},
        files={
            "a.txt": "alpha\n",
            "CLAUDE.md": "Be brief.\n",
            ".claude/agents/reviewer-of-scene.md": "---\nname: reviewer-of-scene\ndescription: Looks.\n"
            "tools: Read, Grep\nmodel: inherit\ncolor: red\n---\nYou are the scene's reviewer-of-scene.\n",
        },
        after=(
            ("agents", "list", "--json"),
            ("agents", "show", "reviewer-of-scene", "--json"),
            ("agents", "lint", "--json"),
        ),
    ),
    Scene(
        "documents",
        ("run", "worker", "Change a.txt.", *LINES),
        {
            "the scene's worker": [
                call("read", path="a.txt"),
                call("write", path="a.txt", content="omega\n"),
                Reply(text="Changed."),
            ]
        },
        files={"a.txt": "alpha\n", **agent("worker", "tools: read, write")},
        git=True,
        after=DOCUMENTS,
    ),
    Scene(
        "builtins",
        ("-p", "Say hello.", *STREAM),
        {"": [Reply(text="Nothing to do.")]},
        files={"a.txt": "alpha\n"},
        git=True,
        after=tuple(("run", name, "Look around.", "--json") for name in BUILTINS),
    ),
]

LISTINGS: list[tuple[str, ...]] = [
    ("runs", "list", "--json"),
    ("inbox", "list", "--json"),
    ("schedule", "list", "--json"),
    ("servers", "list", "--json"),
    ("plugins", "list", "--json"),
    ("cost", "--json"),
    ("activity", "--json"),
    ("logs", "--json"),
]
"""Command lines that are run after every scene."""
