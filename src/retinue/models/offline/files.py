"""What a path says about a file: what kind it is, and which words name it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from retinue.models.offline.stems import stems_of

Kind = Literal["source", "facade", "script", "test", "docs", "example", "vendored", "generated", "data", "history"]

WEIGHT: dict[Kind, float] = {
    "source": 1.0,
    "facade": 0.9,  # __init__, index, mod: re-exports more often than it does
    "script": 0.6,
    "example": 0.35,
    "data": 0.3,
    "docs": 0.25,
    "test": 0.2,
    "vendored": 0.2,
    "generated": 0.2,
    "history": 0.1,
}
"""How likely a file of a kind is the answer to a question about code."""

_ASKED: dict[str, tuple[Kind, ...]] = {
    r"\b(?:unit|integration)[- ]tests?\b|\btest (?:suite|cases?|files?)\b|\btested\b": ("test",),
    r"\btests (?:for|of|that|cover\w*)\b": ("test",),
    r"\b(?:which|what|the|any) tests? (?:for|of|cover\w*|check\w*|verif\w*|exercis\w*)\b": ("test",),
    r"\bdocumented\b|\b(?:documentation|docs|guide) (?:for|of|on|about)\b|\breadme\b|\btutorials?\b": ("docs",),
    r"\bexamples? (?:of|for|that|show\w*)\b|\bdemos?\b|\btutorials?\b": ("example",),
    r"\bchange ?log\b|\brelease notes?\b": ("history", "docs"),
    r"\bvendored\b": ("vendored",),
    r"\bbenchmarks? (?:for|of|that)\b|\bmakefile\b": ("script",),
    r"\b(?:github|ci) (?:workflows?|actions?|pipelines?)\b|\bpyproject\b|\bdockerfile\b": ("data", "script"),
    r"\btype stubs?\b|\btypings?\b": ("generated",),
}

_SURE: frozenset[Kind] = frozenset({"test", "docs", "example", "history", "vendored"})
"""Words for these are rarely meant otherwise: who asks for tests does not want source."""

_FOLDERS: dict[Kind, str] = {  # in order: the first kind that has one of a path's folders is taken
    "vendored": "vendor vendored _vendor node_modules third_party thirdparty 3rdparty deps extern external bundled",
    "test": "test tests testing __tests__ spec specs e2e fixtures testdata test_data snapshots __snapshots__ mocks "
    "__mocks__ testutils conformance t unit integration",
    "docs": "doc docs documentation website site man manual",
    "example": "example examples sample samples demo demos tutorial tutorials playground",
    "script": "bench benches benchmark benchmarks script scripts dev ci .github .circleci hack requirements",
    "generated": "dist build out generated gen __generated__ target min coverage",
}
_FOLDER_KIND = {name: kind for kind, names in reversed(_FOLDERS.items()) for name in names.split()}
_FOLDER_ORDER = list(_FOLDERS)

_SOURCE = frozenset(
    "py pyx pyi pxd js jsx mjs cjs ts tsx mts cts go rs java kt kts scala c h cc cpp cxx hpp hh m mm swift rb php cs "
    "fs lua pl pm sh bash zsh ps1 ex exs erl hrl hs ml mli clj cljs dart r jl zig nim v sv vhd sql vue svelte proto "
    "thrift graphql jq y l asm s cu groovy gradle tcl el lisp scm d pas f90 jinja j2".split()
)
_HEADERS = frozenset("h hh hpp pxd mli".split())
"""Declarations: the work is done elsewhere."""
_PROSE = frozenset("md mdx rst txt adoc html htm tex org po pot ipynb css scss".split())

_TEST_NAME = re.compile(
    r"test_.*|.*_tests?|tests?|conftest|.*[._-](?:test|spec)|.*Tests?|Test[A-Z].*|.*TestCase|.*_unittest"
)
_HISTORY = re.compile(
    r"(?:changelog|changes|history|news|releases?|authors|contributors|licen[cs]e|copying|notice|maintainers)"
    r"(?:[._-].*)?",
    re.IGNORECASE,
)
_GENERATED = re.compile(
    r"\.min\.|_pb2|\.pb\.|\.g\.|_generated|\.generated|\.bundle\.|\.d\.[cm]?ts$|\.pyi$|^PKG-INFO$|\.lock$|-lock\."
    r"|^go\.sum$|-(?=\w*\d)(?=\w*[A-Z])\w{8}\.(?:js|css)$"
)
_FACADES = frozenset({"__init__", "index", "mod", "lib", "__main__", "exports", "external", "api"})
_BUILD_FILES = frozenset({"setup", "noxfile", "build", "gulpfile", "fabfile"})


def asked_kinds(task: str) -> frozenset[Kind]:
    """Kinds of files that a task is about, which makes them as good as source."""
    return frozenset(kind for pattern, kinds in _ASKED.items() if re.search(pattern, task, re.I) for kind in kinds)


def weight_of(path: str, asked: frozenset[Kind]) -> float:
    """How likely this file is the answer, compared with source, from its kind alone."""
    kind = kind_of(path)
    if kind in asked:
        return 1.0
    return _usual(path, kind) * (0.05 if asked & _SURE else 1.0)


def _usual(path: str, kind: Kind) -> float:
    ending = path.rpartition(".")[2].lower()
    if ending in _HEADERS:
        return WEIGHT[kind] * 0.75
    return WEIGHT[kind] * (0.5 if ending not in _SOURCE and kind in ("test", "example", "vendored") else 1.0)


@lru_cache(maxsize=20_000)
def kind_of(path: str) -> Kind:
    *folders, name = _parts(path) or [""]
    base, _, ending = name.rpartition(".") if "." in name[1:] else (name, "", "")
    source = ending.lower() in _SOURCE
    if _GENERATED.search(name) or any(folder.endswith((".egg-info", ".dist-info")) for folder in folders):
        return "generated"
    if _HISTORY.fullmatch(base) and not source:
        return "history"
    folder_kind = _kind_of_folders([folder.lower() for folder in folders], source)
    if folder_kind is not None:
        return folder_kind
    if _TEST_NAME.fullmatch(base):
        return "test"
    if source:
        if base in _BUILD_FILES and not folders:
            return "script"
        return "facade" if base in _FACADES else "source"
    if not ending:
        return "script"
    return "docs" if ending.lower() in _PROSE else "data"


def _kind_of_folders(folders: list[str], source: bool) -> Kind | None:
    kinds = {_FOLDER_KIND[folder] for folder in folders if folder in _FOLDER_KIND}
    kind = next((kind for kind in _FOLDER_ORDER if kind in kinds), None)
    if kind == "docs" and source:
        return "script"
    if kind == "generated" and source and "src" in folders:
        return None
    return kind


@lru_cache(maxsize=20_000)
def name_parts(path: str) -> tuple[tuple[tuple[str, ...], float], ...]:
    """The stems of the name and of each folder above it, with how much each says. A facade
    (`auth/__init__.py`) is named by its folder."""
    parts = _parts(path)
    if not parts:
        return ()
    name = parts[-1].split(".")[0] or parts[-1]
    facade = name in _FACADES and len(parts) > 1
    weights = (0.3, 0.9, 0.4, 0.2) if facade else (1.0, 0.6, 0.35, 0.2)
    named = [name, *reversed(parts[:-1])]
    return tuple((stems_of(part), weight) for part, weight in zip(named, weights, strict=False))


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
