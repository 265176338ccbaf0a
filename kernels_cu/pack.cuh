// Packs: neighbouring elements that one access moves, and what a cache stores of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "dtypes.cuh"

namespace sb {

/// An integer type, or a vector of them, that one access of so many bytes moves.
template <int BYTES>
struct WordOf;
template <>
struct WordOf<16> { using type = uint4; };
template <>
struct WordOf<8> { using type = uint2; };
template <>
struct WordOf<4> { using type = uint32_t; };
template <>
struct WordOf<2> { using type = uint16_t; };
template <>
struct WordOf<1> { using type = uint8_t; };

/// N neighbouring elements of E in registers. (A struct of elements, or around the word, is split into many accesses by nvcc.)
template <typename E, int N>
using Pack = typename WordOf<N * static_cast<int>(sizeof(E))>::type;

/// N elements from an address that is a multiple of their size, by one access.
template <int N, typename E>
__device__ __forceinline__ Pack<E, N> load_pack(const E* from) {
    return *reinterpret_cast<const Pack<E, N>*>(from);
}

/// N elements to an address of global memory that is a multiple of their size, by one access: nvcc splits an assignment where it sees fit.
template <int N, typename E>
__device__ __forceinline__ void store_pack(E* to, Pack<E, N> pack) {
    __stwb(reinterpret_cast<Pack<E, N>*>(to), pack);
}

/// N elements that lie `stride` apart, one by one.
template <int N, typename E>
__device__ __forceinline__ Pack<E, N> gather_pack(const E* from, int64_t stride) {
    E at[N];
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = from[i * stride];
    Pack<E, N> pack;
    __builtin_memcpy(&pack, at, sizeof pack);
    return pack;
}

/// convert(x) of each of N elements.
template <int N, typename To, typename From, typename Convert>
__device__ __forceinline__ Pack<To, N> mapped(const Pack<From, N>& pack, Convert convert) {
    From from[N];
    To to[N];
    __builtin_memcpy(from, &pack, sizeof from);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = convert(from[i]);
    Pack<To, N> result;
    __builtin_memcpy(&result, to, sizeof result);
    return result;
}

/// N elements of T as C: every bit where the types are one, else one division by the scale and a rounding (C11).
template <int N, typename C, typename T>
__device__ __forceinline__ Pack<C, N> stored(const Pack<T, N>& pack, float scale) {
    if constexpr (std::is_same<C, T>::value) {
        return pack;
    } else {
        return mapped<N, C, T>(pack, [scale](T x) { return quantize<C>(to_f32(x), scale); });
    }
}

/// N elements of C as T: exact up, one multiplication by the scale, one rounding (C11; NaN by C9).
template <int N, typename T, typename C>
__device__ __forceinline__ Pack<T, N> loaded(const Pack<C, N>& pack, float scale) {
    return mapped<N, T, C>(pack, [scale](C x) { return from_f32<T>(dequantize(x, scale)); });
}

}  // namespace sb
