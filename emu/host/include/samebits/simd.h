// The four bytes, or two halves, of a word at once.
#pragma once

namespace samebits {
constexpr int clamped(int v, int low, int high) { return v < low ? low : v > high ? high : v; }
}  // namespace samebits

// RESULT of the unsigned x and y, or the signed sx and sy; `ones` has all bits of a part, `top` is the largest signed value.
#define SAMEBITS_SIMD(NAME, BITS, RESULT)                                                       \
  static inline unsigned NAME(unsigned a, unsigned b) {                                         \
    unsigned out = 0;                                                                           \
    for (int i = 0; i < 32; i += BITS) {                                                        \
      constexpr int ones = (1 << BITS) - 1, top = ones >> 1;                                    \
      int x = int(a >> i) & ones, y = int(b >> i) & ones;                                       \
      int sx = int(unsigned(x) << (32 - BITS)) >> (32 - BITS), sy = int(unsigned(y) << (32 - BITS)) >> (32 - BITS); \
      (void)sx, (void)sy, (void)top;                                                            \
      out |= unsigned((RESULT) & ones) << i;                                                    \
    }                                                                                           \
    return out;                                                                                 \
  }
#define SAMEBITS_SIMD_BOTH(NAME, RESULT)  \
  SAMEBITS_SIMD(__v##NAME##4, 8, RESULT)  \
  SAMEBITS_SIMD(__v##NAME##2, 16, RESULT)
#define SAMEBITS_SIMD_ONE(NAME, RESULT)                                            \
  SAMEBITS_SIMD(samebits_##NAME##4, 8, RESULT)                                     \
  SAMEBITS_SIMD(samebits_##NAME##2, 16, RESULT)                                    \
  static inline unsigned __v##NAME##4(unsigned a) { return samebits_##NAME##4(a, 0); } \
  static inline unsigned __v##NAME##2(unsigned a) { return samebits_##NAME##2(a, 0); }
#define SAMEBITS_SIMD_COMPARE(NAME, TEST)       \
  SAMEBITS_SIMD_BOTH(cmp##NAME, (TEST) ? ones : 0) \
  SAMEBITS_SIMD_BOTH(set##NAME, (TEST) ? 1 : 0)
SAMEBITS_SIMD_BOTH(add, x + y)
SAMEBITS_SIMD_BOTH(addss, ::samebits::clamped(sx + sy, -top - 1, top))
SAMEBITS_SIMD_BOTH(addus, ::samebits::clamped(x + y, 0, ones))
SAMEBITS_SIMD_BOTH(sub, x - y)
SAMEBITS_SIMD_BOTH(subss, ::samebits::clamped(sx - sy, -top - 1, top))
SAMEBITS_SIMD_BOTH(subus, ::samebits::clamped(x - y, 0, ones))
SAMEBITS_SIMD_BOTH(maxs, sx > sy ? sx : sy)
SAMEBITS_SIMD_BOTH(mins, sx < sy ? sx : sy)
SAMEBITS_SIMD_BOTH(maxu, x > y ? x : y)
SAMEBITS_SIMD_BOTH(minu, x < y ? x : y)
SAMEBITS_SIMD_BOTH(avgs, (sx + sy + (sx + sy >= 0)) >> 1)
SAMEBITS_SIMD_BOTH(avgu, (x + y + 1) >> 1)
SAMEBITS_SIMD_BOTH(haddu, (x + y) >> 1)
SAMEBITS_SIMD_BOTH(absdiffs, sx > sy ? sx - sy : sy - sx)
SAMEBITS_SIMD_BOTH(absdiffu, x > y ? x - y : y - x)
SAMEBITS_SIMD_ONE(abs, sx < 0 ? -sx : sx)
SAMEBITS_SIMD_ONE(absss, ::samebits::clamped(sx < 0 ? -sx : sx, 0, top))
SAMEBITS_SIMD_ONE(neg, -sx)
SAMEBITS_SIMD_ONE(negss, ::samebits::clamped(-sx, -top - 1, top))
SAMEBITS_SIMD_COMPARE(eq, x == y)
SAMEBITS_SIMD_COMPARE(ne, x != y)
SAMEBITS_SIMD_COMPARE(gtu, x > y)
SAMEBITS_SIMD_COMPARE(geu, x >= y)
SAMEBITS_SIMD_COMPARE(ltu, x < y)
SAMEBITS_SIMD_COMPARE(leu, x <= y)
SAMEBITS_SIMD_COMPARE(gts, sx > sy)
SAMEBITS_SIMD_COMPARE(ges, sx >= sy)
SAMEBITS_SIMD_COMPARE(lts, sx < sy)
SAMEBITS_SIMD_COMPARE(les, sx <= sy)
#undef SAMEBITS_SIMD_COMPARE
#undef SAMEBITS_SIMD_ONE
#undef SAMEBITS_SIMD_BOTH
#undef SAMEBITS_SIMD

#define SAMEBITS_SAD(NAME, PART, BITS)                              \
  static inline unsigned NAME(unsigned a, unsigned b) {               \
    unsigned d = PART(a, b), sum = 0;                                 \
    for (int i = 0; i < 32; i += BITS) sum += d >> i & ((1u << BITS) - 1); \
    return sum;                                                       \
  }
SAMEBITS_SAD(__vsadu4, __vabsdiffu4, 8)
SAMEBITS_SAD(__vsads4, __vabsdiffs4, 8)
SAMEBITS_SAD(__vsadu2, __vabsdiffu2, 16)
SAMEBITS_SAD(__vsads2, __vabsdiffs2, 16)
#undef SAMEBITS_SAD

// c and the products of a's halves with the low or high bytes of b.
#define SAMEBITS_DOT2(NAME, T, HALF, BYTE, SHIFT)                                                           \
  static inline T NAME(T a, T b, T c) {                                                                     \
    for (int i = 0; i < 2; ++i) c += T(HALF(unsigned(a) >> (16 * i))) * T(BYTE(unsigned(b) >> (8 * i + SHIFT))); \
    return c;                                                                                               \
  }
SAMEBITS_DOT2(__dp2a_lo, int, short, (signed char), 0)
SAMEBITS_DOT2(__dp2a_hi, int, short, (signed char), 16)
SAMEBITS_DOT2(__dp2a_lo, unsigned, (unsigned short), (unsigned char), 0)
SAMEBITS_DOT2(__dp2a_hi, unsigned, (unsigned short), (unsigned char), 16)
#undef SAMEBITS_DOT2
