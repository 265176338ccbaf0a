// What ptx.py puts in the place of instructions. Registers are 64 bits; as<T>() reads as many as T has.
#pragma once

#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "../cuda_fp8.h"
#include "../mma.h"

namespace samebits {
namespace ptx {

using ::samebits::Round;

struct Mode {
  Round round;
  bool ftz, sat;
};
struct tf32 { float v; };
struct e4m3x2 { unsigned short v; };
struct e5m2x2 { unsigned short v; };
enum Relu { relu };

template <class T>
inline unsigned long long bits(T v) {
  static_assert(sizeof(T) <= 8, "registers have at most 64 bits");
  unsigned long long r = 0;
  __builtin_memcpy(&r, &v, sizeof v);
  return r;
}
template <class T>
inline T as(unsigned long long v) {
  T r;
  __builtin_memcpy(&r, &v, sizeof r);
  return r;
}
template <>
inline bool as<bool>(unsigned long long v) { return v != 0; }
template <class T>
inline void put(T& to, unsigned long long v) {
  static_assert(sizeof(T) <= 8, "registers have at most 64 bits");
  __builtin_memcpy(const_cast<void*>(static_cast<const volatile void*>(&to)), &v, sizeof(T));
}
inline char* shared_at(unsigned long long address) { return static_cast<char*>(::samebits::shared_pointer(unsigned(address))); }

template <class T> struct Traits { static constexpr bool is_float = false; static constexpr bool is_signed = T(-1) < T(0); };
template <> struct Traits<float> { static constexpr bool is_float = true, is_signed = true; };
template <> struct Traits<double> { static constexpr bool is_float = true, is_signed = true; };
template <> struct Traits<__half> { static constexpr bool is_float = true, is_signed = true; };
template <> struct Traits<__nv_bfloat16> { static constexpr bool is_float = true, is_signed = true; };
template <> struct Traits<__half2> { static constexpr bool is_float = true, is_signed = true; };
template <> struct Traits<__nv_bfloat162> { static constexpr bool is_float = true, is_signed = true; };

template <class T>
inline T finish(T v, Mode) { return v; }
inline float flushed(float v, Mode m) { return m.ftz && v > -0x1p-126f && v < 0x1p-126f ? __builtin_copysignf(0.0f, v) : v; }
inline float finish(float v, Mode m) {
  v = flushed(v, m);
  return m.sat ? __saturatef(v) : v;
}
template <class T>
inline T flushed(T v, Mode) { return v; }

#define SAMEBITS_PTX_OP(NAME, OP, KIND)                                                                             \
  template <class T>                                                                                               \
  inline T NAME(T a, T b, Mode m) {                                                                                \
    if constexpr (!Traits<T>::is_float) {                                                                          \
      return T((unsigned long long)a OP (unsigned long long)b);                                                    \
    } else if constexpr (sizeof(T) == 8 || __is_same(T, float)) {                                                  \
      a = flushed(a, m), b = flushed(b, m);                                                                        \
      return finish(m.round == Round::nearest ? T(a OP b) : ::samebits::directed(::samebits::Arith::KIND, int(m.round), a, b, T(0)), m); \
    } else {                                                                                                       \
      return a OP b;                                                                                               \
    }                                                                                                              \
  }
SAMEBITS_PTX_OP(add, +, add)
SAMEBITS_PTX_OP(sub, -, sub)
SAMEBITS_PTX_OP(mul, *, mul)
#undef SAMEBITS_PTX_OP
template <class T>
inline T div(T a, T b, Mode m) {
  if constexpr (Traits<T>::is_float) {
    return finish(m.round == Round::nearest ? T(a / b) : ::samebits::directed(::samebits::Arith::div, int(m.round), a, b, T(0)), m);
  } else {
    return b == 0 ? T(-1) : T(a / b);
  }
}
template <class T>
inline T rem(T a, T b, Mode) { return b == 0 ? a : T(a % b); }
inline float fma(float a, float b, float c, Mode m) {
  a = flushed(a, m), b = flushed(b, m), c = flushed(c, m);
  return finish(m.round == Round::nearest ? __builtin_fmaf(a, b, c) : ::samebits::directed(::samebits::Arith::fma, int(m.round), a, b, c), m);
}
inline double fma(double a, double b, double c, Mode m) {
  return m.round == Round::nearest ? __builtin_fma(a, b, c) : ::samebits::directed(::samebits::Arith::fma, int(m.round), a, b, c);
}
inline __half fma(__half a, __half b, __half c, Mode) { return __hfma(a, b, c); }
inline __half2 fma(__half2 a, __half2 b, __half2 c, Mode) { return __hfma2(a, b, c); }
inline __nv_bfloat16 fma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c, Mode) { return __hfma(a, b, c); }
inline __nv_bfloat162 fma(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c, Mode) { return __hfma2(a, b, c); }
template <class T>
inline T min(T a, T b, Mode) { return T(::min(a, b)); }
template <class T>
inline T max(T a, T b, Mode) { return T(::max(a, b)); }
inline uint16_t min(uint16_t a, uint16_t b, Mode) { return a < b ? a : b; }
inline uint16_t max(uint16_t a, uint16_t b, Mode) { return a > b ? a : b; }
inline int16_t min(int16_t a, int16_t b, Mode) { return a < b ? a : b; }
inline int16_t max(int16_t a, int16_t b, Mode) { return a > b ? a : b; }
inline __half min(__half a, __half b, Mode) { return __hmin(a, b); }
inline __half max(__half a, __half b, Mode) { return __hmax(a, b); }
inline __half2 min(__half2 a, __half2 b, Mode) { return __hmin2(a, b); }
inline __half2 max(__half2 a, __half2 b, Mode) { return __hmax2(a, b); }
inline __nv_bfloat162 min(__nv_bfloat162 a, __nv_bfloat162 b, Mode) { return __hmin2(a, b); }
inline __nv_bfloat162 max(__nv_bfloat162 a, __nv_bfloat162 b, Mode) { return __hmax2(a, b); }
template <class T>
inline T sqrt(T a, Mode m) {
  if (m.round != Round::nearest) return ::samebits::directed(::samebits::Arith::sqrt, int(m.round), a, T(0), T(0));
  return finish(sizeof(T) == 4 ? T(__builtin_sqrtf(float(flushed(a, m)))) : T(__builtin_sqrt(double(a))), m);
}
template <class T>
inline T rcp(T a, Mode m) { return div(T(1), flushed(a, m), m); }
template <class T>
inline T abs(T a, Mode) { return a < T(0) || (Traits<T>::is_float && a == T(0)) ? T(-a) : a; }
template <>
inline float abs(float a, Mode m) { return finish(__builtin_fabsf(a), m); }
template <>
inline double abs(double a, Mode) { return __builtin_fabs(a); }
template <class T>
inline T neg(T a, Mode) { return T(-a); }
inline float copysign(float sign, float v, Mode) { return __builtin_copysignf(v, sign); }
template <class T>
inline T and_(T a, T b, Mode) { return T(a & b); }
template <class T>
inline T or_(T a, T b, Mode) { return T(a | b); }
template <class T>
inline T xor_(T a, T b, Mode) { return T(a ^ b); }
inline bool xor_(bool a, bool b, Mode) { return a != b; }
template <class T>
inline T not_(T a, Mode) { return T(~a); }
inline bool not_(bool a, Mode) { return !a; }
// Approximations: the C library's values, not a GPU's bytes.
inline float ex2(float a, Mode m) { return finish(exp2f(flushed(a, m)), m); }
inline __half ex2(__half a, Mode) { return hexp2(a); }
inline __half2 ex2(__half2 a, Mode) { return h2exp2(a); }
inline float lg2(float a, Mode m) { return log2f(flushed(a, m)); }
inline float rsqrt(float a, Mode m) { return samebits_rsqrtf(flushed(a, m)); }
inline float sin(float a, Mode) { return sinf(a); }
inline float cos(float a, Mode) { return cosf(a); }
inline float tanh(float a, Mode) { return tanhf(a); }
inline __half tanh(__half a, Mode) { return htanh(a); }

template <class T> struct Wide;
template <> struct Wide<uint16_t> { typedef uint32_t type; };
template <> struct Wide<int16_t> { typedef int32_t type; };
template <> struct Wide<uint32_t> { typedef uint64_t type; };
template <> struct Wide<int32_t> { typedef int64_t type; };
template <> struct Wide<uint64_t> { typedef unsigned __int128 type; };
template <> struct Wide<int64_t> { typedef __int128 type; };
template <class T>
inline T mul_lo(T a, T b) { return T((unsigned long long)a * (unsigned long long)b); }
template <class T>
inline typename Wide<T>::type mul_wide(T a, T b) {
  typedef typename Wide<T>::type W;
  return W(a) * W(b);
}
template <class T>
inline T mul_hi(T a, T b) { return T(mul_wide(a, b) >> (8 * sizeof(T))); }
template <class T>
inline T mad_lo(T a, T b, unsigned long long c) { return T((unsigned long long)mul_lo(a, b) + c); }
template <class T>
inline T mad_hi(T a, T b, unsigned long long c) { return T((unsigned long long)mul_hi(a, b) + c); }
template <class T>
inline typename Wide<T>::type mad_wide(T a, T b, unsigned long long c) {
  return typename Wide<T>::type((unsigned long long)mul_wide(a, b) + c);
}
// With the carry that an instruction before it left, or that it leaves: of the thread, since programs write each as an asm of its own.
template <class T>
inline T add_carry(T a, T b, bool use, bool leave) {
  unsigned __int128 sum = (unsigned __int128)a + b + (use && ::samebits::self()->carry);
  if (leave) ::samebits::self()->carry = sum >> (8 * sizeof(T)) != 0;
  return T(sum);
}
template <class T>
inline T sub_carry(T a, T b, bool use, bool leave) {
  unsigned __int128 less = (unsigned __int128)b + (use && ::samebits::self()->carry);
  if (leave) ::samebits::self()->carry = a < less;
  return T(a - less);
}
template <class T>
inline uint32_t dp4a(uint32_t a, uint32_t b, T c) { return uint32_t(__dp4a(T(a), T(b), c)); }
inline uint32_t funnel(bool left, bool wrap, uint32_t a, uint32_t b, uint32_t n) {
  n = wrap ? n & 31 : n < 32 ? n : 32;
  uint64_t both = uint64_t(b) << 32 | a;
  return left ? uint32_t(both << n >> 32) : uint32_t(both >> n);
}
template <class T>
inline T shl(T a, uint32_t n) { return n >= 8 * sizeof(T) ? T(0) : T((unsigned long long)a << n); }
template <class T>
inline T shr(T a, uint32_t n) { return n >= 8 * sizeof(T) ? T(a < 0 ? -1 : 0) : T(a >> n); }
template <class T>
inline uint32_t popc(T a) { return uint32_t(__builtin_popcountll(a)); }
template <class T>
inline uint32_t clz(T a) { return a == 0 ? 8 * sizeof(T) : uint32_t(__builtin_clzll(a)) - (64 - 8 * sizeof(T)); }
inline uint32_t brev(uint32_t a) { return __brev(a); }
inline uint64_t brev(uint64_t a) { return __brevll(a); }
template <class T>
inline uint32_t bfind(T a) {
  unsigned long long v = Traits<T>::is_signed && a < 0 ? ~(unsigned long long)(long long)a : (unsigned long long)a;
  if (sizeof(T) == 4) v &= 0xFFFFFFFFull;
  return v == 0 ? 0xFFFFFFFFu : 63u - uint32_t(__builtin_clzll(v));
}
template <class T>
inline T bfe(T a, uint32_t at, uint32_t count) {
  constexpr int kBits = 8 * sizeof(T);
  at &= 0xFF, count &= 0xFF;
  T r = 0;
  int sign_at = int(at + count) - 1 < kBits - 1 ? int(at + count) - 1 : kBits - 1;
  bool sign = Traits<T>::is_signed && count != 0 && ((unsigned long long)a >> sign_at & 1);
  for (int i = 0; i < kBits; ++i) {
    bool bit = i < int(count) && int(at) + i < kBits ? (unsigned long long)a >> (at + unsigned(i)) & 1 : sign;
    r = T((unsigned long long)r | (unsigned long long)bit << i);
  }
  return r;
}
template <class T>
inline T bfi(T a, T b, uint32_t at, uint32_t count) {
  at &= 0xFF, count &= 0xFF;
  for (unsigned i = 0; i < count && at + i < 8 * sizeof(T); ++i) {
    T bit = T(T(1) << (at + i));
    b = T((b & T(~bit)) | ((a >> i & 1) ? bit : T(0)));
  }
  return b;
}
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t r = 0;
  if (table & 0x01) r |= ~a & ~b & ~c;
  if (table & 0x02) r |= ~a & ~b & c;
  if (table & 0x04) r |= ~a & b & ~c;
  if (table & 0x08) r |= ~a & b & c;
  if (table & 0x10) r |= a & ~b & ~c;
  if (table & 0x20) r |= a & ~b & c;
  if (table & 0x40) r |= a & b & ~c;
  if (table & 0x80) r |= a & b & c;
  return r;
}

template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vector { T v[N]; };
template <class T, int N>
inline Vector<T, N> load(const char* p) { return *reinterpret_cast<const Vector<T, N>*>(p); }
template <class T, int N>
inline void store(char* p, Vector<T, N> v) { *reinterpret_cast<Vector<T, N>*>(p) = v; }
template <class T, int N>
inline Vector<T, N> volatile_load(const char* p) {
  Vector<T, N> r;
  for (int i = 0; i < N; ++i) r.v[i] = reinterpret_cast<const volatile T*>(p)[i];
  polled(true);
  return r;
}
template <class T, int N>
inline void volatile_store(char* p, Vector<T, N> v) {
  for (int i = 0; i < N; ++i) reinterpret_cast<volatile T*>(p)[i] = v.v[i];
}

// shfl.sync as the PTX ISA's pseudocode has it.
#define SAMEBITS_PTX_SHUFFLE(NAME, SOURCE, INSIDE)                                                             \
  inline uint32_t shuffle_##NAME(uint32_t v, uint32_t b, uint32_t c, uint32_t mask, bool& in) {                \
    int lane = int(::samebits::lane()), segment = int(c >> 8 & 31), clamp = int(c & 31);                       \
    int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment, step = int(b & 31);          \
    (void)lowest;                                                                                              \
    int from = SOURCE;                                                                                         \
    in = INSIDE;                                                                                               \
    return __shfl_sync(mask, v, in ? from : lane);                                                             \
  }
SAMEBITS_PTX_SHUFFLE(up, lane - step, from >= highest)
SAMEBITS_PTX_SHUFFLE(down, lane + step, from <= highest)
SAMEBITS_PTX_SHUFFLE(bfly, lane ^ step, from <= highest)
SAMEBITS_PTX_SHUFFLE(idx, lowest | (step & ~segment), from <= highest)
#undef SAMEBITS_PTX_SHUFFLE

}  // namespace ptx
}  // namespace samebits

#include "ptx_convert.h"
