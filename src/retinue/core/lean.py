"""Dataclasses that cost little until they are used, and less when they are.

The standard decorator compiles six functions for every class when the module is imported. With
the two hundred classes of this program that is a quarter of the time from its start to the
first request, most of it for classes which that start never uses. Here the fields are the
standard library's own (`fields`, `replace`, `asdict`, `match` and orjson see no difference);
only the methods come otherwise: `__init__` is compiled for the first instance and stores into
the slots directly, which halves the time an instance takes, and the rest are plain functions.

It knows what this program uses: `slots`, `frozen`, `kw_only`, `eq` and `__post_init__`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "replace"]

_MISSING = dataclasses.MISSING
_COPIERS: dict[type, Callable[..., Any]] = {}


def _decorator(*, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True) -> Callable[[type], Any]:
    if not slots:
        raise TypeError("a lean dataclass has slots")

    def decorate(plain: type) -> Any:
        plain.__doc__ = plain.__doc__ or plain.__name__  # or it would be made from a signature
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(plain)
        made.__init__ = _Init(made)
        methods: dict[str, Any] = {"__repr__": _repr}
        if frozen:
            methods |= _FROZEN
        if eq:
            methods |= _equality(made, hashable=frozen)
        for name, method in methods.items():
            if name not in made.__dict__:
                setattr(made, name, method)
        return made

    return decorate


class _Init:
    """Stands for `__init__` until it is first called or its signature is read."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self._owner.__init__ = _compile(self._owner)
        return made if instance is None else made.__get__(instance, owner)


def _compile(cls: Any) -> Any:
    """The `__init__` of `cls`. Its source holds nothing but names of fields."""
    known: dict[str, Any] = {"MISSING": _MISSING}
    parameters: list[str] = ["self"]
    keywords: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name = value = field.name
        known[f"set_{name}"] = getattr(cls, name).__set__
        known[f"make_{name}"], known[f"default_{name}"] = field.default_factory, field.default
        parameter = name
        if field.default is not _MISSING:
            parameter = f"{name}=default_{name}"
        elif field.default_factory is not _MISSING:
            parameter, value = f"{name}=MISSING", f"make_{name}() if {name} is MISSING else {name}"
        if field.init:
            (keywords if field.kw_only else parameters).append(parameter)
        else:
            value = f"make_{name}()" if field.default is _MISSING else f"default_{name}"
        lines.append(f" set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    signature = ", ".join([*parameters, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({signature}):\n" + "\n".join(lines or [" pass"]), known)  # noqa: S102 - see above
    made = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    return made


def _replace(value: Any, /, **changes: Any) -> Any:
    """`dataclasses.replace` for lean dataclasses, in half of the time: what copies is
    compiled for the first copy of a class."""
    copier = _COPIERS.get(value.__class__)
    if copier is None:
        copier = _COPIERS[value.__class__] = _copier(value.__class__)
    return copier(value, **changes)


def _copier(cls: Any) -> Callable[..., Any]:
    """Its source holds nothing but names of fields."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    kept = [(field, f"old.{field.name} if {field.name} is MISSING else {field.name}") for field in fields]
    given = [f"{field.name}={value}" if field.kw_only else value for field, value in kept]
    keywords = "".join(f", {field.name}=MISSING" for field in fields)
    known: dict[str, Any] = {"MISSING": _MISSING, "cls": cls}
    exec(f"def copier(old, /{', *' if fields else ''}{keywords}):\n return cls({', '.join(given)})", known)  # noqa: S102
    made: Callable[..., Any] = known["copier"]
    return made


def _equality(cls: Any, hashable: bool) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    key = attrgetter("__class__", *names)

    def equal(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(key(self))

    return {"__eq__": equal, "__hash__": hashed if hashable else None}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _no_assignment(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN = {
    "__setattr__": _no_assignment,
    "__delattr__": _no_deletion,
    "__getstate__": _state,
    "__setstate__": _restore,
}

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    dataclass, replace = _decorator, _replace
