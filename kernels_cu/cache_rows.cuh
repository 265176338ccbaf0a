// Writes rows of K and V [n, g, d] to slots of paged caches in which the elements of a head lie together, whatever the order of pages, places
// in a page and heads: the device code of reshape_and_cache_flash and store_kvcache.
#pragma once

#include <cstdint>

#include "access.cuh"
#include "pack.cuh"
#include "quantize.cuh"
#include "row_tiles.cuh"

namespace sb {

/// K or V: its rows, its cache, and its scales (null where C is T).
template <typename T, typename C>
struct CacheRows {
    const T* rows;
    int64_t row, head;  // strides of `rows`
    C* cache;
    int64_t page, place, cache_head;  // strides of `cache`: pages, places in a page, heads
    const float* scale;
    int64_t scales;
};

template <typename T, typename C, typename Index>
struct CacheWrite {
    CacheRows<T, C> k, v;
    const Index* slots;  // [m]; negative: a padding row
    int64_t m, g, d, page;
    int shift = -1;  // page = 2^shift; -1: it is no power of two
};

/// Pieces that a thread loads before it stores any: stores of fp8 are half as wide as the loads, or less.
template <typename T, typename C>
constexpr int kPiecesInFlight = std::is_same<C, T>::value ? kInFlight : 2 * kInFlight;

template <typename T, typename C>
using CacheTiles = RowTiles<kPiecesInFlight<T, C>>;

/// A block's tile of K or of V; N elements of a head are one piece.
template <int N, typename T, typename C, typename Index>
__device__ __forceinline__ void write_cache_tile(const CacheRows<T, C>& side, const CacheWrite<T, C, Index>& write,
                                                 const CacheTiles<T, C>& tiles) {
    const int64_t piece = tiles.piece();
    if (piece >= tiles.pieces) return;
    const unsigned in_head = static_cast<unsigned>(write.d) / N;  // a row has less than 2^31 elements (SPEC)
    const unsigned head = static_cast<unsigned>(piece) / in_head;
    const int64_t i = static_cast<int64_t>(static_cast<unsigned>(piece) - head * in_head) * N;
    const T* from = side.rows + head * side.head + i;
    C* to = side.cache + head * side.cache_head + i;

    constexpr int kDepth = kPiecesInFlight<T, C>;
    Pack<T, N> held[kDepth];
    int64_t slot[kDepth];
#pragma unroll
    for (int u = 0; u < kDepth; ++u) {  // a row is read before its slot is known: a padding row that exists in vain
        const int64_t row = tiles.first_row() + tiles.row_in_tile(u);
        slot[u] = -1;
        if (row < write.m) {
            slot[u] = static_cast<int64_t>(write.slots[row]);  // C16
            held[u] = load_pack<N>(from + row * side.row);
        }
    }
    Divisor by{};
    if constexpr (!std::is_same<C, T>::value) by = divisor(side.scale[side.scales == 1 ? 0 : head]);  // after the rows' accesses began
#pragma unroll
    for (int u = 0; u < kDepth; ++u) {
        if (slot[u] < 0) continue;
        const int64_t page = write.shift >= 0 ? slot[u] >> write.shift : slot[u] / write.page;
        const int64_t place = slot[u] - page * write.page;
        store_pack<N>(to + page * side.page + place * side.place, stored<N, C, T>(held[u], by));
    }
}

template <int N, typename T, typename C, typename Index>
__global__ void __launch_bounds__(kTileThreads) write_cache_rows(const CacheWrite<T, C, Index> write, const CacheTiles<T, C> tiles) {
    if (blockIdx.y == 0) {
        write_cache_tile<N>(write.k, write, tiles);
    } else {
        write_cache_tile<N>(write.v, write, tiles);
    }
}

/// Launches with pieces of N elements, or of the most that are not more than `elements`. Returns a CUDA error code.
template <int N, typename T, typename C, typename Index>
int launch_cache_write(const CacheWrite<T, C, Index>& write, int elements, void* stream) {
    if constexpr (N > 1) {
        if (elements < N) return launch_cache_write<N / 2>(write, elements, stream);
    }
    const auto tiles = CacheTiles<T, C>::cut(write.m, write.g * write.d / N);
    write_cache_rows<N><<<dim3(tiles.blocks(), 2), tiles.threads(), 0, static_cast<cudaStream_t>(stream)>>>(write, tiles);
    return static_cast<int>(cudaGetLastError());
}

/// Writes m rows. `n` rows and `pages` pages exist (one of either has no stride). Returns a CUDA error code.
template <typename T, typename C, typename Index>
int write_cache(CacheWrite<T, C, Index> write, int64_t n, int64_t pages, void* stream) {
    if (write.m == 0) return 0;  // an empty grid cannot be launched
    if ((write.page & (write.page - 1)) == 0) {
        for (write.shift = 0; int64_t{1} << write.shift < write.page;) ++write.shift;
    }
    const auto dense = [&](const CacheRows<T, C>& side) {
        return (write.g == 1 || (side.head == write.d && side.cache_head == write.d)) && side.scales <= 1;
    };
    if (dense(write.k) && dense(write.v)) {  // the heads of a row are one: wider accesses where a head allows none
        write.d *= write.g;
        write.g = 1;
    }
    constexpr int64_t kRow = sizeof(T), kCache = sizeof(C);
    const auto rows = [&](const CacheRows<T, C>& side) {
        return alignment_of(side.rows, n, side.row * kRow) | alignment_of(side.rows, write.g, side.head * kRow);
    };
    const auto caches = [&](const CacheRows<T, C>& side) {
        return alignment_of(side.cache, pages, side.page * kCache) | alignment_of(side.cache, write.page, side.place * kCache) |
               alignment_of(side.cache, write.g, side.cache_head * kCache);
    };
    const int read = widest_access(rows(write.k) | rows(write.v) | static_cast<uint64_t>(write.d * kRow)) / static_cast<int>(kRow);
    const int written = widest_access(caches(write.k) | caches(write.v)) / static_cast<int>(kCache);  // `read` divides the head size
    return launch_cache_write<16 / kRow>(write, read < written ? read : written, stream);
}

}  // namespace sb
