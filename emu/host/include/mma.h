// Matrix products of a warp: wmma fragments and what mma.sync and ldmatrix become. Sums run over k in order in float: NOT the bytes of a
// GPU, whose order and truncation differ.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"

namespace samebits {

// Every lane shows a piece of its memory to the others, until all have read.
template <class F>
inline void exchange(const void* mine, F f) {
  const void* all[32];
  for (int lane = 0; lane < 32; ++lane) all[lane] = reinterpret_cast<const void*>(__shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long>(mine), lane));
  f(all);
  __ballot_sync(0xFFFFFFFFu, 1);
}

namespace ptx {

struct tf32;
struct e4m3;
struct e5m2;

// What stands in a register of an operand: T, several of them.
template <class T> struct Packed { static constexpr int count = 2; };
template <> struct Packed<tf32> { static constexpr int count = 1; };
#define SAMEBITS_BYTES(T, VALUE)                                         \
  template <> struct Packed<T> {                                         \
    static constexpr int count = 4;                                      \
    static auto value(unsigned char v) { return VALUE; }                 \
  };
SAMEBITS_BYTES(signed char, int((signed char)v))
SAMEBITS_BYTES(unsigned char, int(v))
SAMEBITS_BYTES(e4m3, ::samebits::from_fp8(v, __NV_E4M3))
SAMEBITS_BYTES(e5m2, ::samebits::from_fp8(v, __NV_E5M2))
#undef SAMEBITS_BYTES

template <class T>
inline auto element(const uint32_t* words, int i) {
  uint32_t word = words[i / Packed<T>::count] >> (32 / Packed<T>::count * (i % Packed<T>::count)) % 32;
  if constexpr (Packed<T>::count == 1) {
    return __uint_as_float(word & 0xFFFFE000u);
  } else if constexpr (Packed<T>::count == 4) {
    return Packed<T>::value((unsigned char)word);
  } else {
    unsigned short half = (unsigned short)word;
    T v;
    __builtin_memcpy(&v, &half, 2);
    return float(v);
  }
}
inline float multiply_add(float x, float y, float sum) { return __builtin_fmaf(x, y, sum); }
inline uint32_t multiply_add(int x, int y, uint32_t sum) { return sum + uint32_t(x * y); }

// One element of the accumulator, of 16 or 32 bits.
template <class Sum>
inline auto get_sum(const uint32_t* c, int e) {
  if constexpr (__is_same(Sum, __half)) return element<__half>(c, e);
  else if constexpr (__is_same(Sum, float)) return __uint_as_float(c[e]);
  else return c[e];
}
template <class Sum, class V>
inline void put_sum(uint32_t* c, int e, V v) {
  if constexpr (__is_same(Sum, float)) {
    c[e] = __float_as_uint(v);
  } else if constexpr (__is_same(Sum, __half)) {
    __half rounded(v);
    __builtin_memcpy(reinterpret_cast<char*>(c) + 2 * e, &rounded, 2);
  } else {
    c[e] = v;
  }
}

// PTX ISA, matrix fragments of mma.m16n8k*: of a row of A and a column of B, four lanes hold a register each, then the next part begins.
constexpr const char* kMmaNote = "matrix products are sums in order of k in float: not the bytes of a GPU";

template <class A, class B, class Sum, int K>
inline void mma_m16n8(const uint32_t* a, const uint32_t* b, uint32_t* c) {
  if (!__is_same(Sum, int)) ::samebits::not_bit_accurate(kMmaNote);
  constexpr int kPack = Packed<A>::count, kA = 16 * K / 32 / kPack, kB = 8 * K / 32 / kPack;
  struct Pieces { uint32_t a[kA], b[kB]; } mine;
  for (int i = 0; i < kA; ++i) mine.a[i] = a[i];
  for (int i = 0; i < kB; ++i) mine.b[i] = b[i];
  exchange(&mine, [&](const void** all) {
    unsigned lane = ::samebits::lane();
    for (int e = 0; e < 4; ++e) {
      int row = int(lane / 4) + 8 * (e / 2), column = int(lane % 4) * 2 + e % 2;
      auto sum = get_sum<Sum>(c, e);
      for (int k = 0; k < K; ++k) {
        int in = k % (4 * kPack), part = k / (4 * kPack);
        const Pieces* pa = static_cast<const Pieces*>(all[(row % 8) * 4 + in / kPack]);
        const Pieces* pb = static_cast<const Pieces*>(all[column * 4 + in / kPack]);
        sum = multiply_add(element<A>(pa->a, ((row / 8) + 2 * part) * kPack + in % kPack), element<B>(pb->b, part * kPack + in % kPack), sum);
      }
      put_sum<Sum>(c, e, sum);
    }
  });
}

template <int Count, bool Trans>
inline void load_matrix(const char* row, uint32_t* out) {
  struct Row { unsigned short v[8]; };
  Row mine{};
  unsigned lane = ::samebits::lane();
  if (lane < 8 * Count) mine = *reinterpret_cast<const Row*>(row);
  exchange(&mine, [&](const void** all) {
    for (int m = 0; m < Count; ++m) {
      unsigned low, high;
      if (Trans) {
        low = static_cast<const Row*>(all[m * 8 + int(lane % 4) * 2])->v[lane / 4];
        high = static_cast<const Row*>(all[m * 8 + int(lane % 4) * 2 + 1])->v[lane / 4];
      } else {
        low = static_cast<const Row*>(all[m * 8 + int(lane / 4)])->v[lane % 4 * 2];
        high = static_cast<const Row*>(all[m * 8 + int(lane / 4)])->v[lane % 4 * 2 + 1];
      }
      out[m] = low | high << 16;
    }
  });
}

}  // namespace ptx
}  // namespace samebits

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
namespace precision { struct tf32 {}; }
enum layout_t { mem_row_major, mem_col_major };

template <class T> struct Storage { typedef T type; };
template <> struct Storage<precision::tf32> { typedef float type; };

// A lane holds the elements lane, lane + 32, ... of the matrix, counted row by row.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  typedef typename Storage<T>::type element_type;
  static constexpr int kRows = __is_same(Use, matrix_b) ? K : M, kColumns = __is_same(Use, matrix_a) ? K : N;
  static constexpr int num_elements = kRows * kColumns / 32;
  element_type x[num_elements];
};

template <class F, class T>
inline void fill_fragment(F& f, T v) {
  for (int i = 0; i < F::num_elements; ++i) f.x[i] = typename F::element_type(v);
}
template <class F, class T>
inline void samebits_load(F& f, const T* p, unsigned ld, bool by_rows) {
  for (int i = 0; i < F::num_elements; ++i) {
    unsigned at = unsigned(i) * 32 + ::samebits::lane(), row = at / F::kColumns, column = at % F::kColumns;
    f.x[i] = typename F::element_type(p[by_rows ? row * ld + column : column * ld + row]);
  }
}
template <class Use, int M, int N, int K, class T, class Layout, class P>
inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const P* p, unsigned ld) { samebits_load(f, p, ld, __is_same(Layout, row_major)); }
template <int M, int N, int K, class T, class P>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* p, unsigned ld, layout_t layout) { samebits_load(f, p, ld, layout == mem_row_major); }
template <int M, int N, int K, class T, class P>
inline void store_matrix_sync(P* p, const fragment<accumulator, M, N, K, T>& f, unsigned ld, layout_t layout) {
  typedef fragment<accumulator, M, N, K, T> F;
  for (int i = 0; i < F::num_elements; ++i) {
    unsigned at = unsigned(i) * 32 + ::samebits::lane(), row = at / F::kColumns, column = at % F::kColumns;
    p[layout == mem_row_major ? row * ld + column : column * ld + row] = P(f.x[i]);
  }
}
template <int M, int N, int K, class T, class A, class B, class LA, class LB, class C>
inline void mma_sync(fragment<accumulator, M, N, K, T>& d, const fragment<matrix_a, M, N, K, A, LA>& a, const fragment<matrix_b, M, N, K, B, LB>& b,
                     const fragment<accumulator, M, N, K, C>& c) {
  ::samebits::not_bit_accurate(::samebits::ptx::kMmaNote);
  typedef fragment<accumulator, M, N, K, T> D;
  struct Both {
    fragment<matrix_a, M, N, K, A, LA> a;
    fragment<matrix_b, M, N, K, B, LB> b;
  } mine{a, b};
  ::samebits::exchange(&mine, [&](const void** all) {
    for (int i = 0; i < D::num_elements; ++i) {
      unsigned at = unsigned(i) * 32 + ::samebits::lane(), row = at / N, column = at % N;
      float sum = float(c.x[i]);
      for (unsigned k = 0; k < unsigned(K); ++k) {
        unsigned in_a = row * K + k, in_b = k * N + column;
        float x = float(static_cast<const Both*>(all[in_a % 32])->a.x[in_a / 32]), y = float(static_cast<const Both*>(all[in_b % 32])->b.x[in_b / 32]);
        sum = __builtin_fmaf(x, y, sum);
      }
      d.x[i] = T(sum);
    }
  });
}
inline float __float_to_tf32(float v) {
  unsigned b = __float_as_uint(v);
  return __uint_as_float((b & 0x7F800000u) == 0x7F800000u ? b : (b + 0x1000u) & 0xFFFFE000u);
}

}  // namespace wmma
}  // namespace nvcuda
