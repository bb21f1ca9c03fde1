"""Who may serve a run, and why nobody can."""

import pytest
from msgspec.structs import replace

from retinue.core.request import ClusterPlacement, RunNeeds, WorkerView, explain_waiting
from retinue.errors import UsageError

WORKER = WorkerView(id="abcdef0123", host="one", pid=7, labels=("gpu",), providers=("anthropic",), version="1.2")
NEEDS = RunNeeds("anthropic", ("gpu",), (), "1.2")


def test_a_worker_must_have_everything_that_a_run_needs():
    assert WORKER.lacks(NEEDS) == []
    assert WORKER.lacks(replace(NEEDS, labels=("gpu", "linux"))) == ["lacks the label linux"]
    assert WORKER.lacks(replace(NEEDS, provider="openai")) == ["has no key of openai"]
    assert WORKER.lacks(replace(NEEDS, allow=("hooks",))) == ["does not allow hooks of senders"]
    assert replace(WORKER, draining=True).lacks(NEEDS) == ["is draining"]


def test_another_version_is_refused_with_a_sentence():
    said = explain_waiting(replace(NEEDS, version="1.3"), [WORKER])
    assert said == "No worker can serve this run: worker abcdef01 on one runs Retinue 1.2, and this is 1.3."
    assert explain_waiting(NEEDS, [WORKER]) is None
    assert "Start one: retinue worker" in explain_waiting(NEEDS, [])


def test_where_a_run_works_as_files_and_people_write_it():
    assert ClusterPlacement.read("local") is None
    assert ClusterPlacement.read("cluster") == ClusterPlacement()
    assert ClusterPlacement.read("cluster:linux, gpu") == ClusterPlacement(("gpu", "linux"))
    assert ClusterPlacement.read("cluster:priority=0,gpu") == ClusterPlacement(("gpu",), 0)
    for wrong in ("priority=10", "priority=-1", "priority=", "priority=1,priority=2"):
        with pytest.raises(UsageError, match="no priority"):
            ClusterPlacement.read(f"cluster:{wrong}")
    with pytest.raises(UsageError, match="no place 'moon'"):
        ClusterPlacement.read("moon")
