// copy_blocks: copies pages of K and V to other pages of the same caches, bit for bit: page pairs[i, 0] to page pairs[i, 1].
//
// A page is a row of accesses of 16 bytes, or of the widest that its length, strides and addresses allow; blocks share pairs and pieces along
// grid.x, so neither the number of pairs nor the size of a page is bounded by a grid's other axes.

#include <cstdint>

#include "access.cuh"
#include "pack.cuh"
#include "row_tiles.cuh"

using T = SB_T;

struct CopyBlocksParams {
    T* k_cache;  // [pages, w]
    int64_t k_cache_stride[1];
    T* v_cache;  // [pages, w]; null where there is none
    int64_t v_cache_stride[1];
    const int64_t* pairs;  // [m, 2]: from, to
    int64_t pages;
    int64_t w;
    int64_t m;
};

template <int N>
__global__ void __launch_bounds__(sb::kTileThreads) copy_pages(const CopyBlocksParams p, const sb::RowTiles<> tiles) {
    const int64_t piece = tiles.piece();
    if (piece >= tiles.pieces) return;
    T* cache = (blockIdx.y != 0 ? p.v_cache : p.k_cache) + piece * N;
    const int64_t stride = blockIdx.y != 0 ? p.v_cache_stride[0] : p.k_cache_stride[0];

    sb::Pack<T, N> held[sb::kInFlight];
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int64_t pair = tiles.first_row() + tiles.row_in_tile(u);
        if (pair < p.m) held[u] = sb::load_pack<N>(cache + p.pairs[2 * pair] * stride);
    }
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int64_t pair = tiles.first_row() + tiles.row_in_tile(u);
        if (pair < p.m) sb::store_pack<N>(cache + p.pairs[2 * pair + 1] * stride, held[u]);
    }
}

/// Launches with pieces of N elements, or of the most that are not more than `elements`.
template <int N>
int launch(const CopyBlocksParams& p, int elements, void* stream) {
    if constexpr (N > 1) {
        if (elements < N) return launch<N / 2>(p, elements, stream);
    }
    const auto tiles = sb::RowTiles<>::cut(p.m, p.w / N);
    copy_pages<N><<<dim3(tiles.blocks(), p.v_cache == nullptr ? 1 : 2), tiles.threads(), 0, static_cast<cudaStream_t>(stream)>>>(p, tiles);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int copy_blocks(const CopyBlocksParams* params, void* stream) {
    const CopyBlocksParams& p = *params;
    constexpr int64_t kSize = sizeof(T);
    if (p.m == 0) return 0;  // an empty grid cannot be launched
    uint64_t bits = static_cast<uint64_t>(p.w * kSize) | sb::alignment_of(p.k_cache, p.pages, p.k_cache_stride[0] * kSize);
    if (p.v_cache != nullptr) bits |= sb::alignment_of(p.v_cache, p.pages, p.v_cache_stride[0] * kSize);
    return launch<16 / kSize>(p, sb::widest_access(bits) / static_cast<int>(kSize), stream);
}
