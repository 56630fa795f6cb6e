#!/usr/bin/env bash
# libclang gives no reason where a CUDA architecture is one that it does not know.
#
# libclang 18.1.1, the newest on PyPI, from before Blackwell. `--cuda-gpu-arch=sm_100` or `sm_120` ends in TranslationUnitLoadError with no
# translation unit and so without any diagnostic, while an option that does not exist is a diagnostic of a translation unit that is there.
# Whoever passes a device's own architecture on to it reads "Error parsing translation unit." for every text. The architecture of a text that
# is only read need not be the device's.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet libclang==18.1.1
cat >"$folder/seen.py" <<'PYTHON'
from clang.cindex import Index, TranslationUnitLoadError

TEXT = 'extern "C" __attribute__((global)) void k(float* x) { x[0] = 1; }'
OPTIONS = ["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib"]
for more in (["--cuda-gpu-arch=sm_90"], ["--cuda-gpu-arch=sm_90", "--unheard-of"], ["--cuda-gpu-arch=sm_100"], ["--cuda-gpu-arch=sm_120"]):
    try:
        unit = Index.create().parse("k.cu", OPTIONS + more, unsaved_files=[("k.cu", TEXT)])
        print(*more, "errors", [said.spelling for said in unit.diagnostics if said.severity >= said.Error])
    except TranslationUnitLoadError as error:
        print(*more, error)
PYTHON
cat >"$folder/expected" <<'SEEN'
--cuda-gpu-arch=sm_90 errors []
--cuda-gpu-arch=sm_90 --unheard-of errors ["unknown argument: '--unheard-of'"]
--cuda-gpu-arch=sm_100 Error parsing translation unit.
--cuda-gpu-arch=sm_120 Error parsing translation unit.
SEEN
cd "$folder"
venv/bin/python seen.py | tee seen
diff expected seen
