#!/usr/bin/env bash
# jax.shard_map with check_vma=True takes the result of a callback for replicated.
#
# JAX 0.10.2, two CPU devices. An output that differs from device to device must not be declared replicated (`out_specs=P()`), and for plain
# code the default `check_vma=True` refuses it. The result of `jax.pure_callback` or of `buffer_callback` counts as the same on all devices,
# whatever its operands vary over: the array says that it is replicated, holds other numbers on each device, and prints those of the first.
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
from jax.experimental.buffer_callback import buffer_callback
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)
half = jax.ShapeDtypeStruct((2,), jnp.float32)


def double(context, out, x):
    np.asarray(out)[...] = 2 * np.asarray(x)


WAYS = {
    "plain": lambda x: 2 * x,
    "pure_callback": lambda x: jax.pure_callback(lambda x: 2 * np.asarray(x), half, x),
    "buffer_callback": lambda x: buffer_callback(double, half)(x),
}
mesh = Mesh(np.array(jax.devices()), ("d",))
for name, f in WAYS.items():
    try:
        y = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P()))(jnp.arange(4.0))
        print(name, "replicated:", y.is_fully_replicated, "on the devices:", [shard.data.tolist() for shard in y.addressable_shards])
    except ValueError as error:
        print(name, "ValueError:", "require replication" in str(error))
PYTHON
cat >"$folder/expected" <<'SEEN'
plain ValueError: True
pure_callback replicated: True on the devices: [[0.0, 2.0], [4.0, 6.0]]
buffer_callback replicated: True on the devices: [[0.0, 2.0], [4.0, 6.0]]
SEEN
cd "$folder"
venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
