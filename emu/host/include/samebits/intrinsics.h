// Bit and integer intrinsics, correctly rounded float arithmetic by name, and cache-hinted loads and stores.
#pragma once

#include "types.h"
#include "warp.h"

#if !defined(__x86_64__) && !defined(__aarch64__) && defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "float arithmetic on this machine is not IEEE binary32 (C1)"
#endif

#define SAMEBITS_CAST(NAME, FROM, TO) \
  static inline TO NAME(FROM v) { TO r; __builtin_memcpy(&r, &v, sizeof r); return r; }
SAMEBITS_CAST(__float_as_uint, float, unsigned)
SAMEBITS_CAST(__float_as_int, float, int)
SAMEBITS_CAST(__uint_as_float, unsigned, float)
SAMEBITS_CAST(__int_as_float, int, float)
SAMEBITS_CAST(__double_as_longlong, double, long long)
SAMEBITS_CAST(__longlong_as_double, long long, double)
#undef SAMEBITS_CAST
static inline int __double2hiint(double v) { return int(__double_as_longlong(v) >> 32); }
static inline int __double2loint(double v) { return int(__double_as_longlong(v)); }
static inline double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)(((unsigned long long)(unsigned)hi << 32) | (unsigned)lo));
}

// One rounding each, to nearest even (C1-C3, C5). Built with -ffp-contract=off; with -mfma an fma is one instruction, without it libm's.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fmaf_ieee_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __brev(unsigned v) {
  v = ((v >> 1) & 0x55555555u) | ((v & 0x55555555u) << 1);
  v = ((v >> 2) & 0x33333333u) | ((v & 0x33333333u) << 2);
  v = ((v >> 4) & 0x0F0F0F0Fu) | ((v & 0x0F0F0F0Fu) << 4);
  return __builtin_bswap32(v);
}
static inline unsigned long long __brevll(unsigned long long v) {
  return ((unsigned long long)__brev(unsigned(v)) << 32) | __brev(unsigned(v >> 32));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = ((unsigned long long)b << 32) | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= unsigned((both >> (8 * ((selector >> (4 * i)) & 7u))) & 0xFFu) << (8 * i);
  return r;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return unsigned(((((unsigned long long)hi << 32) | lo) << (shift & 31u)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return unsigned((((unsigned long long)hi << 32) | lo) >> (shift & 31u));
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
  return shift >= 32u ? lo : __funnelshift_l(lo, hi, shift);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) {
  return shift >= 32u ? hi : __funnelshift_r(lo, hi, shift);
}
static inline int __mulhi(int a, int b) { return int(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(((unsigned long long)a * b) >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xFFFFFFu) * (b & 0xFFFFFFu); }
static inline int __mul24(int a, int b) {
  return int(unsigned(int(unsigned(a) << 8) >> 8) * unsigned(int(unsigned(b) << 8) >> 8));
}
static inline unsigned __sad(int a, int b, unsigned c) { return (a > b ? unsigned(a) - unsigned(b) : unsigned(b) - unsigned(a)) + c; }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }

// Float to integer as PTX cvt does it: out of range saturates, NaN gives 0.
#define SAMEBITS_TO_INT(NAME, FROM, TO, ROUND, LOW, HIGH, MIN, MAX) \
  static inline TO NAME(FROM v) { v = ROUND(v); return v != v ? (TO)0 : v < LOW ? MIN : v >= HIGH ? MAX : (TO)v; }
#define SAMEBITS_TO_INTS(SUFFIX, RF, RD)                                                                                          \
  SAMEBITS_TO_INT(__float2int_##SUFFIX, float, int, RF, -0x1p31f, 0x1p31f, (-2147483647 - 1), 2147483647)                         \
  SAMEBITS_TO_INT(__float2uint_##SUFFIX, float, unsigned, RF, 0.0f, 0x1p32f, 0u, 0xFFFFFFFFu)                                     \
  SAMEBITS_TO_INT(__float2ll_##SUFFIX, float, long long, RF, -0x1p63f, 0x1p63f, (-0x7FFFFFFFFFFFFFFFLL - 1), 0x7FFFFFFFFFFFFFFFLL) \
  SAMEBITS_TO_INT(__float2ull_##SUFFIX, float, unsigned long long, RF, 0.0f, 0x1p64f, 0ull, 0xFFFFFFFFFFFFFFFFull)                \
  SAMEBITS_TO_INT(__double2int_##SUFFIX, double, int, RD, -0x1p31, 0x1p31, (-2147483647 - 1), 2147483647)                         \
  SAMEBITS_TO_INT(__double2uint_##SUFFIX, double, unsigned, RD, 0.0, 0x1p32, 0u, 0xFFFFFFFFu)                                     \
  SAMEBITS_TO_INT(__double2ll_##SUFFIX, double, long long, RD, -0x1p63, 0x1p63, (-0x7FFFFFFFFFFFFFFFLL - 1), 0x7FFFFFFFFFFFFFFFLL) \
  SAMEBITS_TO_INT(__double2ull_##SUFFIX, double, unsigned long long, RD, 0.0, 0x1p64, 0ull, 0xFFFFFFFFFFFFFFFFull)
SAMEBITS_TO_INTS(rn, __builtin_rintf, __builtin_rint)
SAMEBITS_TO_INTS(rz, __builtin_truncf, __builtin_trunc)
SAMEBITS_TO_INTS(rd, __builtin_floorf, __builtin_floor)
SAMEBITS_TO_INTS(ru, __builtin_ceilf, __builtin_ceil)
#undef SAMEBITS_TO_INTS
#undef SAMEBITS_TO_INT
static inline float __int2float_rn(int v) { return float(v); }
static inline float __uint2float_rn(unsigned v) { return float(v); }
static inline float __ll2float_rn(long long v) { return float(v); }
static inline float __ull2float_rn(unsigned long long v) { return float(v); }
static inline double __int2double_rn(int v) { return double(v); }
static inline double __uint2double_rn(unsigned v) { return double(v); }
static inline double __ll2double_rn(long long v) { return double(v); }
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __assume(condition) ((void)0)
static inline double __ull2double_rn(unsigned long long v) { return double(v); }
static inline float __double2float_rn(double v) { return float(v); }

// Hints about caches change no value.
#define SAMEBITS_LOAD(NAME) \
  template <class T> static inline T NAME(const T* p) { return *p; }
#define SAMEBITS_STORE(NAME) \
  template <class T> static inline void NAME(T* p, T v) { *p = v; }
SAMEBITS_LOAD(__ldg)
SAMEBITS_LOAD(__ldca)
SAMEBITS_LOAD(__ldcg)
SAMEBITS_LOAD(__ldcs)
SAMEBITS_LOAD(__ldlu)
SAMEBITS_LOAD(__ldcv)
SAMEBITS_STORE(__stwb)
SAMEBITS_STORE(__stcg)
SAMEBITS_STORE(__stcs)
SAMEBITS_STORE(__stwt)
#undef SAMEBITS_LOAD
#undef SAMEBITS_STORE

// The position of the n-th bit that is set from `base` on, downwards for a negative n; ~0 without.
static inline unsigned __fns(unsigned mask, unsigned base, int n) {
  if (n == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  for (int at = int(base); at >= 0 && at < 32; at += n > 0 ? 1 : -1) {
    if ((mask >> at & 1) && (n += n > 0 ? -1 : 1) == 0) return unsigned(at);
  }
  return ~0u;
}
static inline void __prof_trigger(int) {}
