// CUDA sources include this name.
#pragma once
#include "../cooperative_groups.h"
