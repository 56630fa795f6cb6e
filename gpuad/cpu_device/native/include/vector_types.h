#pragma once
#include "gpuad_device.h"
