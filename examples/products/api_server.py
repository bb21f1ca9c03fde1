"""A web service that runs agents and asks a person before they change anything.

pip install fastapi uvicorn
uvicorn examples.products.api_server:app

POST /runs {"task": "…"}           start a run; returns its id
GET  /runs/{id}                    how it stands, and its answer
GET  /approvals                    what waits for a person
POST /approvals/{id} {"choice": …} allow or deny it
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from retinue import Retinue, RetinueError, Run


class Task(BaseModel):
    task: str
    agent: str = "general-purpose"


class Choice(BaseModel):
    choice: Literal["allow", "deny"]


class Service:
    """The crew of one project, and the runs that were asked for."""

    crew: Retinue
    runs: dict[str, Run[Any]]


service = Service()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # "wait": a question stays in the inbox until somebody answers it here.
    settings = {"permissions": {"headless": "wait"}}
    async with Retinue(os.environ.get("PROJECT", "."), settings=settings) as crew:
        service.crew, service.runs = crew, {}
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/runs", status_code=201)
async def start(task: Task) -> dict[str, str]:
    try:
        run = await service.crew.spawn(task.agent, task.task, asked={"by": "api"})
    except RetinueError as error:
        raise HTTPException(422, str(error)) from error
    service.runs[run.id] = run
    return {"id": run.id}


@app.get("/runs/{run_id}")
async def show(run_id: str) -> dict[str, Any]:
    run = service.runs.get(run_id)
    if run is None:
        raise HTTPException(404, "There is no such run.")
    outcome = run.outcome
    if outcome is None:
        return {"state": "running"}
    return {"state": outcome.ended, "text": outcome.text, "written": list(outcome.evidence.files_written)}


@app.get("/approvals")
async def approvals() -> list[dict[str, str]]:
    return [{"id": item.id, "title": item.title, "detail": item.detail} for item in service.crew.inbox.items()]


@app.post("/approvals/{item_id}")
async def answer(item_id: str, choice: Choice) -> dict[str, str]:
    try:
        await service.crew.inbox.answer(item_id, choice.choice)
    except RetinueError as error:
        raise HTTPException(409, str(error)) from error
    return {"answered": choice.choice}
