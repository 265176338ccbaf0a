// fp8 caches: quantising by a scale (C11: one division, then nearest even) and back, as fast as memory delivers.
//
// The division is replaced by a product with the reciprocal where that cannot change the fp8 result. q = RN(x * RN(1/s)) is off RN(x/s) by
// less than 5 units in the last place (4 from a reciprocal that may be subnormal, a half from each rounding), so both round to the same fp8
// number unless a midpoint of two such numbers lies between them. Midpoints have at most 4 bits of fraction: the lower 19 bits of their
// patterns are 0. Where q is farther than 8 units from every such pattern (below a power of two they are half as large), no midpoint is
// near; otherwise x is divided. A scale that is a power of two needs no check: the product is the quotient. Quotients too small for this
// reasoning become zeros of the right sign, too large ones saturate, either way. Without a finite reciprocal, x is divided.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pack.cuh"

namespace sb {

/// Two values as fp8 (C11), `low` in the lower byte.
template <typename C>
__device__ __forceinline__ uint16_t fp8_pair(float low, float high) {
    return static_cast<uint16_t>(from_f32<C>(low).bits | (from_f32<C>(high).bits << 8));
}
#if SB_FP8_INSTRUCTIONS
template <>
__device__ __forceinline__ uint16_t fp8_pair<e4m3>(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
template <>
__device__ __forceinline__ uint16_t fp8_pair<e5m2>(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif

/// A scale to divide by, looked at once.
struct Divisor {
    float scale, reciprocal;
    int suspicious;  // quotients at most so many patterns behind a possible midpoint (counted from 8 before it) are divided
};

__device__ __forceinline__ Divisor divisor(float scale) {
    const float reciprocal = div(1.0f, scale);
    const bool finite = magnitude(reciprocal) < kInf;  // false for NaN
    const bool power_of_two = (__float_as_uint(scale) & 0x7FFFFFu) == 0;
    return {scale, reciprocal, !finite ? 0x7FFFFFFF : power_of_two ? -1 : 16};
}

/// N values divided by the scale, as C. T: what they are stored as.
template <int N, typename C, typename T>
__device__ __forceinline__ Pack<C, N> quantized(const Pack<T, N>& pack, const Divisor& by) {
    T from[N];
    float x[N], q[N];
    __builtin_memcpy(from, &pack, sizeof from);
    int nearest = 0x7FFFF;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = to_f32(from[i]);
        q[i] = mul(x[i], by.reciprocal);
        const int place = static_cast<int>((__float_as_uint(q[i]) + 8u) & 0x7FFFFu);
        nearest = place < nearest ? place : nearest;
    }
    if (nearest <= by.suspicious) {
#pragma unroll
        for (int i = 0; i < N; ++i) q[i] = div(x[i], by.scale);  // C5
    }
    C to[N];
    if constexpr (N == 1) {
        to[0] = from_f32<C>(q[0]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const uint16_t pair = fp8_pair<C>(q[i], q[i + 1]);
            __builtin_memcpy(to + i, &pair, sizeof pair);
        }
    }
    Pack<C, N> result;
    __builtin_memcpy(&result, to, sizeof result);
    return result;
}

/// What a cache of C stores of N elements of T: every bit where the types are one, else they are quantised (C11).
template <int N, typename C, typename T>
__device__ __forceinline__ Pack<C, N> stored(const Pack<T, N>& pack, const Divisor& by) {
    if constexpr (std::is_same<C, T>::value) {
        return pack;
    } else {
        return quantized<N, C, T>(pack, by);
    }
}

/// N elements of C as T: exact up, one multiplication by the scale, one rounding (C11; NaN by C9).
template <int N, typename T, typename C>
__device__ __forceinline__ Pack<T, N> loaded(const Pack<C, N>& pack, float scale) {
    C from[N];
    float x[N];
    T to[N];
    __builtin_memcpy(from, &pack, sizeof from);
    to_f32<N>(from, x);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = from_f32<T>(mul(x[i], scale));
    Pack<T, N> result;
    __builtin_memcpy(&result, to, sizeof result);
    return result;
}

}  // namespace sb
