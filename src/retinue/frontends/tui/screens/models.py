"""Models: choose one from the common list, and set one up if there is none.

The screen shows known models at once, and asks servers for theirs while it is open. The person types a key into a field
that does not show it. The key is tried with one small request, and is saved outside of every project.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import Static
from textual.widgets.option_list import Option

from retinue.app.model_choice import find_models, go_without_model, providers_of, try_provider, ways_to_a_model
from retinue.app.models import KEY_PAGES, ModelInfo, model_line, view_model
from retinue.app.rich_text import fit, one_line
from retinue.errors import RetinueError
from retinue.frontends.tui.builtin_commands import use_model
from retinue.frontends.tui.frame import Frame, sentence
from retinue.frontends.tui.screens.dialogs import Ask, Pick
from retinue.frontends.tui.screens.sheet import ListPage

ADD = "add"
HINT = "Enter uses it from your next message on · Ctrl+D for good · Esc closes"
MAX_LISTED_MODELS = 400


class ModelsScreen(ListPage[str | None]):
    """Returns the full name of the chosen model, which is used from the next message on."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+d", "choose_always", show=False, priority=True)]
    heading = "Models"
    hint = "Asking the servers …"
    searches = True

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self._models: tuple[ModelInfo, ...] = ()
        self._active = ""

    def on_mount(self) -> None:
        self._active = self.host.status_facts().model
        self._models = providers_of(self.host.project).models
        super().on_mount()
        self._ask()

    def choose(self, key: str | None) -> None:
        self._choose(key, always=False)

    def action_choose_always(self) -> None:
        self._choose(self.chosen, always=True)

    @work
    async def _ask(self) -> None:
        choice = await find_models(self.host.project)
        if not self.is_mounted:
            return
        self._models = choice.models
        if not self._active and choice.active is not None:
            self._active = choice.active.info.full_name
        self.fill()
        problem = f"{choice.problem.message} " if choice.problem is not None else ""
        self.query_one(".hint", Static).update(Text(f"{problem}{HINT}", "dim"))

    def fill(self) -> None:
        before = self.chosen
        rows = model_rows(self._models, [word.lower() for word in self.words], self._active, self.room)
        self.options.set_options(Option(shown, id=name) for name, shown in rows)
        names = [name for name, _ in rows]
        if before not in names or before == ADD:
            before = self._active
        self.options.highlighted = names.index(before) if before in names else 0

    @work
    async def _choose(self, name: str | None, *, always: bool) -> None:
        if name == ADD:
            self.dismiss(await self.host.open_screen("first_model"))
        elif name is not None and await use_model(self.host, name, always=always):
            self.dismiss(name)


def model_rows(models: Sequence[ModelInfo], words: Sequence[str], now: str, width: int) -> list[tuple[str, Text]]:
    """Return the models that contain all words, as (full name, line). The last row sets up another model."""
    rows = []
    for info in models:
        text = model_line(view_model(info))
        if all(word in text.lower() for word in words):
            mark = "*" if info.full_name == now else " "
            rows.append((info.full_name, Text(fit(f"{mark} {one_line(text)}", width), no_wrap=True)))
    rows = rows[:MAX_LISTED_MODELS]
    rows.append((ADD, Text("  Set up another: a key, a server, an address", no_wrap=True)))
    return rows


# A first model


class FirstModelScreen(Pick):
    """Offers every way to set up a model, and follows the chosen one. Returns the model, or None."""

    def __init__(self, *_: str) -> None:
        super().__init__(
            "Which model shall answer?",
            [("planner", "Looking for servers on this machine …")],
            detail="There is no language model yet. Esc goes on without one; later: /model.",
        )

    def on_mount(self) -> None:
        super().on_mount()
        self._look()

    @property
    def host(self) -> Frame:
        return cast("Frame", self.app)

    @work
    async def _look(self) -> None:
        ways = await ways_to_a_model(self.host.project)
        if self.is_mounted:
            self.show([(way.value, way.words) for way in ways])

    def take(self, value: str) -> None:
        self._wrong("")
        self._follow(value)

    @work
    async def _follow(self, way: str) -> None:
        kind, _, name = way.partition(":")
        if kind == "planner":
            go_without_model(self.host.project.environment)
            self.dismiss(None)
        elif kind == "use":
            if await use_model(self.host, name):
                self.dismiss(name)
        elif kind == "address":
            await self._add_server()
        else:
            page = KEY_PAGES[name]
            key = await self.host.push_screen_wait(
                Ask(
                    f"Key of {name}", detail=f"From {page}. It is tried with one small request, then kept.", secret=True
                )
            )
            if key is not None:
                await self._add(name, key=key)

    async def _add_server(self) -> None:
        url = await self.host.push_screen_wait(Ask("Its address", detail="Such as http://localhost:9000/v1"))
        if url is None:
            return
        name = await self.host.push_screen_wait(Ask("A name for it", detail="One word, such as work.", value="work"))
        if name is None:
            return
        detail = "Empty where it needs none."
        key = await self.host.push_screen_wait(Ask(f"Key of {name}", detail=detail, secret=True, empty=True))
        if key is not None:
            await self._add(name, key=key, url=url)

    async def _add(self, name: str, *, key: str = "", url: str = "") -> None:
        """Try, save and use a model. A failure is shown here, and the list stays open."""
        self._wrong(f"Trying {name} with one small request …")
        try:
            added = await try_provider(self.host.project, name, key=key, url=url)
        except RetinueError as error:
            self._wrong(sentence(error))
            return
        self.host.retinue.supervisor.reload_settings()
        if added.key_place:
            self.host.tell(f"The key is kept in {added.key_place}.")
        await use_model(self.host, added.model)
        self.dismiss(added.model)
