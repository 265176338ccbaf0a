// Directed rounding, and the fast functions of device code. The latter are the C library's here: not the bytes of a GPU. Those whose
// names the C library declares itself are called samebits_NAME, and translate.py puts that in their place.
#pragma once

#include "intrinsics.h"
#include "math.h"
#include "simd.h"

namespace samebits {
enum class Arith { add, sub, mul, div, sqrt, fma, convert };
float directed(Arith, int round, float a, float b, float c);       // round as in samebits::Round: 1 zero, 2 down, 3 up
double directed(Arith, int round, double a, double b, double c);
float directed_float(int round, double v);
}  // namespace samebits

#define SAMEBITS_DIRECTED(SUFFIX, ROUND)                                                                                                   \
  static inline float __fadd_##SUFFIX(float a, float b) { return ::samebits::directed(::samebits::Arith::add, ROUND, a, b, 0.0f); }        \
  static inline float __fsub_##SUFFIX(float a, float b) { return ::samebits::directed(::samebits::Arith::sub, ROUND, a, b, 0.0f); }        \
  static inline float __fmul_##SUFFIX(float a, float b) { return ::samebits::directed(::samebits::Arith::mul, ROUND, a, b, 0.0f); }        \
  static inline float __fdiv_##SUFFIX(float a, float b) { return ::samebits::directed(::samebits::Arith::div, ROUND, a, b, 0.0f); }        \
  static inline float __frcp_##SUFFIX(float a) { return ::samebits::directed(::samebits::Arith::div, ROUND, 1.0f, a, 0.0f); }              \
  static inline float __fsqrt_##SUFFIX(float a) { return ::samebits::directed(::samebits::Arith::sqrt, ROUND, a, 0.0f, 0.0f); }            \
  static inline float __fmaf_##SUFFIX(float a, float b, float c) { return ::samebits::directed(::samebits::Arith::fma, ROUND, a, b, c); }  \
  static inline double __dadd_##SUFFIX(double a, double b) { return ::samebits::directed(::samebits::Arith::add, ROUND, a, b, 0.0); }      \
  static inline double __dsub_##SUFFIX(double a, double b) { return ::samebits::directed(::samebits::Arith::sub, ROUND, a, b, 0.0); }      \
  static inline double __dmul_##SUFFIX(double a, double b) { return ::samebits::directed(::samebits::Arith::mul, ROUND, a, b, 0.0); }      \
  static inline double __ddiv_##SUFFIX(double a, double b) { return ::samebits::directed(::samebits::Arith::div, ROUND, a, b, 0.0); }      \
  static inline double __drcp_##SUFFIX(double a) { return ::samebits::directed(::samebits::Arith::div, ROUND, 1.0, a, 0.0); }              \
  static inline double __dsqrt_##SUFFIX(double a) { return ::samebits::directed(::samebits::Arith::sqrt, ROUND, a, 0.0, 0.0); }            \
  static inline double __fma_##SUFFIX(double a, double b, double c) { return ::samebits::directed(::samebits::Arith::fma, ROUND, a, b, c); } \
  static inline float __double2float_##SUFFIX(double v) { return ::samebits::directed_float(ROUND, v); }                                   \
  static inline float __int2float_##SUFFIX(int v) { return ::samebits::directed_float(ROUND, double(v)); }                                 \
  static inline float __uint2float_##SUFFIX(unsigned v) { return ::samebits::directed_float(ROUND, double(v)); }
SAMEBITS_DIRECTED(rz, 1)
SAMEBITS_DIRECTED(rd, 2)
SAMEBITS_DIRECTED(ru, 3)
#undef SAMEBITS_DIRECTED

// A user's program gets the host library's functions: their last bits may not be a GPU's. No kernel of this project uses them (C4).
static inline float samebits_expf(float v) { return expf(v); }
static inline float samebits_exp10f(float v) { return exp10f(v); }
static inline float samebits_logf(float v) { return logf(v); }
static inline float samebits_log2f(float v) { return log2f(v); }
static inline float samebits_log10f(float v) { return log2f(v) * 0x1.344136p-2f; }
static inline float samebits_sinf(float v) { return sinf(v); }
static inline float samebits_cosf(float v) { return cosf(v); }
static inline float samebits_tanf(float v) { return sinf(v) / cosf(v); }
static inline float samebits_powf(float a, float b) { return powf(a, b); }
static inline void samebits_sincosf(float v, float* s, float* c) { *s = sinf(v), *c = cosf(v); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __frsqrt_rn(float a) { return float(1.0 / __builtin_sqrt(double(a))); }
static inline float samebits_rsqrtf(float a) { return float(1.0 / __builtin_sqrt(double(a))); }
static inline double samebits_rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
static inline float samebits_rsqrt(float a) { return samebits_rsqrtf(a); }
static inline float rcbrtf(float a) { return powf(a, -1.0f / 3.0f); }
static inline float __saturatef(float v) { return v >= 1.0f ? 1.0f : v > 0.0f ? v : 0.0f; }
static inline float samebits_sinpif(float v) { return sinf(v * 0x1.921fb6p+1f); }
static inline float samebits_cospif(float v) { return cosf(v * 0x1.921fb6p+1f); }
static inline float norm3df(float a, float b, float c) { return __builtin_sqrtf(a * a + b * b + c * c); }
static inline float norm4df(float a, float b, float c, float d) { return __builtin_sqrtf(a * a + b * b + c * c + d * d); }
static inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
static inline long long llmin(long long a, long long b) { return a < b ? a : b; }
static inline long long llmax(long long a, long long b) { return a > b ? a : b; }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
static inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
static inline int __hadd(int a, int b) { return int((a & b) + ((a ^ b) >> 1)); }
static inline int __rhadd(int a, int b) { return int((a | b) - ((a ^ b) >> 1)); }
static inline unsigned __uhadd(unsigned a, unsigned b) { return (a & b) + ((a ^ b) >> 1); }
static inline unsigned __urhadd(unsigned a, unsigned b) { return (a | b) - ((a ^ b) >> 1); }

#define SAMEBITS_DOT4(NAME, A, B, C)                                                                          \
  static inline C NAME(A a, B b, C c) {                                                                       \
    for (int i = 0; i < 32; i += 8) c += C(SAMEBITS_BYTE(A)(unsigned(a) >> i)) * C(SAMEBITS_BYTE(B)(unsigned(b) >> i)); \
    return c;                                                                                                 \
  }
#define SAMEBITS_BYTE(T) SAMEBITS_BYTE_##T
typedef signed char SAMEBITS_BYTE_int;
typedef unsigned char SAMEBITS_BYTE_unsigned;
SAMEBITS_DOT4(__dp4a, int, int, int)
SAMEBITS_DOT4(__dp4a, unsigned, unsigned, unsigned)
#undef SAMEBITS_DOT4
#undef SAMEBITS_BYTE

long long samebits_clock();
static inline long long clock64() { return samebits_clock(); }
static inline unsigned long long __globaltimer() { return (unsigned long long)samebits_clock(); }
