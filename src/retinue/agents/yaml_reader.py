"""YAML read from the events of PyYAML's C parser, from which the values are built here, so that

* mapping keys are always text, and repeated top-level keys are all reported;
* depth, aliases and size are bounded: no input recurses, expands or hangs.

Only `yaml_items.load_mapping` imports this module, on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent

from retinue.agents.yaml_items import MAX_DEPTH, MAX_VALUES, NULL, Item, YamlDocument, YamlError, plain

_parser: Callable[[str], Any]
try:
    from yaml._yaml import CParser

    _parser = CParser
except ImportError:  # PyYAML built without libyaml: the same events, slower
    _parser = yaml.SafeLoader

_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null"))
_COLLECTION_TAGS = frozenset({"!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_MERGE: Any = object()
"""Stands for the plain key `<<`; in quotes it is a key like any other."""


def build(block: str) -> YamlDocument:
    """Return the keys of `block`, as `load_mapping` promises them. Raise YamlError."""
    try:
        return _Builder(block).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(_reason(error), mark.line if mark else 0, mark.column if mark else 0) from None
    except yaml.YAMLError as error:
        raise YamlError(str(error).splitlines()[0] if str(error) else "not valid YAML") from None


def _reason(error: yaml.MarkedYAMLError) -> str:
    if error.context and error.problem:
        return f"{error.context}, {error.problem}"
    return error.context or error.problem or "not valid YAML"


def _key(event: Any) -> Any:
    if event.value == "<<" and event.implicit[0]:
        return _MERGE
    return event.value


class _Builder:
    """Builds values from events with its own stack, never with the interpreter's."""

    __slots__ = ("anchors", "budget", "next_event")

    def __init__(self, block: str) -> None:
        self.next_event: Callable[[], Any] = _parser(block).get_event
        self.anchors: dict[str, Any] = {}
        self.budget = MAX_VALUES

    def document(self) -> YamlDocument:
        next_event = self.next_event
        # Stream start.
        next_event()
        event = next_event()
        document = YamlDocument()
        if type(event).__name__ == "StreamEndEvent":
            return document
        event = next_event()
        if isinstance(event, ScalarEvent) and event.value in NULL and event.implicit[0]:
            self.expect_end()
            return document
        if not isinstance(event, MappingStartEvent):
            raise self.error("the top level is not a mapping of keys to values", event)
        self.check_collection(event)
        self.fill(document)
        self.expect_end()
        return document

    def expect_end(self) -> None:
        # Document end.
        self.next_event()
        event = self.next_event()
        if type(event).__name__ != "StreamEndEvent":
            raise self.error("a second YAML document begins here", event)

    def fill(self, document: YamlDocument) -> None:
        next_event, items = self.next_event, document.items
        merged: list[Item] = []
        while True:
            event = next_event()
            if not isinstance(event, ScalarEvent):
                if type(event).__name__ == "MappingEndEvent":
                    break
                raise self.error("a key has to be plain text", event)
            start: Any = event.start_mark
            key = _key(event)
            event = next_event()
            if isinstance(event, ScalarEvent):
                value = self.scalar(event)
                text = None
                if value is not event.value:
                    text = event.value
                if event.anchor:
                    self.anchors[event.anchor] = value
                end: Any = event.end_mark
            else:
                value, end = self.value(event)
                text = None
            if key is _MERGE:
                merged += self.merge(value, start.line, end.line)
                continue
            last = end.line if end.column or end.line == start.line else end.line - 1
            items.append(Item(key, value, start.line, start.column, last, text))
        own = {item.key for item in items}
        for item in merged:
            if item.key not in own:
                items.append(item)

    @staticmethod
    def merge(value: Any, line: int, end_line: int) -> list[Item]:
        """Return for `<<: *base` the keys of base, which the mapping's own keys override."""
        found: dict[str, Item] = {}
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise YamlError("'<<' needs a mapping to merge", line)
            for key, each in source.items():
                found.setdefault(key, Item(key, each, line, 0, end_line))
        return list(found.values())

    def value(self, event: Any) -> tuple[Any, Any]:
        """Return a nested value and the mark of its end."""
        if isinstance(event, AliasEvent):
            return self.alias(event), event.end_mark
        top: Any = self.open(event)
        stack: list[tuple[Any, str | None]] = [(top, None)]
        while True:
            event = self.next_event()
            container, key = stack[-1]
            kind = type(event)
            if kind is ScalarEvent:
                if key is None and isinstance(container, dict):
                    stack[-1] = (container, _key(event))
                    continue
                value = self.scalar(event)
                if event.anchor:
                    self.anchors[event.anchor] = value
                self.put(stack, value)
            elif kind is AliasEvent:
                if key is None and isinstance(container, dict):
                    raise self.error("a key has to be plain text", event)
                self.put(stack, self.alias(event))
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                if key is None and isinstance(container, dict):
                    raise self.error("a key has to be plain text", event)
                if len(stack) >= MAX_DEPTH:
                    raise self.error(f"nested deeper than {MAX_DEPTH} levels", event)
                stack.append((self.open(event), None))
            else:
                done, _ = stack.pop()
                if not stack:
                    return done, event.end_mark
                self.put(stack, done)

    def put(self, stack: list[tuple[Any, str | None]], value: Any) -> None:
        self.spend(1)
        container, key = stack[-1]
        if key is None:
            container.append(value)
            return
        if key is _MERGE:
            for name, each in value.items() if isinstance(value, dict) else ():
                container.setdefault(name, each)
        else:
            container[key] = value
        stack[-1] = (container, None)

    def open(self, event: Any) -> Any:
        if not isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            raise self.error("a value is missing here", event)
        self.check_collection(event)
        container: Any = {} if isinstance(event, MappingStartEvent) else []
        if event.anchor:
            self.anchors[event.anchor] = container
        return container

    def alias(self, event: Any) -> Any:
        """Return a copy, so that no value is shared or contains itself; copies count as values."""
        if event.anchor not in self.anchors:
            raise self.error(f"there is no anchor '&{event.anchor}' before this", event)
        return self.copy(self.anchors[event.anchor], event, 0)

    def copy(self, value: Any, event: Any, depth: int) -> Any:
        self.spend(1)
        if depth > MAX_DEPTH:
            raise self.error("an alias contains itself or nests too deep", event)
        if isinstance(value, dict):
            return {key: self.copy(each, event, depth + 1) for key, each in value.items()}
        if isinstance(value, list):
            return [self.copy(each, event, depth + 1) for each in value]
        return value

    def scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.implicit[0]:
            if event.style is None or event.style == "":
                return plain(text)
            return text
        tag = event.tag
        if tag is None or tag in _TEXT_TAGS or event.implicit[1]:
            return text
        if tag in _PLAIN_TAGS:
            return plain(text)
        raise self.error(f"the tag '{tag}' means nothing here", event)

    def check_collection(self, event: Any) -> None:
        if not event.implicit and event.tag not in _COLLECTION_TAGS:
            raise self.error(f"the tag '{event.tag}' means nothing here", event)

    def spend(self, amount: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            raise YamlError(f"more than {MAX_VALUES:,} values; aliases may expand too far")

    @staticmethod
    def error(reason: str, event: Any) -> YamlError:
        mark = event.start_mark
        return YamlError(reason, mark.line, mark.column)
