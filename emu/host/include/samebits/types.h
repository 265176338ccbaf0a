// Vector types, dim3 and warpSize, laid out and aligned as CUDA does.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <initializer_list>

// One family a line: T1 .. T4 and their make_ functions. Vectors of 3 have the alignment of an element; 4 x 8 bytes is aligned to 16, as in CUDA 12.
#define SAMEBITS_VECTOR(T, N, A2, A4)                                                         \
  struct N##1 { T x; };                                                                       \
  struct alignas(A2) N##2 { T x, y; };                                                        \
  struct N##3 { T x, y, z; };                                                                 \
  struct alignas(A4) N##4 { T x, y, z, w; };                                                  \
  static inline constexpr N##1 make_##N##1(T x) { return {x}; }                               \
  static inline constexpr N##2 make_##N##2(T x, T y) { return {x, y}; }                       \
  static inline constexpr N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }               \
  static inline constexpr N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }

SAMEBITS_VECTOR(signed char, char, 2, 4)
SAMEBITS_VECTOR(unsigned char, uchar, 2, 4)
SAMEBITS_VECTOR(short, short, 4, 8)
SAMEBITS_VECTOR(unsigned short, ushort, 4, 8)
SAMEBITS_VECTOR(int, int, 8, 16)
SAMEBITS_VECTOR(unsigned int, uint, 8, 16)
SAMEBITS_VECTOR(long, long, 16, 16)
SAMEBITS_VECTOR(unsigned long, ulong, 16, 16)
SAMEBITS_VECTOR(long long, longlong, 16, 16)
SAMEBITS_VECTOR(unsigned long long, ulonglong, 16, 16)
SAMEBITS_VECTOR(float, float, 8, 16)
SAMEBITS_VECTOR(double, double, 16, 16)
#undef SAMEBITS_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

static constexpr int warpSize = 32;
