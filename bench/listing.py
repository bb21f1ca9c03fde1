"""CPU time of listing agent files: cold against PyYAML's C loader, and warm against cold.

    python bench/listing.py [--files 1000] [--from FOLDER]

The files are made up here in the proportions of real ones (short descriptions, long ones with
examples, lists and comma strings, one in twenty not valid YAML); `--from` uses the agent files
of a folder instead, over and over. Goals: cold at most 2.0 times the YAML loader on the same
frontmatter blocks, warm under 5 % of cold.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from retinue.agents.catalog import Catalog
from retinue.agents.frontmatter import split
from retinue.agents.parse import FileCache

ROUNDS = 5

HEADS = (
    "description: Reviews code for quality.\ntools: Read, Grep, Glob, Bash\nmodel: sonnet\n",
    "description: >\n  Use this agent when the plan is done\n  and the code has to be written.\n"
    "tools:\n  - Read\n  - Write\n  - Edit\n  - Bash\nmodel: opus\ncolor: blue\n",
    'description: "Use it proactively.\\n\\n<example>\\nuser: \\"check this\\"\\n</example>"\n'
    'tools: ["Read", "Grep", "Glob"]\nmodel: inherit\nmaxTurns: 20\nmemory: project\n',
    "description: Plans work, designs interfaces and names the risks of a change before anyone writes code.\n",
    "description: Security expert. " + "Knows injection, access control and secrets handling. " * 12 + "\n"
    "tools: Read, Grep, Glob, WebFetch, WebSearch, mcp__docs__search\n"
    "disallowedTools: Write, Edit\npermissionMode: plan\n",
)
BROKEN = "description: Use when: the build fails\ntools: Bash, Read\n"
BODY = "You are a specialist.\n\n## Rules\n\n- Work in small steps.\n- Report what you found.\n\n---\n\n" * 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--from", dest="origin", type=Path)
    options = parser.parse_args()
    texts = real(options.origin, options.files) if options.origin else made_up(options.files)
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch)
        folder = project / ".claude" / "agents"
        folder.mkdir(parents=True)
        for number, text in enumerate(texts):
            (folder / f"agent-{number:04}.md").write_bytes(text)
        report(project, [split(text).block or "" for text in texts])
    return 0


def report(project: Path, blocks: list[str]) -> None:
    environment = {"HOME": str(project / "home")}

    def load(cache: FileCache) -> Catalog:
        return Catalog.load(project, environment=environment, builtins=False, cache=cache)

    time.sleep(0.05)  # so that no file looks as if it were still being written
    found = load(FileCache())
    reference = best(lambda: yaml_only(blocks))
    cold = best(lambda: load(FileCache()))
    cache = FileCache()
    load(cache)
    warm = best(lambda: load(cache))
    files = len(found.entries) + len(found.failed)
    print(f"files                     {files} ({len(found.failed)} failed)")
    print(f"yaml.CSafeLoader          {reference * 1e3:8.2f} ms")
    print(f"listing, cold             {cold * 1e3:8.2f} ms   {cold / reference:5.2f} x the YAML loader (goal: 2.0)")
    print(f"listing, nothing changed  {warm * 1e3:8.2f} ms   {warm / cold * 100:5.2f} % of cold (goal: under 5)")


def yaml_only(blocks: list[str]) -> None:
    for block in blocks:
        try:
            yaml.load(block, Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            continue


def best(job: Callable[[], object]) -> float:
    """The least CPU time of a few rounds: the one the rest of the machine disturbed least."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def made_up(count: int) -> list[bytes]:
    texts = []
    for number in range(count):
        head = BROKEN if number % 20 == 19 else HEADS[number % len(HEADS)]
        texts.append(f"---\nname: agent-{number}\n{head}---\n\n{BODY}".encode())
    return texts


def real(origin: Path, count: int) -> list[bytes]:
    found = [path.read_bytes() for path in sorted(origin.rglob("*.md")) if path.is_file()]
    if not found:
        sys.exit(f"No .md files under {origin}.")
    return [found[number % len(found)] for number in range(count)]


if __name__ == "__main__":
    sys.exit(main())
