# gpuad with everything its tests need, for machines with and without a GPU. CUDA's libraries come as wheels: the machine brings the driver alone.
#
#   docker build -t gpuad .                                  # CUDA 13
#   docker build -t gpuad --build-arg EXTRA=cuda12 .         # CUDA 12
#   docker build -t gpuad --build-arg EXTRA= .               # no GPU
#   docker run --rm gpuad                                    # the tests
#   docker run --rm --gpus all -e GPUAD_REQUIRE_GPU=1 gpuad pytest -n 0 -m gpu
#   docker run --rm --gpus all gpuad python -m benchmarks.gpu
ARG PYTHON=3.13
FROM python:${PYTHON}-slim
ARG EXTRA=cuda13

# The host executor compiles with the machine's C++ compiler, whichever release the distribution has.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

WORKDIR /gpuad
COPY . .
RUN python -m pip install --no-cache-dir -e ".[test${EXTRA:+,$EXTRA}]"

# Read by NVIDIA's container runtime.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["pytest"]
