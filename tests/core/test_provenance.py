"""Every provenance × every right: which requirement holds, and that every source has a provenance."""

import itertools
from pathlib import Path
from typing import get_args

import pytest

from retinue.capabilities.skills.parse import Skill, SkillSource
from retinue.core.foreign import OPERATOR_RIGHTS, Provenance, Requirement, Right, requirement
from retinue.core.spec import AgentSpec, Source, provenance_of
from retinue.guard.trust import Trust, content_of, digest
from retinue.settings.field import Layer, Origin

PROVENANCES, RIGHTS = get_args(Provenance), get_args(Right)
FILE = Path("/project/.retinue/file")
LETS: dict[str, set[tuple[str, str]]] = {
    # Who has said yes, and what then takes effect: (provenance, right).
    "nobody": {("person", right) for right in RIGHTS},
    "consent": {(provenance, right) for provenance in ("person", "project", "recording") for right in RIGHTS},
    "operator": {("person", right) for right in RIGHTS} | {("machine", right) for right in OPERATOR_RIGHTS},
    "operator and sender": {("person", right) for right in RIGHTS}
    | {(provenance, right) for provenance in ("machine", "project", "recording") for right in OPERATOR_RIGHTS},
    "sender": {("person", right) for right in RIGHTS},
}


def trust_of(who: str, home: Path) -> Trust:
    consents = {FILE: {digest("content")}} if "sender" in who else {}
    if who in ("nobody", "consent"):
        trust = Trust(home)
        if who == "consent":
            trust.grant(FILE, "content")
        return trust
    return Trust(home, allowed=RIGHTS if "operator" in who else (), consents=consents)


@pytest.mark.parametrize("who", LETS)
def test_a_value_gives_a_right_only_if_those_have_agreed_whose_machine_it_is(who, tmp_path):
    trust = trust_of(who, tmp_path)
    given = set()
    for provenance, right in itertools.product(PROVENANCES, RIGHTS):
        if trust.permits(right, provenance, FILE, lambda: "content"):
            given.add((provenance, right))
        by_content = requirement(provenance, right) == "consent"
        assert not (by_content and trust.permits(right, provenance, FILE, lambda: "changed"))
    assert given == LETS[who]


@pytest.mark.parametrize("who", LETS)
@pytest.mark.parametrize("source", get_args(Source))
@pytest.mark.parametrize("foreign", [False, True])
def test_a_definition_gives_what_its_provenance_gives(who, source, foreign, tmp_path):
    spec = AgentSpec(name="a", source=source, path=str(FILE), foreign=foreign)
    trust = trust_of(who, tmp_path)
    provenance = "machine" if foreign else provenance_of(source)
    agreed = {FILE: {digest(content_of(spec))}}
    if who == "consent":
        trust.grant(FILE, content_of(spec))
    elif "sender" in who:
        trust = Trust(tmp_path, allowed=trust.allowed, consents=agreed)
    for right in RIGHTS:
        expected = (provenance, right) in LETS[who]
        # What a file of the project brings needs the sender's consent as well as the operator's.
        if foreign and source == "project" and who == "operator":
            expected = False
        assert trust.trusts(spec, right) == expected


def test_every_pair_has_one_requirement():
    for provenance, right in itertools.product(PROVENANCES, RIGHTS):
        assert requirement(provenance, right) in get_args(Requirement)


def test_every_kind_of_source_has_a_provenance():
    for source in get_args(Source):
        assert provenance_of(source) in PROVENANCES
    for source in get_args(SkillSource):
        assert Skill(name="s", path=FILE, source=source).provenance in PROVENANCES
    for layer in get_args(Layer):
        assert Origin(layer).provenance in PROVENANCES


def test_a_plugin_has_no_right_even_where_everything_is_trusted(tmp_path):
    trust = Trust(tmp_path, everything=True)
    assert not [right for right in RIGHTS if trust.permits(right, "plugin", FILE, lambda: "content")]
