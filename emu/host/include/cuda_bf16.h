// __nv_bfloat16 and __nv_bfloat162.
#pragma once

#include "samebits/small_float.h"

struct __nv_bfloat16_raw { unsigned short x; };
#define SAMEBITS_PACK_BF16(F, R) ::samebits::pack_float(F, 8, 7, 0x7FFFu, R)
#define SAMEBITS_UNPACK_BF16(V) __uint_as_float(unsigned(V) << 16)
SAMEBITS_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, SAMEBITS_PACK_BF16, SAMEBITS_UNPACK_BF16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define SAMEBITS_TO_BF16(SUFFIX, ROUND)                                                                                          \
  static inline __nv_bfloat16 __float2bfloat16##SUFFIX(float v) {                                                                \
    return samebits_raw(__nv_bfloat16(), (unsigned short)SAMEBITS_PACK_BF16(__float_as_uint(v), ::samebits::Round::ROUND));      \
  }                                                                                                                              \
  static inline __nv_bfloat16 __int2bfloat16##SUFFIX(int v) { return __float2bfloat16##SUFFIX(::samebits::to_odd(double(v))); }  \
  static inline int __bfloat162int##SUFFIX(__nv_bfloat16 v) { return __float2int##SUFFIX(float(v)); }
SAMEBITS_TO_BF16(_rn, nearest)
SAMEBITS_TO_BF16(_rz, zero)
SAMEBITS_TO_BF16(_rd, down)
SAMEBITS_TO_BF16(_ru, up)
#undef SAMEBITS_TO_BF16
static inline __nv_bfloat16 __float2bfloat16(float v) { return __nv_bfloat16(v); }
static inline __nv_bfloat16 __double2bfloat16(double v) { return __nv_bfloat16(v); }
static inline float __bfloat162float(__nv_bfloat16 v) { return float(v); }
static inline __nv_bfloat162 __float2bfloat162_rn(float v) { return __nv_bfloat162(__nv_bfloat16(v), __nv_bfloat16(v)); }
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b)); }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __nv_bfloat162(__nv_bfloat16(v.x), __nv_bfloat16(v.y)); }
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return make_float2(float(v.x), float(v.y)); }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v) { return __nv_bfloat162(v, v); }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
static inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return __nv_bfloat162(v.x, v.x); }
static inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return __nv_bfloat162(v.y, v.y); }
static inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
static inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.__x; }
static inline short __bfloat16_as_short(__nv_bfloat16 v) { return short(v.__x); }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return samebits_raw(__nv_bfloat16(), v); }
static inline __nv_bfloat16 __short_as_bfloat16(short v) { return samebits_raw(__nv_bfloat16(), (unsigned short)v); }
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7F80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7FFFu)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001u)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7F7Fu)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000u)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3F80u)
