// CuPy gives a text some of the standard library's names in namespace std.
#pragma once
#include <limits>
#include "gpuad/type_traits.h"
