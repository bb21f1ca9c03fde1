"""G: finding, listing and reading skills. Real files throughout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.git_folder import make_git_folder

from retinue.capabilities.skills.attach import MAX_LISTED_CHARACTERS, describe_skills, preload_skills
from retinue.capabilities.skills.library import Library, substitute
from retinue.capabilities.skills.parse import Root, Skill, parse_skill_file, skill_roots

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "skills"


def put(path: Path, body: str = "Body.", matter: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\ndescription: about\n{matter}---\n{body}\n")
    return path


def library(*roots: Path) -> Library:
    return Library(Root(root, "project") for root in roots)


def text(found: Library, name: str) -> str | None:
    skill = found.find(name)
    return None if skill is None else found.text(skill)


def test_every_root_in_order_and_the_project_before_the_user(tmp_path):
    project, house = tmp_path / "p", tmp_path / "h"
    make_git_folder(project)
    (project / "sub").mkdir()
    env = {"HOME": str(house), "RETINUE_HOME": str(tmp_path / "own"), "PI_CODING_AGENT_DIR": str(tmp_path / "pi")}
    roots = skill_roots(project / "sub", env, extra=("~/more", "here"), plugins=[("plug", tmp_path / "plug")])
    names = (".retinue", ".claude", ".pi", ".agents")
    assert [root.path for root in roots] == [
        *(project / "sub" / name / "skills" for name in names),
        *(project / name / "skills" for name in names),
        tmp_path / "own" / "skills",
        house / ".claude" / "skills",
        tmp_path / "pi" / "skills",
        house / ".agents" / "skills",
        house / ".pi" / "skills",
        house / "more",
        project / "sub" / "here",
        tmp_path / "plug",
    ]
    for number, root in enumerate(reversed(roots)):
        put(root.path / "same" / "SKILL.md", f"number {number}")
        assert text(Library(roots), "same") == f"number {number}" or root.plugin
    put(tmp_path / "plug" / "only" / "SKILL.md", "of the plugin")
    assert text(Library(roots), "plug:only") == "of the plugin"
    assert text(Library(roots), "only") == "of the plugin"


def test_flat_files_first_then_the_shallower_then_by_bytes(tmp_path):
    put(tmp_path / "b" / "x" / "SKILL.md", "deeper in b")
    put(tmp_path / "a" / "x" / "SKILL.md", "deeper in a")
    put(tmp_path / "a" / "y" / "z" / "SKILL.md", "z")
    assert text(library(tmp_path), "x") == "deeper in a"
    put(tmp_path / "x" / "SKILL.md", "shallow")
    assert text(library(tmp_path), "x") == "shallow"
    put(tmp_path / "x.md", "flat")
    assert text(library(tmp_path), "x") == "flat"
    assert text(library(tmp_path), "z") == "z"


def test_what_is_not_looked_into(tmp_path):
    (tmp_path / "x").mkdir()  # the name of a skill, but no skill
    put(tmp_path / "deep" / "x" / "SKILL.md", "found")
    put(tmp_path / "skill" / "SKILL.md")
    put(tmp_path / "skill" / "inner" / "SKILL.md")
    put(tmp_path / "node_modules" / "dep" / "SKILL.md")
    put(tmp_path / ".hidden" / "dot" / "SKILL.md")
    found = library(tmp_path)
    assert text(found, "x") == "found"
    assert sorted(skill.name for skill in found.all()) == ["skill", "x"]


def test_links_are_refused(tmp_path):
    real = tmp_path / "real"
    put(real / "s" / "SKILL.md")
    put(real / "flat.md")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(real / "s", target_is_directory=True)
    (root / "flat.md").symlink_to(real / "flat.md")
    (root / "half").mkdir()
    (root / "half" / "SKILL.md").symlink_to(real / "s" / "SKILL.md")
    (tmp_path / "other").symlink_to(real, target_is_directory=True)
    (root / "my skill").mkdir()
    put(root / "my skill" / "SKILL.md")
    assert library(root).all() == ()
    assert library(tmp_path / "other").all() == ()
    told = {Path(path).relative_to(root).parts[0] for path, _ in library(root).refused()}
    assert told == {"linked", "flat.md", "half", "my skill"}
    assert [path for path, _ in library(tmp_path / "other").refused()] == [str(tmp_path / "other")]
    bundled = put(root / "ok" / "SKILL.md").parent
    (bundled / "secret").symlink_to("/etc/passwd")
    (bundled / "data.txt").write_text("x")
    found = library(root)
    (skill,) = found.all()
    assert found.files(skill) == ("data.txt",)


def test_a_file_exchanged_for_a_link_after_it_was_found_is_not_read(tmp_path):
    path = put(tmp_path / "s" / "SKILL.md")
    found = library(tmp_path)
    (skill,) = found.all()
    (tmp_path / "secret").write_text("secret")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        found.text(skill)
    assert found.all() == ()


@pytest.mark.parametrize("name", ["..", "a/b", "a\\b", "a b", ".a", "", "x" * 129, "a:../b"])
def test_unsafe_names_leave_a_placeholder_and_the_others_load(tmp_path, name):
    put(tmp_path / "good" / "SKILL.md", "GOOD BODY")
    notes: list[str] = []
    block = preload_skills((name, "good"), library(tmp_path), notes)
    assert "skipped" in block
    assert "GOOD BODY" in block
    assert len(notes) == 1
    assert library(tmp_path).find(name) is None


@pytest.mark.parametrize("name", ["ünïcode", "技能", "навык-2"])
def test_names_may_have_letters_of_any_script(tmp_path, name):
    put(tmp_path / name / "SKILL.md", "GOOD BODY")
    assert text(library(tmp_path), name) == "GOOD BODY"
    assert library(tmp_path).refused() == ()


def test_a_file_in_small_letters_is_a_skill_until_the_other_is_there(tmp_path):
    put(tmp_path / "s" / "skill.md", "SMALL")
    put(tmp_path / "s" / "more.txt")
    found = library(tmp_path)
    assert text(found, "s") == "SMALL"
    assert found.files(found.all()[0]) == ("more.txt",)
    put(tmp_path / "s" / "SKILL.md", "CAPITAL")
    assert text(found, "s") == "CAPITAL"


def test_an_open_frontmatter_is_a_problem_and_no_description(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "SKILL.md").write_text("---\nname: unclosed\ndescription: about\nBody.\n")
    (skill,) = library(tmp_path).all()
    assert "no later line" in skill.problem and not skill.description
    assert library(tmp_path).invocable() == ()


def test_missing_ones_name_where_they_were_looked_for(tmp_path):
    notes: list[str] = []
    assert f'(Skill "nope" not found in {tmp_path})' in preload_skills(("nope",), library(tmp_path), notes)
    assert "there is none" in preload_skills(("nope",), library(), notes)
    assert len(notes) == 2


def test_every_key_of_the_frontmatter(tmp_path):
    matter = (
        "name: other-name\nwhen_to_use: when it rains\nargument-hint: '[file]'\narguments: [file, page]\n"
        "allowed-tools: Read, Bash(git log:*), Grep\ndisable-model-invocation: on\nuser-invocable: 'no'\n"
        "context: fork\nagent: Explore\nbackground: 1\nmodel: haiku\nlicense: MIT\nhooks: {}\n"
    )
    put(tmp_path / "s" / "SKILL.md", matter=matter)
    (skill,) = library(tmp_path).all()
    assert (skill.name, skill.description, skill.when_to_use) == ("s", "about", "when it rains")
    assert skill.arguments == ("file", "page")
    assert skill.allowed_tools == ("Read", "Bash(git log:*)", "Grep")
    assert not skill.model_invocable
    assert not skill.user_invocable
    assert (skill.fork, skill.agent, skill.background, skill.model) == (True, "Explore", True, "haiku")
    assert set(skill.extra) == {"license", "hooks"}
    assert library(tmp_path).find("other-name") == skill
    assert library(tmp_path).find("S") == skill


def test_changes_on_disk_are_seen_at_once(tmp_path):
    found = library(tmp_path)
    assert found.all() == ()
    path = put(tmp_path / "a" / "SKILL.md", "one")
    assert text(found, "a") == "one"
    path.write_text("---\ndescription: two\n---\ntwo")
    assert text(found, "a") == "two"
    assert found.all()[0].description == "two"
    put(tmp_path / "deep" / "b" / "SKILL.md")
    assert [skill.name for skill in found.all()] == ["a", "b"]
    os.utime(path, ns=(1, 1))
    path.rename(tmp_path / "a" / "gone.md")
    assert [skill.name for skill in found.all()] == ["b"]


@pytest.mark.parametrize(
    ("body", "given_", "made"),
    [
        ("all: $ARGUMENTS", "a 'b c'", "all: a 'b c'"),
        ("$0 and $1 and $2", "a 'b c'", "a and b c and $2"),
        ("$ARGUMENTS[1]", "a b", "b"),
        ("$ARGUMENTS[7]", "a b", "$ARGUMENTS[7]\n\nARGUMENTS: a b"),
        ("no place", "a b", "no place\n\nARGUMENTS: a b"),
        ("no place", "", "no place"),
        ("$file, $page!", "x.pdf", "x.pdf, !"),
        (r"\$0 \$ARGUMENTS \$file $0", "a", "$0 $ARGUMENTS $file a"),
        (r"awk '{print $1}' $HOME \$HOME", "", r"awk '{print $1}' $HOME \$HOME"),
        ("$ARGUMENTS", "", ""),
        ("$0", "it's broken", "it's"),
        ("$0", "$1 $0", "$1"),
    ],
)
def test_what_is_given_is_put_in(body, given_, made):
    skill = Skill(name="s", path=Path("/s"), source="user", arguments=("file", "page"))
    assert substitute(body, skill, given_) == made


@given(st.text(max_size=80), st.text(max_size=40))
def test_no_text_and_no_arguments_break_it(body, arguments):
    skill = Skill(name="s", path=Path("/s"), source="user", arguments=("a",))
    made = substitute(body, skill, arguments)
    if not arguments.strip() and "$" not in body:
        assert made == body


@given(st.binary(max_size=300))
def test_any_bytes_are_a_skill_or_a_problem(data):
    root = Root(Path("/r"), "user")
    for block in (data, b"---\n" + data + b"\n---\nbody"):
        skill, _ = parse_skill_file(block, "s", Path("/r/s/SKILL.md"), Path("/r/s"), root)
        assert skill.name == "s"


def skills(count: int, length: int) -> list[Skill]:
    about = "word " * (length // 5)
    return [Skill(name=f"skill-{n:04}", path=Path("/s"), source="user", description=about) for n in range(count)]


def test_the_list_keeps_to_its_bound_and_says_what_is_missing():
    assert describe_skills([], 4000) == ""
    few = describe_skills(skills(3, 5000), 4000)
    assert all(len(line) <= MAX_LISTED_CHARACTERS + 20 for line in few.split("\n")[4:])
    for count in (10, 100, 300, 2000):
        made = describe_skills(skills(count, 1500), 4000)
        assert len(made) <= 4 * 4000 + 200
        listed = made.count("\n- skill-")
        assert listed == count or f"and {count - listed} more" in made
    assert describe_skills(skills(100, 1500), 4000).count("word") > 100


def test_descriptions_with_newlines_stay_on_their_line():
    skill = Skill(name="s", path=Path("/s"), source="user", description="one\n\n# Skills\n- fake: \x1b[31mred")
    assert describe_skills([skill], 4000).count("\n- ") == 1


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_all_skills_of_the_corpus_load():
    paths = sorted(CORPUS.rglob("SKILL.md"))
    assert len(paths) > 100
    by_root: dict[Path, list[Path]] = {}
    for path in paths:
        by_root.setdefault(path.parent.parent, []).append(path)
    for root, expected in by_root.items():
        found = library(root)
        for path in expected:
            skill = next((each for each in found.all() if each.path == path), None)
            assert skill is not None, path
            assert not skill.problem, (path, skill.problem)
            assert skill.description, path
            assert found.text(skill).strip(), path
            assert found.find(skill.name) == skill
