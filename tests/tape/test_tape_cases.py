"""CASES of many launches: each program against a model in NumPy, on both executors, with what is needed saved and with everything saved, on
one tape twice, and with the inputs restored. Where the bytes are known they are asserted: exactly what is overwritten and needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, arguments, shipped
from tape_tools import EXECUTORS, agree, check, cuda, jacobian_transposed, launch, pair, run, running

import gpuad
from gpuad import Active, Const, Duplicated, ShadowError, TapeError, stop_gradient

BOTH = pytest.mark.parametrize("executor", list(EXECUTORS))
N = 20
RNG = np.random.default_rng(7)


def positive(n: int = N) -> Any:
    """n numbers between 0.5 and 1.5, the same at each call for the same n."""
    return np.random.default_rng(n).uniform(0.5, 1.5, n)


# --- overwritten arguments -------------------------------------------------------------------------------------------------------------


@BOTH
def test_case_14_argument_overwritten_by_the_next_kernel(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("square_to", a["x"], a["p"])
        launch("times", a["x"], a["p"])
        launch("copy", a["r"], a["x"])

    def model(s: Any) -> None:
        s["p"] = s["x"] ** 2
        s["x"] = s["x"] * s["p"]
        s["r"] = s["x"].copy()

    got = check(program, model, {"x": np.full(4, 2.0), "p": np.ones(4), "r": np.ones(4)}, {"r": 1.0}, executor, saved=4 * 8)
    np.testing.assert_allclose(got.shadows["x"], 12.0)


@BOTH
def test_case_15_a_copy_outlives_its_source(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("copy", a["f2"], a["f"])
        launch("fill", a["f"], 5.0)
        launch("product", a["out"], a["f2"][0:1], a["f2"][1:2])

    def model(s: Any) -> None:
        s["f2"], s["f"] = s["f"].copy(), s["f"] * 0 + 5
        s["out"] = s["f2"][:, :1] * s["f2"][:, 1:]

    got = check(program, model, {"f": np.array([2.0, 3.0]), "f2": np.zeros(2), "out": np.zeros(1)}, {"out": 1.0}, executor, saved=0)
    np.testing.assert_allclose(got.shadows["f"], [3.0, 2.0])


@BOTH
@pytest.mark.parametrize("inside", [False, True])
def test_case_16_ping_pong(executor: str, inside: bool) -> None:
    name = "half_square_inside" if inside else "half_square"
    cut = slice(1, -1) if inside else slice(None)

    def program(tape: Any, a: Any) -> None:
        u, v = a["u"], a["v"]
        for _ in range(3):
            launch(name, v, u)
            u, v = v, u

    def model(s: Any) -> None:
        u, v = s["u"], s["v"]
        for _ in range(3):
            v[:, cut] = 0.5 * u[:, cut] ** 2
            u, v = v, u

    written = N - 2 if inside else N
    seeds = {"v": np.linspace(1, 2, N), "u": np.linspace(2, 1, N)}  # three steps end in v
    check(program, model, {"u": positive(), "v": positive(N) + 1}, seeds, executor, saved=2 * 8 * written)


@BOTH
def test_case_16_halo_is_read_by_neighbours(executor: str) -> None:
    """Versions of pieces: the interior saved, the halo live (RULES 6)."""

    def program(tape: Any, a: Any) -> None:
        u, v = a["u"], a["v"]
        for _ in range(4):
            launch("stencil", v, u)
            u, v = v, u

    def model(s: Any) -> None:
        u, v = s["u"], s["v"]
        for _ in range(4):
            v[:, 1:-1] = 0.3 * u[:, :-2] + 0.2 * u[:, 1:-1] ** 2 - 0.1 * u[:, 2:] * u[:, 1:-1]
            u, v = v, u

    got = check(program, model, {"u": positive(), "v": positive() + 1}, {"u": 1.0, "v": 0.5}, executor, saved=3 * 8 * (N - 2))
    assert got.tape.stats.assembled_bytes > 0


@BOTH
def test_a_linear_ping_pong_saves_nothing(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        u, v = a["u"], a["v"]
        for _ in range(5):
            launch("linear", v, u)
            u, v = v, u

    def model(s: Any) -> None:
        u, v = s["u"], s["v"]
        for _ in range(5):
            v[:, 1:-1] = 0.5 * u[:, 1:-1] + 0.25 * (u[:, :-2] + u[:, 2:])
            u, v = v, u

    check(program, model, {"u": positive(), "v": positive() + 1}, {"v": 1.0}, executor, saved=0)


@BOTH
def test_in_place_kernels_in_a_loop(executor: str) -> None:
    """`x = sin x + x/2` needs the old x each time, `x = exp(-x/2)` its own result: that of step t is the old x of step t + 1."""

    def program(tape: Any, a: Any) -> None:
        for _ in range(3):
            launch("sine", a["x"])
            launch("decay", a["x"])

    def model(s: Any) -> None:
        for _ in range(3):
            s["x"] = np.exp(-0.5 * (np.sin(s["x"]) + 0.5 * s["x"]))

    check(program, model, {"x": positive()}, {"x": 1.0}, executor, saved=3 * 8 * N)


@BOTH
def test_case_18_workspace(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("fill", a["t"], 1.0)
        for _ in range(5):
            launch("times", a["t"], a["x"])

    def model(s: Any) -> None:
        s["t"] = s["x"] ** 5

    got = check(program, model, {"x": np.full(3, 1.2), "t": np.zeros(3)}, {"t": 1.0}, executor, saved=5 * 3 * 8)
    np.testing.assert_allclose(got.shadows["x"], 10.368)
    np.testing.assert_allclose(got.shadows["t"], 0.0)


@BOTH
def test_case_18_workspace_that_is_const_is_refused(executor: str) -> None:
    x, t, out = pair([1.2]), np.zeros(1), pair([0.0])
    with running(executor), pytest.raises(ShadowError, match="holds values"), gpuad.Tape():
        launch("fill", t, 1.0)
        launch("times", Const(t), x)
        launch("times", Const(t), x)
        launch("copy", out, t)


@BOTH
def test_case_19_slices_are_updated_in_place(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("sine", a["x"][3:9])
        launch("times", a["x"][6:12], a["v"])
        launch("sine", a["x"][0:7])

    def model(s: Any) -> None:
        for low, high, kind in ((3, 9, "sine"), (6, 12, "times"), (0, 7, "sine")):
            part = s["x"][:, low:high].copy()
            s["x"][:, low:high] = part * s["v"] if kind == "times" else np.sin(part) + 0.5 * part

    check(program, model, {"x": positive(), "v": positive(6)}, {"x": np.arange(N) + 1.0}, executor, saved=8 * (6 + 6 + 7))


@BOTH
def test_case_17_in_place_product_with_both_active(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        for _ in range(3):
            launch("times", a["x"], a["w"])
            launch("axpy", a["w"], a["x"], a["c"])

    def model(s: Any) -> None:
        for _ in range(3):
            s["x"] = s["x"] * s["w"]
            s["w"] = s["w"] + s["c"][:, None] * s["x"]

    # old x of each product; x after the products for dc, which the next product overwrites (the same bytes); w, which axpy changes
    check(program, model, {"x": positive(), "w": positive() - 0.5, "c": 0.3}, {"x": 1.0, "w": 2.0}, executor)


# --- behind the tape -------------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("n", [10, 9000, 300_000])
def test_case_20_one_element_changed(executor: str, n: int) -> None:
    """Between the recording and the reverse, when the arrays are their owner's again: every element counts."""
    if executor == "reference" and n > 9000:
        n = 9001
    for at in (0, n // 3, n - 1):
        x, y = pair(positive(n)), pair(np.zeros(n))
        tape = gpuad.Tape()
        with running(executor), tape:
            launch("square_to", x, y)
        x.primal.view(np.uint64)[at] ^= 1
        with running(executor), pytest.raises(TapeError, match="changed"):
            tape.reverse({y: 1.0})
        assert not x.shadow.any(), "no shadow was touched"


@BOTH
@pytest.mark.parametrize("element", [0, 12_345, 29_999])
def test_case_20_one_bit_with_the_exact_check(executor: str, element: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 30_000
    for by_environment in (False, True):
        x, y = pair(positive(n)), pair(np.zeros(n))
        if by_environment:
            monkeypatch.setenv("GPUAD_CHECK", "exact")
        tape = gpuad.Tape() if by_environment else gpuad.Tape(check="exact")
        with running(executor), tape:
            launch("square_to", x, y)
        x.primal.view(np.uint64)[element] ^= 1
        with running(executor), pytest.raises(TapeError, match="changed"):
            tape.reverse({y: 1.0})


@BOTH
def test_what_nobody_needs_may_change(executor: str) -> None:
    x, y = pair(positive()), pair(np.zeros(N))
    tape = gpuad.Tape(check="exact")
    with running(executor), tape:
        launch("square_to", x, y)
    y.primal[...] = -1
    with running(executor):
        tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow, 2 * x.primal)


@BOTH
@pytest.mark.parametrize("how", ["launch", "announced", "unannounced"])
def test_case_49_index_overwritten_between_launches(executor: str, how: str) -> None:
    index = np.random.default_rng(1).permutation(N).astype(np.int32)
    other = ((3 * index + 1) % N).astype(np.int32)

    def program(tape: Any, a: Any) -> None:
        launch("gather", a["y"], a["x"], a["index"])
        if how == "launch":
            launch("next_index", Const(a["index"]))
        else:
            if how == "announced":
                tape.overwrites(a["index"])
            a["index"][...] = (3 * a["index"] + 1) % N
        launch("gather", a["z"], a["x"], a["index"])

    def model(s: Any) -> None:
        s["y"] = 0.7 * s["x"][:, index] ** 2
        s["z"] = 0.7 * s["x"][:, other] ** 2
        s["index"] = other

    inputs = {"x": positive(), "y": np.zeros(N), "z": np.zeros(N), "index": index}
    seeds = {"y": np.arange(N) + 1.0, "z": 1.0}
    if how != "unannounced":
        check(program, model, inputs, seeds, executor, saved=4 * N)
        return
    with running(executor), pytest.raises(ValueError, match="read-only"):
        run(program, inputs, seeds)


# --- aliasing --------------------------------------------------------------------------------------------------------------------------


@BOTH
def test_case_22_one_array_twice(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("product", a["z"], a["x"], a["x"])
        launch("product", a["x"], a["x"], a["z"])

    def model(s: Any) -> None:
        s["z"] = s["x"] ** 2
        s["x"] = s["x"] * s["z"]

    check(program, model, {"x": positive(), "z": np.zeros(N)}, {"x": 1.0, "z": 0.5}, executor)


@BOTH
def test_case_21_a_second_accumulation_leaves_the_other_alone(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("add", a["z"], a["x"], a["y"])
        launch("axpy", a["z"], a["x"], a["c"])

    def model(s: Any) -> None:
        s["z"] = s["x"] + s["y"] + s["c"][:, None] * s["x"]

    got = check(program, model, {"x": positive(), "y": positive(), "z": np.zeros(N), "c": 2.0}, {"z": 1.0}, executor, saved=0)
    np.testing.assert_allclose(got.shadows["y"], 1.0)
    np.testing.assert_allclose(got.shadows["x"], 3.0)


@BOTH
@pytest.mark.parametrize("kind", ["two shadows", "one shadow", "shifted view", "part", "shadow is primal", "shadow is another's primal"])
def test_cases_22_23_shadows_that_contradict_across_launches(executor: str, kind: str) -> None:
    x, y, big = np.ones(8), np.ones(8), np.ones(16)
    d8, d16 = np.zeros(8), np.zeros(16)
    first, second = {
        "two shadows": (Duplicated(x, d8), Duplicated(x, np.zeros(8))),
        "one shadow": (Duplicated(x, d8), Duplicated(y, d8)),
        "shifted view": (Duplicated(big, d16)[:8], Duplicated(big[4:12], d16[5:13])),
        "part": (Duplicated(big, d16), Duplicated(big[4:12], np.zeros(16)[4:12])),
        "shadow is primal": (Duplicated(y, d8), Duplicated(x, x)),
        "shadow is another's primal": (Duplicated(x, d8), Duplicated(y, x)),
    }[kind]
    tape = gpuad.Tape()
    with running(executor), tape:
        launch("sine", first)
        before = raw_copy(first), raw_copy(second)
        with pytest.raises(ShadowError):
            launch("sine", second)
        np.testing.assert_array_equal(before[0], first.primal)
        np.testing.assert_array_equal(before[1], second.primal)


def raw_copy(x: Any) -> Any:
    return x.primal.copy()


@BOTH
def test_case_24_overlapping_views_across_launches(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        u = a["u"]
        launch("neighbours", a["y"], u[:-1], u[1:])
        launch("sine", u[2:9])
        launch("neighbours", a["y"][0:6], u[0:6], u[5:11])

    def model(s: Any) -> None:
        u, y = s["u"], s["y"]
        y[...] = u[:, :-1] * u[:, 1:]
        u[:, 2:9] = np.sin(u[:, 2:9]) + 0.5 * u[:, 2:9]
        y[:, 0:6] = u[:, 0:6] * u[:, 5:11]

    check(program, model, {"u": positive(), "y": np.zeros(N - 1)}, {"y": np.arange(N - 1) + 1.0, "u": 0.3}, executor, saved=7 * 8)


@BOTH
def test_case_46_reads_outside_of_the_slice(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("around", a["y"], a["u"][1:-1])
        launch("fill", a["u"][:1], 0.0)
        launch("fill", a["u"][-1:], 0.0)

    def model(s: Any) -> None:
        s["y"] = s["u"][:, :-2] * s["u"][:, 2:]
        s["u"][:, 0] = s["u"][:, -1] = 0

    check(program, model, {"u": positive(), "y": np.zeros(N - 2)}, {"y": np.arange(N - 2) + 1.0}, executor, saved=2 * 8)


@BOTH
def test_case_56_interleaved_views_do_not_overlap(executor: str) -> None:
    """A raw kernel refuses `z[0::2]`; what interleaves in a program are the columns of a matrix with a pitch."""
    rows, width = 6, 4

    def program(tape: Any, a: Any) -> None:
        left, right = a["z"][1:-1, 1:width], a["z"][1:-1, width + 1 : 2 * width]
        geometry = (1, 1), (8, 8)
        for source, target in ((left, right), (right, left), (left, right)):
            cuda("plane")[geometry](target, source, rows - 2, width - 2, 2 * width)

    def model(s: Any) -> None:
        z = s["z"]
        for source, target in ((1, width + 1), (width + 1, 1), (1, width + 1)):
            u = z[:, :, source - 1 : source + width - 1].copy()
            middle = u[:, 1:-1, 1:-1]
            z[:, 1:-1, target : target + width - 2] = 0.4 * middle**2 + 0.1 * (
                u[:, 1:-1, :-2] + u[:, 1:-1, 2:] - u[:, :-2, 1:-1] * u[:, 2:, 1:-1]
            )

    z = positive(rows * 2 * width).reshape(rows, 2 * width)
    seed = np.random.default_rng(0).normal(size=z.shape)
    interior = (rows - 2) * (width - 2) * 8
    check(program, model, {"z": z}, {"z": seed}, executor, saved=2 * interior)


@BOTH
def test_case_48_a_bare_reset_clears_the_shadow(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("square_to", a["u"], a["v"])
        launch("fill", a["u"].primal[2:7], 3.0)
        launch("times", a["v"], a["u"])

    def model(s: Any) -> None:
        s["v"] = s["u"] ** 2
        s["u"][:, 2:7] = 3.0
        s["v"] = s["v"] * s["u"]

    check(program, model, {"u": positive(), "v": np.zeros(N)}, {"u": 1.0, "v": 2.0}, executor, saved=(5 + N) * 8)


@BOTH
@pytest.mark.parametrize("how", ["launch", "overwrites", "overwrites the pair"])
def test_case_48_a_reset_before_the_pair_is_known(executor: str, how: str) -> None:
    """`U.fill(0)` with a kernel of one's own, the first thing that many programs do."""

    def program(tape: Any, a: Any) -> None:
        if how == "launch":
            launch("fill", a["u"].primal, 3.0)
        else:
            tape.overwrites(a["u"] if how == "overwrites the pair" else a["u"].primal)
            a["u"].primal[...] = 3.0
        launch("square_to", a["u"], a["v"])

    def model(s: Any) -> None:
        s["u"] = s["u"] * 0 + 3.0
        s["v"] = s["u"] ** 2

    check(program, model, {"u": positive(), "v": np.zeros(N)}, {"u": 1.0, "v": 2.0}, executor, saved=0)


@BOTH
@pytest.mark.parametrize("wrap", [None, Const])
def test_case_48_a_bare_read_of_varied_memory(executor: str, wrap: Any) -> None:
    u, v = pair(positive()), pair(np.zeros(N))
    tape = gpuad.Tape()
    bare = u.primal if wrap is None else wrap(u.primal)
    with running(executor), tape:
        launch("sine", u)
        before = v.primal.copy()
        with pytest.raises(ShadowError, match="stop_gradient"):
            launch("copy", v, bare)
        np.testing.assert_array_equal(before, v.primal)
        launch("copy", v, stop_gradient(u.primal))
    with running(executor):
        tape.reverse({v: 1.0}, allow_unused=True)
    np.testing.assert_array_equal(u.shadow, 0.0)


@BOTH
def test_case_48_a_bare_read_before_the_pair_is_known(executor: str) -> None:
    u, v = pair(positive()), pair(np.ones(N))
    with running(executor), pytest.raises(ShadowError), gpuad.Tape():
        launch("copy", v, u.primal)
        launch("times", v, u)


@BOTH
def test_active_data_does_not_pass_through_bare_copies(executor: str) -> None:
    x, a, b, y = pair([3.0]), np.zeros(1), np.zeros(1), pair([0.0])
    with running(executor), pytest.raises(ShadowError), gpuad.Tape():
        launch("square_to", x, Const(a), n=1)
        launch("copy", b, a)
        launch("copy", y, b)


@BOTH
@pytest.mark.parametrize("way", ["scaled in place", "overwritten where a mask says so", "copied by a launch that is active elsewhere"])
def test_active_data_that_hides_in_const_memory(executor: str, way: str) -> None:
    """It stays varied until all of it is surely overwritten (RULES 1 and 4)."""
    text = (
        "#define I int i = blockIdx.x * blockDim.x + threadIdx.x\n"
        'extern "C" __global__ void wipe(double* a, const int* mask, int n) { I; if (i < n && mask[i]) a[i] = 0; }\n'
        'extern "C" __global__ void both(double* b, const double* a, double* z, int n) { I; if (i < n) { b[i] = a[i]; z[i] *= 2.0; } }\n'
    )
    x, y, z = pair([3.0, 4.0]), pair([0.0, 0.0]), pair([1.0, 1.0])
    a, b = np.zeros(2), np.zeros(2)
    with running(executor), pytest.raises(ShadowError), gpuad.Tape():
        launch("square_to", x, Const(a))
        if way == "scaled in place":
            cuda("scale")[1, 8](a, 2.0, 2)
        elif way == "overwritten where a mask says so":
            gpuad.kernel(text, "wipe")[1, 8](a, np.array([1, 0], np.int32), 2)
        else:
            gpuad.kernel(text, "both")[1, 8](Const(b), a, z, 2)
        launch("copy", y, b if way.startswith("copied") else a)


@BOTH
def test_a_workspace_that_is_reset_is_free_of_active_data(executor: str) -> None:
    x, y, a = pair([3.0, 4.0]), pair([0.0, 0.0]), np.zeros(2)
    tape = gpuad.Tape()
    with running(executor):
        with tape:
            launch("square_to", x, Const(a))
            launch("fill", a, 2.0)
            launch("copy", y, a)
        tape.reverse({y: 1.0}, allow_unused=True)
    np.testing.assert_array_equal(x.shadow, 0.0)


@BOTH
def test_a_bare_write_of_memory_that_has_a_shadow_in_part(executor: str) -> None:
    u = np.arange(10.0)
    part, y = Duplicated(u[2:5], np.zeros(3)), pair(np.zeros(3))
    with running(executor), pytest.raises((ShadowError, gpuad.LaunchError)), gpuad.Tape():
        launch("copy", y, part)
        launch("fill", u, 2.0)


# --- life of memory --------------------------------------------------------------------------------------------------------------------


@BOTH
def test_case_47_temporaries_at_one_address(executor: str) -> None:
    n = 64
    addresses = set()

    def program(tape: Any, a: Any) -> None:
        for _ in range(4):
            t = Duplicated(np.empty(n), np.zeros(n))
            addresses.add(t.primal.ctypes.data)
            launch("square_to", a["x"], t)
            launch("times", a["y"], t)
            del t

    def model(s: Any) -> None:
        s["y"] = s["y"] * s["x"] ** 8

    check(program, model, {"x": positive(n), "y": np.ones(n)}, {"y": 1.0}, executor, saved=4 * n * 8)
    assert len(addresses) >= 4, "the tape keeps what it will read"


@BOTH
def test_memory_is_let_go_when_the_tape_is(executor: str) -> None:
    import gc
    import weakref

    x = np.ones(8)
    gone = weakref.ref(x)
    with running(executor):
        tape = gpuad.Tape()
        pair_ = Duplicated(x, np.zeros(8))
        with tape:
            launch("sine", pair_)
        tape.reverse({pair_: 1.0})
    del x, pair_, tape
    gc.collect()
    assert gone() is None


@BOTH
def test_case_57_the_caller_overwrites_an_argument_before_the_reverse(executor: str) -> None:
    """A thunk saves it; a tape says so."""
    x, y = pair(positive()), pair(np.zeros(N))
    augmented, reverse = gpuad.autodiff_thunk(cuda("square_to"), Duplicated, Duplicated)
    old = x.primal.copy()
    with running(executor):
        saved = augmented(3, 8, (x, y, N))
        x.primal[...] = 0
        y.shadow[...] = 1
        reverse(3, 8, (x, y, N), saved)
    np.testing.assert_allclose(x.shadow, 2 * old)


@BOTH
def test_case_58_a_seed_between_two_reverses(executor: str) -> None:
    x, y, z = pair([3.0]), pair([0.0]), pair([0.0])
    first, second = gpuad.Tape(), gpuad.Tape()
    with running(executor):
        with first:
            launch("square_to", x, y)
        with second:
            launch("square_to", y, z)
        z.shadow[...] = 1
        second.reverse()
        np.testing.assert_allclose(y.shadow, 18.0)
        y.shadow[...] += 2  # the loss also reads y
        first.reverse()
    np.testing.assert_allclose(x.shadow, 120.0)
    np.testing.assert_allclose((y.shadow, z.shadow), 0.0)


# --- state -----------------------------------------------------------------------------------------------------------------------------


@BOTH
def test_case_32_one_kernel_twice(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        launch("square", a["x"])
        launch("square", a["x"])

    def model(s: Any) -> None:
        s["x"] = s["x"] ** 4

    got = check(program, model, {"x": np.array([3.0])}, {"x": 1.0}, executor, saved=16)
    np.testing.assert_allclose(got.shadows["x"], 108.0)


@BOTH
def test_case_33_recursion(executor: str) -> None:
    """Each call is a launch; the workspace is a stack of arrays, one element each, pushed and popped by the host."""

    def program(tape: Any, a: Any) -> None:
        def r(n: int, depth: int) -> None:
            if n < 2:
                launch("copy", a["work"][depth : depth + 1], a["leaf"][n : n + 1])
                return
            r(n - 1, depth)
            r(n - 2, depth + 1)
            launch("add", a["work"][depth : depth + 1], a["work"][depth : depth + 1], a["work"][depth + 1 : depth + 2])

        r(8, 0)

    def model(s: Any) -> None:
        s["work"][:, 0] = 13 * s["leaf"][:, 0] + 21 * s["leaf"][:, 1]
        s["work"][:, 1:] *= 0

    tape = gpuad.Tape()
    inputs = {"leaf": np.array([1.0, 1.0]), "work": np.zeros(9)}
    _, wanted = jacobian_transposed(model, inputs, {"work": np.eye(9)[0] * 2})
    with running(executor):
        got = run(program, inputs, {"work": np.eye(9)[0] * 2}, tape)
    np.testing.assert_allclose(got.shadows["leaf"], wanted["leaf"])
    assert tape.stats.saved_bytes == 0, "sums need nothing"


@BOTH
def test_case_34_thunks_in_the_wrong_order(executor: str) -> None:
    x = pair([3.0])
    augmented, reverse = gpuad.autodiff_thunk(cuda("square"), Duplicated)
    with running(executor):
        first = augmented(1, 8, (x, 1))
        second = augmented(1, 8, (x, 1))
        x.shadow[...] = 1
        reverse(1, 8, (x, 1), first)
        reverse(1, 8, (x, 1), second)
    np.testing.assert_allclose(x.shadow, 6 * 18)


@BOTH
def test_case_35_a_longer_program_keeps_what_is_there(executor: str) -> None:
    """Another shape: the arena grows, and pieces that are held stay."""
    tape = gpuad.Tape()
    for n in (10, 200_000 if executor == "host" else 2000, 10):
        x = pair(np.linspace(0.5, 1.0, n))
        start = x.primal.copy()
        with running(executor):
            with tape:
                for _ in range(3):
                    launch("square", x)
            tape.reverse({x: 1.0})
        np.testing.assert_allclose(x.shadow, 8 * start**7, rtol=1e-12)
        assert tape.stats.saved_bytes == 3 * n * 8


@BOTH
def test_case_36_nothing_to_do(executor: str) -> None:
    empty, x = pair(np.zeros(0)), pair(np.ones(4))
    counts = np.zeros(4, np.int32)
    with running(executor):
        nothing = gpuad.Tape()
        with nothing:
            pass
        nothing.reverse({})
        tape = gpuad.Tape()
        with tape:
            for name in ("square", "sine", "decay", "exchange"):
                launch(name, *([empty, empty] if name == "exchange" else [empty]))
            launch("square", x, n=0)
            launch("iterate", x, counts)
        tape.reverse({x: 2.0, empty: 1.0})
    np.testing.assert_array_equal(x.shadow, 2.0)


@BOTH
def test_case_36_zero_elements_of_a_kernel_with_a_loop_in_place(executor: str) -> None:
    text = (
        'extern "C" __global__ void k(double* x, int n, int m) { int i = blockIdx.x * blockDim.x + threadIdx.x;'
        " if (i < n) for (int j = 0; j < m; ++j) x[i] = x[i] * x[i]; }"
    )
    k = gpuad.kernel(text, "k")
    for n, m in ((0, 2), (2, 0), (2, 2)):
        x = pair([0.9, 0.8])
        start = x.primal.copy()
        tape = gpuad.Tape()
        with running(executor):
            with tape:
                k[1, 8](x, n, m)
            tape.reverse({x: 1.0})
        power = 2**m if n else 1
        np.testing.assert_allclose(x.shadow, power * start ** (power - 1))


@BOTH
def test_case_40_reversed_raw_twice_doubles(executor: str) -> None:
    x, y = pair([3.0]), pair([0.0])
    tape = gpuad.Tape()
    for _ in range(2):
        with running(executor):
            with tape:
                launch("square_to", x, y)
            y.shadow[...] = 1
            tape.reverse()
        np.testing.assert_allclose(y.shadow, 0.0)
    np.testing.assert_allclose(x.shadow, 12.0)


# --- kernels with state of their own ---------------------------------------------------------------------------------------------------


@BOTH
def test_scratch_stacks_in_a_tape(executor: str) -> None:
    """Trip counts are data, and change between the launches."""
    counts = (np.arange(N) % 5).astype(np.int32)

    def program(tape: Any, a: Any) -> None:
        launch("iterate", a["x"], a["counts"])
        launch("next_index", Const(a["counts"]))
        launch("iterate", a["x"], a["counts"])

    def model(s: Any) -> None:
        for trips in (counts, (3 * counts + 1) % N):
            for i in range(N):
                for _ in range(trips[i]):
                    s["x"][:, i] = np.sin(s["x"][:, i]) * s["x"][:, i] + 0.5
        s["counts"] = (3 * counts + 1) % N

    check(program, model, {"x": positive(), "counts": counts}, {"x": 1.0}, executor, saved=2 * 8 * N + 4 * N)


@BOTH
def test_logs_of_atomics_in_a_tape(executor: str) -> None:
    """The slots that a compaction got are recorded at each launch; the counter is not bumped again."""

    def program(tape: Any, a: Any) -> None:
        launch("compact", a["out"], a["x"], a["counter"], n=N)
        launch("sine", a["x"])
        launch("compact", a["out"], a["x"], a["counter"], n=N)

    inputs = {"x": np.random.default_rng(3).normal(size=N), "out": np.zeros(2 * N), "counter": np.zeros(1, np.int32)}
    x = inputs["x"]
    after = np.sin(x) + 0.5 * x
    with running(executor):
        for save in ("needed", "all"):
            got = run(program, inputs, {"out": 1.0}, gpuad.Tape(save=save))
            wanted = 2 * x * (x > 0) + 2 * after * (after > 0) * (np.cos(x) + 0.5)
            np.testing.assert_allclose(got.shadows["x"], wanted, atol=1e-14)
            assert got.primals["counter"][0] == (x > 0).sum() + (after > 0).sum()


@BOTH
def test_scatter_with_atomics_in_a_loop(executor: str) -> None:
    index = np.random.default_rng(2).integers(0, N, N).astype(np.int32)

    def program(tape: Any, a: Any) -> None:
        for _ in range(3):
            launch("scatter", a["y"], a["x"], a["index"])
            launch("times", a["x"], a["y"])

    def model(s: Any) -> None:
        for _ in range(3):
            add = np.zeros_like(s["y"])
            for i in range(N):
                add[:, index[i]] += 0.1 * s["x"][:, i] ** 2
            s["y"] = s["y"] + add
            s["x"] = s["x"] * s["y"]

    # each product needs the old x and y (y is overwritten by the next scatter), the scatter needs the x before the product: the same bytes
    inputs = {"x": positive(), "y": positive(), "index": index}
    check(program, model, inputs, {"x": 1.0, "y": 1.0}, executor, saved=(3 + 2) * 8 * N)


@BOTH
def test_active_scalars_across_launches(executor: str) -> None:
    def program(tape: Any, a: Any) -> None:
        for _ in range(4):
            launch("axpy", a["y"], a["x"], a["c"])
            launch("scale", a["x"], a["d"])

    def model(s: Any) -> None:
        for _ in range(4):
            s["y"] = s["y"] + s["c"][:, None] * s["x"]
            s["x"] = s["d"][:, None] * s["x"]

    inputs = {"x": positive(), "y": np.zeros(N), "c": 0.7, "d": 1.1}
    check(program, model, inputs, {"x": 1.0, "y": 2.0}, executor, saved=4 * 8 * N, priors={"c": 5.0, "d": -1.0})


@BOTH
def test_one_shadow_for_two_values_is_host_arithmetic(executor: str) -> None:
    x, shadow = pair(positive()), np.zeros(())
    with running(executor), pytest.raises(ShadowError, match="host arithmetic"), gpuad.Tape():
        for t in range(2):
            launch("scale", x, Active(0.99**t, shadow))


@BOTH
def test_one_active_that_is_not_a_number(executor: str) -> None:
    x, a = pair(positive()), Active(float("nan"), np.zeros(()))
    with running(executor), gpuad.Tape():
        launch("scale", x, a)
        launch("scale", x, a)


# --- shipped kernels -------------------------------------------------------------------------------------------------------------------


@BOTH
def test_lattice_boltzmann_saves_nine_populations_a_cell(executor: str) -> None:
    """Today 36 bytes a cell and step are saved: the nine float32 populations. The smallest cut, density and velocity, would be 12."""
    kernel, args = shipped("lattice_boltzmann"), list(arguments("lattice_boltzmann"))
    fields = [i for i, a in enumerate(args) if isinstance(a, Duplicated)]
    first, second = fields[0], fields[1]
    tape = gpuad.Tape()
    with running(executor), tape:
        for _ in range(3):
            kernel(*geometry("lattice_boltzmann"), tuple(args))
            args[first], args[second] = args[second], args[first]
    assert tape.stats.saved_bytes == 2 * 4 * args[first].size, str(tape.explain())


def geometry(name: str) -> tuple[Any, Any]:
    """Grid and block of a shipped case."""
    return CASES[name].geometry()[:2]


@pytest.mark.one_of(4)
@BOTH
@pytest.mark.parametrize("name", ["wave", "heat", "gray_scott", "recurrence-iir", "csr_spmv", "masked_update", "softsplat", "adam"])
def test_a_shipped_kernel_three_times_equals_three_reverses(executor: str, name: str) -> None:
    """A tape of three launches gives what three split pairs give, one after the other."""
    kernel = shipped(name)
    grid, block = geometry(name)
    results = []
    for taped in (True, False):
        args = arguments(name)
        pairs = [a for a in args if isinstance(a, Duplicated | Active)]
        rng = np.random.default_rng(5)
        for p in pairs:
            p.shadow[...] = rng.normal(size=p.shadow.shape)
        with running(executor):
            if taped:
                tape = gpuad.Tape()
                with tape:
                    for _ in range(3):
                        kernel(grid, block, args)
                tape.reverse()
            else:
                augmented, reverse = gpuad.autodiff_thunk(kernel, *(a if isinstance(a, Duplicated | Active) else Const for a in args))
                saved = [augmented(grid, block, args) for _ in range(3)]
                for s in reversed(saved):
                    reverse(grid, block, args, s)
        results.append({str(i): np.asarray(p.shadow).copy() for i, p in enumerate(pairs)})
    agree(results[0], results[1], name, 1e-12)
