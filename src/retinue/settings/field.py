"""How one setting is declared, and the class that holds their values.

`Settings` (table.py) is the table and the typed result at once: every attribute is declared with
`setting(...)`, which registers its name, kind and documentation. A hand-made class instead of a
dataclass, because a dataclass of this many fields costs 3 ms at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypeVar, cast

from retinue.core.provenance import Provenance
from retinue.settings.kinds import Kind

T = TypeVar("T")
Layer = Literal[
    "default",
    "devkit-pi",
    "codingcode",
    "pi",
    "codingcode project",
    "pi project",
    "user",
    "project",
    "local",
    "environment",
    "flag",
]
"""Who says it, weakest first."""
Applies = Literal["live", "next run", "next session"]
Convert = Callable[[Any], Any]


_SHARED = frozenset({"codingcode project", "pi project", "project", "local"})
"""Layers whose files a repository brings."""


class Origin(NamedTuple):
    """Where a value came from; `where` is a file, a variable or a flag."""

    layer: Layer
    where: str = ""
    consented: bool = False
    """Someone has consented to a project's file as it is."""

    def __str__(self) -> str:
        return "default" if self.layer == "default" else f"{self.layer}: {self.where}"

    @property
    def personal(self) -> bool:
        """True when only the user can have put it there, and not a repository they cloned."""
        return self.layer not in _SHARED

    @property
    def provenance(self) -> Provenance:
        return "person" if self.personal else "project"

    @property
    def believed(self) -> bool:
        """True when it may give: it is the user's own, or someone has consented to it."""
        return self.personal or self.consented


DEFAULT = Origin("default")


class Alias(NamedTuple):
    """Another name for a setting. `convert` turns its raw value into the setting's raw value;
    `kind` checks it first when the alias has a range of its own."""

    name: str
    convert: Convert | None = None
    kind: Kind | None = None


class Field:
    """One row of the table. As a class attribute it yields the default until a value is set."""

    __slots__ = (
        "aliases",
        "applies",
        "attribute",
        "default",
        "doc",
        "kind",
        "merges",
        "name",
        "personal_when",
        "section",
        "variables",
    )

    def __init__(
        self,
        default: Any,
        kind: Kind,
        doc: str,
        *,
        section: str,
        name: str,
        aliases: tuple[Alias, ...],
        variables: tuple[str, ...],
        applies: Applies,
        merges: bool,
        personal_when: Callable[[Any], bool] | None,
    ) -> None:
        self.default, self.kind, self.doc, self.section = default, kind, doc, section
        self.name, self.aliases, self.variables = name, aliases, variables
        self.applies: Applies = applies
        self.merges = merges
        self.personal_when = personal_when
        self.attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        first, *rest = attribute.split("_")
        self.name = self.name or first + "".join(word.capitalize() for word in rest)
        self.variables = (f"RETINUE_{attribute.upper()}", *self.variables)

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        return self if instance is None else self.default


def setting(
    default: T,
    kind: Kind,
    doc: str,
    *,
    section: str,
    name: str = "",
    aliases: tuple[Alias | str, ...] = (),
    variables: tuple[str, ...] = (),
    applies: Applies = "live",
    merges: bool = False,
    personal_when: Callable[[Any], bool] | None = None,
) -> T:
    """Declare a setting. `merges`: an object whose keys are merged over the layers, not
    replaced as a whole. `personal_when`: the values that count only in the user's own settings,
    because a repository that was cloned must not bring them. The type says what an instance
    gives; the class attribute is a Field."""
    named = tuple(Alias(alias) if isinstance(alias, str) else alias for alias in aliases)
    field = Field(
        default,
        kind,
        doc,
        section=section,
        name=name,
        aliases=named,
        variables=variables,
        applies=applies,
        merges=merges,
        personal_when=personal_when,
    )
    return cast(T, field)


class Values:
    """Base of `Settings`: values that cannot be changed, and where each came from."""

    def __init__(self, values: Mapping[str, Any] | None = None, origins: Mapping[str, Origin] | None = None) -> None:
        """`values` by attribute name, already read by their kinds. `origins` by the same names;
        for a merged object also by `attribute.key`."""
        known = {field.attribute for field in self.table()}
        unknown = sorted(set(values or ()) - known)
        if unknown:
            raise TypeError(f"no such setting: {', '.join(unknown)}")
        self.__dict__.update(values or {})
        self.__dict__["_origins"] = dict(origins or {})

    @classmethod
    def table(cls) -> Iterator[Field]:
        """Yield every declared setting, in the order of the table."""
        for part in cls.__mro__:
            for field in vars(part).values():
                if isinstance(field, Field):
                    yield field

    def origin(self, attribute: str) -> Origin:
        found: Origin = self.__dict__["_origins"].get(attribute, DEFAULT)
        return found

    def replace(self, **values: Any) -> Self:
        """Return a copy with some values changed, as flags do."""
        own = dict(self.__dict__)
        origins = own.pop("_origins")
        flags = {key: Origin("flag", key) for key in values}
        return type(self)({**own, **values}, {**origins, **flags})

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"settings cannot be changed in place; use replace({name}=…)")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.attribute) == getattr(other, f.attribute) for f in self.table())

    __hash__ = None  # type: ignore[assignment]  # values may hold mappings

    def __repr__(self) -> str:
        # Values of `providers` can hold a key someone wrote into a file: names only.
        names = sorted(self.__dict__.keys() - {"_origins"})
        return f"{type(self).__name__}({', '.join(names)})"
