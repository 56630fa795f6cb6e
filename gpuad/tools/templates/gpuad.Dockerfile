# The checks of this repository's kernels, with and without a GPU. Written by `gpuad init-ci`; yours from now on.
#
#   docker build -f gpuad.Dockerfile --target cpu  -t kernels .
#   docker build -f gpuad.Dockerfile --target cuda -t kernels-gpu .          # CUDA's libraries are wheels; the machine brings the driver
#   docker run --rm --read-only --tmpfs /tmp -v gpuad-cache:/cache -v "$PWD":/work:ro kernels
#   docker run --rm --read-only --tmpfs /tmp -v gpuad-cache:/cache -v "$PWD":/work:ro --gpus all kernels-gpu
#   docker run ... kernels gpuad ledger --check
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS base
# The host executor compiles with the machine's C++ compiler, whichever release the distribution has.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home ci \
    && install -d -o ci -g ci /cache /work
# Nothing but the cache and /tmp is written to: the root file system may be read-only.
ENV GPUAD_CACHE_DIR=/cache PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 CUPY_CACHE_DIR=/cache/cupy
VOLUME /cache
WORKDIR /work

FROM base AS cpu
ARG GPUAD=gpuad
# hadolint ignore=DL3013
RUN python -m pip install "${GPUAD}[ci]"
USER 1000:1000
CMD ["pytest", "-p", "no:cacheprovider"]

FROM base AS cuda
ARG GPUAD=gpuad
ARG CUDA=cuda13
# hadolint ignore=DL3013
RUN python -m pip install "${GPUAD}[ci,${CUDA}]"
# The first two are read by NVIDIA's container runtime.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility GPUAD_REQUIRE_GPU=1
USER 1000:1000
CMD ["pytest", "-p", "no:cacheprovider"]
