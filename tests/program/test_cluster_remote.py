"""Files of runs that travel through a git server instead of the database, each machine with credentials of its own."""

import json
from functools import partial

import pytest

from retinue.cluster.cluster_tables import ClusterTables, StoredWorkspace
from retinue.cluster.retention import remove_from_remotes
from tests.git_server import PASSWORD, GitServer
from tests.program.cluster_scene import Gate, WorkerProcess, result, steps

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow


@pytest.fixture
def git_server(tmp_path, scene):
    """A git server that the sender's settings name as `origin`."""
    made = GitServer(tmp_path / "server")
    made.let_in(scene.project.home)
    (scene.project.home / ".retinue").mkdir(exist_ok=True)
    (scene.project.home / ".retinue" / "settings.json").write_text(json.dumps({"workspaceRemote": "origin"}))
    scene.git("remote", "add", "origin", made.url)
    yield made
    made.close()


def start_worker(scene, git_server, *arguments, remote="/team"):
    """Start a worker that has credentials, and may use repositories below one folder of the server."""
    home = scene.folder / f"worker-{len(scene.workers)}"
    git_server.let_in(home)
    begin = git_server.url.removesuffix("/team/work.git") + remote
    return scene.worker("--remote", begin, *arguments)


def run_and_kill(scene, git_server, gate):
    """Kill the worker of a run at the gate when there is another, and return what the run said in the end."""
    start = partial(start_worker, scene, git_server)
    first, process = scene.run_to(gate, start=start)
    scene.replace(first, gate, start)
    return result(process)


def stored_in_database(scene):
    import psycopg

    with psycopg.connect(scene.url) as connection:
        keys = [row[0] for row in connection.execute("SELECT commit FROM retinue.bundle_parts")]
        rows = connection.execute("SELECT workspaces::text FROM retinue.workspaces").fetchall()
    return [key for key in keys if not key.endswith((":home", ":memory", ":outputs"))], str(rows)


def test_files_go_out_and_come_back_through_the_remote_and_nothing_through_the_database(scene, serve, git_server):
    serve(steps)
    (scene.project.cwd / "README.md").write_text("changed and not committed\n")
    worker = start_worker(scene, git_server)
    scene.ready(1)
    found = result(scene.run("Do all steps", "--json"))
    branch = found["branch"]
    assert scene.file(branch, "done.txt").split() == ["0", "1", "2", "3"]
    assert scene.file(branch, "README.md") == "changed and not committed\n"
    keys, rows = stored_in_database(scene)
    assert keys == []
    assert git_server.url in rows
    assert PASSWORD not in rows
    assert any(f"its branch is also on {git_server.url}, as {branch}" in note for note in found["notes"])
    assert git_server.git("show", f"{branch}:done.txt").split() == ["0", "1", "2", "3"]
    worker.process.terminate()
    worker.process.wait(30)
    scene.workers.append(
        WorkerProcess(scene.worker_variables, worker.home, "--keep-days", "0.000001", "--remote", git_server.url)
    )
    scene.until(lambda: git_server.refs() == [f"refs/heads/{branch}"])


@pytest.mark.parametrize("turn", [0, 2])
def test_a_killed_worker_is_replaced_by_one_that_fetches_its_files(scene, serve, git_server, turn):
    gate = Gate(turn)
    serve(gate.answer)
    found = run_and_kill(scene, git_server, gate)
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    assert not any("abandoned" in note for note in found["notes"])
    increments = [ref for ref in git_server.refs() if "/increment/" in ref]
    assert 1 <= len(increments) <= 2


def test_commits_of_the_agent_are_on_the_branch_after_a_takeover(scene, serve, git_server):
    gate = Gate(2)

    def answer(request):
        reply = gate.answer(request)
        for _, call in reply.calls:
            call["command"] += f" && git add -A && git commit -qm 'step {request.turn}'"
        return reply

    serve(answer)
    branch = run_and_kill(scene, git_server, gate)["branch"]
    assert scene.git("log", "--format=%s", branch).splitlines() == ["step 3", "step 2", "step 1", "step 0", "first"]
    assert git_server.git("rev-parse", branch) == scene.git("rev-parse", branch).strip()


def test_a_worker_that_may_not_use_the_remote_is_not_asked_and_says_why(scene, serve, git_server):
    serve(steps)
    start_worker(scene, git_server, remote="/others")
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    scene.until(lambda: scene.json("runs", "list", "--json")["runs"])
    run_id = scene.only_run()["id"]
    scene.until(lambda: scene.warnings(run_id))
    assert f"may not use the git remote {git_server.url} (its option --remote)" in scene.warnings(run_id)[0]
    start_worker(scene, git_server)
    assert scene.file(result(process)["branch"], "done.txt").split() == ["0", "1", "2", "3"]


def test_a_remote_that_refuses_the_sender_stops_the_run_before_it_begins(scene, serve, git_server):
    serve(steps)
    (scene.project.home / ".gitconfig").unlink()
    start_worker(scene, git_server)
    scene.ready(1)
    process = scene.run("Do all steps")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"could not be sent to {git_server.url}" in said
    assert "Authentication failed" in said
    assert "Run it here, without --on cluster" in said


def test_a_branch_that_nobody_waited_for_is_fetched_from_the_remote(scene, serve, git_server):
    gate = Gate(1)
    serve(gate.answer)
    _, process = scene.run_to(gate, start=partial(start_worker, scene, git_server))
    process.kill()
    process.wait()
    gate.open.set()
    scene.until(lambda: scene.only_run()["state"] == "ended")
    run_id = scene.only_run()["id"]
    tables = ClusterTables(scene.url)
    assert tables.finished_on_remotes(0) == [], "nobody has its branch"
    done = scene.project.retinue("workers", "fetch", run_id, env=scene.variables)
    assert done.returncode == 0, done.stderr
    assert scene.file(done.stdout.strip(), "done.txt").split() == ["0", "1", "2", "3"]
    assert [run for _, run, _ in tables.finished_on_remotes(0)] == [run_id]
    # A server that is gone does not keep the commits on others.
    gone = StoredWorkspace("base", "a" * 40, remote="http://127.0.0.1:1/gone.git")
    tables.save_workspace("another", "a-run", gone, None)
    tables.mark_home("another", "a-run")
    environment = scene.project.environment
    said = remove_from_remotes(tables, 0, lambda url: True, environment)
    assert f"Removed of ended runs: the commits of {run_id} at {git_server.url}." in said
    assert any(
        sentence.startswith(f"Commits of ended runs could not be removed from {gone.remote}") for sentence in said
    )
    assert [run for _, run, _ in tables.finished_on_remotes(0)] == ["a-run"]
    tables.close()


def test_what_the_remote_does_not_take_comes_through_the_database(scene, serve, git_server):
    gate = Gate(2)
    serve(gate.answer)
    _, process = scene.run_to(gate, start=partial(start_worker, scene, git_server))
    git_server.down = 10**6
    gate.open.set()
    found = result(process)
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    assert any(f"its branch could not be pushed to {git_server.url}" in note for note in found["notes"])


def test_a_remote_that_is_away_when_a_run_is_taken_over_is_waited_for(scene, serve, git_server):
    gate = Gate(2)
    serve(gate.answer)
    start = partial(start_worker, scene, git_server)
    first, process = scene.run_to(gate, start=start)
    git_server.down = 10**6
    second = scene.replace(first, gate, start)
    scene.until(lambda: any("does not answer" in line for line in second.said))
    git_server.down = 0
    found = result(process)
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
