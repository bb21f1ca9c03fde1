"""Makes the pictures of the page in docs/screens/: the real server and real runs, on a model that follows a script.

usage: python -m docs.screens_page [NAME ...]

It needs `playwright` and Debian's `chromium`. The pictures are `page-NAME-WIDTH-THEME.png`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.frontends.web.browser import open_browser
from tests.frontends.web.story import Call, Piece, StoryServer, first_words
from tests.program.model_server import Request

HERE = Path(__file__).parent / "screens"
MODEL = "anthropic/claude-sonnet-4-5"
AGENTS = {
    "auditor": "description: Looks for holes in how money is handled\nreadonly: true\ntools: read, grep, find",
    "migrator": "description: Moves one module to the new API, with its tests\ntools: read, edit, bash",
    "tester": "description: Says which tests cover a module, and which are missing\ntools: read, grep, bash",
    "translator": "description: Translates what users read\ncolour: green",
}
PRICES = """from decimal import Decimal

CENT = Decimal("0.01")
RATES = {"EUR": Decimal(1), "JPY": Decimal("163.2")}


def price_in(currency: str, amount: Decimal) -> tuple[Decimal, str]:
    rounded = amount.quantize(CENT)
    return rounded * RATES[currency], currency
"""
FIX = {
    "path": "src/shop/prices.py",
    "old_string": "    rounded = amount.quantize(CENT)\n    return rounded * RATES[currency], currency\n",
    "new_string": "    converted = amount * RATES[currency]\n    return converted.quantize(unit(currency)), currency\n",
}
REPORT = """The currency gets lost in **two places**:

1. `src/shop/prices.py` rounds *before* it converts, so every price abroad is off by up to one unit.
2. `src/shop/invoice.py` adds totals without looking at the currency at all.

| file | line | what happens |
|---|---|---|
| `prices.py` | 8 | rounds to cents, then multiplies |
| `invoice.py` | 12 | sums EUR and JPY |

I have asked **migrator** to round after converting, and I look at the """


def agent(kind: str, description: str, prompt: str, **more: Any) -> Call:
    return Call("Agent", {"subagent_type": kind, "description": description, "prompt": prompt, **more})


def script(request: Request) -> list[Piece]:
    """What each agent of the story says."""
    task, turn = first_words(request), request.turn
    if "PRICES ABROAD" in task:
        return _main(turn)
    if "Round after" in task:
        return _migrator(turn)
    if "currency" in task:
        return _auditor(turn)
    if "tests" in task:
        return _tester(turn)
    return ["Eleven texts name prices, all of them in `locale/`. ", 0.3, "None mentions a currency."]


def _main(turn: int) -> list[Piece]:
    if turn == 0:
        return [
            "I look at how prices are made, and set three agents to work.",
            0.4,
            Call("read", {"path": "src/shop/prices.py"}),
            agent("auditor", "Find where the currency gets lost", "Find where the currency gets lost."),
            agent("tester", "Look at the tests of prices", "Which tests cover prices?", run_in_background=True),
            agent("migrator", "Round after converting", "Round after converting.", run_in_background=True),
        ]
    return [0.8, *(piece + " " for piece in REPORT.split(" ")), threading.Event()]


def _migrator(turn: int) -> list[Piece]:
    if turn == 0:
        return [1.0, "I read the module first.", Call("read", {"path": "src/shop/prices.py"})]
    return [0.7, "Rounding has to come after the conversion:", Call("edit", FIX)]


def _auditor(turn: int) -> list[Piece]:
    if turn == 0:
        return [0.6, "I begin with every place that names a currency.", Call("grep", {"pattern": "currency"})]
    if turn == 1:
        return [0.9, Call("read", {"path": "src/shop/invoice.py"}), Call("read", {"path": "src/shop/missing.py"})]
    return [0.5, "`prices.py` rounds too early, and `invoice.py` ignores the currency."]


def _tester(turn: int) -> list[Piece]:
    if turn == 0:
        return [1.2, Call("bash", {"command": "grep -rn price tests | sort | head; sleep 1"})]
    return ["Only `tests/test_prices.py`, and it knows no currency but the euro. ", threading.Event()]


class Scene:
    """A project with a server, and runs in it."""

    def __init__(self, folder: Path, model: StoryServer) -> None:
        self.cwd = folder / "shop"
        home = folder / "home"
        (self.cwd / "src" / "shop").mkdir(parents=True)
        (self.cwd / "tests").mkdir()
        (self.cwd / ".retinue" / "agents").mkdir(parents=True)
        home.mkdir()
        (self.cwd / "src" / "shop" / "prices.py").write_text(PRICES)
        (self.cwd / "src" / "shop" / "invoice.py").write_text("def total(lines):\n    return sum(lines)\n")
        (self.cwd / "tests" / "test_prices.py").write_text("def test_price_in_euros(): ...\n")
        for name, fields in AGENTS.items():
            file = self.cwd / ".retinue" / "agents" / f"{name}.md"
            file.write_text(f"---\nname: {name}\n{fields}\n---\nYou are {name}. Be brief, and name files and lines.\n")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "RETINUE_HOME": str(home / ".retinue"),
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "none",
            "RETINUE_MODEL": MODEL,
        }
        command = [sys.executable, "-m", "retinue"]
        subprocess.run(["git", "init", "-q"], cwd=self.cwd, check=True)
        subprocess.run([*command, "trust", "--yes"], cwd=self.cwd, env=self.environment, capture_output=True)
        serve = [*command, "serve", "--port", "0", "--json", "--no-browser"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(serve, cwd=self.cwd, env=self.environment, **pipes)
        assert self.process.stdout is not None
        self.info = json.loads(self.process.stdout.readline())

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.info['port']}{path}")
        request.add_header("Authorization", f"Bearer {self.info['token']}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request) as response:
            return json.loads(response.read())

    def link(self) -> str:
        """Return an address that signs one page in."""
        command = [sys.executable, "-m", "retinue", "open", "--json"]
        done = subprocess.run(command, cwd=self.cwd, env=self.environment, capture_output=True, check=True)
        return str(json.loads(done.stdout)["url"])

    def until(self, path: str, condition: Any) -> Any:
        while not condition(found := self.ask(path)):
            time.sleep(0.1)
        return found

    def play(self) -> str:
        """Start the runs of the story; return the id of the main one, when all have come to where they wait."""
        for task in ("Which texts name prices?", "Which words do customers not understand?"):
            run = self.ask("/v1/runs", {"agent": "translator", "task": task})
            self.until(f"/v1/runs/{run['id']}", lambda found: found["run"]["state"] == "ended")
        order = {"task": "PRICES ABROAD are wrong. Find out why, and fix it.", "budget": {"usd": 2.0}}
        main = self.ask("/v1/runs", order)
        self.until("/v1/inbox", lambda found: found["items"])
        self.until(f"/v1/runs/{main['id']}", lambda found: "I look at the" in found["partial"])
        return str(main["id"])


VIEWS = {
    "waiting": "#/waiting",
    "fleet": "#/fleet",
    "run": "#/run/{main}",
    "timeline": "#/run/{main}/timeline",
    "lookback": "#/run/{main}/lookback",
    "effects": "#/run/{main}/effects",
    "runcost": "#/run/{main}/cost",
    "cost": "#/cost",
    "agents": "#/agents",
    "agent": "#/agents/translator",
    "start": "#/start/migrator",
    "projects": "#/projects",
}
SHIPPED = ("waiting", "run", "fleet", "timeline", "lookback", "cost")
WHOLE = ("waiting", "run")
"""Of these there are pictures in all sizes and colours; of the others one for each size."""


def is_shipped(name: str, width: int, theme: str) -> bool:
    if name not in SHIPPED:
        return True
    if name in WHOLE or (name == "fleet" and width < 1000):
        return True
    first = SHIPPED.index(name) % 2
    return (theme == "dark") == (first == (width < 1000))


def take(scene: Scene, main: str, names: list[str]) -> None:
    with open_browser() as browser:
        for width, height in ((1600, 1000), (390, 844)):
            for theme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1
                )
                page = context.new_page()
                page.on("console", lambda said: print("console:", said.text))
                page.on("pageerror", lambda error: print("error:", error))
                page.goto(scene.link())
                page.wait_for_selector(".connection.live")
                for name in names:
                    if not is_shipped(name, width, theme):
                        continue
                    page.evaluate("hash => { location.hash = hash }", VIEWS[name].format(main=main))
                    page.wait_for_timeout(700)
                    page.screenshot(path=HERE / f"page-{name}-{width}-{theme}.png")
                context.close()


def main() -> int:
    names = sys.argv[1:] or list(SHIPPED)
    with tempfile.TemporaryDirectory() as scratch, StoryServer(script) as model:
        scene = Scene(Path(scratch).resolve(), model)
        try:
            take(scene, scene.play(), names)
        finally:
            scene.process.terminate()
            model.over.set()
            scene.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
