"""Softmax splatting (Niklaus and Liu, 2020) as a layer of PyTorch: from its forward kernel alone, and beside it with a backward by hand.

    python -m benchmarks.splatting

Every pixel of an image is added to where its flow points, weighted by exp(importance); what arrives is divided by the sum of the weights.
The forward kernel is that of `kernels/softsplat.cu`. The peer has a second kernel, written by hand as one would for CuPy, in an
`autograd.Function`; both are compiled by gpuad's CPU back end, so what is compared is the derivative, and what is kept for it."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import gpuad
import gpuad.torch
from gpuad.tools.cases import kernel_folder

TEXT = (kernel_folder() / "softsplat.cu").read_text(encoding="utf-8")
BACKWARD = r"""
__device__ float at(const float* d, int c, int y, int x, int height, int width) {
    return y >= 0 && y < height && x >= 0 && x < width ? d[(c * height + y) * width + x] : 0.0f;
}
extern "C" __global__ void backward(const int n, const float* image, const float* flow, const float* d, float* dimage, float* dflow,
                                    const int height, const int width) {
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < n; index += blockDim.x * gridDim.x) {
        const int c = index / width / height, y = (index / width) % height, x = index % width;
        const float to_x = x + flow[y * width + x], to_y = y + flow[(height + y) * width + x];
        const int west = (int)floorf(to_x), north = (int)floorf(to_y);
        const float right = to_x - west, left = 1.0f - right, down = to_y - north, up = 1.0f - down;
        const float nw = at(d, c, north, west, height, width), ne = at(d, c, north, west + 1, height, width);
        const float sw = at(d, c, north + 1, west, height, width), se = at(d, c, north + 1, west + 1, height, width);
        dimage[index] = left * up * nw + right * up * ne + left * down * sw + right * down * se;
        atomicAdd(&dflow[y * width + x], image[index] * (up * (ne - nw) + down * (se - sw)));
        atomicAdd(&dflow[(height + y) * width + x], image[index] * (left * (sw - nw) + right * (se - ne)));
    }
}"""
BLOCK = 128
splat = gpuad.torch.function(
    gpuad.kernel(TEXT, "softsplat"), outputs={"splatted": "image"}, grid=lambda n: (n + BLOCK - 1) // BLOCK, block=BLOCK
)
Splat = Callable[[Any, Any], Any]


def by_gpuad(image: Any, flow: Any) -> Any:
    """Splats `image` (channels, height, width) along `flow` (2, height, width)."""
    return splat(image.numel(), image, flow, image.shape[1], image.shape[2])


class _ByHand(torch.autograd.Function):
    forward_kernel, backward_kernel = gpuad.kernel(TEXT, "softsplat"), gpuad.kernel(BACKWARD, "backward")

    @staticmethod
    def forward(ctx: Any, image: Any, flow: Any) -> Any:
        out, n = torch.zeros_like(image), image.numel()
        args = (n, image.numpy(), flow.numpy(), out.numpy(), image.shape[1], image.shape[2])
        _ByHand.forward_kernel((n + BLOCK - 1) // BLOCK, BLOCK, args)
        ctx.save_for_backward(image, flow)
        return out

    @staticmethod
    def backward(ctx: Any, d: Any) -> Any:
        image, flow = ctx.saved_tensors
        n, dimage, dflow = image.numel(), torch.empty_like(image), torch.zeros_like(flow)
        arrays = (x.numpy() for x in (image, flow, d.contiguous(), dimage, dflow))
        _ByHand.backward_kernel((n + BLOCK - 1) // BLOCK, BLOCK, (n, *arrays, image.shape[1], image.shape[2]))
        return dimage, dflow


by_hand: Splat = _ByHand.apply


class SoftmaxSplatting(torch.nn.Module):
    """The layer. `forward(image, flow, importance)`: (channels, height, width), (2, height, width), (1, height, width)."""

    def __init__(self, splat: Splat) -> None:
        super().__init__()
        self.splat = splat

    def forward(self, image: Any, flow: Any, importance: Any) -> Any:
        """The image as it is seen where its pixels have moved."""
        weight = importance.exp()
        both = self.splat(torch.cat([image * weight, weight]), flow)
        return both[:-1] / (both[-1:] + 1e-6)


def scene(height: int, width: int) -> tuple[Any, Any]:
    """A smooth picture, and how far it has moved."""
    y, x = torch.meshgrid(torch.linspace(0, 3, height), torch.linspace(0, 4, width), indexing="ij")
    flow = torch.stack([1.3 + 0.4 * torch.sin(x), -0.7 + 0.3 * torch.cos(y)])
    return torch.stack([torch.sin(2 * x) * torch.cos(y), torch.cos(x + y), torch.sin(3 * y)]), flow


def train(splat: Splat, height: int, width: int, rounds: int) -> tuple[list[float], Any, Any]:
    """Finds flow and importance from what is seen. Losses, and both in the end."""
    layer = SoftmaxSplatting(splat)
    image, true = scene(height, width)
    seen = layer(image, true, torch.zeros(1, height, width)).detach()
    flow, importance = torch.full((2, height, width), 0.01).requires_grad_(), torch.zeros(1, height, width).requires_grad_()
    steps = torch.optim.Adam([flow, importance], lr=0.05)
    losses = []
    for _ in range(rounds):
        steps.zero_grad()
        loss = (layer(image, flow, importance) - seen).square().mean()
        loss.backward()
        steps.step()
        losses.append(float(loss.detach()))
    return losses, flow.detach(), importance.detach()


def gradients(splat: Splat, height: int, width: int) -> tuple[Any, ...]:
    """Those of one splatting, for image and flow."""
    image, flow = (x.clone().requires_grad_() for x in scene(height, width))
    torch.manual_seed(0)
    return torch.autograd.grad(splat(image, flow), (image, flow), torch.randn_like(image))


def held(splat: Splat, height: int, width: int) -> int:
    """Bytes that a graph keeps of one splatting beyond its inputs and its output."""
    image, flow = (x.clone().requires_grad_() for x in scene(height, width))
    out = splat(image, flow)
    known = {x.data_ptr() for x in (image, flow, out)}
    return sum(x.nbytes for x in out.grad_fn.saved_tensors if x is not None and x.data_ptr() not in known)


def measured(rounds: int = 9) -> dict[str, dict[str, float]]:
    """For each way: milliseconds of CPU time of a splatting with its gradients, bytes that are kept for it, losses of a training."""
    height, width = 480, 640
    ways = {"by gpuad": by_gpuad, "by hand": by_hand}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            gradients(way, height, width)
            times[name].append(time.process_time() - start)
    ours, theirs = (gradients(way, height, width) for way in ways.values())
    worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
    found = {}
    for name, way in ways.items():
        losses = train(way, 48, 64, 60)[0]
        spent = round(1e3 * statistics.median(times[name]), 2)
        found[name] = {
            "cpu_ms": spent, "kept_bytes": held(way, height, width), "first_loss": losses[0], "last_loss": losses[-1], "difference": worst,
        }  # fmt: skip
    return found


def main() -> None:
    for name, row in measured(int(sys.argv[1]) if len(sys.argv) > 1 else 9).items():
        print(f"{name:9s} {row['cpu_ms']:7.2f} ms  {row['kept_bytes']} bytes kept  loss {row['first_loss']:.4f} -> {row['last_loss']:.5f}")
    print(f"largest difference of the gradients, relative: {row['difference']:.1e}")


if __name__ == "__main__":
    main()
