#pragma once
#include <type_traits>
#include "gpuad/complex.h"
