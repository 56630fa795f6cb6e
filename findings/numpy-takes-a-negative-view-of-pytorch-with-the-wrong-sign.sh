#!/usr/bin/env bash
# NumPy reads a lazily negated tensor of PyTorch with the wrong sign.
#
# PyTorch 2.13.0 and NumPy 2.4.6. `z.conj().imag` is a view whose elements are to be negated when they are read (`is_neg()`). `.numpy()` and
# `np.asarray` refuse it in words. DLPack has no such bit, and `__dlpack__` does not refuse: `np.from_dlpack` gives the memory as it is, with
# the sign of every element wrong, without a word. For a lazily conjugated tensor it does refuse.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat >"$folder/seen.py" <<'PYTHON'
import numpy as np
import torch

z = torch.complex(torch.zeros(3), torch.ones(3))
negative = z.conj().imag
print("PyTorch:", negative.tolist(), "is_neg:", negative.is_neg())
for name, read in {"numpy()": lambda x: x.numpy(), "asarray": np.asarray, "from_dlpack": np.from_dlpack}.items():
    for what, x in {"negative": negative, "conjugate": z.conj()}.items():
        try:
            print(name, what, read(x).tolist())
        except Exception as error:
            print(name, what, type(error).__name__)
PYTHON
cat >"$folder/expected" <<'SEEN'
PyTorch: [-1.0, -1.0, -1.0] is_neg: True
numpy() negative RuntimeError
numpy() conjugate RuntimeError
asarray negative RuntimeError
asarray conjugate RuntimeError
from_dlpack negative [1.0, 1.0, 1.0]
from_dlpack conjugate BufferError
SEEN
cd "$folder"
venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
