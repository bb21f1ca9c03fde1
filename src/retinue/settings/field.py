"""The declaration of one setting, and the class that holds the values of all.

`Settings` (table.py) is the table and the typed result at once: every attribute is a `Field` with name, kind and
documentation. It is no dataclass, because one of this many fields costs 3 ms at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NoReturn, Self, overload

from msgspec import Struct

from retinue.core.provenance import Provenance
from retinue.settings.kinds import Kind

# As in core/outcome.py: a type variable with a default, which only type checkers need.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

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


class Field(Struct, Generic[T], eq=False):
    """One row of the table. An instance of `Settings` yields its value or the default, the class the row itself."""

    default: T
    kind: Kind
    doc: str
    limits: bool
    """No run starts while a value of it cannot be read, because the default or a weaker file may allow more or tell
    more to others (limits.py)."""
    name: str = ""
    """In files: unless declared, from the attribute and the groups of its class."""
    aliases: tuple[Alias, ...] = ()
    variables: tuple[str, ...] = ()
    applies: Applies = "live"
    merges: bool = False
    """The keys of an object are merged over the layers; otherwise the strongest layer has the whole object."""
    personal_when: Callable[[Any], bool] | None = None
    """The values that take effect only in the user's own settings, because a cloned repository must not bring them."""
    attribute: str = ""
    section: str = ""

    def complete(self, attribute: str, section: str, groups: tuple[str, ...]) -> None:
        """Fill in what follows from the attribute and its class: `web_max_results` is `web.maxResults` in a group
        `web`, else `webMaxResults`."""
        self.attribute, self.section = attribute, section
        self.variables = (f"RETINUE_{attribute.upper()}", *self.variables)
        if not self.name:
            first, *others = attribute.split("_")
            self.name = first + "".join(word.capitalize() for word in others)
            for group in groups:
                member = self.name[len(group) :]
                if self.name.startswith(group) and member[:1].isupper():
                    self.name = f"{group}.{member[0].lower()}{member[1:]}"
                    break

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self.default


class Values:
    """Base of `Settings`: values that cannot be changed, and where each came from."""

    def __init_subclass__(cls, *, section: str = "", groups: tuple[str, ...] = ()) -> None:
        """`section` is the heading of the settings that a class declares, `groups` are their objects in files."""
        for attribute, field in vars(cls).items():
            if isinstance(field, Field):
                field.complete(attribute, section, groups)

    def __init__(self, values: Mapping[str, Any] | None = None, origins: Mapping[str, Origin] | None = None) -> None:
        """`values` by attribute name, already read by their kinds. `origins` by the same names;
        for a merged object also by `attribute.key`."""
        unknown = sorted(set(values or ()) - {field.attribute for field in self.table()})
        if unknown:
            raise TypeError(f"no such setting: {', '.join(unknown)}")
        self.__dict__.update(values or {})
        self.__dict__["_origins"] = dict(origins or {})

    @classmethod
    def table(cls) -> Iterator[Field]:
        """Yield every declared setting, in the order of the table."""
        for section in cls.__mro__:
            for field in vars(section).values():
                if isinstance(field, Field):
                    yield field

    def origin(self, attribute: str) -> Origin:
        origins: dict[str, Origin] = self.__dict__["_origins"]
        return origins.get(attribute, DEFAULT)

    def replace(self, **values: Any) -> Self:
        """Return a copy with some values changed, as flags do."""
        values_before = dict(self.__dict__)
        origins = values_before.pop("_origins")
        flags = {key: Origin("flag", key) for key in values}
        return type(self)({**values_before, **values}, {**origins, **flags})

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
