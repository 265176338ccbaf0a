// CUDA sources include this name.
#pragma once
#include "cuda_pipeline_primitives.h"
