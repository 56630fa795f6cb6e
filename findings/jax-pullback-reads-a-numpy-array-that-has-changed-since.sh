#!/usr/bin/env bash
# A compiled function's pullback in JAX reads the caller's NumPy array, as it is by then.
#
# JAX 0.10.2 on a CPU. `jax.vjp` of a jitted function keeps its argument for the pullback, and if that is a NumPy array it keeps the array
# itself, not its values. If the caller overwrites it in place before the pullback is called, the gradient is that of the new values
# (2 * 100 for 2 * 3), without a word. With `jnp.array(x)` in place of x it is right.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
square = jax.jit(lambda x: (x * x).sum())
for name, given in {"NumPy's array": lambda x: x, "jnp.array": jnp.array}.items():
    x = np.full(64, 3.0)
    value, pull = jax.vjp(square, given(x))
    x[:] = 100.0
    (gradient,) = pull(1.0)
    print(name, "value:", float(value), "gradient of the first element:", float(gradient[0]))
PYTHON
cat >"$folder/expected" <<'SEEN'
NumPy's array value: 576.0 gradient of the first element: 200.0
jnp.array value: 576.0 gradient of the first element: 6.0
SEEN
cd "$folder"
venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
