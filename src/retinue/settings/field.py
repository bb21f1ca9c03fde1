"""The declaration of one setting, the kinds of value that it can have, and the class that holds the values of all.

A kind reads a raw JSON value as msgspec does, or drops it with a reason. It never raises and never guesses: `1` is not
`true`, `"4"` is not `4`. Of a structured value only the bad entries are dropped, each reported with its path
(`providers.ollama.baseUrl`).

`Settings` (table.py) is the table and the typed result: every attribute is a `Field` with name, kind and documentation,
and has the type of its default and its kind. It is no dataclass, because one with so many fields costs 3 ms at every
start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, NoReturn, Self, overload

import msgspec
from msgspec import Meta, Struct

from retinue.core.foreign import Provenance

# As in core/outcome.py: type variables with a default, which only type checkers need.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    V = TypeVar("V", covariant=True, default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    V = TypeVar("V", covariant=True)

DROPPED: Final = msgspec.UNSET
"""A value that no JSON document can hold."""

Complain = Callable[[str, str], None]
"""Takes the path of a bad value and the text about accepted values."""


class Kind(Generic[V]):
    """Values that msgspec converts to `type`, as the program uses them."""

    type: Any
    accepts: str
    """The accepted values, to follow "it must be"."""

    def read(self, value: Any, at: str, complain: Complain) -> Any:
        """Return the value for the program, or DROPPED after a complaint."""
        try:
            converted = msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            complain(at, self.accepts)
            return DROPPED
        return self.use(converted, at, complain)

    def use(self, value: Any, at: str, complain: Complain) -> Any:
        """Return a value of `type` for the program. Complain of entries that are left out."""
        return value


class Flag(Kind[bool]):
    type, accepts = bool, "true or false"


FLAG: Final = Flag()


class _Range(Kind[V]):
    noun: str
    form: str

    def __init__(self, low: float, high: float, *, unit: str = "", zero_is_none: bool = False) -> None:
        self.low, self.high, self.zero_is_none = low, high, zero_is_none
        self.type = Annotated[self.type, Meta(ge=low, le=high)]
        self.accepts = f"{self.noun}{unit and ' of ' + unit} from {low:{self.form}} to {high:{self.form}}"
        self.accepts += " (0: no limit)" if zero_is_none else ""

    def use(self, value: Any, at: str, complain: Complain) -> Any:
        return None if self.zero_is_none and value == 0 else value


class Number(_Range[float]):
    """A finite number in a range. With `zero_is_none`, 0 reads as None: no limit."""

    type, noun, form = float, "a number", "g"


class Whole(_Range[int]):
    """An integer in a range."""

    type, noun, form = int, "a whole number", "d"


class Choice(Kind):
    """One of several words. `also` maps further spellings to them."""

    def __init__(self, *words: str, also: Mapping[Any, str] | None = None) -> None:
        self.words, self.also = words, also or {}
        self.type = Literal[words]
        self.accepts = "one of " + ", ".join(words)

    def read(self, value: Any, at: str, complain: Complain) -> Any:
        if isinstance(value, (str, bool)):
            value = self.also.get(value, value)
        return super().read(value, at, complain)


class TextValue(Kind[str]):
    """A text that is not empty, trimmed. With `false_words`, false and these words are accepted and mean False."""

    type = Annotated[str, Meta(min_length=1)]

    def __init__(self, accepts: str = "a text that is not empty", *, false_words: tuple[str, ...] = ()) -> None:
        self.accepts, self.false_words = accepts, false_words

    def read(self, value: Any, at: str, complain: Complain) -> Any:
        if self.false_words and (value is False or (isinstance(value, str) and value.strip() in self.false_words)):
            return False
        return super().read(value.strip() if isinstance(value, str) and value.isprintable() else None, at, complain)


class Texts(Kind[tuple[str, ...]]):
    """A list of texts. Empty and repeated entries are left out, bad ones are dropped one by one. With `allowed`, all
    other entries are dropped; the list may become empty."""

    type = list

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self.allowed = allowed
        self.accepts = f"a list out of {', '.join(allowed)}" if allowed else "a list of texts"

    def use(self, value: Any, at: str, complain: Complain) -> Any:
        texts: dict[str, None] = {}
        for index, entry in enumerate(value):
            text = entry.strip() if isinstance(entry, str) else None
            if text is None or (text and not text.isprintable()) or (self.allowed and text not in self.allowed):
                complain(f"{at}[{index}]", self.accepts)
            elif text:
                texts[text] = None
        return tuple(texts)


class _Object(Kind[V]):
    """An object whose bad values are dropped one by one."""

    type = dict

    def use(self, value: Any, at: str, complain: Complain) -> Any:
        entries = {}
        for key, raw in value.items():
            kind = self.kind_of(key, at, complain)
            entry = DROPPED if kind is None else kind.read(raw, f"{at}.{key}", complain)
            if entry is not DROPPED:
                entries[key] = entry
        return entries

    def kind_of(self, key: str, at: str, complain: Complain) -> Kind | None:
        """Return the kind of the value of a key; None, after a complaint, for a key that is not accepted."""
        raise NotImplementedError


class Record(_Object[Mapping[str, Any]]):
    """An object with fixed keys. Unknown keys are reported and dropped."""

    def __init__(self, **fields: Kind) -> None:
        self.fields = fields
        self.accepts = "an object with " + ", ".join(fields)

    def kind_of(self, key: str, at: str, complain: Complain) -> Kind | None:
        if key not in self.fields:
            complain(f"{at}.{key}", f"one of {', '.join(self.fields)}")
        return self.fields.get(key)


class Table(_Object[Mapping[str, V]]):
    """An object whose keys are names the user chose and whose values are all of one kind."""

    def __init__(self, kind: Kind[V], names: str = "names", *, without: str = "") -> None:
        """`without` is a character that the names must not contain."""
        self.kind, self.without = kind, without
        self.accepts = f"an object from {names} to values, each {kind.accepts}"

    def kind_of(self, key: str, at: str, complain: Complain) -> Kind | None:
        if key.strip() and key.isprintable() and not (self.without and self.without in key):
            return self.kind
        limit = f" and has no {self.without}" if self.without else ""
        complain(f"{at}.{key!a}", f"under a name that can be printed{limit}")
        return None


class Items(Kind[tuple[V, ...]]):
    """A list whose entries are read one by one. Bad entries are left out."""

    type = list

    def __init__(self, kind: Kind[V]) -> None:
        self.kind = kind
        self.accepts = f"a list, each entry {kind.accepts}"

    def use(self, value: Any, at: str, complain: Complain) -> Any:
        entries = [self.kind.read(raw, f"{at}[{index}]", complain) for index, raw in enumerate(value)]
        return tuple(entry for entry in entries if entry is not DROPPED)


class Either(Kind):
    """A text of the kind `text`, or another value of the kind `other`."""

    def __init__(self, text: Kind, other: Kind) -> None:
        self.text, self.other = text, other
        self.accepts = f"{text.accepts}, or {other.accepts}"

    def read(self, value: Any, at: str, complain: Complain) -> Any:
        kind = self.text if isinstance(value, str) else self.other
        return kind.read(value, at, complain)


class Anything(Kind):
    """Any JSON value, unchanged: only the program that receives it knows its meaning."""

    type, accepts = Any, "any JSON value"


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
"""The sources of values, weakest first."""
Applies = Literal["live", "next run", "next session"]
Convert = Callable[[Any], Any]


_SHARED_LAYERS = frozenset({"codingcode project", "pi project", "project", "local"})
"""Layers whose files a repository may contain."""


class Origin(NamedTuple):
    """The source of a value. `where` is a file, a variable or a flag."""

    layer: Layer
    where: str = ""
    consented: bool = False
    """Whether someone has consented to the present content of a project's file."""

    def __str__(self) -> str:
        return "default" if self.layer == "default" else f"{self.layer}: {self.where}"

    @property
    def personal(self) -> bool:
        """Whether only the user can have set the value, and not a cloned repository."""
        return self.layer not in _SHARED_LAYERS

    @property
    def provenance(self) -> Provenance:
        return "person" if self.personal else "project"

    @property
    def believed(self) -> bool:
        """Whether the value may grant rights: it is the user's own, or someone has consented to it."""
        return self.personal or self.consented


DEFAULT = Origin("default")


class Alias(NamedTuple):
    """Another name for a setting. `convert` turns its raw value into that of the setting. If the alias has a different
    range, `kind` checks the value first."""

    name: str
    convert: Convert | None = None
    kind: Kind | None = None


class Field(Struct, Generic[T], eq=False):
    """One row of the table. An instance of `Settings` yields its value or the default, the class the row itself."""

    default: T
    kind: Kind[T]
    doc: str
    limits: bool
    """Whether no run starts while its value cannot be read, because the default or a weaker file may allow more or
    reveal more to others (`check_limits`)."""
    name: str = ""
    """The name in files. By default it follows from the attribute and the groups of the class."""
    aliases: tuple[Alias, ...] = ()
    variables: tuple[str, ...] = ()
    applies: Applies | None = None
    """When a change takes effect. By default as for the class."""
    merges: bool = False
    """Whether the keys of an object are merged over the layers. Otherwise the object of the strongest layer is used."""
    personal_when: Callable[[Any], bool] | None = None
    """The values that only take effect in the user's own settings, because a cloned repository must not set them."""
    attribute: str = ""
    section: str = ""

    def complete(self, attribute: str, section: str, groups: tuple[str, ...], applies: Applies) -> None:
        """Set the values that follow from the attribute and its class. The name of `web_max_results` is
        `web.maxResults` in a group `web`, else `webMaxResults`."""
        self.attribute, self.section, self.applies = attribute, section, self.applies or applies
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

    def __init_subclass__(cls, *, section: str = "", groups: tuple[str, ...] = (), applies: Applies = "live") -> None:
        """`section` is the heading of the settings that a class declares, `groups` are their objects in files,
        `applies` says when most of them take effect."""
        for attribute, field in vars(cls).items():
            if isinstance(field, Field):
                field.complete(attribute, section, groups, applies)

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
