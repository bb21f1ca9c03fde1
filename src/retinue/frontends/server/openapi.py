"""The routes as an OpenAPI 3.1 document. Types become JSON Schema, docstrings become descriptions."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from retinue.core.version import __version__
from retinue.frontends.server.params import NoParams
from retinue.frontends.server.problem import PROBLEM_MEDIA_TYPE, STATUS_TITLES, ProblemDetails
from retinue.frontends.server.routes import ROUTES, Route

_SCHEMA_REFERENCE = "#/components/schemas/{name}"
_COMMON_ERROR_STATUSES = (400, 401, 403, 422, 429)
_API_DESCRIPTION = (
    "Runs of agents in this project, whichever process runs them: see them, follow them, step in. Every request needs "
    "the token that `retinue serve` prints. Errors are RFC 9457 problems with a stable `code` and a `remedy`."
)


def openapi_document() -> dict[str, Any]:
    """Return the complete document."""
    types: list[Any] = [ProblemDetails]
    for route in ROUTES:
        types += filter(None, (route.body, route.document))
    _, components = msgspec.json.schema_components(types, ref_template=_SCHEMA_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Retinue", "version": __version__, "description": _API_DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.help,
        "parameters": [*_parameters(route), *_header_parameters(route)],
        "responses": {str(route.status): _success(route)},
    }
    body_errors = (408, 413, 415) if route.body is not None else ()
    for status in sorted({*_COMMON_ERROR_STATUSES, *route.errors, *body_errors}):
        schema = {"$ref": _SCHEMA_REFERENCE.format(name=ProblemDetails.__name__)}
        operation["responses"][str(status)] = {
            "description": STATUS_TITLES[status],
            "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}},
        }
    if route.body is not None:
        schema = {"$ref": _SCHEMA_REFERENCE.format(name=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _success(route: Route) -> dict[str, Any]:
    if route.streams:
        text = "Server-sent events. `id` is the number of an event, `data` the event as one JSON object."
        return {"description": text, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if route.document is None:
        return {"description": route.help, "content": {"text/plain": {"schema": {"type": "string"}}}}
    schema = {"$ref": _SCHEMA_REFERENCE.format(name=route.document.__name__)}
    about = " ".join((route.document.__doc__ or "").split())
    return {"description": about, "content": {"application/json": {"schema": schema}}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    if route.params is NoParams:
        return []
    (reference,), components = msgspec.json.schema_components([route.params], ref_template=_SCHEMA_REFERENCE)
    schema = components[reference["$ref"].rpartition("/")[2]]
    parameters = []
    for name, about in parameter_help(route.params).items():
        where = "path" if f"{{{name}}}" in route.path else "query"
        required = name in schema.get("required", ())
        kind = _without_null(schema["properties"][name])
        parameters.append({"name": name, "in": where, "required": required, "description": about, "schema": kind})
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter without null, which a query cannot express."""
    some = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    return some[0] if len(some) == 1 else schema


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    parameters = []
    for name, about in route.headers.items():
        kind = {"type": "string", "minLength": 1, "maxLength": 200}
        if name == "Last-Event-ID":
            kind = {"type": "string", "pattern": "^[0-9]{1,16}$"}
        parameters.append({"name": name, "in": "header", "required": False, "description": about, "schema": kind})
    return parameters


@cache
def parameter_help(kind: type[Struct]) -> dict[str, str]:
    """Return the parameters of a class with the text below each of them, those of its bases first."""
    help_of: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is Struct or not issubclass(base, Struct) or base.__module__ != kind.__module__:
            continue
        body = ast.parse(inspect.getsource(base)).body[0]
        assert isinstance(body, ast.ClassDef)
        last = ""
        for statement in body.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                last = statement.target.id
                help_of.setdefault(last, "")
            elif last and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                help_of[last] = " ".join(str(statement.value.value).split())
    return help_of
