// Storage of f16, bf16, fp8 e4m3fn and e5m2 as bits, and their conversions to and from binary32 (C9, C11): integer work and exact products, the
// text of pyref/contract_types.py, so that no header of a toolkit is needed; and instructions where a GPU has them. Their results are those of
// the integer work for all inputs (tools/exhaustive).
#pragma once

#include <type_traits>

#include "contract.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && !defined(__SAMEBITS__)
#define SB_FP8_INSTRUCTIONS 1
#else
#define SB_FP8_INSTRUCTIONS 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(__SAMEBITS__)
#define SB_BF16_INSTRUCTIONS 1
#else
#define SB_BF16_INSTRUCTIONS 0
#endif

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
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
#endif
}

__device__ __forceinline__ float to_f32(e5m2 x) { return to_f32(f16{static_cast<unsigned short>(x.bits << 8)}); }

__device__ __forceinline__ float to_f32(e4m3 x) {
#if SB_FP8_INSTRUCTIONS
    unsigned two;  // through f16, which holds every e4m3
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(static_cast<unsigned short>(x.bits)));
    return to_f32(f16{static_cast<unsigned short>(two)});
#else
    if ((x.bits & 0x7Fu) == 0x7Fu) {
        return __uint_as_float(0x7FFFFFFFu);
    }
    return widen(x.bits >> 7, (x.bits & 0x7Fu) << 20, 0x1.0p+120f);
#endif
}

// Element i of the four fp8 of a word: one instruction converts two, and calls for both of them share it.
template <typename E>
__device__ __forceinline__ float to_f32_of_four(unsigned word, int i) {
    if constexpr (SB_FP8_INSTRUCTIONS && std::is_same<E, e4m3>::value) {
        unsigned two;
        if (i < 2) {
            asm("{ .reg .b16 a, b; mov.b32 {a, b}, %1; cvt.rn.f16x2.e4m3x2 %0, a; }" : "=r"(two) : "r"(word));
        } else {
            asm("{ .reg .b16 a, b; mov.b32 {a, b}, %1; cvt.rn.f16x2.e4m3x2 %0, b; }" : "=r"(two) : "r"(word));
        }
        return to_f32(f16{static_cast<unsigned short>(two >> (16 * (i % 2)))});
    } else if constexpr (std::is_same<E, e5m2>::value) {  // the upper half of an f16
        return to_f32(f16{static_cast<unsigned short>(__byte_perm(word, 0u, i < 2 ? 0x1404u : 0x3424u) >> (16 * (i % 2)))});
    } else {
        return to_f32(E{static_cast<unsigned char>(word >> (8 * i))});
    }
}

// N neighbouring elements.
template <int N, typename E>
__device__ __forceinline__ void to_f32(const E* from, float* to) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if constexpr (sizeof(E) == 1 && N % 2 == 0) {
            to[i] = to_f32_of_four<E>(from[i / 2 * 2].bits | (from[i / 2 * 2 + 1].bits << 8), i % 2);
        } else {
            to[i] = to_f32(from[i]);
        }
    }
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
#ifdef __SAMEBITS__
    return f16{static_cast<unsigned short>(narrow<16, 15, 10, 0x7C00u>(x))};
#else
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return f16{bits};
#endif
}
template <>
__device__ __forceinline__ bf16 from_f32<bf16>(float x) {
#if SB_BF16_INSTRUCTIONS
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bf16{bits};
#else
    return bf16{static_cast<unsigned short>(narrow<16, 127, 7, 0x7F80u>(x))};
#endif
}
template <>
__device__ __forceinline__ e4m3 from_f32<e4m3>(float x) {
#if SB_FP8_INSTRUCTIONS
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    return e4m3{static_cast<unsigned char>(two)};
#else
    return e4m3{static_cast<unsigned char>(narrow<8, 7, 3, 0x7Eu>(x))};
#endif
}
template <>
__device__ __forceinline__ e5m2 from_f32<e5m2>(float x) {
#if SB_FP8_INSTRUCTIONS
    unsigned short two;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    return e5m2{static_cast<unsigned char>(two)};
#else
    return e5m2{static_cast<unsigned char>(narrow<8, 15, 2, 0x7Bu>(x))};
#endif
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
