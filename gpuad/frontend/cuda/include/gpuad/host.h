// What nvcc has found in the host's headers before a source's first line, and NVRTC has not. Read where a text uses such a name undeclared.
#pragma once
#include "../std/algorithm"
#include "../std/climits"
#include "../std/cmath"
#include "../std/cstdlib"
typedef unsigned char u_char;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
