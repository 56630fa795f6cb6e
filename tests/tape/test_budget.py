"""Tapes with a byte budget: the gradient of one without, to the bit, with launches run again in the place of memory."""

from __future__ import annotations

import itertools
import random
import re
import warnings
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled
from nightly import NIGHTLY, share
from tape_tools import Fault, failing, launch, pair

import gpuad
from gpuad import Active, BatchDuplicated, BudgetError, Duplicated, TapeError
from gpuad.budget import bytes_of, extra_steps
from gpuad.pipeline import executor_for_tests
from gpuad.runtime.host import Host
from gpuad.tape.facade import recording_of

STEP = r"""
extern "C" __global__ void step(double* v, const double* u, const double* table, int t, double dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double left = u[i > 0 ? i - 1 : 0], right = u[i < n - 1 ? i + 1 : n - 1];
    v[i] = u[i] + dt * (left - 2.0 * u[i] + right) + table[t] * u[i] * (1.0 - u[i]);
}
extern "C" __global__ void speak(double* x, int t, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) printf("step %d\n", t);
    if (i < n) x[i] = x[i] * x[i] * 0.7 + 0.1;
}
extern "C" __global__ void deposit(double* y, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[i % 5], 0.1 * x[i] * x[i]);
}
"""
N = 200  # 1,600 bytes, 2,048 as a pool rounds them
BYTES = 2048


pytestmark = pytest.mark.usefixtures("on_host_unjoined")


class Loop:
    """A time loop with a scalar and, if it is `indexed`, an index that depend on the step's number, on arrays of its own."""

    def __init__(self, steps: int, budget: Any = None, *, indexed: bool = True, **options: Any) -> None:
        rng, self.indexed = np.random.default_rng(0), indexed
        self.steps, self.start, self.seed = steps, rng.uniform(0.1, 0.9, N), rng.normal(size=N)
        self.u, self.v, self.table = pair(self.start), pair(np.zeros(N)), pair(rng.uniform(0.1, 0.4, steps))
        self.tape = gpuad.Tape(budget=budget, **options)
        self.kernel = compiled(STEP, "step")

    def record(self, steps: int | None = None) -> tuple[Any, Any]:
        self.u.primal[...], self.v.primal[...] = self.start, 0.25
        for p in (self.u, self.v, self.table):
            p.shadow.fill(0)
        u, v = self.u, self.v
        with self.tape:
            for t in range(steps or self.steps):
                self.kernel[-(-N // 64), 64](v, u, self.table, t if self.indexed else 0, 0.001 * (t + 1), N)
                u, v = v, u
        return u, v

    def run(self, steps: int | None = None) -> list[bytes]:
        """Records and reverses; all that a user sees."""
        u, _ = self.record(steps)
        self.tape.reverse({u: self.seed})
        return [a.tobytes() for p in (self.u, self.v, self.table) for a in (p.primal, p.shadow)]


# --- amounts ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [(0, 0), (1000, 1000), ("2 GiB", 2 << 30), ("64MiB", 64 << 20), ("1.5 kB", 1500), ("3K", 3072), ("10 B", 10), (0.5, 400), ("25%", 200)],
)
def test_a_budget_is_bytes_a_text_or_a_fraction(budget: Any, wanted: int) -> None:
    assert bytes_of(budget, lambda: 800) == wanted


@pytest.mark.parametrize("budget", [-1, 0.0, 1.5, "much", "2 parsecs", True, [1], "-3 MB", "0%"])
def test_anything_else_is_refused(budget: Any) -> None:
    with pytest.raises(TapeError, match="a `budget` is a number of bytes"):
        gpuad.Tape(budget=budget)


# --- schedules -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(4)
@pytest.mark.parametrize("steps", share(range(1, 13), 2))
def test_every_schedule_of_short_loops(steps: int) -> None:
    """1 to 6 checkpoints: the bits of a tape without a budget, no more runs than the binomial optimum, and never more bytes than there
    are."""
    free = Loop(steps)
    wanted = [free.run() for _ in range(3)]
    for checkpoints in range(1, 7):
        budget = BYTES * (2 + checkpoints)  # the final state of both arrays has to be put back
        loop = Loop(steps, budget)
        for result in wanted:
            assert loop.run() == result, (steps, checkpoints)
            assert max(recording_of(loop.tape).most, recording_of(loop.tape).memory.most) <= budget
        plan = loop.tape.plan()
        assert plan.peak <= budget
        assert plan.reruns <= extra_steps(steps, checkpoints), (steps, checkpoints, plan)


def test_steps_run_again_as_few_times_as_can_be() -> None:
    """Griewank and Walther's optimum, less what the program itself has run."""
    loop = Loop(40, BYTES * 8)
    loop.run()
    loop.run()
    plan = loop.tape.plan()
    assert plan.checkpoints == 6
    assert plan.reruns <= extra_steps(40, 6) - 39 + 1
    assert "6 checkpoints" in str(loop.tape.explain())


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("steps", "checkpoints", "percent"), [(60, 4, 12), (100, 6, 10), (300, 10, 6)])
def test_the_first_recording_thins_its_checkpoints(steps: int, checkpoints: int, percent: int) -> None:
    """It does not know how long it gets, and comes near to the optimum all the same, within its budget from beginning to end."""
    budget = BYTES * (2 + checkpoints)
    loop, free = Loop(steps, budget, indexed=False), Loop(steps, indexed=False)
    u, _ = loop.record()
    within = recording_of(loop.tape).within
    assert within is not None and 2 <= len(within.marks) <= checkpoints
    loop.tape.reverse({u: loop.seed})
    assert within.script is not None
    assert steps - 1 + within.script.script.reruns <= extra_steps(steps, checkpoints) * (1 + percent / 100)
    assert [a.tobytes() for p in (loop.u, loop.v, loop.table) for a in (p.primal, p.shadow)] == free.run()
    assert max(recording_of(loop.tape).most, recording_of(loop.tape).memory.most) <= budget
    assert loop.run() == free.run()  # from here on the schedule is known, and there are no marks
    assert not within.marks.marks and loop.tape.plan().reruns <= extra_steps(steps, checkpoints) - steps + 2


def test_fewer_bytes_are_never_faster_and_never_higher() -> None:
    for number in range(10):
        steps = 4 + 2 * number
        loop = Loop(steps, "1 GiB")
        loop.record()
        least = min(p.peak for p in loop.tape.tradeoff().points)
        most = max(p.peak for p in loop.tape.tradeoff().points)
        plans = [loop.tape.plan(int(b)) for b in np.linspace(max(least, BYTES * 3), most + BYTES, 30)]
        for one, two in itertools.pairwise(plans):
            assert two.reruns <= one.reruns and one.peak <= two.peak, (steps, one, two)
        assert plans[-1].reruns == 0


def test_the_tradeoff_as_a_table_and_a_picture(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    loop = Loop(24, "1 GiB")
    loop.record()
    curve = loop.tape.tradeoff()
    assert [p.reruns for p in curve.points] == sorted((p.reruns for p in curve.points), reverse=True)
    assert "checkpoints" in str(curve).splitlines()[0] and len(str(curve).splitlines()) == len(curve.points) + 1
    curve.picture(str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_without_a_budget_the_plan_is_that_of_a_tape_with_one() -> None:
    """A tape that never looked at what runs again reads its recording once more."""
    one, two = Loop(24, "1 GiB"), Loop(24)
    for loop in (one, two):
        loop.run()
    plans = [(p.peak, p.checkpoints, p.reruns, p.moved) for p in one.tape.tradeoff().points]
    assert plans == [(p.peak, p.checkpoints, p.reruns, p.moved) for p in two.tape.tradeoff().points]
    assert two.tape.plan(8 * BYTES).reruns == one.tape.plan(8 * BYTES).reruns > 0
    with pytest.raises(BudgetError, match="smallest budget that would do"):
        two.tape.plan(1000)
    result = two.run()
    assert result == Loop(24).run()  # nothing of it is changed


def test_a_plan_tells_no_time_of_a_program_that_was_recorded_once() -> None:
    """That is the time of compiling it; the next one is that of the program."""
    loop = Loop(30, BYTES * 6)
    for turn in range(2):
        loop.run()
        plan = loop.tape.plan()
        assert plan.reruns and (plan.seconds > 0) is (turn == 1)
        assert ("about" in str(plan)) is (turn == 1) and "nan" not in str(loop.tape.explain())


@pytest.mark.one_of(2)
@pytest.mark.parametrize("budget", [None, BYTES * 6, BYTES * 50])
def test_the_peak_is_what_the_tape_added_at_once(budget: int | None) -> None:
    """Without the caller's own shadows, and within the budget."""
    loop = Loop(30, budget)
    for _ in range(2):
        loop.run()
        assert 0 < loop.tape.peak_bytes <= (budget or 1 << 22)
    free = sum(n for n in recording_of(loop.tape).memory.held.values())
    assert loop.tape.peak_bytes >= free


def test_there_is_no_plan_of_what_is_not_recorded() -> None:
    with pytest.raises(TapeError, match="recorded to its end"):
        gpuad.Tape().plan()


def test_a_program_without_operations_has_a_plan_of_nothing() -> None:
    """It is what is left of one whose arrays only change places."""
    tape = gpuad.Tape(budget=1000)
    with tape:
        pass
    assert "0 operations" in str(tape.explain())
    with pytest.raises(TapeError, match="not part of the recording"):
        tape.reverse({Duplicated(np.ones(4), np.zeros(4)): 1.0})
    tape.reverse()


def test_the_plan_is_told_with_bytes_and_reasons() -> None:
    loop = Loop(40, BYTES * 8, indexed=False)
    loop.run()
    loop.run()
    u, plan, text = loop.u, loop.tape.plan(), str(loop.tape.explain())
    assert u is not None
    assert f"store      the state at the beginning, {BYTES} B; at most 5 checkpoints of `" in text
    assert f"{BYTES} B each" in text and f"the final state, which is put back, {2 * BYTES} B" in text
    assert f"recompute  {plan.reruns} operations" in text and "offload" not in text and "keep " not in text
    roomy = Loop(10, "1 MiB", indexed=False)
    roomy.run()
    assert "store      all that adjoints need of what is overwritten: 18" in str(roomy.tape.explain())
    _, _, tape = ruled(noise, BYTES * 14)
    text = str(tape.explain())
    assert "its rule is not declared pure" in text or "nothing runs again" in text


# --- what does not fit -----------------------------------------------------------------------------------------------------------------


def test_too_small_a_budget_says_which_would_do() -> None:
    loop = Loop(30, 1000)
    with pytest.raises(BudgetError, match="smallest budget that would do is") as refused:
        loop.record()
    smallest = refused.value.smallest
    free = Loop(30)
    free.record()
    assert [p.primal.tobytes() for p in (loop.u, loop.v)] == [p.primal.tobytes() for p in (free.u, free.v)]
    assert smallest is not None and f"{smallest} bytes" in str(refused.value)
    with pytest.raises(BudgetError) as again:
        loop.record()
    assert str(again.value) == str(refused.value)
    with pytest.raises(BudgetError):
        Loop(30, smallest - 1).run()
    assert Loop(30, smallest).run() == free.run()


def test_a_program_that_begins_as_a_refused_one() -> None:
    """A shorter one had fitted, and fits again; what the refused one takes is said of that alone."""
    free, smallest = Loop(30), {}
    for steps in (2, 3):
        with pytest.raises(BudgetError) as refused:
            Loop(30, 1000).record(steps)
        smallest[steps] = refused.value.smallest
    loop = Loop(30, smallest[2])
    for steps in (2, 2, 3, 2, 3, 3, 2, 2):
        if smallest[steps] <= smallest[2]:
            assert loop.run(steps) == free.run(steps)
        else:
            with pytest.raises(BudgetError) as refused:
                loop.record(steps)
            assert refused.value.smallest == smallest[steps]
        assert recording_of(loop.tape).most <= smallest[2]


def chain(tape: gpuad.Tape, x: Duplicated, times: int, held: list[Any]) -> Duplicated:
    with tape:
        y = x * 2.0
        for _ in range(times):
            y = gpuad.ops.sin(y)
            held.append(y)
        return gpuad.ops.sum(y)


def test_shadows_of_a_refused_program_are_not_those_of_the_next() -> None:
    """Its temporaries have shadows of the tape's, which count no longer."""
    want, free = pair(np.linspace(0.1, 1, N)), gpuad.Tape()
    loss = chain(free, want, 1, [])
    with pytest.raises(BudgetError) as refused:
        free.plan(1)
    free.reverse({loss: 1.0})
    smallest = refused.value.smallest
    assert smallest is not None
    tape, x = gpuad.Tape(budget=smallest), pair(np.linspace(0.1, 1, N))
    for times in (1, 9, 1, 9, 1):
        held: list[Any] = []
        if times == 9:
            with pytest.raises(BudgetError):
                chain(tape, x, times, held)
            held.clear()
            continue
        loss = chain(tape, x, times, held)
        x.shadow.fill(0)
        tape.reverse({loss: 1.0})
        assert x.shadow.tobytes() == want.shadow.tobytes() and recording_of(tape).most <= smallest


@pytest.mark.parametrize("shadows", [True, False])
def test_a_budget_bounds_arrays_that_the_caller_keeps(shadows: bool) -> None:
    """Refused at the operation that asks for one more, wherever that is, and before it has it."""
    x, w, budget = pair(np.linspace(0.1, 1, N)), np.ones(N), BYTES * 9
    tape, held = gpuad.Tape(budget=budget), []

    def program(times: int) -> Any:
        with tape:
            held.extend(gpuad.ops.sin(x if shadows else w) for _ in range(times))
            return gpuad.ops.sum(x * held[0])

    with pytest.raises(BudgetError, match=r"arrays that operations made and their shadows take .*let go of what is not needed"):
        program(1000)
    assert recording_of(tape).memory.most <= budget
    held.clear()
    for _ in range(2):
        x.shadow.fill(0)
        tape.reverse({program(1): 1.0})
        sine = np.sin(x.primal if shadows else w)
        np.testing.assert_allclose(x.shadow, sine + x.primal * np.cos(x.primal) if shadows else sine, rtol=1e-13)
        held.clear()


@pytest.mark.one_of(4)
@pytest.mark.parametrize("budget", [4, 8, *range(11, 16), 20, 26, 29, 40])
def test_longer_programs_within_every_budget(budget: int) -> None:
    """What fits within fewer bytes fits within more, whatever the tape has recorded before."""
    if not LONGER:
        free = Loop(40)
        LONGER.extend(free.run(steps) for steps in (12, 40))
    loop = Loop(40, budget * BYTES)
    for steps in (12, 12, 40, 12, 40, 40):
        assert loop.run(steps) == LONGER[steps == 40], steps
        assert recording_of(loop.tape).most <= budget * BYTES


LONGER: list[list[bytes]] = []


def test_a_longer_program_whose_beginning_is_gone_is_refused_where_that_is_known() -> None:
    """The state at the beginning was not among what adjoints need: the tape has to record the program once more."""
    refused, done = 0, 0

    def program(tape: gpuad.Tape, x: Duplicated, y: Duplicated, times: int) -> None:
        nonlocal done
        x.primal[...], y.primal[...] = np.linspace(0.1, 1, N), 0.0
        with tape:
            for done in range(times):  # noqa: B007
                launch("linear", y, x)
                launch("linear", x, y)
                launch("sine", x)

    for budget in range(3, 24, 2):
        x, y = pair(np.linspace(0.1, 1, N)), pair(np.zeros(N))
        tape = gpuad.Tape(budget=budget * BYTES)
        for times in (5, 5, 30):
            try:
                program(tape, x, y, times)
            except BudgetError:
                break
            except TapeError as longer:
                assert "record it again" in str(longer) and 5 <= done < 29
                refused += 1
                program(tape, x, y, times)
            x.shadow.fill(0), y.shadow.fill(0)
            tape.reverse({x: 1.0})
            assert recording_of(tape).most <= budget * BYTES
    assert refused


def test_a_failure_in_the_reverse_leaves_arrays_as_the_program_did() -> None:
    loop = Loop(20, BYTES * 4)
    loop.run()
    for at in (0, 3, 17):
        u, v = loop.record()
        before = u.primal.tobytes(), v.primal.tobytes()
        plan = recording_of(loop.tape).reversals.planned({u: loop.seed})[1]
        actions = list(plan.again or plan.actions)
        where = min(at, len(actions))

        def fault() -> None:
            raise Fault

        plan.again = (*actions[:where], fault, *actions[where:])
        plan.runs = max(plan.runs, 2)
        with pytest.raises(Fault):
            loop.tape.reverse({u: loop.seed})
        assert (u.primal.tobytes(), v.primal.tobytes()) == before, at
        with pytest.raises(TapeError, match="undefined"):
            loop.tape.reverse({u: loop.seed})
        recording_of(loop.tape).reversals.plans.clear()
        recording_of(loop.tape).drop_plans()
    assert loop.run() == Loop(20).run()


@pytest.mark.one_of(2)
@pytest.mark.parametrize("budget", [BYTES * 5, BYTES * 9, "1 MiB"])
@pytest.mark.parametrize("recordings", [1, 2])
def test_less_memory_than_the_budget_allows(budget: Any, recordings: int) -> None:
    """Each allocation of a budget's memory fails once: the tape plans anew, says so, and the gradient is the same to the bit; or it says
    what would do, with arrays as they were."""
    free, k, again = Loop(20, indexed=False), 0, 0
    wanted = free.run()
    while True:
        loop = Loop(20, budget, indexed=False)
        for _ in range(recordings - 1):
            loop.run()
        within, left = recording_of(loop.tape).within, [k]
        assert within is not None
        real = within.new

        def failing(nbytes: int, *, kind: Any, real: Any = real, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise MemoryError
            return real(nbytes, kind=kind)

        within.new = failing
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                assert loop.run() == wanted, k
                again += left[0] < 0
            except BudgetError as error:
                assert "there is memory for" in str(error) or "the smallest budget" in str(error)
        if left[0] >= 0:
            break
        assert [w.category for w in told] == [RuntimeWarning] and "plans anew" in str(told[0].message), k
        assert recording_of(loop.tape).most <= within.limited() or within.limited() < bytes_of(budget, lambda: 0)
        k += 1
    assert again or (recordings == 2 and not k)  # a known program that keeps everything has all that it needs


# --- programs that change --------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(3)
@pytest.mark.parametrize("budget", [BYTES * 4, BYTES * 7, BYTES * 40])
def test_programs_of_another_length(budget: int) -> None:
    """What is known is given up in the middle of a recording, and the tape goes on as if it had been new."""
    r, loop, free, again = random.Random(1), Loop(30, budget), Loop(30), 0
    for _ in range(12):
        steps = r.choice([12, 12, 30, 29, 7])
        try:
            found = loop.run(steps)
        except TapeError as longer:  # for the shorter one all was kept, and no initial state
            assert "record it again" in str(longer)
            found, again = loop.run(steps), again + 1
        assert found == free.run(steps), steps
        assert recording_of(loop.tape).most <= budget
    assert not again


def test_other_numbers_in_the_middle() -> None:
    loop, free = Loop(20, BYTES * 4), Loop(20)
    for scale in (0.01, 0.01, 0.02):
        results = []
        for each in (loop, free):
            u, v = each.u, each.v
            u.primal[...], v.primal[...] = each.start, 0
            for p in (u, v, each.table):
                p.shadow.fill(0)
            with each.tape:
                for t in range(20):
                    each.kernel[4, 64](v, u, each.table, t, 0.01 if t < 11 else scale, N)
                    u, v = v, u
            each.tape.reverse({u: each.seed})
            results.append([a.tobytes() for p in (u, v, each.table) for a in (p.primal, p.shadow)])
        assert results[0] == results[1]


def test_data_that_changed_between_recordings() -> None:
    loop, free = Loop(20, BYTES * 4), Loop(20)
    for turn in range(4):
        loop.start = free.start = np.random.default_rng(turn).uniform(0, 1, N)
        assert loop.run() == free.run()


def test_the_initial_state_is_put_back_where_it_is_wanted() -> None:
    loop, free = Loop(20, BYTES * 8, restore=True), Loop(20, restore=True)
    for _ in range(3):
        assert loop.run() == free.run()
        assert loop.u.primal.tobytes() == loop.start.tobytes()


def test_memory_that_reruns_read_must_not_change() -> None:
    loop = Loop(20, BYTES * 4)
    for _ in range(2):
        u, _ = loop.record()
        loop.table.primal[3] += 1
        with pytest.raises(TapeError, match="was changed between the recording and the reverse"):
            loop.tape.reverse({u: loop.seed})
        loop.table.primal[3] -= 1
        loop.run()


def test_what_the_caller_does_to_the_result_stays() -> None:
    """The final state is the caller's; it is stored when the reverse begins."""
    x, w, tape = pair(np.linspace(0.1, 1, N)), pair(np.zeros(N)), gpuad.Tape(budget=BYTES * 5)
    for _ in range(3):
        x.primal[...] = np.linspace(0.1, 1, N)
        with tape:
            for _ in range(10):
                launch("sine", x)
                launch("copy", w, x)
        w.primal[...] = 7.0
        after = x.primal.copy()
        tape.reverse({w: 1.0})
        assert (w.primal == 7.0).all() and x.primal.tobytes() == after.tobytes()


# --- what may not run again ------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_printf_is_heard_once(capfd: Any) -> None:
    x, tape, kernel = pair(np.full(N, 0.5)), gpuad.Tape(budget=BYTES * 3), compiled(STEP, "speak")
    for _ in range(2):
        with tape:
            for t in range(8):
                kernel[4, 64](x, t, N)
        tape.reverse({x: 1.0})
        assert tape.plan().reruns > 0
        assert capfd.readouterr().out.count("step") == 8


CALLS: list[int] = []


def _noise_reverse(x: Any, dx: Any, dx_before: Any, scale: Any) -> None:
    dx_before += 2.0 * x * dx * scale


@gpuad.rule(reads=("x",), overwrites=("x",), needs={"x": "before"}, reverse=_noise_reverse)
def noise(x: Any, scale: Any) -> None:
    CALLS.append(1)
    x[...] = x * x * scale + 1e-3 * len(CALLS)  # not the same when it is called again


@gpuad.rule(reads=("x",), overwrites=("x",), needs={"x": "before"}, reverse=_noise_reverse, pure=True)
def smooth(x: Any, scale: Any) -> None:
    CALLS.append(1)
    x[...] = x * x * scale


def ruled(rule: Any, budget: Any) -> tuple[list[bytes], int, gpuad.Tape]:
    CALLS.clear()
    x, tape = pair(np.linspace(0.2, 0.9, N)), gpuad.Tape(budget=budget)
    with tape:
        for t in range(8):
            rule(x, 0.9 + 0.01 * t)
            launch("sine", x)
    tape.reverse({x: 1.0})
    return [x.primal.tobytes(), x.shadow.tobytes()], len(CALLS), tape


def test_a_rule_is_called_again_only_if_it_is_pure() -> None:
    for rule, calls in ((noise, 8), (smooth, 15)):
        wanted, once, _ = ruled(rule, None)
        assert once == 8
        found, many, tape = ruled(rule, BYTES * 14)
        assert found == wanted
        assert (many > 8) == (calls > 8)
        assert recording_of(tape).most <= BYTES * 14


def test_the_results_of_impure_rules_are_named_where_they_do_not_fit() -> None:
    with pytest.raises(BudgetError, match=r"results of operations that may not run again|for what adjoints need"):
        ruled(noise, BYTES)


@gpuad.rule(overwrites=("x",))
def fetch(x: Any) -> None:
    CALLS.append(1)
    x[...] = np.sin(np.arange(x.size) + len(CALLS))


def fetched(budget: Any) -> tuple[bytes, bytes]:
    """Values from elsewhere come into one end of an array, from where they spread."""
    CALLS.clear()
    x, y, tape = pair(np.linspace(0.2, 0.9, N)), pair(np.zeros(N)), gpuad.Tape(budget=budget)
    try:
        with tape:
            for _ in range(12):
                fetch(x[: N // 4])
                launch("stencil", y, x)
                launch("add", x, x, y)
        tape.reverse({x: 1.0})
    except BudgetError:
        return x.primal.tobytes(), b""
    return x.primal.tobytes(), x.shadow.tobytes()


def test_results_that_do_not_fit_stay_where_they_are() -> None:
    """Where the copy of an impure rule's result has to make room by running the program once more, that result is not lost."""
    state, gradient = fetched(None)
    for budget in range(BYTES // 2, BYTES * 12, BYTES // 4 if NIGHTLY else BYTES):
        found = fetched(budget)
        assert found[0] == state, budget
        assert found[1] in (b"", gradient), budget


def test_atomics_in_open_order_are_kept() -> None:
    """On several workers, whose order is open: what the atomics left is copied, not computed again."""
    with executor_for_tests(Host(workers=2)):
        results = []
        for budget in (None, BYTES * 12):
            x, y = pair(np.linspace(0.1, 1, N)), pair(np.zeros(N))
            tape = gpuad.Tape(budget=budget)
            with tape:
                for _ in range(6):
                    compiled(STEP, "deposit")[4, 64](y, x, N)
                    launch("sine", x)
            if budget is not None:
                assert [r.why for r in recording_of(tape).trace.reruns] == [
                    "the order of its atomic floating-point additions is open",
                    "",
                ] * 6
            tape.reverse({y: 1.0, x: 1.0})
            results.append((x.primal.tobytes(), y.primal, x.shadow))
        assert results[0][0] == results[1][0]
        np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-14)
        np.testing.assert_allclose(results[0][2], results[1][2], rtol=1e-14)


def test_code_that_the_tape_does_not_see() -> None:
    results = []
    for budget in (None, BYTES * 12):
        rng = np.random.default_rng(3)
        x, w, tape = pair(np.linspace(0.1, 1, N)), np.ones(N), gpuad.Tape(budget=budget)
        found = []
        for _ in range(3):
            x.primal[...], w[...] = np.linspace(0.1, 1, N), 1
            rng = np.random.default_rng(3)
            with tape:
                for _ in range(6):
                    tape.overwrites(w)
                    w[...] = rng.uniform(0.5, 1.0, N)
                    launch("times", x, w)
                    launch("sine", x)
            tape.reverse({x: 1.0})
            found.append([x.primal.tobytes(), x.shadow.tobytes(), w.tobytes()])
        results.append(found)
    assert results[0] == results[1]


def test_integers_that_change_are_part_of_the_state() -> None:
    results = []
    for budget in (None, 512 * 7):
        x, y, index = pair(np.linspace(0.1, 1, 24)), pair(np.zeros(24)), np.arange(24, dtype=np.int32)
        tape = gpuad.Tape(budget=budget)
        with tape:
            for _ in range(10):
                launch("gather", y, x, index)
                launch("sine", y)
                launch("next_index", index)
                launch("copy", x, y)
        tape.reverse({x: 1.0})
        results.append([x.primal.tobytes(), x.shadow.tobytes(), index.tobytes()])
    assert results[0] == results[1]


# --- with the rest ---------------------------------------------------------------------------------------------------------------------


def test_states_of_random_generators_are_memory() -> None:
    """Numbers that are drawn again are those of the first time: the generators' states are part of each checkpoint."""
    source = r"""
    #include <curand_kernel.h>
    extern "C" __global__ void walk(double* x, curandStatePhilox4_32_10_t* states, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] += 0.1 * x[i] * x[i] * curand_uniform(&states[i]);
    }
    extern "C" __global__ void begin(curandStatePhilox4_32_10_t* states, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) curand_init(7, i, 0, &states[i]);
    }
    """
    walk, begin = gpuad.kernel(source, "walk"), gpuad.kernel(source, "begin")
    results, reruns = [], 0
    for budget in (None, 32 * 64 * 8):
        x, states, tape = pair(np.linspace(0.1, 0.9, 32)), np.zeros(32 * 64, np.uint8), gpuad.Tape(budget=budget)
        for _ in range(3):
            x.primal[...] = np.linspace(0.1, 0.9, 32)
            begin[1, 32](states, 32)
            with tape:
                for _ in range(12):
                    walk[1, 32](x, states, 32)
            tape.reverse({x: 1.0})
            results.append([x.primal.tobytes(), x.shadow.tobytes(), states.tobytes()])
        reruns += tape.plan().reruns if budget else 0
    assert results[:3] == results[3:]
    assert reruns > 0


def test_deterministic_sums_run_again_on_several_workers() -> None:
    """With the order of sums fixed there is nothing to keep."""
    with executor_for_tests(Host(workers=2)), gpuad.deterministic():
        results = []
        for budget in (None, BYTES * 7):
            x, y, tape = pair(np.linspace(0.1, 1, N)), pair(np.zeros(N)), gpuad.Tape(budget=budget)
            for _ in range(2):
                x.primal[...], y.primal[...] = np.linspace(0.1, 1, N), 0
                with tape:
                    for _ in range(6):
                        launch("sine", x)
                        launch("axpy", y, x, 0.5)
                tape.reverse({y: 1.0, x: 1.0})
                results.append([a.tobytes() for p in (x, y) for a in (p.primal, p.shadow)])
            assert budget is None or all(not r.why for r in recording_of(tape).trace.reruns)
        assert results[:2] == results[2:]


def test_second_derivatives_are_no_business_of_a_tape() -> None:
    """`hvp` is a call of its own: inside of a block it is refused, with a budget or without."""
    x, dots = pair(np.linspace(0.1, 1, N)), pair(np.ones(N))
    for budget in (None, "1 MiB"):
        tape = gpuad.Tape(budget=budget)
        with pytest.raises(gpuad.GpuadError, match="hvp"), tape:
            gpuad.hvp(compiled(STEP, "speak"), 4, 64, (x, 1, N), (dots, None, None))
        assert (x.primal == np.linspace(0.1, 1, N)).all()


def test_second_derivatives_beside_a_tape_that_runs_again() -> None:
    """Between a recording and its reverse `hvp` takes what it needs for itself, and the tape is as it was."""
    loop, free, kernel = Loop(20, BYTES * 5), Loop(20), compiled(STEP, "speak")
    found = []
    for turn in range(3):
        u, _ = loop.record()
        before = recording_of(loop.tape).within.added() if recording_of(loop.tape).within is not None else 0
        x, dots = pair(np.linspace(0.1, 1, N)), pair(np.ones(N))
        x.shadow[...], dots.shadow[...] = 1.0, 0.0
        gpuad.hvp(kernel, 4, 64, (x, turn, N), (dots, None, None))
        found.append([a.tobytes() for a in (x.primal, x.shadow, dots.primal, dots.shadow)])
        assert recording_of(loop.tape).within is not None and recording_of(loop.tape).within.added() == before
        loop.tape.reverse({u: loop.seed})
        assert [a.tobytes() for p in (loop.u, loop.v, loop.table) for a in (p.primal, p.shadow)] == free.run()
    assert found[0] == found[1] == found[2]
    assert np.allclose(np.frombuffer(found[0][3]), 1.4, rtol=1e-12)  # of 0.7 x^2, whose second derivative it is


def test_a_graph_that_does_not_fit_says_how_many_bytes_it_takes() -> None:
    loop, free = Loop(20, BYTES * 6), Loop(20)
    wanted = free.run()
    u, _ = loop.record()
    with pytest.raises(TapeError, match="which a graph cannot") as caught:
        loop.tape.graph({u: loop.seed})
    loop.tape.reverse({u: loop.seed})  # the refusal has left it as it was
    assert loop.v.shadow.tobytes() == wanted[3]
    enough = int(re.findall(r"one of (\d+) bytes", str(caught.value))[0])
    loop = Loop(20, enough)
    u, _ = loop.record()
    graph = loop.tape.graph({u: loop.seed})
    for _ in range(2):
        loop.u.primal[...], loop.v.primal[...] = loop.start, 0.25
        loop.table.shadow.fill(0)
        graph.launch()
        np.testing.assert_allclose(loop.table.shadow, free.table.shadow, rtol=1e-12)
        assert loop.u.primal.tobytes() == free.u.primal.tobytes() and recording_of(loop.tape).most <= enough


def test_several_seeds_in_one_sweep() -> None:
    results = []
    for budget in (None, BYTES * 6):
        x = np.linspace(0.1, 1, N)
        shadows = np.zeros(N), np.zeros(N)
        both, tape = BatchDuplicated(x, shadows), gpuad.Tape(budget=budget)
        with tape:
            for _ in range(12):
                launch("sine", both)
        tape.reverse({both: (1.0, 2.0)})
        results.append([x.tobytes(), *(s.tobytes() for s in shadows)])
    assert results[0] == results[1]


def test_numbers_and_deterministic_sums() -> None:
    results = []
    for budget in (None, "64 KiB"):
        x, c = pair(np.linspace(0.1, 1, N)), Active(0.9, np.zeros(()))
        tape = gpuad.Tape(budget=budget)
        with gpuad.deterministic():
            with tape:
                for _ in range(12):
                    launch("scale", x, c)
                    launch("sine", x)
            tape.reverse({x: 1.0})
        results.append([x.primal.tobytes(), x.shadow.tobytes(), c.shadow.tobytes()])
    assert results[0] == results[1]


def test_graphs_and_stored_programs_do_not_run_again(tmp_path: Any) -> None:
    loop = Loop(20, BYTES * 4)
    loop.record()
    with pytest.raises(TapeError, match="which a graph cannot"):
        loop.tape.graph()
    with pytest.raises(TapeError, match="which a stored program cannot"):
        loop.tape.save(tmp_path)
    roomy, free = Loop(20, BYTES * 100), Loop(20)
    u, _ = roomy.record()
    roomy.tape.save(tmp_path, {"u": roomy.u, "v": roomy.v, "table": roomy.table})
    graph = roomy.tape.graph({u: roomy.seed})
    roomy.u.primal[...], roomy.v.primal[...] = roomy.start, 0.25
    graph.launch()
    free.run()
    np.testing.assert_allclose(roomy.table.shadow, free.table.shadow, rtol=1e-12)


def test_temporaries_of_operations_count() -> None:
    def program(tape: gpuad.Tape, x: Duplicated) -> None:
        with tape:
            y = x * 2.0
            for _ in range(6):
                y = gpuad.ops.sin(y) * 0.9 + x
            gpuad.ops.copyto(x, y)

    results = []
    for budget in (None, "1 MiB"):
        x, tape = pair(np.linspace(0.1, 1, N)), gpuad.Tape(budget=budget)
        program(tape, x)
        tape.reverse({x: 1.0})
        results.append([x.primal.tobytes(), x.shadow.tobytes()])
    assert results[0] == results[1]
    with pytest.raises(BudgetError, match="arrays that operations made and their shadows"):
        program(gpuad.Tape(budget=BYTES * 5), pair(np.linspace(0.1, 1, N)))


def test_the_first_launch_that_fails_is_as_ever() -> None:
    loop = Loop(6, BYTES * 4)
    executor = gpuad.pipeline.executor_of("numpy")  # type: ignore[attr-defined]
    with failing(executor, 0, "prepared") as calls, pytest.raises(Fault):
        loop.record()
    assert calls
    assert loop.run() == Loop(6).run()


def test_what_a_check_of_stores_takes_is_part_of_a_budget() -> None:
    """Each recording makes the check in memory of the tape, while the schedule of the recording before holds the rest of it."""
    text = """
    K(broken)(double* h, const double* x, double most, int steps, int n) {
        I; if (i >= n) return;
        for (int t = 0; t < steps; ++t) {
            double v = h[t * n + i];
            if (v > most) break;
            h[(t + 1) * n + i] = 0.4 * v * v + 0.3 * x[i];
        }
    }
    K(shrink)(double* x, int n) { I; if (i < n) x[i] = 0.5 * x[i] * x[i] + 0.2; }
    K(times)(double* z, const double* x, const double* y, int n) { I; if (i < n) z[i] = x[i] * y[i]; }
    """
    text = '#define K(name) extern "C" __global__ void name\n#define I int i = blockIdx.x * blockDim.x + threadIdx.x\n' + text
    r, n = np.random.default_rng(0), 8
    start, seeds = (
        {m: sample for m, sample in zip("hxz", f((3, 64)), strict=True)}
        for f in (lambda s: r.uniform(0.3, 1.1, s), lambda s: r.normal(size=s))
    )
    pairs = {m: Duplicated(v.copy(), np.zeros(64)) for m, v in start.items()}

    def reversed_within(tape: gpuad.Tape) -> list[bytes]:
        for m, p in pairs.items():
            p.primal[...], p.shadow[...] = start[m], 0
        with tape:
            compiled(text, "broken")[2, 4](pairs["h"], pairs["x"], 0.9, 4, n)
            compiled(text, "shrink")[2, 4](pairs["h"], n)
            compiled(text, "times")[2, 4](pairs["z"], pairs["x"], pairs["h"], n)
        for m, p in pairs.items():
            p.shadow[...] = seeds[m]
        tape.reverse()
        return [p.shadow.tobytes() for p in pairs.values()]

    with executor_for_tests(Host()):
        wanted = reversed_within(gpuad.Tape())
        with pytest.raises(BudgetError) as refused:
            reversed_within(gpuad.Tape(budget=0))
        for factor in (1.0, 1.5, 2.0, 3.0):
            tape = gpuad.Tape(budget=int(factor * refused.value.smallest))
            assert [reversed_within(tape) for _ in range(3)] == [wanted] * 3
            assert recording_of(tape).most <= factor * refused.value.smallest
