#!/usr/bin/env bash
# cupyx.jit compares unsigned integers as signed ones.
#
# CuPy 14.2.0. In a jit.rawkernel `t = n[0] - 5` of a uint64 3 is 2**64 - 2, as in NumPy and in C++. But comparisons are written with both
# sides cast to `long long`, so `t < 0` is true, where NumPy (and the same line in CUDA C++) says that it is false. A loop's guard on sizes of
# type uint64 takes the other side.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cupy-cuda13x==14.2.0 numpy==2.4.6
cat >"$folder/seen.py" <<'PYTHON'
import warnings

import numpy as np
from cupyx import jit
from cupyx.jit import _compile, _cuda_types

warnings.simplefilter("ignore")


@jit.rawkernel()
def below(n, out):
    t = n[0] - 5
    if t < 0:
        out[0] = 1
    else:
        out[0] = 0


types = [_cuda_types.CArray(np.dtype(name), 1, True, True) for name in ("uint64", "int32")]
code = _compile.transpile(below._func, ['extern "C"', "__global__"], "cuda", tuple(types), _cuda_types.void).code
print(*(line.strip() for line in code.splitlines() if "t = " in line or "if" in line), sep="\n")
with np.errstate(over="ignore"):
    t = np.uint64(3) - np.uint64(5)
print("NumPy:", t, t < 0)
PYTHON
cat >"$folder/expected" <<'SEEN'
unsigned long long t = (n[0] - 5ull);
if (((long long)(t) < 0ll)) {
NumPy: 18446744073709551614 False
SEEN
cd "$folder"
CUPY_CACHE_DIR=$folder/cache venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
