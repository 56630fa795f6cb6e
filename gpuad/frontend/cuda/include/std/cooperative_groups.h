#pragma once
#include "gpuad/groups.h"
