#pragma once
#include "gpuad/random.h"
