"""Clusters of points by Lloyd's iteration: distances by a fused kernel, sums by a raw kernel with shared memory, two streams."""

import cupy as cp
import numpy as np

POINTS, DIMENSIONS, CLUSTERS, ROUNDS = 3000, 3, 5, 8

distances = cp.ElementwiseKernel(
    "raw T points, raw T centres, int32 clusters, int32 dimensions",
    "int32 label",
    """
    T best = 1e300;
    for (int c = 0; c < clusters; c++) {
        T d = 0;
        for (int k = 0; k < dimensions; k++) {
            T e = points[i * dimensions + k] - centres[c * dimensions + k];
            d += e * e;
        }
        if (d < best) { best = d; label = c; }
    }
    """,
    "nearest",
)

sums = cp.RawKernel(
    r"""
extern "C" __global__ void sums(const double* points, const int* label, double* total, int* count, int n, int clusters, int dimensions) {
    extern __shared__ double part[];
    int* members = (int*)(part + clusters * dimensions);
    for (int j = threadIdx.x; j < clusters * dimensions; j += blockDim.x) part[j] = 0;
    for (int j = threadIdx.x; j < clusters; j += blockDim.x) members[j] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        for (int k = 0; k < dimensions; k++) atomicAdd(&part[label[i] * dimensions + k], points[i * dimensions + k]);
        atomicAdd(&members[label[i]], 1);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < clusters * dimensions; j += blockDim.x) atomicAdd(&total[j], part[j]);
    for (int j = threadIdx.x; j < clusters; j += blockDim.x) atomicAdd(&count[j], members[j]);
}""",
    "sums",
)


def data():
    r = np.random.default_rng(7)
    middle = r.normal(0, 4, (CLUSTERS, DIMENSIONS))
    return middle[r.integers(0, CLUSTERS, POINTS)] + r.normal(0, 0.6, (POINTS, DIMENSIONS))


def on_device(points):
    points = cp.asarray(points)
    centres = points[:CLUSTERS].copy()
    label = cp.empty(POINTS, cp.int32)
    other = cp.cuda.Stream(non_blocking=True)
    for _ in range(ROUNDS):
        distances(points, centres, CLUSTERS, DIMENSIONS, label)
        ready = cp.cuda.Event()
        ready.record()
        other.wait_event(ready)
        with other:
            total, count = cp.zeros((CLUSTERS, DIMENSIONS)), cp.zeros(CLUSTERS, cp.int32)
            shared = CLUSTERS * DIMENSIONS * 8 + CLUSTERS * 4
            sums((6,), (128,), (points, label, total, count, POINTS, CLUSTERS, DIMENSIONS), shared_mem=shared)
            done = other.record()
        cp.cuda.get_current_stream().wait_event(done)
        centres = cp.where(count[:, None] > 0, total / cp.maximum(count, 1)[:, None], centres)
    order = cp.argsort(centres[:, 0])
    return cp.asnumpy(centres[order]), int(cp.unique(label).size)


def on_host(points):
    centres = points[:CLUSTERS].copy()
    for _ in range(ROUNDS):
        label = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        for c in range(CLUSTERS):
            if (label == c).any():
                centres[c] = points[label == c].mean(0)
    return centres[np.argsort(centres[:, 0])], np.unique(label).size


if __name__ == "__main__":
    points = data()
    for mine, theirs in zip(on_device(points), on_host(points), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    print("they agree")
