// __half and __half2.
#pragma once

#include "samebits/small_float.h"

struct __half_raw { unsigned short x; };
#define SAMEBITS_PACK_HALF(F, R) ::samebits::pack_float(F, 5, 10, 0x7FFFu, R)
#define SAMEBITS_UNPACK_HALF(V) ::samebits::unpack_float(V, 5, 10)
SAMEBITS_SMALL_FLOAT(__half, __half2, SAMEBITS_PACK_HALF, SAMEBITS_UNPACK_HALF)
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

#define SAMEBITS_TO_HALF(SUFFIX, ROUND)                                                                                            \
  static inline __half __float2half##SUFFIX(float v) {                                                                             \
    return samebits_raw(__half(), (unsigned short)SAMEBITS_PACK_HALF(__float_as_uint(v), ::samebits::Round::ROUND));               \
  }                                                                                                                                \
  static inline __half __int2half##SUFFIX(int v) { return __float2half##SUFFIX(::samebits::to_odd(double(v))); }                   \
  static inline __half __uint2half##SUFFIX(unsigned v) { return __float2half##SUFFIX(::samebits::to_odd(double(v))); }             \
  static inline __half __ll2half##SUFFIX(long long v) { return __float2half##SUFFIX(::samebits::to_odd(double(v))); }              \
  static inline __half __ull2half##SUFFIX(unsigned long long v) { return __float2half##SUFFIX(::samebits::to_odd(double(v))); }    \
  static inline int __half2int##SUFFIX(__half v) { return __float2int##SUFFIX(float(v)); }                                         \
  static inline unsigned __half2uint##SUFFIX(__half v) { return __float2uint##SUFFIX(float(v)); }
SAMEBITS_TO_HALF(_rn, nearest)
SAMEBITS_TO_HALF(_rz, zero)
SAMEBITS_TO_HALF(_rd, down)
SAMEBITS_TO_HALF(_ru, up)
#undef SAMEBITS_TO_HALF
static inline __half __float2half(float v) { return __half(v); }
static inline __half __double2half(double v) { return __half(v); }
static inline float __half2float(__half v) { return float(v); }
static inline __half __short2half_rn(short v) { return __half(float(v)); }
static inline __half __ushort2half_rn(unsigned short v) { return __half(float(v)); }
static inline short __half2short_rn(__half v) { int i = __float2int_rn(float(v)); return short(i > 32767 ? 32767 : i < -32768 ? -32768 : i); }
static inline __half2 __float2half2_rn(float v) { return __half2(__half(v), __half(v)); }
static inline __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
static inline __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }
static inline float2 __half22float2(__half2 v) { return make_float2(float(v.x), float(v.y)); }
static inline __half2 __half2half2(__half v) { return __half2(v, v); }
static inline __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
static inline __half2 make_half2(__half a, __half b) { return __half2(a, b); }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline __half2 __low2half2(__half2 v) { return __half2(v.x, v.x); }
static inline __half2 __high2half2(__half2 v) { return __half2(v.y, v.y); }
static inline __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
static inline __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
static inline unsigned short __half_as_ushort(__half v) { return v.__x; }
static inline short __half_as_short(__half v) { return short(v.__x); }
static inline __half __ushort_as_half(unsigned short v) { return samebits_raw(__half(), v); }
static inline __half __short_as_half(short v) { return samebits_raw(__half(), (unsigned short)v); }
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00u)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFu)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001u)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7BFFu)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00u)
