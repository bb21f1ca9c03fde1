"""Redaction: how fast, and how often it takes ordinary source for a secret.

    python bench/redact.py                      this interpreter's packages and the repository
    python bench/redact.py FOLDER ... [--show]  other trees; --show prints every hit

Speed is megabytes per second of CPU time, whole files one by one, as tool output comes. Hits are
places that would be hidden; each one in ordinary source is to be looked at.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import sysconfig
import time
from pathlib import Path

from retinue.guard.redact import Redactor

GOAL = 50.0
_MARKS = ("[REDACTED]", "[GITHUB_TOKEN_REDACTED]", "[ENV_VAR_REDACTED]", "[PRIVATE_KEY_REDACTED]")
MOST = 60 * 2**20
_ENDINGS = {
    ".py",
    ".md",
    ".rst",
    ".txt",
    ".json",
    ".toml",
    ".yaml",
    ".yml",
    ".js",
    ".ts",
    ".c",
    ".h",
    ".pyi",
    ".cfg",
    ".html",
}


def texts(folders: list[Path]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    size = 0
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in _ENDINGS or "__pycache__" in path.parts or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            found.append((path, text))
            size += len(text)
            if size > MOST:
                return found
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    folders = args.folders or [here / "src", here / "docs", Path(sysconfig.get_paths()["purelib"])]
    files = texts(folders)
    redact = Redactor()
    megabytes = sum(len(text.encode("utf-8", "replace")) for _, text in files) / 1e6
    speeds = []
    for _ in range(3):
        began = time.process_time()
        clean = [redact(text) for _, text in files]
        speeds.append(megabytes / (time.process_time() - began))
    hits = 0
    for (path, text), after in zip(files, clean, strict=True):
        if after is text:
            continue
        hits += sum(after.count(mark) - text.count(mark) for mark in _MARKS)
        if args.show:
            for line in difflib.unified_diff(text.split("\n"), after.split("\n"), lineterm="", n=0):
                if line[:1] in "-+" and line[:3] not in ("---", "+++"):
                    print(f"{path.name}: {line[:160]}")
    print(f"{len(files)} files, {megabytes:.1f} MB: {max(speeds):.0f} MB/s (goal {GOAL:.0f})")
    print(f"{hits} hidden, {hits / megabytes:.2f} per MB")
    return 0 if max(speeds) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
