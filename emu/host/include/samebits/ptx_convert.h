// cvt, for ptx.h.
#pragma once

#include "ptx.h"

namespace samebits {
namespace ptx {

// cvt. Float to integer saturates, NaN gives 0; between integers the low bits stay unless .sat.
template <class D, class S>
inline D convert(S v, Mode m) {
  if constexpr (__is_same(D, tf32)) {
    uint32_t b = __float_as_uint(v);
    return {__uint_as_float((b & 0x7F800000u) == 0x7F800000u ? b : (b + 0x1000u) & 0xFFFFE000u)};
  } else if constexpr (Traits<D>::is_float && Traits<S>::is_float) {
    if constexpr (__is_same(D, float) && __is_same(S, float)) {
      float r = m.round == Round::nearest ? rintf(v) : m.round == Round::zero ? truncf(v) : m.round == Round::down ? floorf(v) : ceilf(v);
      return finish(r, m);
    } else if constexpr (__is_same(D, float) && __is_same(S, double)) {
      return finish(m.round == Round::nearest ? float(v) : ::samebits::directed_float(int(m.round), v), m);
    } else if constexpr (__is_same(D, double)) {
      return double(float(v));
    } else if constexpr (__is_same(D, float)) {
      return finish(float(v), m);
    } else {
      float f = sizeof(S) == 8 ? ::samebits::to_odd(double(v)) : float(v);
      if constexpr (__is_same(D, __half)) return samebits_raw(D(), (unsigned short)SAMEBITS_PACK_HALF(__float_as_uint(f), m.round));
      else return samebits_raw(D(), (unsigned short)SAMEBITS_PACK_BF16(__float_as_uint(f), m.round));
    }
  } else if constexpr (Traits<D>::is_float) {
    if constexpr (__is_same(D, double)) return double(v);
    else if constexpr (__is_same(D, float)) return m.round == Round::nearest ? float(v) : ::samebits::directed_float(int(m.round), double(v));
    else return convert<D>(::samebits::to_odd(double(v)), m);
  } else if constexpr (Traits<S>::is_float) {
    double d = double(float(v));
    if constexpr (sizeof(S) == 8) d = double(v);
    d = m.round == Round::nearest ? __builtin_rint(d) : m.round == Round::zero ? __builtin_trunc(d) : m.round == Round::down ? __builtin_floor(d) : __builtin_ceil(d);
    double low = Traits<D>::is_signed ? -__builtin_ldexp(1.0, 8 * sizeof(D) - 1) : 0.0, high = __builtin_ldexp(1.0, 8 * sizeof(D) - Traits<D>::is_signed);
    D most = D(~D(0));
    if (Traits<D>::is_signed) most = D((1ull << (8 * sizeof(D) - 1)) - 1);
    return d != d ? D(0) : d < low ? D(Traits<D>::is_signed ? ~most : 0) : d >= high ? most : D(d);
  } else {
    if (!m.sat) return D(v);
    __int128 wide = v, low = Traits<D>::is_signed ? -((__int128)1 << (8 * sizeof(D) - 1)) : 0;
    __int128 high = ((__int128)1 << (8 * sizeof(D) - Traits<D>::is_signed)) - 1;
    return D(wide < low ? low : wide > high ? high : wide);
  }
}
template <class D, class S>
inline D convert(S high, S low, Mode m) {  // two values into one register, the second in the lower half
  if constexpr (__is_same(D, __half2)) return __half2(convert<__half>(low, m), convert<__half>(high, m));
  else if constexpr (__is_same(D, __nv_bfloat162)) return __nv_bfloat162(convert<__nv_bfloat16>(low, m), convert<__nv_bfloat16>(high, m));
  else {
    constexpr __nv_fp8_interpretation_t kind = __is_same(D, e4m3x2) ? __NV_E4M3 : __NV_E5M2;
    return D{(unsigned short)(::samebits::to_fp8(high, __NV_SATFINITE, kind) << 8 | ::samebits::to_fp8(low, __NV_SATFINITE, kind))};
  }
}
template <class D, class S>
inline D convert(S high, S low, Mode m, Relu) { return convert<D>(high > 0 ? high : S(0), low > 0 ? low : S(0), m); }
template <class D, class S>
inline D convert(S v, Mode m, Relu) { return convert<D>(v > 0 ? v : S(0), m); }
template <>
inline __half2 convert<__half2, e4m3x2>(e4m3x2 v, Mode) {
  return __half2(__half(::samebits::from_fp8((unsigned char)v.v, __NV_E4M3)), __half(::samebits::from_fp8((unsigned char)(v.v >> 8), __NV_E4M3)));
}
template <>
inline __half2 convert<__half2, e5m2x2>(e5m2x2 v, Mode) {
  return __half2(__half(::samebits::from_fp8((unsigned char)v.v, __NV_E5M2)), __half(::samebits::from_fp8((unsigned char)(v.v >> 8), __NV_E5M2)));
}

}  // namespace ptx
}  // namespace samebits
