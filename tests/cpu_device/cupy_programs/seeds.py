"""Numbers that are drawn again from the same seed: the order of the calls decides which they are, whenever they arrive."""

import cupy as cp
import numpy as np

if __name__ == "__main__":
    cp.random.seed(3)
    first = cp.random.rand(5)
    cp.random.seed(3)
    other = cp.cuda.Stream(non_blocking=True)
    with other:
        second = cp.random.rand(5)
    normal = cp.random.standard_normal(5)
    np.testing.assert_array_equal(cp.asnumpy(second, stream=other), cp.asnumpy(first))
    assert np.isfinite(cp.asnumpy(normal)).all()
    print("they agree")
