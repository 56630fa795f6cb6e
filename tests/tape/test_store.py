"""Arrays of which versions are stored less exactly, by name: what it saves, what error it reports, and that the gradient is as far off as
that error says, and no farther."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import compiled

import gpuad
from gpuad import Duplicated, TapeError, ops
from gpuad.tape.facade import recording_of
from gpuad.tape.memory.lossy import Format

SOURCE = r"""
template <class T> __device__ T moved(T x, T k) { return x + T(0.1) * k * (T(1) - x * x); }
extern "C" __global__ void single(float* x, const float* k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = moved(x[i], k[i]);
}
extern "C" __global__ void full(double* x, const double* k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = moved(x[i], k[i]);
}
extern "C" __global__ void twice(float2* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 a = z[i];
    z[i] = make_float2(0.5f * (a.x * a.x - a.y * a.y), a.x * a.y + 0.1f);
}
extern "C" __global__ void limited(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] > 0.5f ? x[i] * x[i] : 0.5f * x[i];
}
"""
N, STEPS = 1024, 12
EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
KINDS = [("single", np.float32, "bfloat16"), ("single", np.float32, "float16"), *(("full", np.float64, name) for name in EPS)]


pytestmark = pytest.mark.usefixtures("on_host_unjoined")


def pair(array: Any) -> Duplicated:
    return Duplicated(array.copy(), np.zeros_like(array))


class Loop:
    """Steps in place; `store`: how versions are stored."""

    def __init__(self, name: str, dtype: Any, store: str | None, **options: Any) -> None:
        rng = np.random.default_rng(1)
        self.start, self.seed = rng.uniform(0.1, 0.9, N).astype(dtype), rng.uniform(0.5, 1, N).astype(dtype)
        self.x, self.k = pair(self.start), pair(rng.uniform(0.5, 1.5, N).astype(dtype))
        self.kernel = compiled(SOURCE, name)
        self.tape = gpuad.Tape(**options, **({} if store is None else {"store": {self.x: store}}))

    def run(self) -> tuple[Any, Any]:
        self.x.primal[...] = self.start
        self.k.shadow.fill(0)
        with self.tape:
            for _ in range(STEPS):
                self.kernel[-(-N // 64), 64](self.x, self.k, N)
        self.tape.reverse({self.x: self.seed})
        return self.x.shadow.copy(), self.x.primal.copy()

    def trajectory(self) -> Any:
        """The states before each step, exactly."""
        x, k = self.start.astype(float), self.k.primal.astype(float)
        found = [x]
        for _ in range(STEPS - 1):
            found.append(found[-1] + 0.1 * k * (1 - found[-1] ** 2))
        return np.array(found)


@pytest.mark.parametrize(("name", "dtype", "store"), KINDS)
def test_the_gradient_is_off_by_what_the_error_says(name: str, dtype: Any, store: str) -> None:
    """d(x + k (1 - x^2) / 10) = 1 - k x / 5, so a version that is off by e moves each factor by k e / 5."""
    exact, loop = Loop(name, dtype, None), Loop(name, dtype, store)
    wanted, primal = exact.run()
    for _ in range(3):
        found, same = loop.run()
        assert same.tobytes() == primal.tobytes(), "primals are as exact as ever"
    (lossy,) = recording_of(loop.tape).store.arrays
    absolute, relative, unfit = lossy.measured.largest
    states, k = loop.trajectory(), loop.k.primal.astype(float)
    assert 0 < absolute <= EPS[store] * 2 * states.max() and 0 < relative <= EPS[store] * 1.001 and unfit == 0
    bound = np.abs(wanted) * (0.2 * k * absolute / np.abs(1 - 0.2 * k * states)).sum(0) * 1.05 + 1e-6 * (dtype == np.float32)
    off = np.abs(found - wanted)
    assert (off <= bound).all() and off.max() > 0


@pytest.mark.parametrize(("name", "dtype", "store"), KINDS)
def test_bytes_are_those_of_the_format(name: str, dtype: Any, store: str) -> None:
    exact, loop = Loop(name, dtype, None), Loop(name, dtype, store)
    exact.run()
    loop.run()
    size = Format(store, np.dtype(dtype)).narrow.itemsize
    assert exact.tape.stats.saved_bytes == STEPS * N * np.dtype(dtype).itemsize
    assert loop.tape.stats.saved_bytes == loop.tape.explain().saved_bytes == STEPS * N * size
    text = str(loop.tape.explain())
    assert f"`loop.x` as {store}: {STEPS * N * size} B in place of {exact.tape.stats.saved_bytes} B in {STEPS} pieces" in text
    assert "the largest error of a stored number is" in text


@pytest.mark.parametrize("share", [1.0, 0.8, 0.6])
def test_a_budget_counts_the_format_and_checkpoints_stay_exact(share: float) -> None:
    """What runs again begins with exact states, and what an adjoint reads of a state that was brought back is exact: no more is off than
    without a budget."""
    free, wanted = Loop("full", np.float64, "float32"), Loop("full", np.float64, None).run()[0]
    off, primal = free.run()
    whole, exact = Loop("full", np.float64, "float32", budget="1 MiB"), Loop("full", np.float64, None, budget="1 MiB")
    whole.run()
    exact.run()
    peak = whole.tape.plan().peak
    assert exact.tape.plan().peak == STEPS * 8 * N and peak == STEPS * 4 * N + 8 * N  # and one version as doubles again
    loop = Loop("full", np.float64, "float32", budget=int(peak * share))
    for _ in range(3):
        found, same = loop.run()
        assert same.tobytes() == primal.tobytes()
        assert np.abs(found - wanted).max() <= np.abs(off - wanted).max() * 1.01
        assert (found.tobytes() == off.tobytes()) or share < 1
        assert max(recording_of(loop.tape).most, recording_of(loop.tape).memory.most) <= peak * share
    assert (loop.tape.plan().reruns > 0) == (share < 1)
    assert "as float32" in str(loop.tape.explain())


def test_complex_numbers_by_their_parts() -> None:
    rng = np.random.default_rng(2)
    start = (rng.uniform(-1, 1, N) + 1j * rng.uniform(-1, 1, N)).astype(np.complex64)
    found = []
    for store in (None, "bfloat16"):
        z = Duplicated(start.copy())
        tape = gpuad.Tape() if store is None else gpuad.Tape(store={z: store})
        kernel = compiled(SOURCE, "twice")
        with tape:
            for _ in range(3):
                kernel[-(-N // 64), 64](z, N)
        found.append((tape.stats.saved_bytes, z))
        tape.reverse({z: np.ones(N, np.complex64)})
    assert found[0][0] == 2 * found[1][0] > 0
    exact, off = found[0][1].shadow, found[1][1].shadow
    assert 0 < np.abs(off - exact).max() <= 8 * 3 * 2.0**-8 * np.abs(exact).max()


def test_a_view_of_which_only_rows_are_stored_so() -> None:
    """Every second row of a matrix: the rest is kept to the bit, also where both are overwritten at once."""
    rng, kernel = np.random.default_rng(3), compiled(SOURCE, "single")
    start, k = rng.uniform(0.1, 0.9, (64, 16)).astype(np.float32), np.ones(N, np.float32)
    shadows = []
    for store in (False, True):
        x = Duplicated(start.copy())
        tape = gpuad.Tape(store={x[::2]: "bfloat16"}) if store else gpuad.Tape()
        with tape:
            for _ in range(4):
                kernel[16, 64](x, k, N)
        tape.reverse({x: np.ones_like(start)})
        shadows.append(x.shadow)
        assert tape.stats.saved_bytes == 4 * N * (3 if store else 4)
    assert shadows[0][1::2].tobytes() == shadows[1][1::2].tobytes()
    assert (shadows[0][::2] != shadows[1][::2]).any() and np.allclose(*shadows, rtol=4 * 2.0**-8)


def test_restored_primals_are_exact() -> None:
    loop = Loop("single", np.float32, "bfloat16", restore=True)
    loop.run()
    assert loop.x.primal.tobytes() == loop.start.tobytes()


def test_bfloat16_is_the_nearest_with_ties_to_even() -> None:
    """Against the definition: of the two neighbours with 16 bits the nearer one, in exact arithmetic."""
    rng = np.random.default_rng(4)
    bits = np.concatenate([rng.integers(0, 1 << 32, 20000, np.uint32), np.arange(0x3F800000, 0x3F800000 + 4096 * 8, 2048, np.uint32)])
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < 3.3e38)]
    form = Format("bfloat16", np.dtype(np.float32))
    found = form.back(form.rounded(values)).astype(np.float64)
    below = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    above = (below.view(np.uint32) + np.uint32(0x10000)).view(np.float32)
    down, up = np.abs(values - below.astype(np.float64)), np.abs(above.astype(np.float64) - values)
    even = (below.view(np.uint32) >> 16) % 2 == 0
    assert np.array_equal(found, np.where((down < up) | ((down == up) & even), below, above))
    special = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    assert form.back(form.rounded(special)).view(np.uint32)[1:].tolist() == special.view(np.uint32)[1:].tolist()
    assert np.isnan(form.back(form.rounded(special))[0])


# --- refused -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "store", "says"),
    [
        (np.zeros(3, np.float32), "float32", "takes for numbers of float32 'bfloat16', 'float16'; not 'float32'"),
        (np.zeros(3, np.float16), "bfloat16", "short already"),
        (np.zeros(3), "int8", "not 'int8'"),
        (np.zeros(0), "float32", "without elements"),
    ],
)
def test_what_cannot_be_stored_so_is_refused(array: Any, store: str, says: str) -> None:
    with pytest.raises(TapeError, match=says):
        gpuad.Tape(store={pair(array): store})


def test_other_keys_and_overlapping_arrays_are_refused() -> None:
    x = pair(np.zeros(4))
    with pytest.raises(TapeError, match="not a str as a key"):
        gpuad.Tape(store={"x": "float32"})
    with pytest.raises(TapeError, match="overlapping"):
        gpuad.Tape(store={x: "float32", x[1:]: "float16"})


def test_integers_are_refused() -> None:
    with pytest.raises(TapeError, match="floating-point or complex numbers; int32 is kept as it is"):
        gpuad.Tape(store={Duplicated(np.zeros(3, np.int32), np.zeros(3)): "float16"})


def test_an_array_that_the_tape_does_not_meet_is_refused() -> None:
    loop, other = Loop("single", np.float32, None), pair(np.zeros(N, np.float32))
    loop.tape = gpuad.Tape(store={other: "bfloat16"})
    with pytest.raises(TapeError, match=r"store= names an array of shape \(1024,\) that no recorded operation"):
        loop.run()


def test_a_launch_in_which_it_decides_something_is_refused() -> None:
    x = pair(np.full(N, 0.7, np.float32))
    with (
        pytest.raises(TapeError, match=r"`x` of `limited` is stored less exactly.*:\d+:\d+.*Nothing was launched"),
        gpuad.Tape(store={x: "bfloat16"}),
    ):
        compiled(SOURCE, "limited")[16, 64](x, N)
    assert (x.primal == np.float32(0.7)).all()


def test_a_rule_that_reads_it_is_refused() -> None:
    x = pair(np.full(N, 0.7, np.float32))
    with pytest.raises(TapeError, match="the reverse of a rule reads it"), gpuad.Tape(store={x: "bfloat16"}):
        ops.max(x)


def test_numbers_that_do_not_fit_are_refused() -> None:
    loop = Loop("full", np.float64, "float16")
    loop.start[3] = 1e6
    with pytest.raises(TapeError, match=r"\d+ numbers of `x` are too large for float16.*No shadow was touched"):
        loop.run()


def test_graphs_store_so_as_well_and_stored_programs_are_refused(tmp_path: Any) -> None:
    loop = Loop("single", np.float32, "bfloat16")
    wanted, _ = loop.run()
    graph = loop.tape.graph({loop.x: loop.seed})
    loop.x.primal[...] = loop.start
    loop.k.shadow.fill(0)
    graph.launch()
    assert loop.x.shadow.tobytes() == wanted.tobytes()
    loop.run()
    loop.x.primal[...] = loop.start
    with loop.tape:
        loop.kernel[-(-N // 64), 64](loop.x, loop.k, N)
    with pytest.raises(TapeError, match="cannot be stored itself"):
        loop.tape.save(tmp_path / "program")


def test_arrays_of_cupy_store_the_same(cupy: Any) -> None:
    """Bits, errors and bytes are those of the CPU."""
    found = []
    for here in (np, cupy):
        x, k = (
            Duplicated(here.asarray(a), here.zeros(N, np.float32)) for a in np.random.default_rng(1).uniform(0.1, 0.9, (2, N)).astype("f")
        )
        start, tape = x.primal.copy(), gpuad.Tape(store={x: "bfloat16"})
        for _ in range(2):  # the second round is of a known program
            x.primal[...] = start
            k.shadow.fill(0)
            with tape:
                for _ in range(STEPS):
                    compiled(SOURCE, "single")[-(-N // 64), 64](x, k, N)
            tape.reverse({x: 1.0})
            found.append(
                (
                    bytes(x.shadow.data if here is np else x.shadow.get().data),
                    tape.stats.saved_bytes,
                    str(tape.explain()).split("bfloat16")[1:2],
                )
            )
    assert found[0] == found[1] == found[2] == found[3]
