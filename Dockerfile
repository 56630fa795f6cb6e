# gpuad with everything its tests need, for machines with and without a GPU. CUDA's libraries come as wheels: the machine brings the driver alone.
#
#   docker build --target cpu -t gpuad .                                 # no GPU
#   docker build -t gpuad-gpu .                                          # CUDA 13
#   docker build -t gpuad-gpu --build-arg CUDA=cuda12 .                  # CUDA 12
#   docker run --rm --read-only --tmpfs /tmp:exec -v gpuad-cache:/cache gpuad                                   # the tests
#   docker run --rm --read-only --tmpfs /tmp:exec -v gpuad-cache:/cache --gpus all gpuad-gpu pytest -n 0 -m gpu -p no:cacheprovider
#   docker run --rm --read-only --tmpfs /tmp:exec -v gpuad-cache:/cache -v "$PWD/results":/results --gpus all gpuad-gpu python -m benchmarks.gpu --results /results
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS base
# The host executor compiles with the machine's C++ compiler, whichever release the distribution has.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home ci \
    && install -d -o ci -g ci /cache
# Nothing but the cache and /tmp is written to: the root file system may be read-only. /tmp needs `exec`: tests make environments and compilers there.
ENV GPUAD_CACHE_DIR=/cache CUPY_CACHE_DIR=/cache/cupy MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1
VOLUME /cache
WORKDIR /gpuad
COPY . .

FROM base AS cpu
RUN python -m pip install -e ".[test]"
USER 1000:1000
CMD ["pytest", "-p", "no:cacheprovider"]

FROM base AS cuda
ARG CUDA=cuda13
RUN python -m pip install -e ".[test,${CUDA}]"
# The first two are read by NVIDIA's container runtime; without a GPU the marked tests fail.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility GPUAD_REQUIRE_GPU=1
USER 1000:1000
CMD ["pytest", "-p", "no:cacheprovider"]
