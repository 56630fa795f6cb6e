#pragma once
#include "gpuad/cub.h"
