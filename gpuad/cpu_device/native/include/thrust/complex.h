#pragma once
#include <cupy/complex/complex.h>
