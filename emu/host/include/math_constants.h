// Constants by CUDA's names.
#pragma once
#include "samebits.h"
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_MIN_DENORM_F __int_as_float(0x00000001)
#define CUDART_MAX_NORMAL_F __int_as_float(0x7f7fffff)
#define CUDART_NEG_ZERO_F __int_as_float((int)0x80000000)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_SQRT_HALF_F 0x1.6a09e6p-1f
#define CUDART_SQRT_TWO_F 0x1.6a09e6p+0f
#define CUDART_PI_F 0x1.921fb6p+1f
#define CUDART_PIO2_F 0x1.921fb6p+0f
#define CUDART_LN2_F 0x1.62e430p-1f
#define CUDART_L2E_F 0x1.715476p+0f
#define CUDART_LOG2E_F 0x1.715476p+0f
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double((long long)0xfff8000000000000ULL)
#define CUDART_PI 0x1.921fb54442d18p+1
#define CUDART_LN2 0x1.62e42fefa39efp-1
#define CUDART_L2E 0x1.71547652b82fep+0
