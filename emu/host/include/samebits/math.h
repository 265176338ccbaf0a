// What device code may call without an include. The C library's float functions are declared by hand: <cmath> costs 100 ms a build, and
// build.py defines SAMEBITS_FULL_MATH only where a source names a function that needs it (sqrt(float), isnan ...).
#pragma once

#include "types.h"

#ifdef SAMEBITS_FULL_MATH
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "special_math.h"
#else
#ifdef __GLIBC__
#define SAMEBITS_NOTHROW noexcept(true)
#else
#define SAMEBITS_NOTHROW
#endif
extern "C" {
#define SAMEBITS_F(NAME) float NAME(float) SAMEBITS_NOTHROW;
SAMEBITS_F(sqrtf) SAMEBITS_F(fabsf) SAMEBITS_F(floorf) SAMEBITS_F(ceilf) SAMEBITS_F(truncf) SAMEBITS_F(rintf) SAMEBITS_F(roundf)
SAMEBITS_F(nearbyintf) SAMEBITS_F(expf) SAMEBITS_F(exp2f) SAMEBITS_F(logf) SAMEBITS_F(log2f) SAMEBITS_F(tanhf) SAMEBITS_F(sinf)
SAMEBITS_F(cosf)
#undef SAMEBITS_F
float fmaf(float, float, float) SAMEBITS_NOTHROW;
float fminf(float, float) SAMEBITS_NOTHROW;
float fmaxf(float, float) SAMEBITS_NOTHROW;
float fmodf(float, float) SAMEBITS_NOTHROW;
float powf(float, float) SAMEBITS_NOTHROW;
float exp10f(float) SAMEBITS_NOTHROW;
void sincosf(float, float*, float*) SAMEBITS_NOTHROW;
float ldexpf(float, int) SAMEBITS_NOTHROW;
void* memcpy(void*, const void*, size_t) SAMEBITS_NOTHROW;
void* memset(void*, int, size_t) SAMEBITS_NOTHROW;
int printf(const char*, ...);
}
#undef SAMEBITS_NOTHROW
#endif

#define SAMEBITS_MINMAX(R, A, B)                                            \
  static inline constexpr R min(A a, B b) { return (R)b < (R)a ? (R)b : (R)a; } \
  static inline constexpr R max(A a, B b) { return (R)a < (R)b ? (R)b : (R)a; }
#define SAMEBITS_MINMAX_INT(S, U)  \
  SAMEBITS_MINMAX(S, S, S)         \
  SAMEBITS_MINMAX(U, U, U)         \
  SAMEBITS_MINMAX(U, S, U)         \
  SAMEBITS_MINMAX(U, U, S)
SAMEBITS_MINMAX_INT(int, unsigned)
SAMEBITS_MINMAX_INT(long, unsigned long)
SAMEBITS_MINMAX_INT(long long, unsigned long long)
#undef SAMEBITS_MINMAX_INT
#undef SAMEBITS_MINMAX

// As PTX min and max: the number where one side is NaN, -0 below +0.
#define SAMEBITS_FMINMAX(T, SIGN)                                                                          \
  static inline T min(T a, T b) { return a != a ? b : b != b ? a : a == b ? (SIGN(a) ? a : b) : a < b ? a : b; } \
  static inline T max(T a, T b) { return a != a ? b : b != b ? a : a == b ? (SIGN(a) ? b : a) : a > b ? a : b; }
SAMEBITS_FMINMAX(float, __builtin_signbitf)
SAMEBITS_FMINMAX(double, __builtin_signbit)
#undef SAMEBITS_FMINMAX
static inline double min(float a, double b) { return min(double(a), b); }
static inline double min(double a, float b) { return min(a, double(b)); }
static inline double max(float a, double b) { return max(double(a), b); }
static inline double max(double a, float b) { return max(a, double(b)); }
