#!/usr/bin/env bash
# CuPy compiles every kernel with -ftz=true, whatever the caller asks for.
#
# CuPy 14.2.0 with NVRTC 13.5. CuPy adds -ftz=true behind the options of a RawKernel, and of two such options NVRTC takes the last:
# `--ftz=false` is accepted without a word and has no effect. A kernel on a GPU takes subnormal float32 numbers for 0 where the same text in
# C++ does not, so that `if (x > 0)` may take the other side.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cupy-cuda13x==14.2.0 nvidia-cuda-nvrtc==13.5.37 numpy==2.4.6
cat >"$folder/seen.py" <<'PYTHON'
from cupy.cuda import compiler

TEXT = 'extern "C" __global__ void k(const float* x, float* y) { y[0] = x[0] + y[0]; }'


class Options(Exception):
    pass


def stop(source, options=(), *rest, **named):
    raise Options(options)


plain = compiler._NVRTCProgram
# no device is asked for its architecture, and nothing is loaded: only the options are looked at
compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=compute_90", "ptx")
compiler._preprocess = lambda *rest: ""
compiler._compile_using_nvrtc_no_warning = stop
for asked in ((), ("--ftz=false",), ("-ftz=false",)):
    try:
        compiler._compile_with_cache_cuda(TEXT, asked, arch="90", cache_in_memory=True)
    except Options as error:
        options = error.args[0]
    ptx, _ = plain(TEXT, "k.cu").compile(("-arch=compute_90", *options))
    (add,) = (line.split()[0] for line in ptx.decode().splitlines() if line.strip().startswith("add") and "f32" in line)
    print("asked for", asked, "compiled with", options, "gives", add)
PYTHON
cat >"$folder/expected" <<'SEEN'
asked for () compiled with ('-ftz=true',) gives add.ftz.f32
asked for ('--ftz=false',) compiled with ('--ftz=false', '-ftz=true') gives add.ftz.f32
asked for ('-ftz=false',) compiled with ('-ftz=false', '-ftz=true') gives add.ftz.f32
SEEN
cd "$folder"
CUPY_CACHE_DIR=$folder/cache venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
