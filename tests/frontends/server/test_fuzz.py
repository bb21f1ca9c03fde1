"""Whatever is sent to any route, the answer has a status that the OpenAPI document promises, and never 5xx."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.frontends.server.conftest import Served
from tests.program.conftest import Project

from retinue.frontends.server.openapi import openapi_document
from retinue.frontends.server.routes import ROUTES, Route

SLOW = {"get_doctor", "get_models"}
TESTED = [route for route in ROUTES if not route.streams and route.name not in SLOW]
DOCUMENT = openapi_document()

words = st.one_of(st.text(max_size=30), st.sampled_from(["", "0", "-1", "true", "null", "@x", "..", "%", "a" * 600]))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("fuzzed")
    project = Project(folder / "project", folder / "home")
    project.cwd.mkdir()
    project.home.mkdir()
    process: subprocess.Popen[str] = project.start("serve", "--port", "0", "--json", "--no-browser")
    yield Served(process, project)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert "Traceback" not in error


def bodies(route: Route) -> st.SearchStrategy[Any]:
    """Anything, and objects with the right names."""
    if route.body is None:
        return st.none()
    names = route.body.__struct_fields__
    return st.one_of(values, st.dictionaries(st.sampled_from(names), values, max_size=4) if names else st.just({}))


@pytest.mark.parametrize("route", TESTED, ids=lambda route: route.name)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_request_is_answered_with_a_failure_of_the_server(server: Served, route: Route, data: Any) -> None:
    path, query = route.path, {}
    for name in route.params.__struct_fields__:
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", urllib.parse.quote(data.draw(words.filter(bool)), safe=""))
        elif data.draw(st.booleans()):
            query[name] = data.draw(words)
    if query:
        path += "?" + urllib.parse.urlencode(query)
    body = None
    if route.body is not None:
        body = json.dumps(data.draw(bodies(route))).encode()
    status, headers, document = server.request(route.method, path, body)
    promised = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
    # A path with a slash or a dot in it may lead to another route, or to none.
    assert str(status) in promised or status in (404, 405), document
    if status >= 400:
        assert headers["content-type"] == "application/problem+json"
        assert document["status"] == status and document["code"]
