// Complex numbers as pairs, with the formulas of CUDA's header: products in four multiplications, quotients and absolute values scaled.
#pragma once
#include "samebits.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

#define SAMEBITS_COMPLEX(C, T, F, SQRT, FABS)                                                                \
  static inline T cuCreal##F(C a) { return a.x; }                                                            \
  static inline T cuCimag##F(C a) { return a.y; }                                                            \
  static inline C make_##C(T re, T im) { return {re, im}; }                                                  \
  static inline C cuConj##F(C a) { return {a.x, -a.y}; }                                                     \
  static inline C cuCadd##F(C a, C b) { return {a.x + b.x, a.y + b.y}; }                                     \
  static inline C cuCsub##F(C a, C b) { return {a.x - b.x, a.y - b.y}; }                                     \
  static inline C cuCmul##F(C a, C b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }             \
  static inline C cuCdiv##F(C a, C b) {                                                                      \
    T by = T(1) / (FABS(b.x) + FABS(b.y)), ax = a.x * by, ay = a.y * by, bx = b.x * by, bi = b.y * by;       \
    T over = T(1) / (bx * bx + bi * bi);                                                                     \
    return {(ax * bx + ay * bi) * over, (ay * bx - ax * bi) * over};                                         \
  }                                                                                                          \
  static inline T cuCabs##F(C a) {                                                                           \
    T x = FABS(a.x), y = FABS(a.y), most = x > y ? x : y, least = x > y ? y : x;                             \
    if (most == T(0)) return least + most;                                                                   \
    T ratio = least / most;                                                                                  \
    return most * SQRT(T(1) + ratio * ratio);                                                                \
  }                                                                                                          \
  static inline C cuCfma##F(C a, C b, C c) {                                                                 \
    return {a.x * b.x + c.x - a.y * b.y, a.x * b.y + c.y + a.y * b.x};                                       \
  }
SAMEBITS_COMPLEX(cuFloatComplex, float, f, __builtin_sqrtf, __builtin_fabsf)
SAMEBITS_COMPLEX(cuDoubleComplex, double, , __builtin_sqrt, __builtin_fabs)
#undef SAMEBITS_COMPLEX
static inline cuComplex make_cuComplex(float re, float im) { return {re, im}; }
static inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {double(a.x), double(a.y)}; }
static inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {float(a.x), float(a.y)}; }
