// Conversions between binary32 and smaller formats, in integers, with every rounding direction.
#pragma once

#include "../samebits.h"

namespace samebits {

enum class Round { nearest, zero, down, up };

// Float bits to a format of `ebits` and `mbits` with infinities and NaN as IEEE has them. NaN becomes `nan`.
inline uint32_t pack_float(uint32_t f, int ebits, int mbits, uint32_t nan, Round round) {
  uint32_t sign = f >> 31, out_sign = sign << (ebits + mbits), magnitude = f & 0x7FFFFFFFu;
  uint32_t infinity = ((1u << ebits) - 1) << mbits;
  if (magnitude > 0x7F800000u) return nan;
  if (magnitude == 0x7F800000u) return out_sign | infinity;
  int e = int(magnitude >> 23) - 127, lowest = 2 - (1 << (ebits - 1));
  uint64_t m = magnitude & 0x7FFFFFu;
  if (magnitude >> 23) m |= 0x800000u; else e = -126;
  int shift = 23 - mbits + (e < lowest ? lowest - e : 0);
  if (shift > 40) shift = 40;
  uint64_t q = m >> shift, rest = m & ((uint64_t(1) << shift) - 1), half = shift > 0 ? uint64_t(1) << (shift - 1) : 0;
  bool more = round == Round::nearest ? rest > half || (rest == half && rest != 0 && (q & 1))
              : round == Round::zero  ? false
              : round == Round::up    ? rest != 0 && !sign
                                      : rest != 0 && sign;
  uint64_t bits = (uint64_t(e < lowest ? 0 : e - lowest) << mbits) + q + more;
  if (bits >= infinity) {
    bool to_infinity = round == Round::nearest || (round == Round::up && !sign) || (round == Round::down && sign);
    bits = to_infinity ? infinity : infinity - 1;
  }
  return out_sign | uint32_t(bits);
}
inline float unpack_float(uint32_t v, int ebits, int mbits) {  // exact
  uint32_t sign = v >> (ebits + mbits) & 1, e = v >> mbits & ((1u << ebits) - 1), m = v & ((1u << mbits) - 1);
  int bias = (1 << (ebits - 1)) - 1;
  if (e == (1u << ebits) - 1) return __uint_as_float(sign << 31 | (m != 0 ? 0x7FC00000u : 0x7F800000u));
  float magnitude;
  if (e != 0) {
    magnitude = __uint_as_float((e + 127 - unsigned(bias)) << 23 | m << (23 - mbits));
  } else {
    magnitude = float(m) * __uint_as_float(unsigned(128 - bias - mbits) << 23);
  }
  return sign ? -magnitude : magnitude;
}

// A double as the float that rounds on to any smaller format as the double would: what is cut off leaves a one behind.
inline float to_odd(double v) {
  float f = float(v);
  if (double(f) == v || v != v || (f - f) != 0) return f;
  uint32_t bits = __float_as_uint(f);
  if ((double(f) > v) == (v > 0)) bits -= 1;  // toward zero
  return __uint_as_float(bits | 1);
}
// a * b + c of values with at most 12 bits: the product is exact in double, the sum is made odd where it is not.
inline float fma_to_odd(float a, float b, float c) {
  double p = double(a) * double(b), s = p + double(c);
  if (s - s != 0) return float(s);
  double t = s - p, error = (p - (s - t)) + (double(c) - t);
  if (error != 0) {
    long long bits = __double_as_longlong(s);
    if ((bits & 1) == 0) bits += (error > 0) == (s > 0) ? 1 : -1;
    s = __longlong_as_double(bits);
  }
  return to_odd(s);
}

}  // namespace samebits

// Types, operators and functions that half and bfloat16 have in common. T2 is the pair; PACK(float bits, rounding) and UNPACK(bits).
// Exponentials, logarithms and the like are the host library's, for users' programs, as in more_math.h: no kernel of this project uses them (C4).
#define SAMEBITS_SMALL_FLOAT(T, T2, PACK, UNPACK)                                                                                     \
  struct alignas(2) T {                                                                                                               \
    unsigned short __x;                                                                                                               \
    T() = default;                                                                                                                    \
    T(float v) : __x((unsigned short)PACK(__float_as_uint(v), ::samebits::Round::nearest)) {}                                         \
    T(double v) : T(::samebits::to_odd(v)) {}                                                                                         \
    T(int v) : T(double(v)) {}                                                                                                        \
    T(unsigned v) : T(double(v)) {}                                                                                                   \
    T(short v) : T(float(v)) {}                                                                                                       \
    T(unsigned short v) : T(float(v)) {}                                                                                              \
    T(long v) : T(double(v)) {}                                                                                                       \
    T(unsigned long v) : T(double(v)) {}                                                                                              \
    T(long long v) : T(double(v)) {}                                                                                                  \
    T(unsigned long long v) : T(double(v)) {}                                                                                         \
    T(const T##_raw& r) : __x(r.x) {}                                                                                                 \
    operator T##_raw() const { return {__x}; }                                                                                        \
    operator float() const { return UNPACK(__x); }                                                                                    \
    explicit operator double() const { return UNPACK(__x); }                                                                          \
    explicit operator int() const { return __float2int_rz(UNPACK(__x)); }                                                             \
    explicit operator unsigned() const { return __float2uint_rz(UNPACK(__x)); }                                                       \
    explicit operator bool() const { return (__x & 0x7FFF) != 0; }                                                                    \
  };                                                                                                                                  \
  struct alignas(4) T2 {                                                                                                              \
    T x, y;                                                                                                                           \
    T2() = default;                                                                                                                   \
    T2(const T& a, const T& b) : x(a), y(b) {}                                                                                        \
  };                                                                                                                                  \
  SAMEBITS_SMALL_OP(T, T2, +, __hadd, a + b)                                                                                          \
  SAMEBITS_SMALL_OP(T, T2, -, __hsub, a - b)                                                                                          \
  SAMEBITS_SMALL_OP(T, T2, *, __hmul, a * b)                                                                                          \
  SAMEBITS_SMALL_OP(T, T2, /, __hdiv, a / b)                                                                                          \
  static inline T __hadd_rn(T a, T b) { return __hadd(a, b); }                                                                        \
  static inline T __hsub_rn(T a, T b) { return __hsub(a, b); }                                                                        \
  static inline T __hmul_rn(T a, T b) { return __hmul(a, b); }                                                                        \
  static inline T2 __hadd2_rn(T2 a, T2 b) { return a + b; }                                                                           \
  static inline T2 __hsub2_rn(T2 a, T2 b) { return a - b; }                                                                           \
  static inline T2 __hmul2_rn(T2 a, T2 b) { return a * b; }                                                                           \
  static inline T2 __hadd2(T2 a, T2 b) { return a + b; }                                                                              \
  static inline T2 __hsub2(T2 a, T2 b) { return a - b; }                                                                              \
  static inline T2 __hmul2(T2 a, T2 b) { return a * b; }                                                                              \
  static inline T2 __h2div(T2 a, T2 b) { return a / b; }                                                                              \
  static inline T samebits_raw(T, unsigned short bits) { T r; r.__x = bits; return r; }                                               \
  static inline T operator-(T a) { return samebits_raw(a, (unsigned short)(a.__x ^ 0x8000u)); }                                       \
  static inline T operator+(T a) { return a; }                                                                                        \
  static inline T& operator++(T& a) { return a = a + T(1.0f); }                                                                       \
  static inline T& operator--(T& a) { return a = a - T(1.0f); }                                                                       \
  static inline T2 operator-(T2 a) { return T2(-a.x, -a.y); }                                                                         \
  static inline T __hneg(T a) { return -a; }                                                                                          \
  static inline T2 __hneg2(T2 a) { return -a; }                                                                                       \
  static inline T __habs(T a) { return samebits_raw(a, (unsigned short)(a.__x & 0x7FFFu)); }                                          \
  static inline T2 __habs2(T2 a) { return T2(__habs(a.x), __habs(a.y)); }                                                             \
  static inline T __hfma(T a, T b, T c) { return T(::samebits::fma_to_odd(float(a), float(b), float(c))); }                           \
  static inline T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }                             \
  static inline T __hfma_relu(T a, T b, T c) { T r = __hfma(a, b, c); return float(r) < 0 ? T(0.0f) : r; }                            \
  static inline T2 __hfma2_relu(T2 a, T2 b, T2 c) { return T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); }              \
  static inline T __hadd_sat(T a, T b) { return T(__saturatef(float(a + b))); }                                                       \
  static inline T __hsub_sat(T a, T b) { return T(__saturatef(float(a - b))); }                                                       \
  static inline T __hmul_sat(T a, T b) { return T(__saturatef(float(a * b))); }                                                       \
  static inline T __hfma_sat(T a, T b, T c) { return T(__saturatef(float(__hfma(a, b, c)))); }                                        \
  static inline T2 __hadd2_sat(T2 a, T2 b) { return T2(__hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y)); }                                 \
  static inline T2 __hsub2_sat(T2 a, T2 b) { return T2(__hsub_sat(a.x, b.x), __hsub_sat(a.y, b.y)); }                                 \
  static inline T2 __hmul2_sat(T2 a, T2 b) { return T2(__hmul_sat(a.x, b.x), __hmul_sat(a.y, b.y)); }                                 \
  static inline T2 __hfma2_sat(T2 a, T2 b, T2 c) { return T2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); }                 \
  SAMEBITS_SMALL_COMPARE(T, T2, ==, eq)                                                                                               \
  SAMEBITS_SMALL_COMPARE(T, T2, !=, ne)                                                                                               \
  SAMEBITS_SMALL_COMPARE(T, T2, <, lt)                                                                                                \
  SAMEBITS_SMALL_COMPARE(T, T2, <=, le)                                                                                               \
  SAMEBITS_SMALL_COMPARE(T, T2, >, gt)                                                                                                \
  SAMEBITS_SMALL_COMPARE(T, T2, >=, ge)                                                                                               \
  static inline bool __hisnan(T a) { float f = a; return f != f; }                                                                    \
  static inline int __hisinf(T a) { float f = a; return f == f && f - f != 0 ? (f < 0 ? -1 : 1) : 0; }                                \
  static inline T __hmax(T a, T b) { return T(max(float(a), float(b))); }                                                             \
  static inline T __hmin(T a, T b) { return T(min(float(a), float(b))); }                                                             \
  static inline T __hmax_nan(T a, T b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b); }                                   \
  static inline T __hmin_nan(T a, T b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b); }                                   \
  static inline T2 __hmax2(T2 a, T2 b) { return T2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }                                             \
  static inline T2 __hmin2(T2 a, T2 b) { return T2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }                                             \
  static inline T2 __hmax2_nan(T2 a, T2 b) { return T2(__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)); }                                 \
  static inline T2 __hmin2_nan(T2 a, T2 b) { return T2(__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)); }                                 \
  static inline float __low2float(T2 a) { return a.x; }                                                                               \
  static inline float __high2float(T2 a) { return a.y; }                                                                              \
  static inline T2 __lowhigh2highlow(T2 a) { return T2(a.y, a.x); }                                                                   \
  SAMEBITS_SMALL_MATH(T, T2, sqrt, __builtin_sqrtf(f))                                                                                \
  SAMEBITS_SMALL_MATH(T, T2, rsqrt, 1.0f / __builtin_sqrtf(f))                                                                        \
  SAMEBITS_SMALL_MATH(T, T2, rcp, 1.0f / f)                                                                                           \
  SAMEBITS_SMALL_MATH(T, T2, exp, expf(f))                                                                                            \
  SAMEBITS_SMALL_MATH(T, T2, exp2, exp2f(f))                                                                                          \
  SAMEBITS_SMALL_MATH(T, T2, log, logf(f))                                                                                            \
  SAMEBITS_SMALL_MATH(T, T2, log2, log2f(f))                                                                                          \
  SAMEBITS_SMALL_MATH(T, T2, sin, sinf(f))                                                                                            \
  SAMEBITS_SMALL_MATH(T, T2, cos, cosf(f))                                                                                            \
  SAMEBITS_SMALL_MATH(T, T2, tanh, tanhf(f))                                                                                          \
  SAMEBITS_SMALL_MATH(T, T2, floor, floorf(f))                                                                                        \
  SAMEBITS_SMALL_MATH(T, T2, ceil, ceilf(f))                                                                                          \
  SAMEBITS_SMALL_MATH(T, T2, trunc, truncf(f))                                                                                        \
  SAMEBITS_SMALL_MATH(T, T2, rint, rintf(f))                                                                                          \
  SAMEBITS_SMALL_SHUFFLE(T, T2, __shfl_sync, int)                                                                                     \
  SAMEBITS_SMALL_SHUFFLE(T, T2, __shfl_up_sync, unsigned)                                                                             \
  SAMEBITS_SMALL_SHUFFLE(T, T2, __shfl_down_sync, unsigned)                                                                           \
  SAMEBITS_SMALL_SHUFFLE(T, T2, __shfl_xor_sync, int)                                                                                 \
  static inline T atomicAdd(T* p, T v) {                                                                                              \
    unsigned short* bits = &p->__x;                                                                                                   \
    unsigned short old = __atomic_load_n(bits, __ATOMIC_RELAXED);                                                                     \
    while (!__atomic_compare_exchange_n(bits, &old, (samebits_raw(v, old) + v).__x, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}    \
    return samebits_raw(v, old);                                                                                                      \
  }                                                                                                                                   \
  static inline T2 atomicAdd(T2* p, T2 v) { return T2(atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)); }

// The float result of two operands rounds to what the exact one does: 24 bits are at least twice 11 and two more.
#define SAMEBITS_SMALL_OP(T, T2, OP, NAME, RESULT)                                                      \
  static inline T NAME(T x, T y) { float a = x, b = y; return T(RESULT); }                              \
  static inline T operator OP(const T& x, const T& y) { return NAME(x, y); }                            \
  static inline T& operator OP##=(T& x, const T& y) { return x = NAME(x, y); }                          \
  static inline T2 operator OP(const T2& x, const T2& y) { return T2(NAME(x.x, y.x), NAME(x.y, y.y)); } \
  static inline T2& operator OP##=(T2& x, const T2& y) { return x = x OP y; }
// As functions false with a NaN, those that end in u true; operators as of floats.
#define SAMEBITS_SMALL_COMPARE(T, T2, OP, NAME)                                                                                              \
  static inline bool operator OP(const T& a, const T& b) { return float(a) OP float(b); }                                                    \
  static inline bool __h##NAME(T a, T b) { float x = a, y = b; return x == x && y == y && x OP y; }                                          \
  static inline bool __h##NAME##u(T a, T b) { float x = a, y = b; return x != x || y != y || x OP y; }                                       \
  static inline bool __hb##NAME##2(T2 a, T2 b) { return __h##NAME(a.x, b.x) && __h##NAME(a.y, b.y); }                                        \
  static inline bool __hb##NAME##u2(T2 a, T2 b) { return __h##NAME##u(a.x, b.x) && __h##NAME##u(a.y, b.y); }                                 \
  static inline T2 __h##NAME##2(T2 a, T2 b) { return T2(T(float(__h##NAME(a.x, b.x))), T(float(__h##NAME(a.y, b.y)))); }                     \
  static inline T2 __h##NAME##u2(T2 a, T2 b) { return T2(T(float(__h##NAME##u(a.x, b.x))), T(float(__h##NAME##u(a.y, b.y)))); }              \
  static inline unsigned __h##NAME##2_mask(T2 a, T2 b) { return (__h##NAME(a.x, b.x) ? 0xFFFFu : 0) | (__h##NAME(a.y, b.y) ? 0xFFFF0000u : 0); } \
  static inline unsigned __h##NAME##u2_mask(T2 a, T2 b) { return (__h##NAME##u(a.x, b.x) ? 0xFFFFu : 0) | (__h##NAME##u(a.y, b.y) ? 0xFFFF0000u : 0); }
// For users' programs: functions of the host library, as in more_math.h; their last bits may not be a GPU's. No kernel of this project uses
// them (C4).
#define SAMEBITS_SMALL_MATH(T, T2, NAME, RESULT)                     \
  static inline T h##NAME(T v) { float f = v; return T(float(RESULT)); } \
  static inline T2 h2##NAME(T2 v) { return T2(h##NAME(v.x), h##NAME(v.y)); }
#define SAMEBITS_SMALL_SHUFFLE(T, T2, NAME, ARG)                                                          \
  static inline T NAME(unsigned mask, T v, ARG arg, int width = 32, SAMEBITS_SITE) {                      \
    return samebits_raw(v, (unsigned short)NAME(mask, unsigned(v.__x), arg, width, file, line));          \
  }                                                                                                       \
  static inline T2 NAME(unsigned mask, T2 v, ARG arg, int width = 32, SAMEBITS_SITE) {                    \
    return ::samebits::from_bits<T2>(NAME(mask, unsigned(::samebits::to_bits(v)), arg, width, file, line)); \
  }
