"""Rows that someone else has put into the shared database: nothing of them runs, leads elsewhere, or stops a worker."""

import base64
import json
import os
import pickle
import time
import uuid

import pytest

from retinue.settings.places import digest
from tests.program.cluster_scene import ClusterScene, Gate, result, steps

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow


class Starts:
    """Unpickling it starts a program."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def plant_workflow(scene: ClusterScene, queue: str, inputs: str, serialization: str | None) -> str:
    now, name = int(time.time() * 1000), str(uuid.uuid4())
    columns = {
        "workflow_uuid": name,
        "status": "ENQUEUED",
        "name": "retinue_attempt",
        "queue_name": queue,
        "inputs": inputs,
        "serialization": serialization,
        "application_version": "1",
        "created_at": now,
        "updated_at": now,
        "priority": 0,
    }
    marks = ", ".join(["%s"] * len(columns))
    scene.execute(f"INSERT INTO dbos.workflow_status ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
    return name


def queue_of_workers(scene: ClusterScene) -> str:
    ((view,),) = scene.execute("SELECT view FROM retinue.workers")
    return json.loads(view)["queue"]


def test_a_pickled_row_starts_nothing_and_is_reported_once(scene, serve):
    serve(steps)
    worker = scene.worker()
    scene.ready(1)
    started = scene.folder / "started"
    pickled = base64.b64encode(pickle.dumps(Starts(f"touch {started}"))).decode()
    queue = queue_of_workers(scene)
    names = [
        plant_workflow(scene, each, pickled, serialization)
        for each in (queue, "_dbos_internal_queue")
        for serialization in ("py_pickle", None, "retinue_json", "portable_json")
    ]

    def are_over():
        query = "SELECT count(*) FROM dbos.workflow_status WHERE workflow_uuid=ANY(%s) AND status='ERROR'"
        return scene.execute(query, (names,)) == [(len(names),)]

    scene.until(are_over)
    assert not started.exists()
    assert len([line for line in worker.said if "pickled value" in line]) == 1
    assert not any("Traceback" in line for line in worker.said)
    assert result(scene.run("Do all steps", "--json"))["output"].startswith("all steps done")


@pytest.mark.parametrize("text", ["7", "[]", '"../../x"', '"{}"', '"{\\"project\\": \\"../x\\"}"'])
def test_an_entry_of_the_queue_that_is_no_attempt_takes_no_place(scene, serve, text):
    serve(steps)
    worker = scene.worker("--concurrency", "1")
    scene.ready(1)
    queue = queue_of_workers(scene)
    for _ in range(3):
        plant_workflow(scene, queue, f'{{"args": [{text}], "kwargs": {{}}}}', "retinue_json")
    assert result(scene.run("Do all steps", "--json"))["output"].startswith("all steps done")
    assert len([line for line in worker.said if "It is skipped." in line]) == 1, worker.said
    assert not any("Traceback" in line for line in worker.said)


def needs_of(scene: ClusterScene) -> str:
    return json.dumps({"version": json.loads(scene.execute("SELECT view FROM retinue.workers")[0][0])["version"]})


def offer(scene: ClusterScene, project: str, run_id: str, needs: str, number: int = 1) -> None:
    query = "INSERT INTO retinue.placements VALUES (%s, %s, %s, '', %s, NULL, 0)"
    scene.execute(query, (project, run_id, number, needs))
    scene.execute("NOTIFY retinue")


def test_offers_that_cannot_be_served_are_removed_and_reported_once_each(scene, serve):
    serve(steps)
    worker = scene.worker()
    scene.ready(1)
    needs = needs_of(scene)
    precious = worker.home / "precious"
    precious.mkdir()
    forged = [
        ("p", "../../../../precious", needs, 1),
        ("p", "../../../../other", needs, 1),
        ('p"; create table public.evil (a int); --', "run-1", needs, 1),
        ("../../x", "run-1", needs, 1),
        ("p", "run-2", "not json", 1),
        ("p", "run-3", '{"labels": 7}', 1),
        ("p", "run-4", '{"remote": "--upload-pack=touch x"}', 1),
        ("p", "run-5", needs, -1),
        (scene.name, "without-a-run", needs, 1),
        ("p", "run-6", json.dumps({"tenant": "x" * 300_000}), 1),
    ]
    for row in forged:
        offer(scene, *row)
    scene.until(lambda: scene.execute("SELECT count(*) FROM retinue.placements") == [(0,)])
    assert result(scene.run("Do all steps", "--json"))["output"].startswith("all steps done")
    assert precious.is_dir()
    assert scene.execute("SELECT to_regclass('public.evil')") == [(None,)]
    assert not any("Traceback" in line for line in worker.said), "".join(worker.said)
    assert len(worker.said) == len(set(worker.said))


def test_a_run_whose_offer_cannot_be_read_ends_with_the_reason(scene, serve):
    serve(steps)
    process = scene.run("Do all steps", "--labels", "nobody", "--json")
    scene.until(lambda: scene.execute("SELECT count(*) FROM pg_namespace WHERE nspname='retinue'") == [(1,)])
    scene.until(lambda: scene.execute("SELECT count(*) FROM retinue.placements") == [(1,)])
    scene.execute("UPDATE retinue.placements SET needs='broken'")
    scene.worker()
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "needs of an offer in the database cannot be read" in out


def test_a_commit_in_the_database_leads_to_no_other_folder(scene, serve):
    """`x/…-g<sha>` is a name of a commit for git, and a path for everyone else."""
    serve(steps)
    process, run_id = scene.send_and_hold()
    ((commit,),) = scene.execute("SELECT commit FROM retinue.workspaces WHERE run_id=%s AND kind='base'", (run_id,))
    path = f"x/../../../../plugins/evil-g{commit}"
    scene.execute("UPDATE retinue.workspaces SET commit=%s, history='' WHERE kind='base'", (path,))
    scene.execute("UPDATE retinue.bundle_parts SET commit=%s WHERE commit LIKE '%%:history'", (path,))
    worker = scene.worker("--labels", "later")
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"workspace (base) of run {run_id} in the database cannot be read" in out
    assert not (worker.home / ".retinue" / "plugins").exists()


def test_an_ended_run_with_a_path_as_its_id_removes_nothing(scene, serve):
    serve(steps)
    worker = scene.worker()
    scene.ready(1)
    assert result(scene.run("Do all steps", "--json"))["output"].startswith("all steps done")
    precious = worker.home / "precious"
    (precious / "inside").mkdir(parents=True)
    run_id = "../../../../precious"
    schema = f'"retinue_{scene.name}"'
    scene.execute(f"CREATE TEMP TABLE t AS TABLE {schema}.runs; UPDATE t SET id='{run_id}', root_id='{run_id}'; "
                   f"ALTER TABLE t DROP COLUMN rowid; INSERT INTO {schema}.runs OVERRIDING SYSTEM VALUE "
                   f"SELECT 999, t.* FROM t")  # fmt: skip
    needs = needs_of(scene)
    offer(scene, scene.name, run_id, needs)
    forged = json.dumps({"project": scene.name, "run_id": run_id, "number": 1, "needs": json.loads(needs)})
    plant_workflow(scene, queue_of_workers(scene), json.dumps({"args": [forged], "kwargs": {}}), "retinue_json")
    scene.until(lambda: scene.execute("SELECT count(*) FROM retinue.placements") == [(0,)])
    assert (precious / "inside").is_dir()
    scene.until(lambda: any("It is skipped." in line for line in worker.said))
    assert (precious / "inside").is_dir()


def test_a_transcript_in_the_database_is_no_other_file_of_the_worker(scene, serve):
    serve(steps)
    process, _ = scene.send_and_hold()
    home = scene.folder / "worker-0"
    state = home / ".retinue" / "projects" / f"{scene.name}@{digest(scene.url)}"
    path = f"{state}/../../../.bashrc"
    scene.execute(f'UPDATE "retinue_{scene.name}".runs SET transcript=%s', (path,))
    scene.worker("--labels", "later")
    assert result(process)["output"].startswith("all steps done")
    assert not (home / ".bashrc").exists()


def test_a_run_whose_id_is_a_path_is_no_run(scene, serve):
    serve(steps)
    scene.worker()
    scene.ready(1)
    result(scene.run("Do all steps", "--json"))
    run_id = scene.only_run()["id"]
    schema = f'"retinue_{scene.name}"'
    for number, forged in enumerate(("../../../x", "a/b", "x" * 65, "-x", "a\nb")):
        scene.execute(
            f"INSERT INTO {schema}.runs OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(NULL::{schema}.runs, "
            "to_jsonb(runs) || jsonb_build_object('id', %s::text, 'rowid', %s::int))).* "
            f"FROM {schema}.runs WHERE id=%s",
            (forged, 900 + number, run_id),
        )
    assert [row["id"] for row in scene.json("runs", "list", "--json")["runs"]] == [run_id]
    for forged in ("../../../x", "a/b"):
        done = scene.project.retinue("runs", "show", forged, env=scene.variables)
        assert done.returncode != 0 and "There is no run" in done.stderr


def test_a_transcript_in_the_database_is_no_other_file_of_who_resumes_the_run(scene, serve):
    gate = Gate(1)
    serve(gate.answer)
    process = scene.project.start("run", "general-purpose", "Do all steps", env=scene.variables)
    assert gate.reached.wait(60)
    process.kill()
    process.wait()
    gate.open.set()
    path = scene.project.home / ".bashrc"
    scene.execute(f'UPDATE "retinue_{scene.name}".runs SET transcript=%s', (str(path),))
    done = scene.project.retinue("runs", "resume", scene.only_run()["id"], env=scene.variables)
    assert done.returncode == 0, done.stderr
    assert not path.exists()
