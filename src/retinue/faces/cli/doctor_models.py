"""The doctor's look at models: which would be used, and which keys are there (names only)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from retinue.errors import RetinueError
from retinue.faces.cli.doctor_checks import Patient
from retinue.models.providers import Providers
from retinue.models.select import Selection, select_model

Row = tuple[str, ...]


def models(patient: Patient) -> Iterator[Row]:
    settings = patient.loaded.settings
    configured = list(Providers(settings, patient.environment).configured())
    for provider in configured:
        if provider.problem is not None:
            yield "warning", provider.id, provider.problem, "See: retinue models list"
        elif provider.api_key or provider.helper is not None:
            yield "ok", provider.id, f"key from {provider.key_source or provider.key_variable or 'settings'}"
        else:
            yield "ok", provider.id, "no key needed"
    try:
        chosen = asyncio.run(select_model(settings=settings, environment=patient.environment))
    except RetinueError as error:
        yield "failure", "default", error.message, error.remedy or "See: retinue models list"
        return
    if chosen.info.provider == "offline":
        remedy = "Set a key, such as ANTHROPIC_API_KEY, or describe a server under `providers` in the settings."
        yield "warning", "default", f"{chosen.info.full_name}, which is not a language model", remedy
        return
    problem = _cannot_build(chosen)
    if problem is not None:
        yield "failure", "default", f"{chosen.info.full_name}: {problem.message}", problem.remedy or ""
    else:
        yield "ok", "default", f"{chosen.info.full_name}: {chosen.why}"


def _cannot_build(chosen: Selection) -> RetinueError | None:
    """Why the model cannot be used, such as a library of an extra that is not installed."""
    from retinue.http.transport import Transport
    from retinue.models.build import build_model

    try:
        build_model(chosen, Transport())
    except RetinueError as error:
        return error
    return None
