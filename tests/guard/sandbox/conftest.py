from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.kernel import why_not
from retinue.guard.sandbox.policy import SandboxPolicy, bubblewrap_works, namespaces_work


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One for all attempts of a module: none of them changes it."""
    if why_not() is not None:
        pytest.skip(why_not())
    scene = Scene(tmp_path_factory.mktemp("scene"))
    yield scene
    scene.close()


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    if why_not() is not None:
        pytest.skip(why_not())
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture(
    scope="module", params=["must", "never", "bubblewrap"], ids=["namespaces", "landlock-only", "bubblewrap"]
)
def walls(request: pytest.FixtureRequest) -> str:
    if request.param == "must" and not namespaces_work():
        pytest.skip("namespaces are not available here")
    if request.param == "bubblewrap" and not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    return str(request.param)


def readonly(scene: Scene, walls: str, **more: object) -> Box:
    return Box(SandboxPolicy(hidden=(scene.home / ".retinue",), home=scene.home, namespaces=walls, **more), "run")
