from tests.workspace.worktree_scene import scene  # noqa: F401 - a fixture
