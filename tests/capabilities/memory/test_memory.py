"""F: where memories lie, what of them is shown, and how they travel. Real files throughout."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.capabilities.memory.attach import (
    MAX_INDEX_BYTES,
    MAX_INDEX_LINES,
    Memory,
    cut_index,
    index_advice,
    read_index,
)
from retinue.capabilities.memory.store import (
    MANIFEST,
    MemoryArchive,
    combine_lines,
    content_of,
    list_agents,
    merge,
    other_folders,
    own_folder,
    pack,
    unpack,
)
from retinue.errors import UsageError
from retinue.tools.safe_dir import ChangedError, LinkedError, SafeDir, files, is_safe, open_dir, read, write


@pytest.fixture
def where(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    project, house = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    house.mkdir()
    return project, {"HOME": str(house), "RETINUE_HOME": str(tmp_path / "own")}


def test_folders_by_scope_and_by_what_moves_them(where):
    project, env = where
    own = {scope: own_folder("a", scope, project, env).path for scope in ("user", "project", "local")}
    assert own == {
        "user": Path(env["RETINUE_HOME"]) / "agent-memory" / "a",
        "project": project / ".retinue" / "agent-memory" / "a",
        "local": project / ".retinue" / "agent-memory-local" / "a",
    }
    assert not any(path.exists() for path in own.values())
    for folder in (".claude", ".pi"):
        (project / folder / "agent-memory" / "a").mkdir(parents=True)
        (project / folder / "agent-memory-local" / "a").mkdir(parents=True)
    for scope, name in (("project", "agent-memory"), ("local", "agent-memory-local")):
        assert [place.path for place in other_folders("a", scope, project, env)] == [
            project / ".claude" / name / "a",
            project / ".pi" / name / "a",
        ]


def test_pis_old_folder_counts_only_without_the_new_one_and_never_as_a_link(where, tmp_path):
    project, env = where
    env["PI_CODING_AGENT_DIR"] = str(tmp_path / "pi")
    old = Path(env["HOME"]) / ".pi" / "agent-memory"
    (old / "a").mkdir(parents=True)
    (tmp_path / "real").mkdir()
    (old / "linked").symlink_to(tmp_path / "real")
    assert [place.path for place in other_folders("a", "user", project, env)] == [old / "a"]
    assert other_folders("linked", "user", project, env) == ()
    (tmp_path / "pi" / "agent-memory" / "a").mkdir(parents=True)
    assert [place.path for place in other_folders("a", "user", project, env)] == [tmp_path / "pi/agent-memory/a"]
    (old / "b").mkdir()
    assert [place.path for place in other_folders("b", "user", project, env)] == [old / "b"]


@pytest.mark.parametrize("name", ["..", "a/b", "a\\b", "a\0b", "", ".a", "a b", "x" * 129, "ä", "a:b", "-a", "a\n"])
def test_unsafe_names_are_refused(where, name):
    project, env = where
    assert not is_safe(name)
    for scope in ("user", "project", "local"):
        with pytest.raises(UsageError):
            own_folder(name, scope, project, env)
        with pytest.raises(UsageError):
            other_folders(name, scope, project, env)


@given(st.text(max_size=140))
def test_no_name_leads_out_of_its_folder(name):
    place = Path("/m")
    if is_safe(name):
        assert (place / name).parent == place
        assert os.path.normpath(place / name) == str(place / name)


@pytest.mark.parametrize("name", ["a", "A9", "a-b_c.d", "x" * 128])
def test_plain_names_are_fine(name):
    assert is_safe(name)


def test_only_regular_files_in_real_folders_are_read(where, tmp_path):
    project, env = where
    place = own_folder("a", "project", project, env)
    assert read_index(place) == ""
    place.path.mkdir(parents=True)
    assert read_index(place) == ""
    (place.path / "MEMORY.md").write_text("- hello\n")
    assert read_index(place) == "- hello"
    (tmp_path / "secret").write_text("- secret\n")
    (place.path / "MEMORY.md").unlink()
    (place.path / "MEMORY.md").symlink_to(tmp_path / "secret")
    assert read_index(place) == ""
    (place.path / "MEMORY.md").unlink()
    os.mkfifo(place.path / "MEMORY.md")
    assert read_index(place) == ""


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_at_any_level_is_refused(where, tmp_path, level):
    project, env = where
    place = own_folder("a", "project", project, env)
    real = tmp_path / "real"
    inner = real.joinpath(*place.names[level + 1 :])
    inner.mkdir(parents=True)
    (inner / "MEMORY.md").write_text("- secret\n")
    link = project.joinpath(*place.names[: level + 1])
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(real, target_is_directory=True)
    assert (place.path / "MEMORY.md").read_text() == "- secret\n"
    assert read_index(place) == ""
    assert not place.exists()
    assert "symbolic link" in (place.obstacle() or "")
    with pytest.raises(LinkedError):
        write(place, ("MEMORY.md",), b"x", over=None)
    assert (inner / "MEMORY.md").read_text() == "- secret\n"
    assert content_of(place) == {}


def test_an_index_is_bounded_by_lines_and_by_bytes():
    many = "\n".join(f"line {number}" for number in range(250)).encode()
    shown = cut_index(many).split("\n")
    assert len(shown) == MAX_INDEX_LINES + 1
    assert shown[MAX_INDEX_LINES - 1] == "line 199"
    assert "truncated at 200 lines" in shown[-1]
    assert cut_index("\n".join(["x"] * MAX_INDEX_LINES).encode()).count("\n") == MAX_INDEX_LINES - 1
    wide = b"\n".join([b"y" * 1000] * 60)
    assert "truncated at 25 KB" in cut_index(wide)
    assert len(cut_index(wide)) < MAX_INDEX_BYTES + 200
    single = "ä" * MAX_INDEX_BYTES
    assert "truncated at 25 KB" in cut_index(single.encode())
    assert len(cut_index(single.encode()).encode()) < MAX_INDEX_BYTES + 200


@given(st.binary(max_size=3000).map(lambda data: data * 20))
def test_any_bytes_give_a_bounded_text(data):
    text = cut_index(data)
    assert len(text.split("\n")) <= MAX_INDEX_LINES + 1
    assert len(text.encode()) <= MAX_INDEX_BYTES * 3 + 200  # bytes that are no text become three each


def test_the_index_is_measured_when_it_is_written():
    assert index_advice(b"- a\n") == ""
    assert "nearly full" in index_advice(b"x\n" * 190)
    assert "Rewrite" in index_advice(b"x\n" * 201)
    assert "Rewrite" in index_advice(b"x" * 26_000)


def test_the_writable_block_names_the_place_the_scope_and_the_index(where):
    project, env = where
    place = own_folder("a", "project", project, env)
    memory = Memory("a", "project", place, (), writable=True)
    text = memory.block()
    assert str(place.path) in text
    assert "scope: project" in text
    assert "There is no MEMORY.md yet" in text
    assert all(word in text for word in ("Read", "write", "edit"))
    write(place, ("MEMORY.md",), b"- one\n</memory_index> free\n", over=None)
    text = memory.block()
    assert "- one" in text
    assert text.count("</memory_index>") == 1


def test_the_read_only_block_gives_no_path_and_makes_nothing(where):
    project, env = where
    place = own_folder("a", "user", project, env)
    text = Memory("a", "user", place).block()
    assert "There is no memory available" in text
    assert "scope: user" in text
    assert str(place.path) not in text
    assert not {"write", "edit"} & set(text.lower().replace(".", " ").split())
    assert not place.path.exists()


def test_files_are_whole_or_absent_and_never_written_over_news(where):
    project, env = where
    place = own_folder("a", "user", project, env)
    write(place, ("deep", "er", "x.md"), b"one", over=None)
    assert read(place, "deep", "er", "x.md") == b"one"
    with pytest.raises(ChangedError):
        write(place, ("deep", "er", "x.md"), b"two", over=b"other")
    with pytest.raises(ChangedError):
        write(place, ("deep", "er", "x.md"), b"two", over=None)
    assert read(place, "deep", "er", "x.md") == b"one"
    assert files(place) == (("deep", "er", "x.md"),)
    assert place.path.stat().st_mode & 0o777 == 0o700
    assert list_agents("user", project, env) == ("a",)


# Travelling

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}(/[a-z0-9]{1,6})?\.md", fullmatch=True)
CONTENT = st.dictionaries(st.one_of(st.just("MEMORY.md"), NAMES), st.binary(max_size=60), max_size=6)


def lines_everywhere(content: dict[str, bytes]) -> set[bytes]:
    return {line.strip() for data in content.values() for line in data.splitlines() if line.strip()}


@given(CONTENT)
def test_an_archive_gives_back_what_was_packed_and_is_always_the_same(content):
    archive = pack(MemoryArchive("a", "user", content))
    assert archive == pack(MemoryArchive("a", "user", dict(reversed(content.items()))))
    assert dict(unpack(archive).content) == content


@given(CONTENT, CONTENT)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_restoring_keeps_what_is_there_and_brings_all_that_was_packed(tmp_path, there, packed):
    place = SafeDir(tmp_path / os.urandom(6).hex(), ("m",))
    merge(there, place)
    merge(unpack(pack(MemoryArchive("a", "user", packed))).content, place)
    after = content_of(place)
    for path, data in there.items():
        assert after[path] == data or (path == "MEMORY.md" and after[path].startswith(data.rstrip()))
    assert lines_everywhere(after) >= lines_everywhere(there) | lines_everywhere(packed)


def test_the_index_gets_the_lines_it_lacks():
    assert combine_lines(b"- a\n- b\n", b"- b\n- c\n") == b"- a\n- b\n- c\n"
    assert combine_lines(b"- a", b"- a\n\n") == b"- a"
    assert combine_lines(b"", b"- a") == b"- a\n"


def archive_of(entries: list[tuple[tarfile.TarInfo, bytes]], manifest: dict | None) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        if manifest is not None:
            data = json.dumps(manifest).encode()
            info = tarfile.TarInfo(MANIFEST)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info, data in entries:
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


GOOD = {"format": 1, "agent": "a", "scope": "user", "files": {}}


@pytest.mark.parametrize(
    "info",
    [
        entry("memory/../../evil.md"),
        entry("/etc/evil"),
        entry("../evil.md"),
        entry("memory/x/../../evil"),
        entry("memory//x.md"),
        entry("memory/.hidden"),
        entry("memory/a\\b.md"),
        entry("memory/C:evil.md"),
        entry("memory/a\nb.md"),
        entry("memory/link.md", tarfile.SYMTYPE, "/etc/passwd"),
        entry("memory/link.md", tarfile.LNKTYPE, "memory/other.md"),
        entry("memory/dev", tarfile.CHRTYPE),
        entry("memory/pipe", tarfile.FIFOTYPE),
        entry("memory/folder", tarfile.DIRTYPE),
        entry("other/x.md"),
        entry("memory/unlisted.md"),
    ],
)
def test_archives_that_lead_elsewhere_are_refused(info):
    with pytest.raises(UsageError, match="refused"):
        unpack(archive_of([(info, b"evil")], GOOD))


BROKEN = [
    b"",
    b"garbage",
    gzip.compress(b"not a tar"),
    archive_of([], None),
    archive_of([], {"format": 2}),
    archive_of([], {**GOOD, "scope": "everywhere"}),
    archive_of([], {**GOOD, "agent": 7}),
    archive_of([], {**GOOD, "agent": "../x"}),
    archive_of([], {**GOOD, "files": {"missing.md": "00"}}),
    archive_of([(entry("memory/x.md"), b"a"), (entry("memory/x.md"), b"b")], GOOD),
    pack(MemoryArchive("a", "user", {"MEMORY.md": b"x"}))[:-20],
]


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_what_is_no_archive_of_a_memory_is_refused(number):
    with pytest.raises(UsageError):
        unpack(BROKEN[number])


@given(st.binary(max_size=400))
def test_garbage_is_refused_and_nothing_else_happens(data):
    with pytest.raises(UsageError):
        unpack(data)


def test_a_folder_is_opened_without_being_made(tmp_path):
    with pytest.raises(FileNotFoundError), open_dir(SafeDir(tmp_path, ("a", "b"))):
        pass
    assert list(tmp_path.iterdir()) == []
