"""Random CUDA kernels over the whole language (`random_language`): the same checks as for the base grammar (`test_random_kernels`), and the
same options, `GPUAD_NIGHTLY=5000` and `GPUAD_SEED=n`."""

from __future__ import annotations

import functools
import re

import pytest
from random_batches import NUMBERS, Batches
from random_language import FEATURES, whole_kernel
from random_language_case import WholeCase

BATCHES = Batches(whole_kernel, WholeCase.of, every=5)


@pytest.mark.parametrize("number", NUMBERS)
def test_random_language(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    BATCHES.run(number, monkeypatch)


@functools.cache
def _texts() -> tuple[str, ...]:
    return tuple(whole_kernel(seed).text for seed in range(300))


def test_grammar_reaches_the_language() -> None:
    """Each construct of the tiers occurs in the kernels that are checked."""
    wanted = [
        r"template <typename T, int P>\n__global__", r"generic\d+<(float|double), 3>", "if constexpr", "constexpr int", r"auto v\d+ = ",
        r"static_cast<", r"make_double2\(", r"make_float2\(",
        r"reinterpret_cast<", r"dot\(", r"u\d+\.x", r"pv\[i\]\.y", r"complex<float> z",
        r"exp\(complex<double>", "conj", "norm", r"zc\[i\]", r"Local s\d+\(", r"\.push\(", r"s\d+ \*= ", r"s\d+ \+ s\d+", r"part\[i\]\.w\[",
        r"Part e", r"case 2:", r"default:", r"coef\[",
        r"__half2float", r"__shared__", r"__syncthreads", r"atomicAdd\(&tile", r"__shfl_sync",
        r"__shfl_up_sync", r"__shfl_down_sync", r"__shfl_xor_sync", r"__ballot_sync", r"__any_sync", r"__all_sync", "__popc", "__clz",
        "__float_as_int", "__ldg", r"cas_add\(&s", r"atomicMax\(&top", r"& r\d+ = ",
        r"tiled_partition<4>", r"cg::reduce\(t\d+, ", r"\.shfl_down\(", r"\.any\(", r"atomic_max\(&mx", r"curand_normal\(&rng\)",
        "curandStatePhilox4_32_10_t", "__bfloat162float",
    ]  # fmt: skip
    missing = [w for w in wanted if not any(re.search(w, text) for text in _texts())]
    assert not missing


def test_every_feature_is_drawn() -> None:
    drawn = [whole_kernel(seed).features for seed in range(100)]
    assert all(20 < sum(f in d for d in drawn) < 80 for f in FEATURES)
