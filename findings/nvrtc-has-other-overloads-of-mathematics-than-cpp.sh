#!/usr/bin/env bash
# NVRTC without a header declares other overloads of the mathematical functions than <cmath> does: some calls are refused, some have another type.
#
# NVRTC 13.5 beside g++ (12 or later, C++17). For a float and an int C++ promotes both to double; NVRTC has no overload for integers, so that
# the int becomes a float: `atan2(f, i)`, `pow(f, i)`, `hypot(f, i)`, `fmod(f, i)` and `fmax(f, i)` lose half of their digits there. A single
# int, or a float beside a double, is ambiguous: `sqrt(i)`, `pow(f, d)` and `fma(f, f, d)` do not compile, though `copysign(f, d)` does. And
# `norm3d(f, f, f)`, which C++ does not have, is a double, since its float form has a name of its own (norm3df). A kernel that is tried on a
# CPU as C++ before it is given to CuPy is therefore another function.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later, g++ and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nvidia-cuda-nvrtc==13.5.37
cat >"$folder/seen.py" <<'PYTHON'
import ctypes
import re
import subprocess
import sys
from pathlib import Path

CALLS = "pow(f, i), atan2(f, i), hypot(f, i), fmod(f, i), fmax(f, i), copysign(f, d), sqrt(i), floor(i), pow(f, d), fma(f, f, d), norm3d(f, f, f)"
NUMBERS = """
template <class T> struct Number;
template <> struct Number<float> { static const int value = 101; };
template <> struct Number<double> { static const int value = 102; };
"""
NAMES = {"101": "float", "102": "double"}
KERNEL = NUMBERS + 'extern "C" __global__ void k(int* y, float f, double d, int i) { y[0] = Number<decltype(CALL)>::value; }'
PROGRAM = "#include <cmath>\n#include <cstdio>\nusing namespace std;" + NUMBERS
PROGRAM += 'int main() { float f = 1; double d = 1; int i = 1; printf("%d", Number<decltype(CALL)>::value); }'
nvrtc = ctypes.CDLL(str(next(Path(sys.prefix).rglob("libnvrtc.so.*"))))


def by_nvrtc(call: str) -> str:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL.replace("CALL", call).encode(), b"k.cu", 0, None, None)
    option = (ctypes.c_char_p * 1)(b"-arch=compute_90")
    if nvrtc.nvrtcCompileProgram(program, 1, option):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        return "refused" if b"more than one instance of overloaded function" in log.value else log.value.decode()
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return NAMES[re.search(r"\b10[12]\b", ptx.value.decode()).group()]


def by_cpp(call: str) -> str:
    Path("k.cpp").write_text(PROGRAM.replace("CALL", call))
    if subprocess.run(["g++", "-std=c++17", "k.cpp", "-o", "k"], capture_output=True).returncode:
        return "refused"
    return NAMES[subprocess.run(["./k"], capture_output=True, text=True, check=True).stdout]


for call in re.split(r"(?<=\)), ", CALLS):
    print(f"{call:17}NVRTC {by_nvrtc(call):8} g++ {by_cpp(call)}")
PYTHON
cat >"$folder/expected" <<'SEEN'
pow(f, i)        NVRTC float    g++ double
atan2(f, i)      NVRTC float    g++ double
hypot(f, i)      NVRTC float    g++ double
fmod(f, i)       NVRTC float    g++ double
fmax(f, i)       NVRTC float    g++ double
copysign(f, d)   NVRTC double   g++ double
sqrt(i)          NVRTC refused  g++ double
floor(i)         NVRTC refused  g++ double
pow(f, d)        NVRTC refused  g++ double
fma(f, f, d)     NVRTC refused  g++ double
norm3d(f, f, f)  NVRTC double   g++ refused
SEEN
cd "$folder"
venv/bin/python seen.py | tee seen
diff expected seen
