// CUDA sources include this name; everything stands in samebits.h.
#pragma once
#include "samebits.h"
