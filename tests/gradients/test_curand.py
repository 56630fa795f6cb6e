"""curand's generators: numbers and states equal to curand's, gradients of kernels that draw, and the versions of states on a tape.

The expected numbers come from curand's own header (cuRAND 10.3.10), compiled for the CPU and run there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running
from nightly import NIGHTLY, share
from test_fence import refused

import gpuad
from gpuad import Active, Duplicated
from gpuad.errors import LaunchError, ShadowError, UnsupportedError
from gpuad.testing import check_gradient


@dataclass(frozen=True)
class Drawn:
    """What a generator gives after `curand_init(seed, subsequence, offset, &s)`: bits, then one or more of each distribution; the bytes of
    the state after that."""

    state: str
    start: tuple[int, int, int]
    bits: list[int]
    numbers: list[float]
    memory: str


# fmt: off
DRAWN = [
    Drawn(
        "curandState", (0, 0, 0),
        [3179217846, 1883133293, 2220552389, 674260989, 306521119, 1986458431],
        [0.227643266, 0.1440651658, -0.927174926, 1.57642365, -0.175963923, 0.7828194791, -0.4889359623, 1.068096925, -0.10796421,
         -0.312152147, 0.9987372888, -1.164977715, 1.51545238, 1.59533179, 1.66518927, 1.528575499, 2.184962456, 2.292266266,
         2625250083.0],
        "9d84992bd374b09a1d99903f67004202d46aaa16869ee07002000000020000004990b73f000000008c002a3197e7f93f",
    ),
    Drawn(
        "curandState", (1234, 5, 0),
        [3732235839, 2152834071, 919474540, 1633321130, 1363217923, 2702936549],
        [0.688283563, 0.8450846327, 2.13863754, -0.313043892, -0.222404495, 0.01096341526, -0.9927371003, 0.1869749827, -1.92697942,
         1.51482725, 0.1550858261, 0.875612085, 1.13056254, 1.57110405, 1.86239552, 1.348877391, 1.965750685, 2.132856334,
         3272989928.0],
        "d7f875325f75a54234a3f363c849ea86aa7c041011e49f900200000002000000fb19de3f000000002b7640e302f9f93f",
    ),
    Drawn(
        "curandState", (1099511627783, 12345, 1000003),
        [757961868, 740409813, 2522939071, 3489778802, 1337446385, 346513874],
        [0.52469933, 0.5888575107, 2.07682872, -0.645982325, 2.55490875, 3.480081063, -0.3762051749, 0.4569336035, 1.7696352,
         0.257382095, -0.01267766006, -1.049432413, 1.62276328, 2.14972401, 2.46018744, 1.454509784, 1.364432237, 1.187960713,
         2002791245.0],
        "55767a598de9b8c33712bef9cfb11aae35a8e351f8b4e51d0200000002000000d1081b40000000001680962b5cfdf53f",
    ),
    Drawn(
        "curandStatePhilox4_32_10_t", (0, 0, 0),
        [1713891541, 3781805453, 3159862348, 2600524760, 4175744164, 1555169499],
        [0.693930924, 0.03709408082, 2.54409719, -1.18635809, 1.96113145, 0.588793037, -1.188175465, -0.4262058401, 0.219123393,
         1.24400616, -1.345808875, 0.5073915396, 1.70385921, 1.91403246, 1.75122201, 1.31574252, 1.323741319, 1.871137425,
         4068121405.0],
        "09000000000000000000000000000000bc01e996ba33da2a3d9b7af2d2f0021b00000000000000000300000002000000020000000e830340c46865a3755bfc3f",
    ),
    Drawn(
        "curandStatePhilox4_32_10_t", (1234, 5, 0),
        [4181881884, 3080788858, 2334630092, 3180702920, 1549596404, 1069600344],
        [0.197131708, 0.4482786178, -1.60174739, 1.10226679, -2.35920811, 1.05361531, -1.38667886, 0.8040727122, 1.60668397,
         0.859763443, -0.6607555855, -0.1448139372, 1.46878767, 2.48111582, 1.46877909, 1.904817822, 2.133349576, 2.098428386,
         2270162304.0],
        "090000000000000005000000000000007dcd43a66b91a55180ed4f8718d7fd86d204000000000000030000000200000002000000f7b99e3f9b38fcbb7d98f73f",
    ),
    Drawn(
        "curandStatePhilox4_32_10_t", (1099511627783, 8589946937, 34359738365),
        [3931051031, 713885787, 552057358, 494228793, 176501514, 2147544904],
        [0.606569171, 0.1974431311, -1.18575561, -1.12698162, 1.6658293, 0.3087851245, 0.2411173216, 1.027591855, -0.472613335,
         -0.559331894, 1.015442663, 0.558534206, 1.5037632, 1.78516638, 1.64896858, 1.575683716, 2.02686076, 1.676656513,
         4000054570.0],
        "09000000020000003930000002000000164d7228c1b797bb9fc7c8ae2f3a89e307000000000100000000000002000000020000001844bb3f7312752d9d430040",
    ),
]
FOUR = [2682101129, 3290227963, 396021102, 4181888155, 0.74718231, 0.634797871, 0.928654909, 0.120344937, 205373812, 1.12311506,
 0.614904821, -1.0542469, -0.37444213, 0.1650301145605056, 0.5508762070908098, 1.79167044, 1.66944849, 1.39358199, 1.51949215,
 3498035891]
# fmt: on

ALL = """#include <curand_kernel.h>
extern "C" __global__ void k(unsigned long long seed, unsigned long long sub, unsigned long long off, unsigned* bits, double* x, STATE* s) {
    STATE g;
    curand_init(seed, sub, off, &g);
    for (int i = 0; i < 6; i++) bits[i] = curand(&g);
    x[0] = curand_uniform(&g);
    x[1] = curand_uniform_double(&g);
    for (int i = 0; i < 3; ++i) x[2 + i] = curand_normal(&g);
    for (int i = 0; i < 3; ++i) x[5 + i] = curand_normal_double(&g);
    float2 pair = curand_normal2(&g);
    double2 wide = curand_normal2_double(&g);
    x[8] = pair.x; x[9] = pair.y; x[10] = wide.x; x[11] = wide.y;
    for (int i = 0; i < 3; ++i) x[12 + i] = curand_log_normal(&g, 0.5f, 0.25f);
    for (int i = 0; i < 3; ++i) x[15 + i] = curand_log_normal_double(&g, 0.5, 0.25);
    x[18] = curand(&g);
    s[0] = g;
}"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("drawn", DRAWN, ids=lambda d: f"{d.state}{d.start}")
def test_the_numbers_and_the_state_are_curand_s(drawn: Drawn, executor: str) -> None:
    expected = np.frombuffer(bytes.fromhex(drawn.memory), np.uint8)
    bits, numbers, state = np.zeros(6, np.uint32), np.zeros(19), np.zeros(len(expected), np.uint8)
    with running(executor):
        compiled(ALL.replace("STATE", drawn.state), "k")(1, 1, (*drawn.start, bits, numbers, state))
    assert bits.tolist() == drawn.bits
    np.testing.assert_allclose(numbers, drawn.numbers, rtol=1e-6)
    floats = len(expected) - 16  # the last 16 bytes: a normal number as a float, padding, one as a double
    np.testing.assert_array_equal(state[:floats], expected[:floats])
    np.testing.assert_allclose(state[floats : floats + 4].view(np.float32), expected[floats : floats + 4].view(np.float32), rtol=1e-6)
    np.testing.assert_allclose(state[-8:].view(float), expected[-8:].view(float), rtol=1e-13)


BY_FOUR = """#include <curand_kernel.h>
extern "C" __global__ void k(double* x) {
    curandStatePhilox4_32_10_t s;
    curand_init(99, 3, 5, &s);
    uint4 bits = curand4(&s);
    x[0] = bits.x; x[1] = bits.y; x[2] = bits.z; x[3] = bits.w;
    float4 u = curand_uniform4(&s);
    x[4] = u.x; x[5] = u.y; x[6] = u.z; x[7] = u.w; x[8] = curand(&s);
    u = curand_normal4(&s);
    x[9] = u.x; x[10] = u.y; x[11] = u.z; x[12] = u.w; curand(&s);
    double2 d = curand_uniform2_double(&s);
    x[13] = d.x; x[14] = d.y; curand(&s);
    u = curand_log_normal4(&s, 0.5f, 0.25f);
    x[15] = u.x; x[16] = u.y; x[17] = u.z; x[18] = u.w;
    skipahead(7, &s);
    skipahead_sequence(9, &s);
    x[19] = curand(&s);
}"""


def test_four_at_a_time() -> None:
    x = np.zeros(20)
    with running("reference"):
        compiled(BY_FOUR, "k")(1, 1, (x,))
    np.testing.assert_allclose(x, FOUR, rtol=1e-6)


# --- gradients -------------------------------------------------------------------------------------------------------------------------

KERNELS = """#include <curand_kernel.h>
extern "C" __global__ void seed(curandState* states, unsigned long long s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) curand_init(s, i, 0, &states[i]);
}
extern "C" __global__ void walk(double* x, double w, curandState* states, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = sin(x[i]) * w * curand_normal_double(&states[i]) + curand_uniform(states + i);
}
extern "C" __global__ void until(double* x, curandState* states, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandState local = states[i];
    while (curand_uniform(&local) < 0.7f) x[i] *= x[i] * curand_uniform_double(&local) + 0.5;
    states[i] = local;
}
extern "C" __global__ void noisy(double* x, double mean, curandState* states) {
    x[threadIdx.x] *= curand_log_normal_double(&states[threadIdx.x], mean, 0.3);
}
extern "C" __global__ void own(double* x, double mean) {
    curandState state;
    curand_init(3, threadIdx.x, 0, &state);
    for (int k = 0; k < 3; ++k) x[threadIdx.x] *= curand_log_normal_double(&state, mean, 0.3);
}"""


def seeded(n: int, seed: int = 7) -> Any:
    """States as their bytes, which is how CuPy's users keep them."""
    states = np.zeros((n, 48), np.uint8)
    compiled(KERNELS, "seed")(1, 32, (states, seed, n))
    return states


@pytest.mark.one_of(2)
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "V48"])
def test_states_of_any_integers(dtype: str) -> None:
    """CuPy's users keep states in whatever has as many bytes."""
    walk, x, expected = compiled(KERNELS, "walk"), np.full(8, 0.5), np.full(8, 0.5)
    with running("reference"):
        states, others = seeded(8).view(dtype).reshape(8, -1), seeded(8)
        gpuad.autodiff(walk, 1, 8, (Duplicated(x, np.ones(8)), 2.0, states, 8))
        walk(1, 8, (expected, 2.0, others, 8))
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(states.view(np.uint8).reshape(8, 48), others)


def test_states_that_are_no_whole_number() -> None:
    with running("reference"), pytest.raises(LaunchError, match="pass such an array, or its bytes as integers"):
        compiled(KERNELS, "seed")(1, 8, (np.zeros(50, np.int32), 3, 8))


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("name", "way"), share([(n, w) for w in ("usual", "everything recorded") for n in ("walk", "until", "own")], 2))
def test_gradients(name: str, way: str) -> None:
    r = np.random.default_rng(0)
    with running("reference", way == "usual"):
        x = Duplicated(r.uniform(0.5, 1.5, size=20), np.zeros(20))
        args = {
            "walk": lambda: (x, Active(0.8, np.zeros(())), seeded(20), 20),
            "until": lambda: (x, seeded(20), 20),
            "own": lambda: (x, Active(0.1, np.zeros(()))),
        }[name]()
        check_gradient(compiled(KERNELS, name), args, grid=1, block=20, race_check=True, directions=1, second_check=bool(NIGHTLY))


def test_states_go_on_as_without_a_gradient() -> None:
    """One forward launch draws; the reverse pass does not."""
    with running("reference"):
        first, second, walk = seeded(8), seeded(8), compiled(KERNELS, "walk")
        x = np.full(8, 0.5)
        walk(1, 8, (x, 2.0, first, 8))
        gpuad.autodiff(walk, 1, 8, (Duplicated(np.full(8, 0.5), np.ones(8)), 2.0, second, 8))
    np.testing.assert_array_equal(first, second)


def test_versions_of_states_on_a_tape() -> None:
    """Each launch draws other numbers, and each adjoint those of its own launch, also where the states are seeded anew in between."""
    n, steps = 8, 5
    with running("reference"):
        walk, seed = compiled(KERNELS, "walk"), compiled(KERNELS, "seed")
        start = np.random.default_rng(1).uniform(0.5, 1.5, size=n)

        def program(x: Any, w: Any, states: Any) -> None:
            for t in range(steps):
                if t == 3:
                    seed(1, 32, (states, 99, n))
                walk(1, 32, (x, w, states, n))

        def final(w: float) -> Any:
            x = start.copy()
            program(x, w, seeded(n))
            return x

        x, dw, states = Duplicated(start.copy(), np.zeros(n)), np.zeros(()), seeded(n)
        tape = gpuad.Tape()
        with tape:
            program(x, Active(0.9, dw), states)
        np.testing.assert_array_equal(x.primal, final(0.9))
        tape.reverse({x: np.ones(n)})
        difference = (final(0.9 + 1e-6).sum() - final(0.9 - 1e-6).sum()) / 2e-6
    np.testing.assert_allclose(dw, difference, rtol=1e-7)


def test_active_values_kept_in_a_state_are_no_silent_zero() -> None:
    """Of a pair of log-normal numbers the second waits in the state: with an active mean it would be lost there."""
    with running("reference"), pytest.raises(ShadowError, match="states"):
        args = (Duplicated(np.ones(4), np.ones(4)), Active(0.1, np.zeros(())), seeded(4))
        gpuad.autodiff(compiled(KERNELS, "noisy"), 1, 4, args)


# --- refusals --------------------------------------------------------------------------------------------------------------------------

GENERATOR = "random numbers of this generator are not supported; those of curandStateXORWOW and curandStatePhilox4_32_10 are"
DISTRIBUTION = "random numbers of this distribution ({}) are not supported; those of uniform, normal and log-normal ones are"
BODIES = {
    "MRG32k3a": ("curandStateMRG32k3a_t s; ^curand_init(1, 2, 3, &s);", GENERATOR),
    "MRG32k3a drawn from": ("curandStateMRG32k3a* s; x[0] = ^curand_uniform(s);", GENERATOR),
    "Sobol": ("curandStateSobol32_t* s; x[0] = ^curand_normal(s);", GENERATOR),
    "Mersenne twister": ("curandStateMtgp32* s; x[0] = ^curand(s);", GENERATOR),
    "Poisson": ("curandState s; x[0] = ^curand_poisson(&s, 3.0);", DISTRIBUTION.format("curand_poisson")),
    "discrete": ("curandState s; x[0] = ^curand_discrete(&s, 3);", DISTRIBUTION.format("curand_discrete")),
}


@pytest.mark.parametrize("name", BODIES)
def test_refused(name: str) -> None:
    body, message = BODIES[name]
    error, line, column = refused(f"#include <curand_kernel.h>\n__global__ void k(float* x) {{\n  {body}\n}}\n")
    assert isinstance(error, UnsupportedError)
    assert (error.message, error.file, error.line, error.column) == (message, "user.cu", line, column)


def test_refused_headers() -> None:
    error, line, column = refused("#include ^<curand_mtgp32_kernel.h>\n__global__ void k(float* x) {}")
    message = "the header 'curand_mtgp32_kernel.h' cannot be used: this part of curand is not supported; curand_kernel.h is"
    assert (error.message, error.line, error.column) == (message, line, column)
