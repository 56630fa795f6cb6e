"""The page of the examples, `python docs/examples.py`: what each is, its picture, and the difference between the program as its author
wrote it, `examples/NAME_forward.py`, and the one that is fitted, `examples/NAME.py`. Three of these are notebooks, too, of the same text,
which are written here as well. With names as arguments their pictures are made anew, a minute each."""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES, PICTURES = ROOT / "examples", ROOT / "docs" / "pictures"
BEGIN = """# Whole programs as examples

Each of these programs was written with NumPy, without a thought of gradients: `examples/NAME_forward.py`. What changed so that it is fitted
to data is shown below it, all of it: the import line, and what comes after the model. `python examples/NAME.py` (with SciPy and Matplotlib)
fits it and draws the picture. `examples/ptychography.ipynb`, `topology.ipynb` and `waveform.ipynb` are the same programs as notebooks.
How a fit is called: [Fit parameters](how-to/fit-parameters.md).
"""
TITLES = {
    "waveform": "Full-waveform inversion", "tomography": "Tomography with total variation", "plasma": "Particles in cells",
    "ptychography": "Ptychography", "shallow_water": "Shallow water, data assimilation", "spiking": "A spiking network",
    "renderer": "A renderer", "topology": "Topology optimisation",
}  # fmt: skip


NOTEBOOKS = ("ptychography", "topology", "waveform")


def cells(name: str) -> list[tuple[str, str]]:
    """The cells of an example's notebook, each a kind and a text: what it is, its imports, a cell for each definition, its run and its
    picture."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    nodes = ast.parse(text).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    first = "\n".join(text.splitlines()[imports[0].lineno - 1 : imports[-1].end_lineno])
    parts = [ast.get_source_segment(text, node) or "" for node in nodes[1:-1] if not isinstance(node, ast.Import | ast.ImportFrom)]
    title = f"# {TITLES[name]}\n\n{' '.join((ast.get_docstring(ast.parse(text)) or '').split())}"
    code = [("code", part) for part in (first, *parts, f'before, after = main("{name}.png")')]
    return [("markdown", title), *code, ("markdown", f"![{TITLES[name]}]({name}.png)")]


def notebook(name: str) -> str:
    """An example as a notebook of format 4.5, without results."""
    made = [
        {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, text) in enumerate(cells(name))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def difference(name: str) -> str:
    """What `NAME.py` has other than `NAME_forward.py`, with one line around each change."""
    before, after = ((EXAMPLES / f"{name}{end}.py").read_text(encoding="utf-8").splitlines() for end in ("_forward", ""))
    lines = list(difflib.unified_diff(before, after, f"{name}_forward.py", f"{name}.py", n=1, lineterm=""))
    return "\n".join("@@" if line.startswith("@@") else line for line in lines)


def page() -> str:
    """The page."""
    parts = [BEGIN]
    for name, title in TITLES.items():
        text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))) or ""
        parts.append(f"\n## {title}\n\n{' '.join(text.split())}\n\n![{title}](pictures/example-{name}.png)\n\n")
        parts.append(f"```diff\n{difference(name)}\n```\n")
    return "".join(parts)


def draw(name: str) -> None:
    """Runs an example, which draws its picture."""
    import matplotlib

    matplotlib.use("Agg")
    sys.path[:0] = [str(EXAMPLES), str(ROOT)]
    importlib.import_module(name).main(PICTURES / f"example-{name}.png")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        draw(given)
    (ROOT / "docs" / "examples.md").write_text(page(), encoding="utf-8")
    for chosen in NOTEBOOKS:
        (EXAMPLES / f"{chosen}.ipynb").write_text(notebook(chosen), encoding="utf-8")
