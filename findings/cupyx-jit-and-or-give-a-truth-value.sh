#!/usr/bin/env bash
# `and` and `or` in a cupyx.jit kernel give a truth value, not one of their operands.
#
# CuPy 14.2.0. In Python `n and 3` is 3 and `n or 7` is n where n is not 0, and `bound or 7` is a usual way to say "7 where no bound was
# given". A jit.rawkernel takes both without a word and writes C's `&&` and `||`, whose value is 0 or 1: `out[0] = n or 7` stores 1 for every n,
# where the same function stores n or 7 if Python runs it. A conditional expression (`n if n else 7`) keeps its operands.
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
from cupyx.jit import _compile, _cuda_types

warnings.simplefilter("ignore")


def choose(n, out):
    out[0] = n or 7
    out[1] = n and 3
    out[2] = n if n else 7


types = [_cuda_types.Scalar(np.dtype("int32")), _cuda_types.CArray(np.dtype("int64"), 1, True, True)]
code = _compile.transpile(choose, ['extern "C"', "__global__"], "cuda", tuple(types), _cuda_types.void).code
print(*(line.strip() for line in code.splitlines() if "out[" in line), sep="\n")
out = np.zeros(3, np.int64)
choose(5, out)
print("Python, n = 5:", *out)
PYTHON
cat >"$folder/expected" <<'SEEN'
out[0] = (long long)(((long long)(n) || 7ll));
out[1] = (long long)(((long long)(n) && 3ll));
out[2] = (long long)(((bool)(n) ? n : 7));
Python, n = 5: 5 3 5
SEEN
cd "$folder"
CUPY_CACHE_DIR=$folder/cache venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
