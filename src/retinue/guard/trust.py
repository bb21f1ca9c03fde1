"""Consent to what a project's files bring along: hooks, servers, rights.

Consent is for exactly this content of exactly this file: another folder, a copy or a changed
file needs a new one. It is kept in `RETINUE_HOME/trust.json`, which only its owner can read,
and never in the project. What nobody has consented to has no effect; what forbids or asks
always has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from retinue.core.spec import AgentSpec
from retinue.errors import StateError
from retinue.settings.foreign import read_object
from retinue.settings.places import private_folder, retinue_home
from retinue.settings.write import locked_folder, replace_file

if TYPE_CHECKING:
    from retinue.settings.load import Loaded

FILE = "trust.json"
Answer = Literal["trusted", "refused"]


class Consent(Struct, frozen=True):
    """One remembered answer. `what` is what was listed when it was given."""

    path: str
    digest: str
    answer: Answer
    at: float
    what: tuple[str, ...] = ()


def digest(content: bytes | str) -> str:
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


class Trust:
    """`everything` trusts whatever it is asked about, for this process only (`--trust`). `consents` are hashes of
    contents that count as trusted in this process, by file: a run brings them from another machine."""

    def __init__(
        self, home: Path, *, everything: bool = False, consents: Mapping[Path, Collection[str]] | None = None
    ) -> None:
        self.file = home / FILE
        self.everything = everything
        self._known: Mapping[str, Mapping[str, Consent]] = {}
        self._signature: tuple[int, int, int] | None = None
        self._brought = {_key(path): frozenset(digests) for path, digests in (consents or {}).items()}

    def is_trusted(self, path: Path, content: bytes | str) -> bool:
        """Return whether someone has consented to this content in this place."""
        return self.everything or self.answer(path, content) == "trusted"

    def trusts(self, spec: AgentSpec) -> bool:
        """Return whether what an agent's file brings may take effect. Only files of a project need
        consent: the user's own, `--agents`, the built-in ones and specs made by a program
        do not. A plugin's agents may bring nothing at all, even with consent."""
        if spec.source == "plugin":
            return False
        if spec.source != "project" or spec.path is None:
            return True
        return self.is_trusted(Path(spec.path), content_of(spec))

    def answer(self, path: Path, content: bytes | str) -> Answer | None:
        """Return what was answered for this content, None if nobody was asked."""
        found = self._read().get(_key(path), {}).get(digest(content))
        if found is not None:
            return found.answer
        if digest(content) in self._brought.get(_key(path), ()):
            return "trusted"
        return None

    def consents(self) -> list[Consent]:
        """Return every remembered answer, by file."""
        known = self._read()
        return list(chain.from_iterable(known[path].values() for path in sorted(known)))

    def grant(self, path: Path, *contents: bytes | str, what: tuple[str, ...] = ()) -> None:
        """Remember consent to these contents of the file; those of before are forgotten.
        Raise StateError when it cannot be kept."""
        self._put(path, contents, "trusted", what)

    def refuse(self, path: Path, *contents: bytes | str, what: tuple[str, ...] = ()) -> None:
        """Remember a no, so that the question is not asked again."""
        self._put(path, contents, "refused", what)

    def revoke(self, path: Path) -> bool:
        """Forget all answers about a file, or about everything below a folder."""
        key = _key(path)
        with self._changing() as known:
            gone = [each for each in known if each == key or each.startswith(key.rstrip(os.sep) + os.sep)]
            for each in gone:
                del known[each]
        return bool(gone)

    def follow(self, path: Path, before: bytes | str, after: bytes | str) -> None:
        """Renew existing consent to a file that a person has changed through Retinue."""
        found = self._read().get(_key(path), {}).get(digest(before))
        if found is not None and found.answer == "trusted":
            self._put(path, (after,), "trusted", found.what)

    def _put(self, path: Path, contents: tuple[bytes | str, ...], answer: Answer, what: tuple[str, ...]) -> None:
        key, now = _key(path), time.time()
        with self._changing() as known:
            known[key] = {each: Consent(key, each, answer, now, what) for each in map(digest, contents)}

    def _read(self) -> Mapping[str, Mapping[str, Consent]]:
        try:
            status = self.file.stat()
        except OSError:
            self._known, self._signature = {}, None
            return self._known
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        # Another process may have changed the file: its stamp tells without reading it.
        if signature != self._signature:
            self._known, self._signature = _decode(read_object(self.file).data), signature
        return self._known

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Consent]]]:
        try:
            with locked_folder(private_folder(self.file.parent)):
                self._signature = None
                known = {path: dict(entries) for path, entries in self._read().items()}
                yield known
                replace_file(self.file, _encode(known), new_mode=0o600)
                self.file.chmod(0o600)
                self._signature = None
        except OSError as error:
            raise StateError(f"{self.file} cannot be written: {error.strerror or error}.") from error


def content_of(spec: AgentSpec) -> str:
    """Return what consent to an agent's file is about: everything that its text means, the prompt
    included, since a right is given to a prompt."""
    if spec.hash:
        return spec.hash
    from retinue.agents.parse import spec_hash

    return spec_hash(spec)


def _key(path: Path) -> str:
    """Return where the file is meant to be. Links in the project's own part of the path are not
    followed: one that leads to a file of another project does not bring consent along."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - links must stay
    # The part from the last dotted folder on (`.retinue/…`) belongs to the project.
    dotted = [at for at, part in enumerate(whole.parts) if part.startswith(".")]
    cut = dotted[-1] if dotted else len(whole.parts) - 1
    return str(Path(os.path.realpath(Path(*whole.parts[:cut])), *whole.parts[cut:]))


def _decode(data: Mapping[str, Any]) -> dict[str, dict[str, Consent]]:
    """Return the answers of the file. What cannot be understood is not consent."""
    known: dict[str, dict[str, Consent]] = {}
    for path, entries in _object(data.get("files")).items():
        for each, entry in _object(entries).items():
            fields = _object(entry)
            answer, at, what = fields.get("answer"), fields.get("at"), fields.get("what")
            if not isinstance(at, (int, float)):
                at = 0.0
            if not isinstance(what, list):
                what = []
            if answer == "trusted" or answer == "refused":
                found = Consent(path, each, answer, float(at), tuple(map(str, what)))
                known.setdefault(path, {})[each] = found
    return known


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    return {}


def _encode(known: Mapping[str, Mapping[str, Consent]]) -> bytes:
    import json

    files = {
        path: {each: {"answer": c.answer, "at": c.at, "what": list(c.what)} for each, c in entries.items()}
        for path, entries in sorted(known.items())
    }
    return (json.dumps({"version": 1, "files": files}, indent=2) + "\n").encode()


def effective_settings(loaded: Loaded, trust: Callable[[], Trust]) -> Loaded:
    """Return the settings without what a project's files give and nobody consented to."""
    if all(layer.origin.personal for layer in loaded.layers):
        return loaded
    from retinue.guard.trust_subjects import withhold

    return withhold(loaded, trust())


def settings_in_effect(cwd: Path, environment: Mapping[str, str]) -> Loaded:
    """Return the settings as runs that start in `cwd` have them. What is taken out is a problem."""
    from retinue.settings.load import load_settings

    return effective_settings(load_settings(cwd, environment=environment), lambda: Trust(retinue_home(environment)))
