"""Consent to what a project's files bring along: hooks, servers, rights.

Consent is for exactly this content of exactly this file: another folder, a copy or a changed
file needs a new one. It is kept in `RETINUE_HOME/trust.json`, which only its owner can read,
and never in the project. What nobody has consented to has no effect; what forbids or asks
always has. `core/provenance.py` decides what needs consent.

On a worker the files of a project are those of a sender: they need the permission of the worker's
operator, and the consent of the sender, which comes with the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_never

from msgspec import Struct

from retinue.core.files import read_file
from retinue.core.provenance import Provenance, Right, requirement
from retinue.core.spec import AgentSpec
from retinue.errors import StateError
from retinue.settings.foreign import read_object
from retinue.settings.load import load_settings
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
    """`everything` trusts whatever it is asked about, for this process only (`--trust`). On a worker, `allowed` are
    the rights that its operator lets senders bring, and `consents` hashes of contents that the sender of a run has
    consented to, by file; elsewhere `allowed` is None."""

    def __init__(
        self,
        home: Path,
        *,
        everything: bool = False,
        allowed: Collection[Right] | None = None,
        consents: Mapping[Path, Collection[str]] | None = None,
    ) -> None:
        self.file = home / FILE
        self.everything = everything
        self.allowed = allowed
        self._known: Mapping[str, Mapping[str, Consent]] = {}
        self._signature: tuple[int, int, int] | None = None
        self._brought = {_key(path): frozenset(digests) for path, digests in (consents or {}).items()}

    def permits(
        self, right: Right, provenance: Provenance, path: Path, content: Callable[[], bytes | str] | None = None
    ) -> bool:
        """Return whether a file of this provenance may give `right`. `content` returns what consent is about, if that
        is not what the file holds, and may raise OSError; it is only called where consent decides."""
        needed = requirement(provenance, right)
        on_worker = self.allowed is not None
        # The files of a project are those of whoever sent the run.
        if needed == "consent" and on_worker and not self.permits(right, "machine", path, content):
            return False
        match needed:
            case "none":
                return True
            case "never":
                return False
            case "operator":
                return self.everything or right in (self.allowed or ())
            case "consent":
                try:
                    return self.everything or self.has_consent(path, content() if content else read_file(path))
                except OSError:
                    return False
            case _:
                assert_never(needed)

    def has_consent(self, path: Path, content: bytes | str) -> bool:
        """Return whether someone has consented to this content in this place; on a worker, the sender of the run."""
        return self.answer(path, content) == "trusted"

    def trusts(self, spec: AgentSpec, right: Right) -> bool:
        """Return whether an agent's definition may give `right`. One of a project that has no file was made by a
        program that uses the library: it needs no consent. A plugin's agents may bring nothing at all, even with
        consent."""
        if spec.provenance == "project" and spec.path is None:
            return True
        if not self.permits(right, spec.provenance, Path(spec.path or ""), lambda: content_of(spec)):
            return False
        # The operator lets senders bring it. Its sender must have consented to what a project's file brings.
        return not (spec.foreign and spec.source == "project") or self.everything or self._was_sent(content_of(spec))

    def _was_sent(self, content: str) -> bool:
        return any(digest(content) in digests for digests in self._brought.values())

    def answer(self, path: Path, content: bytes | str) -> Answer | None:
        """Return what was answered for this content, None if nobody was asked."""
        if self.allowed is not None:
            return "trusted" if digest(content) in self._brought.get(_key(path), ()) else None
        found = self._read().get(_key(path), {}).get(digest(content))
        return None if found is None else found.answer

    def remedy(self, right: Right, path: Path | str) -> str:
        """Return what would let a file give `right`, as a sentence."""
        if self.allowed is None:
            return f"Consent with: retinue trust add {path}"
        if requirement("machine", right) == "operator" and right not in self.allowed:
            return f"The operator of the worker can allow it: retinue worker --allow {right}"
        if requirement("machine", right) == "operator":
            return f"Consent on the machine that sends the run: retinue trust add {path}"
        return "On a worker only its operator's own settings can give this."

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
    return effective_settings(load_settings(cwd, environment=environment), lambda: Trust(retinue_home(environment)))
