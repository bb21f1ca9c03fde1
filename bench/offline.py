"""How often the offline planner names the right file, through the real tools and the real loop.

    python bench/offline.py [TREES] [--fetch] [--split dev|test|last] [--questions FILE ...] [--verbose]

TREES is a folder with unpacked packages, one folder each (`httpx-0.28.1`, `fastify-5.2.1`,
`redis_7.0.15`); without it, one among the temporary files. With --fetch what is missing is
downloaded first: source distributions through
pip's own index, npm packages with `npm pack`, Debian sources with `apt-get source` (which needs
deb-src entries). Questions whose package is not there are skipped and counted.

The file that counts as named first is the first path in the answer; as among the first three,
one of the first three different paths.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import html
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import aclosing
from pathlib import Path
from typing import Any

from retinue.core.events import RunEnded
from retinue.core.messages import user
from retinue.core.outcome import Outcome
from retinue.core.tool import ToolContext
from retinue.loop.job import Controls, Job
from retinue.loop.run import run_loop
from retinue.models.offline.planner import OfflineModel
from retinue.tools.base import builtin_tools

OWN = Path(__file__).parent.parent / "tests" / "models" / "offline" / "questions.jsonl"
GIVEN = Path(__file__).parent.parent.parent / "shared" / "facts" / "offline-questions.jsonl"
_PATH = re.compile(r"`([^`\s:]+)(?::\d+)?`")


def package(question: dict[str, Any]) -> tuple[str, str]:
    return next((kind, question[kind]) for kind in ("sdist", "npm", "debian") if kind in question)


def folder(question: dict[str, Any], trees: Path) -> Path | None:
    _, name = package(question)
    plain = name.replace("==", "-").lstrip("@").replace("@", "-").replace("/", "-")
    options = [plain, plain.replace("_", "-"), re.sub(r"-(?=[A-Za-z])", "_", plain), f"deb-{name}"]
    return next((trees / option for option in options if (trees / option).is_dir()), None)


def fetch(kind: str, name: str, trees: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        if kind == "sdist":
            archive = _sdist(name, Path(scratch))
        elif kind == "npm":
            printed = subprocess.run(
                ["npm", "pack", "-s", name], cwd=scratch, capture_output=True, text=True, check=True
            )
            archive = Path(scratch) / printed.stdout.split()[-1]
        else:
            source = name.rpartition("_")[0]
            subprocess.run(["apt-get", "source", "--download-only", "-qq", source], cwd=scratch, check=True)
            archive = next(Path(scratch).glob("*.orig.tar.*"))
        target = trees / name.replace("==", "-").lstrip("@").replace("@", "-").replace("/", "-")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch + "/x", filter="data")
        (only,) = Path(scratch, "x").iterdir()
        only.rename(target)


def _sdist(name: str, scratch: Path) -> Path:
    project, _, version = name.partition("==")
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True)
    index = os.environ.get("PIP_INDEX_URL") or asked.stdout.decode().strip()
    if not index:
        from pip._internal.models.index import PyPI

        index = PyPI.simple_url
    page_url = f"{index.rstrip('/')}/{project.lower().replace('_', '-')}/"
    with urllib.request.urlopen(page_url) as page:
        links = [html.unescape(link) for link in re.findall(r'href="([^"]+)"', page.read().decode())]
    link = next(link for link in links if re.search(rf"-{re.escape(version)}\.tar\.gz(?:#|$)", link))
    archive = scratch / "sdist.tar.gz"
    urllib.request.urlretrieve(urllib.parse.urljoin(page_url, link), archive)
    return archive


async def ask(question: str, tree: Path, outputs: Path) -> Outcome:
    tools = tuple(builtin_tools(["read", "grep", "find", "ls"]).values())
    context = ToolContext("bench", (tree.resolve(),), outputs)
    job = Job(system="", messages=(user(question),), context=context, tools=tools)
    async with aclosing(run_loop(job, OfflineModel(), Controls())) as bodies:
        async for body in bodies:
            if isinstance(body, RunEnded):
                return body.outcome
    raise SystemExit("the loop ended without an outcome")


def place(outcome: Outcome, question: dict[str, Any]) -> int:
    """Where in the answer's order of paths the right file stands; 99 if it is not there."""
    named = list(dict.fromkeys(_PATH.findall(outcome.text)))
    named = [path for path in named if "." in path or "/" in path]
    right = question["right_files"]
    return next((i for i, path in enumerate(named, 1) if any(fnmatch.fnmatch(path, r) for r in right)), 99)


def run(questions: list[dict[str, Any]], trees: Path, verbose: bool) -> None:
    places, seconds, skipped = [], [], 0
    with tempfile.TemporaryDirectory() as outputs:
        for question in questions:
            tree = folder(question, trees)
            if tree is None:
                skipped += 1
                continue
            started = time.perf_counter()
            outcome = asyncio.run(ask(question["question"], tree, Path(outputs)))
            seconds.append(time.perf_counter() - started)
            places.append(place(outcome, question))
            if verbose:
                print(f"  {places[-1]:>3}  {seconds[-1]:.2f} s  {package(question)[1]}: {question['question']}")
    if not places:
        print(f"  no package of these {skipped} questions is there")
        return
    first, three = sum(p == 1 for p in places), sum(p <= 3 for p in places)
    print(f"  right file first {first}/{len(places)} ({100 * first / len(places):.0f} %)")
    print(f"  within three     {three}/{len(places)} ({100 * three / len(places):.0f} %)")
    print(f"  seconds          median {statistics.median(seconds):.2f}, slowest {max(seconds):.2f}")
    if skipped:
        print(f"  skipped          {skipped}: package not in {trees}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "retinue-bench-trees")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--split", choices=["dev", "test", "last"])
    parser.add_argument("--questions", type=Path, action="append")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.trees.mkdir(parents=True, exist_ok=True)
    for file in args.questions or [path for path in (GIVEN, OWN) if path.exists()]:
        questions = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        if args.fetch:
            missing = dict.fromkeys(package(q) for q in questions if folder(q, args.trees) is None)
            for kind, name in missing:
                try:
                    fetch(kind, name, args.trees)
                except (OSError, subprocess.CalledProcessError, StopIteration, ValueError) as error:
                    print(f"could not fetch {name}: {error!r}", file=sys.stderr)
        for split in sorted({q.get("split", "all") for q in questions}):
            if args.split in (None, split):
                print(f"{file.name}, {split}:")
                run([q for q in questions if q.get("split", "all") == split], args.trees, args.verbose)


if __name__ == "__main__":
    main()
