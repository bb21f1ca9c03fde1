"""The model of a run: which one it gets, and how its requests are limited.

A project may have a source of its own, which answers in place of all providers: then no provider is asked and no
limit is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.request import RunRequest
from retinue.core.tool import Tool
from retinue.errors import UnknownModelError
from retinue.models.inventory import with_real_window
from retinue.models.limiter import LimiterGate, account_of, process_limiters, shared_prefix
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection, build_model, select_model
from retinue.runs.consent import with_consent
from retinue.settings.table import SMALL

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.models.protocol import Model
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.project import Project


async def choose_model(
    request: RunRequest, project: Project, notes: list[str], parent: Launch | None
) -> ModelSelection:
    """The model of the run. Asked again in the same moment, it costs nothing."""
    if project.model_source is not None:
        return project.model_source.select(request)
    of_file = request.spec.model.name
    if "model" in request.pinned and request.model and of_file:
        notes.append(f"model {request.model} replaces {of_file} of the file")
        of_file = None
    wanted, models = request.model, project.program_models
    if models.default is not None and not (wanted and "model" in request.pinned):
        wanted, of_file = models.default, None
    above = parent.model.info if parent else None
    small = False
    if of_file is None and _is_explore(request.spec):
        preferred = project.settings.settings.explore_model
        small = preferred == SMALL
        of_file = None if small or wanted else preferred
    key = ("model", wanted, of_file, small, request.spec.model.fallbacks, above.full_name if above else None)
    selection: ModelSelection | None = project.round.get(key)
    if selection is None:
        try:
            selection = await select_model(
                wanted,
                file_model=of_file,
                fallbacks=request.spec.model.fallbacks,
                parent=above,
                settings=project.settings.settings,
                environment=project.environment,
                transport=project.transport,
                program_models=models,
                small=small,
            )
        except UnknownModelError as error:
            raise UnknownModelError(error.message, remedy=with_consent(error.remedy, "providers", project)) from None
        selection = await _with_real_window(selection, project)
        project.round.keep(key, selection)
    notes.extend(selection.warnings)
    return selection


def _is_explore(spec: AgentSpec) -> bool:
    """Return whether it is the shipped Explore, for whose model there is a setting."""
    return spec.source == "builtin" and spec.name == "Explore"


async def _with_real_window(selection: ModelSelection, project: Project) -> ModelSelection:
    """A server on this machine is asked how much its model can hold there."""
    if not selection.provider.runs_models:
        return selection
    providers = Providers(project.settings.settings, project.environment)
    return await with_real_window(selection, providers, project.transport, project.on_wait)


def _gate(selection: ModelSelection, system: str, tools: tuple[Tool, ...]) -> LimiterGate | None:
    """All runs of this process at one provider share one limiter; embedded models need none."""
    provider = selection.provider
    brought = selection.model is not None
    if brought or (provider.api == "embedded" and provider.id == "offline"):
        return None
    prefix = shared_prefix(provider, selection.info.id, system, [tool.spec for tool in tools])
    limiters = process_limiters()
    return limiters.gate_for(provider.id, account_of(provider), prefix)


SEARCHING_AGENTS = frozenset({"explore", "explorer"})
"""What these do, the search planner can do, too."""


def _lacks_model(plan: LaunchPlan, selection: ModelSelection) -> bool:
    """Return whether nobody chose the planner that a run would get, and the agent does more than search. A person who
    goes on without a model has chosen it."""
    if selection.source != "offline" or plan.request.spec.name.lower() in SEARCHING_AGENTS:
        return False
    from retinue.models.setup import is_without_model

    return not is_without_model(plan.project.environment)


def build_for(
    plan: LaunchPlan, selection: ModelSelection, system: str, tools: tuple[Tool, ...]
) -> tuple[Model, LimiterGate | None]:
    """Return the model of a run that begins now, and where its requests wait."""
    source = plan.project.model_source
    if source is not None:
        return source.build(plan.request, plan.run_id), None
    if _lacks_model(plan, selection):
        from retinue.models.offline.planner import MissingModel

        return MissingModel(), None
    gate = _gate(selection, system, tools)

    def gate_for(chosen: ModelSelection) -> LimiterGate | None:
        if chosen.provider.id == selection.provider.id:
            return gate
        other = _gate(chosen, system, tools)
        if gate is not None and other is not None:
            other.waiting = gate.waiting
        return other

    return build_model(selection, plan.project.transport, gate_for=gate_for), gate
