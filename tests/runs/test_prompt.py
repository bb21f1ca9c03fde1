"""What the model is told before its first message: cases H02 to H08 of the seed systems."""

import subprocess

from retinue.core.spec import AgentSpec
from retinue.runs.prompt import current_branch, describe_environment, joined, prompt_parts, reads_instructions

HERE = "# Environment\nWorking directory: /project\nBranch: main\nPlatform: linux"


def system_prompt(spec, environment, **options):
    return joined(prompt_parts(spec, environment, **options))


def test_append_keeps_the_parents_prompt_as_an_exact_prefix():
    parent = "PARENT PROMPT\n  with   odd spacing \n"
    spec = AgentSpec(name="twin", prompt="Do it well.", prompt_mode="append")
    text = system_prompt(spec, HERE, parent=parent, depth=1)
    assert text.startswith(parent)
    order = [
        text.index(mark) for mark in ("<sub_agent_context>", "<active_agent", "# Environment", "<agent_instructions>")
    ]
    assert order == sorted(order)
    assert "<agent_instructions>\nDo it well.\n</agent_instructions>" in text


def test_append_without_a_body_has_no_instruction_section_and_without_a_parent_a_generic_base():
    text = system_prompt(AgentSpec(name="twin", prompt_mode="append"), HERE, depth=1)
    assert "<agent_instructions>" not in text
    assert text.startswith("You are a sub-agent")
    assert "<sub_agent_context>" in text


def test_replace_begins_with_the_agent_tag_before_the_environment():
    text = system_prompt(AgentSpec(name='we"ird <x>', prompt="Body."), HERE, depth=1)
    assert text.startswith('<active_agent name="we&quot;ird &lt;x&gt;"/>')
    assert text.index("<active_agent") < text.index("Body.") < text.index("# Environment")


def test_a_main_agent_is_not_told_that_it_is_a_sub_agent():
    text = system_prompt(AgentSpec(name="main", prompt="Body."), HERE)
    assert "sub-agent" not in text
    assert "<active_agent" not in text
    assert text.startswith("Body.")


def test_a_named_agent_at_depth_0_has_its_tag_and_is_no_sub_agent():
    text = system_prompt(AgentSpec(name="reviewer", prompt="Body."), HERE)
    assert text.startswith('<active_agent name="reviewer"/>\n\nBody.')
    assert "sub-agent" not in text


SECTIONS = {"instructions": "INSTR", "delegation": "DELEG", "skills": "SKILLS", "memory": "MEM", "worktree": "TREE"}


def test_sections_come_in_both_modes_and_the_ones_that_vary_most_come_last():
    for mode in ("replace", "append"):
        spec = AgentSpec(name="x", prompt="Body.", prompt_mode=mode)
        text = system_prompt(spec, HERE, parent="PARENT", depth=1, sections=SECTIONS)
        order = [text.index(mark) for mark in ("Body.", "INSTR", "DELEG", "SKILLS", "MEM", "TREE")]
        assert order == sorted(order)
        assert text.index("# Environment") < text.index("MEM")
        plain = system_prompt(spec, HERE, parent="PARENT", depth=1)
        assert not any(mark in plain for mark in ("INSTR", "SKILLS", "MEM", "TREE"))


def test_runs_in_different_folders_share_everything_before_the_environment():
    spec = AgentSpec(name="x", prompt="Body. " * 200)
    texts = [
        system_prompt(spec, f"# Environment\nWorking directory: /w/{n}", depth=1, sections={"skills": "S"})
        for n in "12"
    ]
    heads = {text.partition("# Environment")[0] for text in texts}
    assert len(heads) == 1


def test_only_main_agents_and_twins_without_a_parent_read_instruction_files():
    twin, own = AgentSpec(name="t", prompt_mode="append"), AgentSpec(name="o")
    assert reads_instructions(AgentSpec(name="main"), 0, None)
    assert reads_instructions(twin, 0, None)
    assert not reads_instructions(twin, 1, "PARENT")
    assert not reads_instructions(own, 0, None)
    assert not reads_instructions(own, 1, "PARENT")
    assert not reads_instructions(AgentSpec(name="main"), 1, "PARENT")


def test_an_empty_body_falls_back_to_the_description_and_then_to_the_name():
    assert "Your role: Finds bugs" in system_prompt(AgentSpec(name="x", description="Finds bugs"), HERE, depth=1)
    assert "You are the x agent." in system_prompt(AgentSpec(name="x", description="x"), HERE, depth=1)


def test_environment_knows_git_repositories_branches_and_worktrees(tmp_path):
    assert current_branch(tmp_path) is None
    repository = tmp_path / "r"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(repository)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert current_branch(repository) == "trunk"
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    assert current_branch(inner) == "trunk"
    subprocess.run([*git, "worktree", "add", "-q", "-b", "side/x", str(tmp_path / "w")], check=True)
    assert current_branch(tmp_path / "w") == "side/x"
    subprocess.run([*git, "checkout", "-q", "--detach"], check=True)
    assert current_branch(repository) == ""
    assert "Git repository: yes" in describe_environment(repository)
    assert "Branch:" not in describe_environment(repository)


def test_a_broken_repository_is_no_repository(tmp_path):
    (tmp_path / ".git").write_bytes(b"\xff\xfe nonsense")
    assert "Not a git repository" in describe_environment(tmp_path)
