"""The forms in which a profile goes out: each is read back by what reads it, or by what its format says."""

from __future__ import annotations

import html
import json
import pickle
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from profiled import BYTES, STEPS, profiled
from typer.testing import CliRunner

from gpuad.profiling import snapshot
from gpuad.tape.memory.memory_log import Kind
from gpuad.tools.cli import app

HERE = Path(__file__).parent


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "memory.html"
    profiled().page(path)
    return path


# --- the page --------------------------------------------------------------------------------------------------------------------------


class Fetches(HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {k}={v}" for k, v in attrs if k in ("src", "href", "action", "data", "srcset")]


def test_the_page_stands_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parser = Fetches()
    parser.feed(text)
    assert not parser.found
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|@import|url\(|WebSocket", text)
    assert {u for u in re.findall(r"https?://[^\"' ]+", text)} == {"http://www.w3.org/2000/svg"}  # a name of SVG, not an address
    assert "/*DATA*/" not in text


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to run the page's script without a browser")
def test_the_pages_script_draws_bands_that_say_why(page: Path) -> None:
    node = shutil.which("node")
    assert node is not None
    run = subprocess.run([node, str(HERE / "page_dom.js"), str(page)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["ready"] == "yes" and found["bands"] >= 6 and found["bad"] == 0
    name, reason, now, moment = found["tip"]
    assert name in ("density (saved)", "other (saved)") and "needed by react (profiled.py:" in reason and "overwritten by react" in reason
    assert "12 times" in now + name or ("11 times" in now and moment.startswith("moment "))
    assert found["shown"] == "none"  # the pointer has left it
    assert "As it was: the tape adds" in found["before"]
    *within, last = found["budgets"]
    assert last[0].startswith("As it was") and not last[2]
    assert all(re.match(r"Budget [\d.]+ KiB: .*(run again|nothing runs again)", says) and lines == 1 for says, _, lines in within)
    assert "What would help most" in found["text"]


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--proxy-server=127.0.0.1:9", "--window-size=1280,900",
)  # fmt: skip


@pytest.mark.skipif(BROWSER is None, reason="needs headless Chromium: chromium, chromium-browser or google-chrome on the path")
def test_the_page_in_a_browser(page: Path, tmp_path: Path) -> None:
    """Laid out and shown: what is under the pointer says why it is held, and the slider draws what a budget would hold."""
    driven = tmp_path / "driven.html"
    script = (HERE / "page_drive.js").read_text(encoding="utf-8")
    driven.write_text(page.read_text(encoding="utf-8").replace("</body>", f"<script>{{{script}}}</script></body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, *QUIET, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", driven.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(html.unescape(re.findall(r'<pre id="driven">(.*?)</pre>', run.stdout, re.DOTALL)[0]))
    assert found["ready"] == "yes" and not found["errors"] and found["wide"]
    assert all(band["seen"] and band["inside"] and band["gone"] for band in found["column"])
    said = {band["says"][0]: band["says"] for band in found["column"]}
    assert {"density (saved)", "other (saved)", "density (primal, the caller's)", "density.shadow (shadow, the caller's)"} <= said.keys()
    _, reason, now, moment = said["density (saved)"]
    assert re.search(r"needed by react \(profiled.py:\d+; .*:4:\d+\), overwritten by react \(profiled.py:\d+; .*:4:\d+\)", reason)
    assert "KiB" in now and "times" in now and moment.startswith("moment ")
    order = [band["says"][0] for band in found["column"]]
    assert order[-1].endswith("(primal, the caller's)")  # what is always there lies below
    *within, last = found["budgets"]
    assert last["says"].startswith("As it was") and last["line"] is None
    assert len(within) >= 3 and len({b["says"] for b in within}) == len(within)
    assert "run again" in within[0]["says"] and all(b["says"].startswith("Budget ") and b["line"] - 1 <= b["top"] for b in within)


# --- the trace -------------------------------------------------------------------------------------------------------------------------

WANTED: dict[str, dict[str, Any]] = {  # what the trace event format asks of each kind of event, beside name, ph and pid
    "M": {"args": dict},
    "X": {"ts": (int, float), "dur": (int, float), "tid": int, "cat": str, "args": dict},
    "C": {"ts": (int, float), "args": dict},
    "b": {"ts": (int, float), "id": str, "cat": str},
    "e": {"ts": (int, float), "id": str, "cat": str},
}


def test_the_trace_is_in_the_trace_event_format(tmp_path: Path) -> None:
    profiled(6 * BYTES).trace(tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    events = found["traceEvents"]
    assert set(found) == {"traceEvents", "displayTimeUnit", "otherData"} and found["displayTimeUnit"] in ("ms", "ns")
    for e in events:
        assert isinstance(e["name"], str) and isinstance(e["pid"], int) and e["ph"] in WANTED, e
        for key, kinds in WANTED[e["ph"]].items():
            assert isinstance(e[key], kinds), (key, e)
        assert e.get("ts", 0) >= 0 and e.get("dur", 0) >= 0
        if e["ph"] == "C":
            assert e["args"] and all(isinstance(v, int | float) for v in e["args"].values())
    assert {e["ph"] for e in events} == set(WANTED)
    opened = [e["id"] for e in events if e["ph"] == "b"]
    assert sorted(opened) == sorted(e["id"] for e in events if e["ph"] == "e") and len(set(opened)) == len(opened)
    assert [e["ts"] for e in events if "ts" in e] == sorted(e["ts"] for e in events if "ts" in e)
    assert any("needed by react" in e["args"]["reason"] for e in events if e["ph"] == "b")


def test_slices_of_a_trace_are_nested(tmp_path: Path) -> None:
    profiled().trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    phases = [e for e in events if e.get("cat") == "phase"]
    assert [e["name"] for e in phases] == ["recording", "reversal"] * 3
    inside = [e for e in events if e.get("cat") == "operation"]
    for e in inside:
        assert any(p["ts"] - 0.002 <= e["ts"] and e["ts"] + e["dur"] <= p["ts"] + p["dur"] + 0.002 for p in phases), e
    assert len(inside) in (2 * STEPS, 4 * STEPS)


# --- PyTorch's viewer ------------------------------------------------------------------------------------------------------------------


def test_the_snapshot_is_what_the_viewer_reads(tmp_path: Path) -> None:
    profiled(6 * BYTES).torch_snapshot(tmp_path / "s.pickle")
    found = pickle.loads((tmp_path / "s.pickle").read_bytes())
    (segment,), (trace,) = found["segments"], found["device_traces"]
    at = segment["address"]
    for block in segment["blocks"]:  # they tile the segment
        assert block["address"] == at and block["state"] in ("active_allocated", "inactive")
        at += block["size"]
        assert all(set(f) == {"filename", "line", "name"} for f in block["frames"])
    assert at == segment["address"] + segment["total_size"]
    living: dict[int, int] = {}
    for entry in trace:  # nothing overlaps what is there
        assert entry["action"] in ("alloc", "free_requested", "free_completed") and entry["stream"] == 0
        if entry["action"] == "alloc":
            assert all(entry["addr"] + entry["size"] <= a or a + n <= entry["addr"] for a, n in living.items())
            living[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert living.pop(entry["addr"]) == entry["size"]
    active = {b["address"]: b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"}
    assert living == active and segment["active_size"] == sum(active.values())
    names = {f["name"] for e in trace for f in e["frames"]}
    assert "needed by react" in names and any(f["filename"] == "profiled.py" and f["line"] for e in trace for f in e["frames"])


def test_the_snapshot_in_pytorchs_own_reader() -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="needs torch")
    found = snapshot.snapshot(profiled(6 * BYTES).programs[-1].holding)
    said = viewer.trace(found)
    assert f"{len(found['device_traces'][0])} entries" in said, said
    assert "MemoryViz" in viewer.trace_plot(found) and "MemoryViz" in viewer.segment_plot(found)
    assert "segments: 1" in viewer.segsum(found)


# --- picture, command ------------------------------------------------------------------------------------------------------------------


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    profiled().picture(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "p.png").stat().st_size > 10_000


SCRIPT = """
import sys
import numpy as np, gpuad
assert __name__ == "__main__" and sys.argv[1:] == ["--fast", "3"], sys.argv
square = gpuad.kernel('extern "C" __global__ void square(double* v, int n) { int i = threadIdx.x; if (i < n) v[i] *= v[i]; }', "square")
pressure, tape = gpuad.Duplicated(np.ones(100)), gpuad.Tape()
with tape:
    for _ in range(3):
        square[1, 128](pressure, 100)
tape.reverse({pressure: 1.0})
print("done")
sys.exit(int(sys.argv[2]))
"""


def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    files = {"--html": "a.html", "--png": "a.png", "--trace": "a.json", "--torch": "a.pickle"}
    options = [part for option, name in files.items() for part in (option, str(tmp_path / name))]
    result = CliRunner().invoke(app, ["profile", *options, str(script), "--fast", "3"], env={"COLUMNS": "200"})
    assert result.exit_code == 3, result.output
    assert "done" in result.output and "pressure" in result.output and str(Kind.saved) in result.output
    assert "needed by square (script.py:" in result.output and "peak: the tapes added" in result.output
    assert all((tmp_path / name).stat().st_size > 500 for name in files.values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1 +", "script.py:1: error: invalid syntax"),
        ("raise ValueError('no')", "error: ValueError: no"),
        ("x = 1", "no tape was recorded"),
    ],
)
def test_the_command_where_there_is_nothing_to_see(tmp_path: Path, text: str, says: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["profile", str(script)])
    assert says in result.output and result.exit_code == (0 if text == "x = 1" else 1)
