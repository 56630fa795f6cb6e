// What this header declares is in the prelude.
#pragma once
#include "math.h"
#include "stdint.h"
