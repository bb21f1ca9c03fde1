"""The roles of docs/cluster.md: a run through them, and what a sender's role cannot do."""

import re
import uuid
from pathlib import Path

import psycopg
import pytest

from tests.program.cluster_scene import result, steps

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
NAMES = ("retinue_workers", "retinue_senders", "worker", "ann")


@pytest.fixture
def roles(scene):
    """Return the statements of the page, with names of their own: roles belong to the whole server."""
    mark = uuid.uuid4().hex[:8]
    ((database,),) = scene.execute("SELECT current_database()")
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for name in NAMES:
        blocks = [re.sub(rf"\b{name}\b(?! FROM)(?=[ ;,])", f"{name}_{mark}", block) for block in blocks]
    blocks = [block.replace("DATABASE retinue ", f'DATABASE "{database}" ') for block in blocks]
    urls = {name: scene.url.replace("//postgres:", f"//{name}_{mark}:") for name in ("worker", "ann")}
    yield blocks, urls
    scene.close()
    for name in NAMES:
        scene.execute(f"DROP OWNED BY {name}_{mark}")
    for name in reversed(NAMES):
        scene.execute(f"DROP ROLE {name}_{mark}")


def test_a_run_goes_through_the_roles_of_the_page_and_a_sender_gets_no_further(scene, serve, roles):
    serve(steps)
    (first, second), urls = roles
    scene.execute(first)
    administrator, scene.url = scene.url, urls["worker"]
    scene.worker("--project", scene.name)
    scene.ready(1)
    scene.url = administrator
    scene.execute(second)
    scene.url = urls["ann"]
    found = result(scene.run("Do all steps", "--json"))
    assert found["output"].startswith("all steps done")
    assert scene.file(found["branch"], "done.txt")
    refused = (
        "SELECT count(*) FROM dbos.workflow_status",
        "DELETE FROM retinue.workers",
        "UPDATE retinue.workers SET view=''",
        "CREATE SCHEMA evil",
        "CREATE TABLE retinue.evil (a int)",
        f'CREATE FUNCTION "retinue_{scene.name}".evil() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$',
        f'ALTER TABLE "retinue_{scene.name}".events DISABLE TRIGGER ALL',
        "DROP TABLE retinue.workspaces",
    )
    for statement in refused:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            scene.execute(statement)
    other = scene.project.retinue("-p", "x", env={**scene.variables, "RETINUE_DATABASE_PROJECT": "another"})
    assert other.returncode != 0 and "retinue worker --project" in other.stderr
    scene.url = administrator
