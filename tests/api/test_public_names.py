"""The public names of what users hold: those that the API pages list, and no others."""

import re
from pathlib import Path
from typing import Any

import pytest

import gpuad

PAGE = Path(__file__).parents[2] / "docs" / "api" / "gpuad.md"
OFFERED = re.compile(
    r"^::: gpuad\.(?P<name>\w+)\n    options:\n(?:      inherited_members: .*\n)?      members: \[(?P<members>[^\]]*)\]", re.M
)
LISTED = {entry["name"]: set(filter(None, entry["members"].split(", "))) for entry in OFFERED.finditer(PAGE.read_text(encoding="utf-8"))}
HANDED_OUT = {"Tape": gpuad.Tape}


@pytest.mark.parametrize("name", sorted(HANDED_OUT))
def test_what_the_page_lists_is_what_dir_shows(name: str) -> None:
    held: Any = HANDED_OUT[name]()
    special = {member for member in LISTED[name] if member.startswith("__")}
    assert {member for member in dir(held) if not member.startswith("_")} == LISTED[name] - special
    assert all(hasattr(held, member) for member in special)


def test_a_tape_is_one_to_the_names_of_the_interface() -> None:
    class Named(gpuad.Tape):
        """A tape with a name."""

        def __init__(self, name: str) -> None:
            super().__init__(restore=True)
            self.name = name

    tape = Named("mine")
    with tape as entered:
        assert entered is tape and isinstance(entered, gpuad.Tape)
    assert tape.name == "mine" and repr(tape) == "<tape: 0 operations, recorded>"
    with pytest.raises(AttributeError):
        gpuad.Tape().budegt = 3  # type: ignore[attr-defined]
    with pytest.raises(gpuad.ArgumentError, match=r"Tape.*unexpected keyword argument 'budegt'"):
        gpuad.Tape(budegt=3)  # type: ignore[call-arg]
