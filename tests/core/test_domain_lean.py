"""Lean dataclasses behave like the standard ones in everything this program relies on."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import orjson
import pytest

from retinue.core.lean import dataclass as lean
from retinue.core.lean import replace

Decorator = Callable[..., Callable[[type], type]]


def point(decorator: Decorator) -> Any:
    @decorator(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        label: str = "here"
        tags: dict[str, int] = field(default_factory=dict)
        note: str = field(default="", compare=False, repr=False)
        type: str = field(default="point", init=False)

        @property
        def twice(self) -> int:
            return self.x * 2

    return Point


@lean(frozen=True, slots=True, kw_only=True)
class Pair:
    left: int
    right: tuple[int, ...] = ()


@lean(slots=True)
class Counter:
    value: int = 0
    seen: list[int] = field(default_factory=list)
    others: list[Counter] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.value = max(self.value, 0)


@lean(slots=True, eq=False)
class Someone:
    name: str


@pytest.fixture(params=[dataclasses.dataclass, lean], ids=["standard", "lean"])
def made(request: pytest.FixtureRequest) -> Any:
    """The same class by both decorators: what is true of one must be true of the other."""
    return point(request.param)


def test_a_class_has_the_signature_doc_and_fields_of_a_standard_one(made: Any) -> None:
    assert str(inspect.signature(made)).replace("'", "").startswith("(x: int, label: str = here, tags: dict[str, int]")
    assert made.__doc__ == "A place."
    assert [each.name for each in dataclasses.fields(made)] == ["x", "label", "tags", "note", "type"]
    assert made.__match_args__ == ("x", "label", "tags", "note")
    assert not hasattr(made(1), "__dict__")


def test_instances_are_made_compared_shown_and_hashed_the_same(made: Any) -> None:
    one = made(1, tags={"a": 1})
    assert (one.x, one.label, one.tags, one.type, one.twice) == (1, "here", {"a": 1}, "point", 2)
    assert made(1).tags == {} and made(1).tags is not made(1).tags
    assert made(1, note="x") == made(1, note="y") != made(2)
    assert made(1).__eq__("1") is NotImplemented
    assert repr(one).endswith("Point(x=1, label='here', tags={'a': 1}, type='point')")
    assert hash(made(1, "a", tags=())) == hash(made(1, "a", tags=(), note="other"))


def test_what_is_missing_or_too_much_is_a_type_error_that_names_it(made: Any) -> None:
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        made()
    with pytest.raises(TypeError, match="unexpected keyword argument 'type'"):
        made(1, type="other")


def test_a_frozen_one_can_be_replaced_copied_and_encoded_but_not_changed(made: Any) -> None:
    one = made(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    assert dataclasses.replace(one, x=5) == replace(one, x=5) == made(5)
    assert replace(one) == one and replace(one, tags={"b": 2}, label="there") == made(1, "there", {"b": 2})
    with pytest.raises(TypeError, match="type"):
        replace(one, type="other")
    assert copy.copy(one) == copy.deepcopy(one) == one
    assert dataclasses.asdict(one) == orjson.loads(orjson.dumps(one))
    match one:
        case made(x, label):
            assert (x, label) == (1, "here")


def test_keyword_only_fields_must_be_named() -> None:
    with pytest.raises(TypeError, match="positional"):
        Pair(1)  # type: ignore[misc]
    assert Pair(left=1) == Pair(left=1, right=()) == replace(Pair(left=2), left=1)
    assert {Pair(left=1): "found"}[Pair(left=1)] == "found"


def test_a_pickle_gives_an_equal_value() -> None:
    assert pickle.loads(pickle.dumps(Pair(left=1, right=(2, 3)))) == Pair(left=1, right=(2, 3))


def test_a_changeable_one_checks_itself_and_cannot_be_a_key() -> None:
    counter = Counter(-5)
    counter.value += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_one_that_holds_itself_can_be_shown() -> None:
    counter = Counter(1)
    counter.others.append(counter)
    assert repr(counter) == "Counter(value=1, seen=[], others=[...])"


def test_without_eq_identity_counts() -> None:
    assert Someone("a") != Someone("a")
    assert len({Someone("a"), Someone("a")}) == 2


def test_a_class_without_slots_is_refused() -> None:
    with pytest.raises(TypeError, match="slots"):
        lean(slots=False)
