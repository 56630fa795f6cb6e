"""What gpuad is doing is said from two seconds on, on a terminal or in a log, and not at all where it is quick."""

from __future__ import annotations

import io
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, progress
from gpuad.errors import LaunchError
from gpuad.progress import PROGRESS, Progress

ERASED = "\r\x1b[K"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Terminal(io.StringIO):
    """A stream, with what was written since it was last asked."""

    is_one = True

    def isatty(self) -> bool:
        return self.is_one

    def new(self) -> str:
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


@pytest.fixture
def work(clock: Clock, terminal: Terminal) -> Progress:
    return Progress(clock, terminal, watch=False)


@pytest.fixture(autouse=True)
def handlers_of_before() -> Iterator[None]:
    """The logger is set up as it was."""
    logger = progress.logger
    handlers, level = logger.handlers.copy(), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_nothing_is_said_of_what_is_quick(work: Progress, clock: Clock, terminal: Terminal) -> None:
    with work.doing("reading"):
        clock.passes(1.9)
        work.look()
    assert terminal.new() == ""


def test_a_line_says_what_is_being_done_and_goes(work: Progress, clock: Clock, terminal: Terminal) -> None:
    with work.doing("recording step 37 (wave.py:12)"):
        with work.doing("proving the gather of `update_p`"):
            clock.passes(2)
            work.look()
            assert terminal.new() == "\rgpuad: recording step 37 (wave.py:12): proving the gather of `update_p`\x1b[K"
        assert terminal.new() == ""
        clock.passes(0.1)
        work.look()
        assert terminal.new() == "\rgpuad: recording step 37 (wave.py:12)\x1b[K"
    assert terminal.new() == ERASED
    work.look()
    assert terminal.new() == ""


def test_many_quick_pieces_are_one_slow_one(work: Progress, clock: Clock, terminal: Terminal) -> None:
    for step in range(30):
        with work.doing(f"recording step {step}"):
            clock.passes(0.1)
            work.look()
        clock.passes(0.2)
    said = terminal.new()
    assert "step 18\x1b" not in said
    assert "step 20\x1b" in said
    assert said.endswith(ERASED)


def test_pieces_that_are_far_apart_are_not(work: Progress, clock: Clock, terminal: Terminal) -> None:
    for step in range(30):
        with work.doing(f"recording step {step}"):
            clock.passes(0.1)
            work.look()
        clock.passes(1.5)
    assert terminal.new() == ""


def test_a_bar_where_the_length_is_known(work: Progress, clock: Clock, terminal: Terminal) -> None:
    with work.doing("adjoints", 40) as doing:
        clock.passes(3)
        for doing.at in (0, 10, 40):
            work.look()
    bars = [line.removesuffix("\x1b[K") for line in terminal.new().split("\r")[1:4]]
    assert [bar.count("#") for bar in bars] == [0, 5, 20]
    assert bars[1] == "gpuad: adjoints [#####               ] 10 of 40"


def test_a_line_fits_the_terminal(work: Progress, clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    with work.doing("x" * 100):
        clock.passes(3)
        work.look()
    assert terminal.new() == "\rgpuad: " + "x" * 19 + "...\x1b[K" + ERASED


def test_nothing_is_written_where_there_is_no_terminal(work: Progress, clock: Clock, terminal: Terminal) -> None:
    terminal.is_one = False
    with work.doing("reading"):
        clock.passes(10)
        work.look()
    assert terminal.new() == ""


def test_work_that_fails_is_at_an_end(work: Progress, clock: Clock, terminal: Terminal) -> None:
    with pytest.raises(ValueError, match="no"), work.doing("one"), work.doing("two"):
        clock.passes(3)
        work.look()
        raise ValueError("no")
    assert terminal.new().endswith(ERASED)
    assert not work.stack


def test_another_thread_works_in_silence(work: Progress, clock: Clock, terminal: Terminal) -> None:
    def other() -> None:
        with work.doing("of another"):
            work.look()

    with work.doing("mine"):
        clock.passes(3)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert terminal.new() == "\rgpuad: mine\x1b[K"
        assert [str(x) for x in work.stack] == ["mine"]


def test_who_has_a_bar_of_their_own_is_left_alone(work: Progress, clock: Clock, terminal: Terminal) -> None:
    with work.silent(), work.doing("mine"):
        clock.passes(3)
        work.look()
    assert terminal.new() == ""


def test_a_stream_that_fails_is_no_error(work: Progress, clock: Clock, terminal: Terminal) -> None:
    with work.doing("mine"):
        clock.passes(3)
        terminal.close()
        work.look()


def test_the_log_has_what_was_slow(work: Progress, clock: Clock, terminal: Terminal, caplog: pytest.LogCaptureFixture) -> None:
    terminal.is_one = False
    caplog.set_level(logging.INFO, "gpuad")
    with work.doing("recording step 1"):
        with work.doing("quick"):
            clock.passes(1)
        with work.doing("slow"):
            for _ in range(4):
                clock.passes(1)
                work.look()
    assert [r.getMessage() for r in caplog.records] == [
        "recording step 1: slow",
        "recording step 1: slow took 4.00 s",
        "recording step 1 took 5.00 s",
    ]


def test_a_log_for_debugging_has_everything(work: Progress, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gpuad")
    with work.doing("quick"):
        clock.passes(0.25)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("DEBUG", "quick took 0.25 s")]


@pytest.mark.parametrize(("level", "lines"), [("debug", 2), ("info", 1), ("off", 0)])
def test_the_variable_chooses(
    level: str, lines: int, clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines are written below each other then, on a terminal too."""
    monkeypatch.setenv(progress.VARIABLE, level)
    monkeypatch.setattr(progress.logger, "handlers", [logging.NullHandler()])
    progress._set_up()
    work = Progress(clock, terminal, watch=False)
    with work.doing("one"):
        clock.passes(1)
    clock.passes(5)
    with work.doing("two"):
        clock.passes(3)
    assert terminal.new() == ""
    assert capsys.readouterr().err.splitlines() == ["gpuad: one took 1.00 s", "gpuad: two took 3.00 s"][2 - lines :]


def test_a_level_that_is_none_is_refused_and_leaves_nothing_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.VARIABLE, "loud")
    work = Progress()
    with pytest.raises(LaunchError, match="GPUAD_LOG is 'loud': it has to be one of debug, info, off"), work.doing("one"):
        pass
    assert not work.stack


# --- what is said of a program --------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, time, numpy as np, gpuad
from gpuad import Duplicated, progress
from gpuad.pipeline import schedule
progress.QUIET, progress._TICK = 0.2, 0.02
find = schedule._inspected
schedule._inspected = lambda *a: (time.sleep(0.6), find(*a))[1]
TEXT = '''extern "C" __global__ void update_p(double* p, const double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n) p[i] = v[i] - v[i - 1];
}'''
p, v = Duplicated(np.zeros(9)), Duplicated(np.ones(9))
with gpuad.Tape() as tape:
    gpuad.kernel(TEXT, "update_p")[1, 32](p, v, 9)
tape.reverse({p: 1.0})
"""


def test_a_terminal_shows_the_step_the_line_and_the_kernel(tmp_path: Path) -> None:
    """A process whose standard error is a terminal."""
    script = tmp_path / "steps.py"
    script.write_text(PROGRAM)
    main, other = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(gpuad.__file__).parents[1]), "COLUMNS": "200"}
    process = subprocess.Popen([sys.executable, str(script)], stderr=other, env=environment)
    os.close(other)
    shown = b""
    while process.poll() is None or not shown.endswith(b"\x1b[K"):
        try:
            shown += os.read(main, 1 << 16)
        except OSError:  # nobody writes any more
            break
    os.close(main)
    assert process.wait(timeout=60) == 0
    assert "gpuad: recording step 0 (steps.py:14): proving the gather of `update_p`" in shown.decode()
    assert shown.decode().endswith(ERASED)


def test_a_program_says_what_it_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gpuad")
    text = """extern "C" __global__ void smooth(double* y, const double* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i > 0 && i < n) y[i] = x[i] * x[i - 1];
    }"""
    x, y = Duplicated(np.ones(20)), Duplicated(np.zeros(20))
    with gpuad.Tape() as tape:
        gpuad.kernel(text, "smooth")[1, 32](y, x, 20)
    tape.reverse({y: 1.0})
    said = [record.getMessage().rpartition(" took ")[0] for record in caplog.records]
    wanted = [
        "reading `smooth` of <source>",
        "deriving the adjoint of `smooth`",
        "proving the gather of `smooth`",
        "adjoints",
        "planning the reversal of 1 operations",
    ]
    assert [text for text in said if text in wanted] == wanted
    assert any(text.startswith("recording step 0 (") and "test_progress.py:" in text for text in said)
    assert not PROGRESS.stack
