// Packs: neighbouring elements that one access moves.
#pragma once

#include <cstdint>

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

}  // namespace sb
