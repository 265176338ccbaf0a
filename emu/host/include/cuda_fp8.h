// e4m3 and e5m2, with and without saturation.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace samebits {
inline unsigned char to_fp8(float v, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
  uint32_t f = __float_as_uint(v), sign = f >> 24 & 0x80u;
  if (v != v) return kind == __NV_E4M3 ? 0x7F : 0x7F;
  if (kind == __NV_E5M2) {
    uint32_t bits = pack_float(f, 5, 2, 0x7F, Round::nearest);
    return (unsigned char)(saturation == __NV_SATFINITE && (bits & 0x7C) == 0x7C ? sign | 0x7B : bits);
  }
  // e4m3 has the exponent 15 as well, without its last value: packed with one bit of exponent more it cannot overflow.
  float scaled = v;
  uint32_t wide = pack_float(__float_as_uint(scaled), 5, 3, 0xFF, Round::nearest) & 0xFFu;  // bias 15
  float rounded = unpack_float(wide, 5, 3);
  float magnitude = rounded < 0 ? -rounded : rounded;
  float a = v < 0 ? -v : v;
  if (a < 0x1p-6f) {  // subnormal: multiples of 2^-9
    unsigned m = unsigned(__builtin_rintf(a * 512.0f));
    return (unsigned char)(sign | m);
  }
  if (magnitude > 448.0f) return (unsigned char)(sign | (saturation == __NV_SATFINITE ? 0x7E : 0x7F));
  uint32_t r = __float_as_uint(magnitude);
  return (unsigned char)(sign | (((r >> 23) - 120u) << 3) | (r >> 20 & 7u));
}
inline float from_fp8(unsigned char v, __nv_fp8_interpretation_t kind) {
  if (kind == __NV_E5M2) return unpack_float(v, 5, 2);
  if ((v & 0x7F) == 0x7F) return __uint_as_float(0x7FC00000u);
  uint32_t e = v >> 3 & 15u, m = v & 7u;
  float magnitude = e != 0 ? __uint_as_float((e + 120u) << 23 | m << 20) : float(m) * 0x1p-9f;
  return v & 0x80 ? -magnitude : magnitude;
}
}  // namespace samebits

static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float v, __nv_saturation_t s, __nv_fp8_interpretation_t k) { return ::samebits::to_fp8(v, s, k); }
static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double v, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return ::samebits::to_fp8(::samebits::to_odd(v), s, k);
}
static inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw v, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return ::samebits::to_fp8(float(__half(v)), s, k);
}
static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw v, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return ::samebits::to_fp8(float(__nv_bfloat16(v)), s, k);
}
static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return (__nv_fp8x2_storage_t)(::samebits::to_fp8(v.x, s, k) | ::samebits::to_fp8(v.y, s, k) << 8);
}
static inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t v, __nv_fp8_interpretation_t k) { return __half(::samebits::from_fp8(v, k)); }

#define SAMEBITS_FP8(NAME, KIND)                                                          \
  struct NAME {                                                                           \
    __nv_fp8_storage_t __x;                                                               \
    NAME() = default;                                                                     \
    explicit NAME(float v) : __x(::samebits::to_fp8(v, __NV_SATFINITE, KIND)) {}          \
    explicit NAME(double v) : NAME(::samebits::to_odd(v)) {}                              \
    explicit NAME(int v) : NAME(double(v)) {}                                             \
    explicit NAME(__half v) : NAME(float(v)) {}                                           \
    explicit NAME(__nv_bfloat16 v) : NAME(float(v)) {}                                    \
    explicit operator float() const { return ::samebits::from_fp8(__x, KIND); }           \
    explicit operator double() const { return ::samebits::from_fp8(__x, KIND); }          \
    explicit operator __half() const { return __half(::samebits::from_fp8(__x, KIND)); }  \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(::samebits::from_fp8(__x, KIND)); } \
  };
SAMEBITS_FP8(__nv_fp8_e4m3, __NV_E4M3)
SAMEBITS_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef SAMEBITS_FP8
#define SAMEBITS_FP8_VECTOR(NAME, N, STORAGE, KIND, PACK, UNPACK, VECTOR)                 \
  struct NAME {                                                                           \
    STORAGE __x;                                                                          \
    NAME() = default;                                                                     \
    explicit NAME(VECTOR v) : __x(PACK) {}                                                \
    explicit operator VECTOR() const { return UNPACK; }                                   \
  };
#define SAMEBITS_8(V, KIND) ::samebits::to_fp8(V, __NV_SATFINITE, KIND)
#define SAMEBITS_F(SHIFT, KIND) ::samebits::from_fp8((unsigned char)(__x >> SHIFT), KIND)
#define SAMEBITS_FP8_VECTORS(KIND, TWO, FOUR)                                                                                         \
  SAMEBITS_FP8_VECTOR(TWO, 2, __nv_fp8x2_storage_t, KIND, (__nv_fp8x2_storage_t)(SAMEBITS_8(v.x, KIND) | SAMEBITS_8(v.y, KIND) << 8), \
                      make_float2(SAMEBITS_F(0, KIND), SAMEBITS_F(8, KIND)), float2)                                                  \
  SAMEBITS_FP8_VECTOR(FOUR, 4, __nv_fp8x4_storage_t, KIND,                                                                            \
                      unsigned(SAMEBITS_8(v.x, KIND)) | unsigned(SAMEBITS_8(v.y, KIND)) << 8 | unsigned(SAMEBITS_8(v.z, KIND)) << 16 | \
                          unsigned(SAMEBITS_8(v.w, KIND)) << 24,                                                                      \
                      make_float4(SAMEBITS_F(0, KIND), SAMEBITS_F(8, KIND), SAMEBITS_F(16, KIND), SAMEBITS_F(24, KIND)), float4)
SAMEBITS_FP8_VECTORS(__NV_E4M3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3)
SAMEBITS_FP8_VECTORS(__NV_E5M2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2)
#undef SAMEBITS_FP8_VECTORS
#undef SAMEBITS_FP8_VECTOR
#undef SAMEBITS_8
#undef SAMEBITS_F
