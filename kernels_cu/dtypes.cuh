// Storage of f16, bf16, fp8 e4m3fn and e5m2 as bits, and their conversions to and from binary32 (C9, C11). Integer work and exact products, the
// text of pyref/contract_types.py: no header of a toolkit is needed, and no conversion instruction has to be trusted.
#pragma once

#include "contract.cuh"

namespace sb {

using f32 = float;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct e4m3 { unsigned char bits; };  // fp8 e4m3fn: no infinity, NaN is 0x7F and 0xFF
struct e5m2 { unsigned char bits; };

// --- up, exact (C11); the payload of a NaN is not promised ---

// Magnitude bits under another exponent bias, moved to binary32's places, are too small by 2^(127 - bias); the product is exact, subnormals
// included.
__device__ __forceinline__ float widen(unsigned sign, unsigned moved, float power) {
    return __uint_as_float(__float_as_uint(mul(__uint_as_float(moved), power)) | (sign << 31));
}

__device__ __forceinline__ float to_f32(float x) { return x; }

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

__device__ __forceinline__ float to_f32(f16 x) {
#ifdef __SAMEBITS__
    const unsigned moved = (x.bits & 0x7FFFu) << 13;
    if (moved >= 0x0F800000u) {  // infinity or NaN
        return __uint_as_float(moved | 0x7F800000u | (static_cast<unsigned>(x.bits >> 15) << 31));
    }
    return widen(x.bits >> 15, moved, 0x1.0p+112f);
#else
    float value;  // one instruction on a GPU; all 2^16 patterns are compared with the integer work (tools/exhaustive)
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
#endif
}

__device__ __forceinline__ float to_f32(e5m2 x) { return to_f32(f16{static_cast<unsigned short>(x.bits << 8)}); }

__device__ __forceinline__ float to_f32(e4m3 x) {
    if ((x.bits & 0x7Fu) == 0x7Fu) {
        return __uint_as_float(0x7FFFFFFFu);
    }
    return widen(x.bits >> 7, (x.bits & 0x7Fu) << 20, 0x1.0p+120f);
}

// --- down, nearest even (C11), NaN by C9 ---

// x in a type of WIDTH bits with the given BIAS and FRACTION bits; OVERFLOW_BITS is its infinity or, where it saturates, its greatest finite
// number. Normal results drop 23 - FRACTION bits; below, the shift grows; from 25 on nothing is left.
template <int WIDTH, int BIAS, int FRACTION, unsigned OVERFLOW_BITS>
__device__ __forceinline__ unsigned narrow(float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) {
        return (1u << (WIDTH - 1)) - 1u;  // C9
    }
    constexpr int least_normal = 128 - BIAS;
    const int below = least_normal - static_cast<int>(size >> 23);
    unsigned significand = size;
    int shift = 23 - FRACTION;
    if (least_normal > 1 && below > 0) {  // bf16 has binary32's exponents, its subnormals too
        significand = (size & 0x7FFFFFu) | 0x800000u;
        shift += below < 2 + FRACTION ? below : 2 + FRACTION;
    }
    unsigned rounded = (significand + (1u << (shift - 1)) - 1u + ((significand >> shift) & 1u)) >> shift;
    if (least_normal == 1 || below <= 0) {
        rounded -= static_cast<unsigned>(127 - BIAS) << FRACTION;
    }
    rounded = rounded < OVERFLOW_BITS ? rounded : OVERFLOW_BITS;
    return rounded | ((bits >> 31) << (WIDTH - 1));
}

template <typename T>
__device__ __forceinline__ T from_f32(float x);

template <>
__device__ __forceinline__ float from_f32<float>(float x) {
    return canonical_nan(x);
}
template <>
__device__ __forceinline__ f16 from_f32<f16>(float x) {
    return f16{static_cast<unsigned short>(narrow<16, 15, 10, 0x7C00u>(x))};
}
template <>
__device__ __forceinline__ bf16 from_f32<bf16>(float x) {
    return bf16{static_cast<unsigned short>(narrow<16, 127, 7, 0x7F80u>(x))};
}
template <>
__device__ __forceinline__ e4m3 from_f32<e4m3>(float x) {
    return e4m3{static_cast<unsigned char>(narrow<8, 7, 3, 0x7Eu>(x))};
}
template <>
__device__ __forceinline__ e5m2 from_f32<e5m2>(float x) {
    return e5m2{static_cast<unsigned char>(narrow<8, 15, 2, 0x7Bu>(x))};
}

// One division by the scale, then C11; exact up, then one multiplication by the scale.
template <typename T>
__device__ __forceinline__ T quantize(float x, float scale) {
    return from_f32<T>(div(x, scale));
}
template <typename T>
__device__ __forceinline__ float dequantize(T x, float scale) {
    return mul(to_f32(x), scale);
}

}  // namespace sb
