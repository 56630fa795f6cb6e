"""A kernel and its adjoint as a page: complete links, reasons at their lines, escaped texts, nothing that is fetched; and in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from launch_tools import CASES, arguments, compiled, shipped
from nightly import share

from gpuad import Duplicated

HERE = Path(__file__).parent
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Parsed(HTMLParser):
    """The lines of the two panes, as (keys, text), the notes below them, anchors, links, and what a page would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: dict[str, list[tuple[list[str], str]]] = {"left": [], "right": []}
        self.notes: dict[str, dict[int, list[str]]] = {"left": {}, "right": {}}
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.foreign: list[str] = []
        self.side, self.inside, self.depth = "", "", 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.foreign += [value for name in ("src", "href", "action", "data") if (value := own.get(name, "")) and not value.startswith("#")]
        self.foreign += [tag] if tag in ("link", "iframe", "img", "object") else []
        if tag == "section":
            self.side = own["id"]
        if tag == "a":
            self.links.add(own["href"][1:])
        if tag == "div" and own.get("class") == "l":
            self.lines[self.side].append((own.get("data-keys", "").split(), ""))
            self.anchors |= {own["id"]} if "id" in own else set()
        if tag == "div" and own.get("class", "").startswith("note"):
            self.notes[self.side].setdefault(len(self.lines[self.side]) - 1, []).append("")
            self.inside = "note"
        if tag == "code":
            self.inside = "code"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "div"):
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "code":
            keys, text = self.lines[self.side][-1]
            self.lines[self.side][-1] = (keys, text + data)
        elif self.inside == "note":
            self.notes[self.side][len(self.lines[self.side]) - 1][-1] += data

    def at(self, side: str, text: str) -> int:
        """The number of the only line with a text in it."""
        (found,) = [k for k, (_, line) in enumerate(self.lines[side]) if text in line]
        return found

    def became(self, text: str) -> list[str]:
        """The adjoint's lines that belong to the kernel's only line with a text in it."""
        (key,) = self.lines["left"][self.at("left", text)][0]
        return [line.strip() for keys, line in self.lines["right"] if key in keys]


def adjoint(name: str) -> Any:
    """The adjoint of a shipped case's launch."""
    args = arguments(name)
    grid, block, shared_mem = CASES[name].geometry({})
    active = {d.name: type(a) for d, a in zip(shipped(name).parameters, args, strict=True) if d.name in CASES[name].active}
    return shipped(name).adjoint(grid=grid, block=block, args=args, shared_mem=shared_mem, **active)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", share(list(CASES), 4))
def test_each_shipped_kernel_has_a_page_with_complete_links(name: str) -> None:
    text = adjoint(name)
    page = Parsed(text.html())
    assert not page.foreign
    file = CASES[name].file
    assert [line for _, line in page.lines["left"]][: file.text.count("\n")] == file.text.splitlines()
    assert "\n".join(line or "" for _, line in page.lines["right"]).split() == text.source.split()
    there = {key for keys, _ in page.lines["left"] for key in keys}
    used = {key for keys, _ in page.lines["right"] for key in keys}
    assert used and used <= there
    assert page.links <= page.anchors
    kernels = page.lines["right"][next(k for k, (_, line) in enumerate(page.lines["right"]) if "__global__" in line) :]
    body = [keys for keys, line in kernels if line.startswith("    ") and line.strip(" {}") and not line.strip().startswith(("else", "//"))]
    assert sum(map(bool, body)) >= len(body) / 2, "most statements of an adjoint come from a line of the kernel"


def test_the_page_is_this(golden: Callable[[str, str], None]) -> None:
    golden("pages/masked_update.html", adjoint("masked_update").html())


MIXED = """__device__ float twice(float x) {
    float t = x * x;
    return t * x;
}

/* a kernel that nobody asks for < & > */
extern "C" __global__ void other(float* x) { x[0] = 1.0f; }

extern "C" __global__ void f(const float* x, const int* to, float* y, float* z, int n) {
    int i = threadIdx.x;
    if (i < n && n > 0) {
        float a = x[i];  // "<b>&amp;</b>" </code></script><script>alert(1)</script><!--
        z[i] = a * z[i] * y[i];
        y[i] = twice(a);
        atomicAdd(&y[to[i]], sinf(a));
    }
}
"""


def test_lines_belong_to_what_they_became() -> None:
    page = Parsed(compiled(MIXED, "f").adjoint(x=Duplicated, y=Duplicated, z=Duplicated).html())
    assert any("x_2 = x[i]" in line or "x[i]" in line for line in page.became("float a = x[i]"))
    assert any("dz" in line for line in page.became("z[i] = a * z[i]"))
    assert any("cosf" in line for line in page.became("sinf(a)"))
    assert any("cosf" in line for line in page.became("z[i] = a * z[i]")), "its part of the gradient of a is added there, too"
    assert page.became("float t = x * x") == ["const float t = a * a;"], "in a function that it calls"
    assert not page.lines["left"][page.at("left", "void other")][0]


def test_what_is_saved_is_said_where_it_is_needed_and_where_it_is_overwritten() -> None:
    page = Parsed(compiled(MIXED, "f").adjoint(x=Duplicated, y=Duplicated, z=Duplicated).html())
    needs = page.notes["left"][page.at("left", "z[i] = a * z[i]")]
    assert "saved needs y as it was; a copy is saved, since it is overwritten by line 14, line 15" in needs
    assert "saved overwrites z; a copy is saved, needed by line 13" in needs
    assert page.notes["left"][page.at("left", "y[i] = twice(a)")] == ["saved overwrites y; a copy is saved, needed by line 13"]
    kept = [note for notes in page.notes["left"].values() for note in notes if note.startswith("kept")]
    assert kept == []


GRID = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void relax(float* x, float* y, int n) {
    cg::grid_group grid = cg::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        if (i > 0 && i < n - 1) y[i] = x[i] * x[i - 1];
        grid.sync();
        if (i < n) x[i] = sinf(y[i]);
        grid.sync();
    }
}
"""


def test_the_parts_of_a_kernel_with_a_barrier_of_the_grid() -> None:
    """What is copied between launches is said where it is needed and where a later launch overwrites it."""
    page = Parsed(compiled(GRID, "relax").adjoint(x=Duplicated, y=Duplicated).html())
    assert page.links <= page.anchors
    assert any("cosf" in line for line in page.became("sinf(y[i])"))
    needs, overwrites = page.at("left", "x[i] * x[i - 1]"), page.at("left", "sinf(y[i])")
    assert "saved needs x as it was; a copy between launches is saved, since it is overwritten by line 9" in page.notes["left"][needs]
    assert "saved overwrites x; a copy between launches is saved, needed by line 7" in page.notes["left"][overwrites]


def test_atomics_have_their_reason() -> None:
    page = Parsed(compiled(MIXED, "f").adjoint(x=Duplicated, y=Duplicated, z=Duplicated).html())
    atomics = [k for k, (_, line) in enumerate(page.lines["right"]) if line.strip().startswith("atomicAdd(&dx")]
    assert atomics
    for k in atomics:
        assert page.notes["right"][k] == ["atomic no launch is given; for one it may be proved that no two threads meet in one element"]


def test_texts_are_escaped() -> None:
    html = compiled(MIXED, "f").adjoint(x=Duplicated, y=Duplicated, z=Duplicated).html()
    assert html.count("<script>") == html.count("</script>") == 1
    assert "alert(1)&lt;/script&gt;" in html
    assert any('"<b>&amp;</b>" </code></script>' in line for _, line in Parsed(html).lines["left"])


def test_facts_of_the_launch() -> None:
    html = adjoint("heat").html()
    assert re.search(r"<td[^>]*>heat_gather</td><td[^>]*>\(3, 5, 1\)</td><td[^>]*>\(16, 8, 1\)</td><td[^>]*>1,920</td>", html)
    assert re.search(r"<td[^>]*>u</td><td[^>]*>[^<]*</td><td[^>]*>Duplicated</td><td[^>]*>array of shape \(37, 41\)</td>", html)
    assert "for every launch" in compiled(MIXED, "f").adjoint(x=Duplicated, y=Duplicated).html()


def test_notebooks_show_the_page_and_shells_a_line() -> None:
    text = compiled(MIXED, "f").adjoint(x=Duplicated, y=Duplicated)
    assert text._repr_html_().startswith("<iframe srcdoc=") and "<script" not in text._repr_html_()
    assert repr(text) == f"<adjoint of f: f_reverse, {len(text.source.splitlines())} lines>"
    assert str(text) == text.source
    assert "<table>" in text.explain()._repr_html_() and "&lt;" not in repr(text.explain())


# --- in a browser ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium, to look at the page")
@pytest.mark.one_of(2)
@pytest.mark.parametrize("width", [390, 1280])
def test_mouse_and_keys(width: int, tmp_path: Path) -> None:
    driven, script = tmp_path / "driven.html", (HERE / "adjoint_page_drive.js").read_text(encoding="utf-8")
    page = adjoint("masked_update").html()
    driven.write_text(page.replace("</body>", f"<script>{{{script}}}</script></body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},800", "--dump-dom", driven.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout
    found = re.search(r'<pre id="driven">(.*?)</pre>', shown, re.DOTALL)
    assert found, shown[-500:]
    seen = json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    assert seen["errors"] == [] and seen["wide"]
    assert seen["hovered"] == ["const float x_2 = x_saved[i];", "dx[i] += cosf(x_2) * dtotal[i];"]
    assert seen["status"] == "kernel line 21 became adjoint lines 14, 23"
    assert seen["down"] == "if (mask[i] == 1) {" and seen["across"] == "if (mask[i] == 1) {" and seen["side"] == "right"
    assert seen["back"] == "left" and seen["none"] == 0 and seen["visible"]
    assert seen["followed"].startswith("x[i] = a[i] * x[i];")
