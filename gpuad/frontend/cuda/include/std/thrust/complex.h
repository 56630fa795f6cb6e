#pragma once
#include "gpuad/complex.h"
