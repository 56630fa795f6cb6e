"""The pages of `docs`: what the code prints of itself stands there as it is (`--update-golden` renews it), and every path that they or
CONTRIBUTING name exists."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from compared import adjoints, budgets, distributed, forms, gradbench, physics, published, searches, short, whole
from drawing import drawn
from snippets import PAGES
from test_architecture import FLOORS, modules
from test_cli import run

import gpuad
from gpuad.tools import cases
from gpuad.tools.case_expressions import FIELDS
from gpuad.tools.cli import app
from gpuad.tools.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STAGES = (
    ("normalize", "The user's text as core IR: every value has one name, memory is read and written by named statements."),
    ("named_operands", "The form that is differentiated."),
    ("reverse", "The reverse sweep: forward values first, then each statement's adjoint in reverse. A store is *taken* from: its shadow is "
     "read and cleared. How the additions reach memory is not decided yet."),
    ("gather", "For this launch `du` is gathered: thread i collects what its neighbours would send to element i, and adds it once."),
    ("rest", "What is left runs afterwards: it clears what was overwritten, and sums the gradient of `c` over blocks."),
)  # fmt: skip


def printed(page: str, marker: str, text: str, update: bool) -> None:
    """Between its markers the page holds the text."""
    file = ROOT / page
    before, rest = file.read_text(encoding="utf-8").split(f"<!-- {marker} -->\n")
    held, after = rest.split("<!-- end -->", 1)
    if update:
        file.write_text(f"{before}<!-- {marker} -->\n{text}<!-- end -->{after}", encoding="utf-8")
    else:
        assert held == text


def rooms() -> str:
    """The rooms from the top down, and what each is for."""
    lines = ["| room | what it is |", "|---|---|"]
    for name in (n for floor in reversed(FLOORS) for n in sorted(floor)):
        page = ast.get_docstring(ast.parse(modules()[f"gpuad.{name}"].read_text(encoding="utf-8"))) or ""
        sentence = re.split(r"(?<=\.)\s", " ".join(page.split("\n\n")[0].split("\n")))[0]
        lines.append(f"| `{name}` | {sentence} |")
    return "\n".join(lines) + "\n"


def stages() -> str:
    """The stencil after each of the passes that are shown."""
    pieces = [f"```cuda\n{(DOCS / 'stencil.cu').read_text(encoding='utf-8').split('*/')[1].strip()}\n```\n"]
    for name, sentence in STAGES:
        result = run("show", DOCS / "stencil.cu", "--launched", "--stage", name)
        assert result.exit_code == 0, result.output
        pieces.append(f"\n## {name}\n\n{sentence}\n\n```\n{result.stdout.strip()}\n```\n")
    pieces.append("\nThe text that is compiled is printed by `gpuad grad docs/stencil.cu`, with its contract in front.\n")
    return "".join(pieces)


def test_the_drawing(request: pytest.FixtureRequest) -> None:
    file = DOCS / "architecture.svg"
    if request.config.getoption("--update-golden"):
        file.write_text(drawn(), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == drawn()


def test_the_rooms(request: pytest.FixtureRequest) -> None:
    printed("docs/architecture.md", "rooms", rooms(), request.config.getoption("--update-golden"))


def test_the_walkthrough(request: pytest.FixtureRequest) -> None:
    printed("docs/walkthrough.md", "stages", stages(), request.config.getoption("--update-golden"))


def test_the_comparison(request: pytest.FixtureRequest) -> None:
    printed("docs/comparison.md", "table", whole(), request.config.getoption("--update-golden"))
    printed("README.md", "compared", short(), request.config.getoption("--update-golden"))


def test_the_adjoints_by_hand(request: pytest.FixtureRequest) -> None:
    printed("docs/by-hand.md", "adjoints", adjoints(), request.config.getoption("--update-golden"))
    printed("docs/by-hand.md", "forms", forms(), request.config.getoption("--update-golden"))


def test_the_ranks(request: pytest.FixtureRequest) -> None:
    printed("docs/how-to/distributed.md", "scale", distributed(), request.config.getoption("--update-golden"))


def test_the_physics_programs(request: pytest.FixtureRequest) -> None:
    printed("docs/physics.md", "physics", physics(), request.config.getoption("--update-golden"))
    printed("docs/physics.md", "published", published(), request.config.getoption("--update-golden"))


def test_the_budgets(request: pytest.FixtureRequest) -> None:
    update, (text, picture) = request.config.getoption("--update-golden"), budgets()
    if update and picture is not None:
        shutil.copy(picture, DOCS / "pictures" / "budgets.png")
    printed("docs/comparison.md", "budgets", text, update)


def test_the_searches(request: pytest.FixtureRequest) -> None:
    printed("docs/searches.md", "searches", searches(), request.config.getoption("--update-golden"))


def test_gradbench(request: pytest.FixtureRequest) -> None:
    printed("docs/comparison.md", "gradbench", gradbench(), request.config.getoption("--update-golden"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:gpuad|tests|docs|benchmarks|kernels)/[\w/.*]+)`", text))
    paths |= {found.partition("#")[0] for found in re.findall(r"\]\(([\w./#-]+)\)", text) if not found.startswith("#")}
    missing = [p for p in paths if not any((base / p.rstrip("/")).exists() or list(base.glob(p)) for base in (ROOT, page.parent))]
    assert not missing


def test_every_page_has_a_line_in_the_navigation() -> None:
    listed = re.findall(r"^ +- [^:]+: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_command_is_on_its_page() -> None:
    page = (DOCS / "how-to" / "command-line.md").read_text(encoding="utf-8")
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert len(commands) > 5 and not [name for name in commands if f"| `gpuad {name}" not in page]


def test_every_public_name_has_a_place_in_the_reference() -> None:
    page = (DOCS / "api" / "gpuad.md").read_text(encoding="utf-8")
    missing = [
        name
        for name in gpuad.__all__
        if not re.search(rf"^(:::|##|.*heading:).* gpuad\.{name}\b|^`gpuad\.{name}`|\. `gpuad\.{name}`", page, re.MULTILINE)
    ]
    assert not missing
    missing = [name for name in dir(gpuad.Duplicated) if name[0] != "_" and not re.search(rf"\b{name}\b", page)]
    assert not missing
    undocumented = [name for name in gpuad.ops.__all__ if not (getattr(gpuad.ops, name).__doc__ or "").strip()]
    assert not undocumented and "::: gpuad.ops\n" in (DOCS / "api" / "ops.md").read_text(encoding="utf-8")


def documented() -> set[str]:
    """The full names that the pages of the reference have: what mkdocstrings is asked for, its members, and headings."""
    names: set[str] = set()
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        names |= set(re.findall(NAME, "\n".join(re.findall(r"^##.*$|^`gpuad.*$", text, re.MULTILINE))))
        for name, options in re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", text, re.MULTILINE):
            heading = re.search(r"heading: (.*)", options)
            full = heading[1] if heading else name
            names |= {full, *(f"{full}.{m}" for m in re.findall(r"\w+", "".join(re.findall(r"members: \[(.*)\]", options))))}
    return names


NAME = r"(?<![\w./-])gpuad(?:\.[A-Za-z_]\w*)+"
OBJECTS = {"tape": "gpuad.Tape", "graph": "gpuad.tape.graph.Graph", "kernel": "gpuad.Kernel", "stats": "gpuad.tape.account.Stats"}


def test_every_name_that_a_page_uses_is_in_the_reference() -> None:
    known = documented()
    missing = set()
    for page in PAGES:
        if page.parent == DOCS / "api":
            continue
        text = re.sub(r"```py\n.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        names = set(re.findall(NAME, text))
        for variable, member in re.findall(rf"(?<![\w.])({'|'.join(OBJECTS)})\.([a-z_]+)\b(?!/)", text):
            if member not in ("md", "py", "cu"):
                names.add(f"{OBJECTS[variable]}.{member}")
        whole = {"gpuad.ops", "gpuad.jit", "gpuad.numpy", "gpuad.cupy", "gpuad.cupyx"}  # the pages say of these that all names are there
        missing |= {
            (n, page.name) for n in names - known if not any(n.startswith(f"{w}.") for w in whole) and n.rsplit(".")[-1][:2] != "__"
        }
    assert not missing - {
        ("gpuad.Tape.backward", "coming-from.md"), ("gpuad.Tape.zero", "coming-from.md"),  # Warp's
        ("gpuad.Tape.budget", "searches.md"),  # a package
    }  # fmt: skip


def test_every_variable_of_the_environment_is_on_its_page() -> None:
    """A name GPUAD_... is one of the environment, unless C++ has it: then it is a macro."""
    places = [
        ROOT / "Dockerfile",
        *(f for folder in ("gpuad", "tests", "benchmarks", ".ci", ".github") for f in (ROOT / folder).rglob("*")),
    ]
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for file in places:
        if file.suffix in (".py", ".yml", ".Dockerfile", ".h", ".hpp", ".cpp", "") and file.is_file():
            found = re.findall(r"\bGPUAD_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8"))
            names[file.suffix in (".h", ".hpp", ".cpp") or "#define GPUAD" in file.read_text(encoding="utf-8")].update(found)
    page = (DOCS / "api" / "environment.md").read_text(encoding="utf-8")
    variables = names[False] - names[True] - {"GPUAD_JAX"}  # a name of Python
    assert len(variables) > 15 and not {name for name in variables if f"`{name}`" not in page}


def test_every_setting_and_key_is_on_its_page() -> None:
    page = (DOCS / "api" / "descriptions.md").read_text(encoding="utf-8")
    named = (
        {f.name for f in fields(Settings)} - {"root"}
        | set(FIELDS)
        | {f.name for f in fields(cases.Case)} - {"file", "span"}
        | {"value", "active", "shape", "init", "members"}
    )
    assert not {name for name in named if not re.search(rf"`{name}[`(]", page)}


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install 'gpuad[docs]'")
def test_the_site_is_built_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)\b[^>]*(?:src|href)=\"?https?:", page.read_text(encoding="utf-8")), page
    assert (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")  # for a folder on disk
    assert 'src="../iframe-worker.js"' in (tmp_path / "how-to" / "memory.html").read_text(encoding="utf-8")


def test_every_rule_that_the_code_cites_is_in_the_contract() -> None:
    text = (DOCS / "contract.md").read_text(encoding="utf-8")
    rules = {int(n) for n in re.findall(r"^### (\d+)\. ", text, re.MULTILINE)}
    cited = {int(n) for file in (ROOT / "gpuad").rglob("*.py") for n in re.findall(r"RULES (\d+)", file.read_text(encoding="utf-8"))}
    assert rules == set(range(1, 30)) and cited <= rules


REPLACED = (  # in the sentences of the pages, by plain words
    "Memory that suffices", "says of each byte", "asks for nothing and gets zeros", "has its shadow *taken*",
    "Who derives does not certify",
    "it is not shown how fast", "From the first kernel to a fit", "whose length nobody knows", "where operations differ",
    "of one that nobody has any more", "loses no bit", "made for it does the opposite", "may not run again is kept", "heard once",
    "it is so by name", "comes again", "Less exactly, where you say so", "only where memory *must* be", "A decision is made once",
    "has one winner", "By the threads that need it", "A state that the launch leaves", "Threads that are replaced contribute",
    "Arguments that lie", "Zero is a fact of one reverse run", "What is left is code in the block",
    "pairs that you keep from earlier rounds",
    "of which it is known which function", "are in step as they were when", "That no two do so", "name numbers of the same size",
    "NaN stays or not", "Where no proof tells", "Looking takes", "What a new program holds is read off", "A device is taken that has",
    "where one is gone the program runs again", "does not read none is", "There are no silent zeros", "All are `gpuad.GpuadError`",
    "half a minute on a CPU", "those are kept that take the fewest", "looking took", "the primal alone", "by the primal", "whoever", " kin",
    "rank that waits", "what has come", "of the caller",
)  # fmt: skip


@pytest.mark.parametrize("page", [*PAGES, DOCS / "gallery.py"], ids=lambda page: str(page.relative_to(ROOT)))
def test_plain_words(page: Path) -> None:
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert not [words for words in REPLACED if re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE)]
