// embedding: row ids[i] - start of a vocabulary shard [start, start + length) to row i, bit for bit; a row of zeros for an id outside it.
//
// A row is copied in accesses of 16 bytes, or of the widest that its length, strides and addresses allow; long rows are shared by several
// warps and, above 256 accesses, by several blocks, short ones share a block.

#include <cstdint>

#include "access.cuh"
#include "pack.cuh"
#include "row_tiles.cuh"

using T = SB_T;
using Index = SB_INDEX;

struct EmbeddingParams {
    T* out;  // [n, w]
    int64_t out_stride[1];
    const T* table;  // [length, w]
    int64_t table_stride[1];
    const Index* ids;  // [n]
    int64_t start;     // the id of the table's first row
    int64_t n;
    int64_t w;
    int64_t length;
};

constexpr int kDepth = 2;  // rows of a thread: as fast as four where there are many, and faster where there are few

template <int N>
__global__ void __launch_bounds__(sb::kTileThreads) look_up(const EmbeddingParams p, const sb::RowTiles<kDepth> tiles) {
    const int64_t piece = tiles.piece();
    if (piece >= tiles.pieces) return;
    sb::Pack<T, N> held[kDepth]{};
#pragma unroll
    for (int u = 0; u < kDepth; ++u) {
        const int64_t row = tiles.first_row() + tiles.row_in_tile(u);
        if (row >= p.n) continue;
        const int64_t id = static_cast<int64_t>(p.ids[row]);  // C16
        if (id >= 0 && id >= p.start && id - p.start < p.length) {
            held[u] = sb::load_pack<N>(p.table + (id - p.start) * p.table_stride[0] + piece * N);
        }
    }
#pragma unroll
    for (int u = 0; u < kDepth; ++u) {
        const int64_t row = tiles.first_row() + tiles.row_in_tile(u);
        if (row < p.n) sb::store_pack<N>(p.out + row * p.out_stride[0] + piece * N, held[u]);
    }
}

/// Launches with pieces of N elements, or of the most that are not more than `elements`.
template <int N>
int launch(const EmbeddingParams& p, int elements, void* stream) {
    if constexpr (N > 1) {
        if (elements < N) return launch<N / 2>(p, elements, stream);
    }
    const auto tiles = sb::RowTiles<kDepth>::cut(p.n, p.w / N);
    look_up<N><<<tiles.blocks(), tiles.threads(), 0, static_cast<cudaStream_t>(stream)>>>(p, tiles);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int embedding(const EmbeddingParams* params, void* stream) {
    const EmbeddingParams& p = *params;
    constexpr int64_t kSize = sizeof(T);
    if (p.n == 0) return 0;  // an empty grid cannot be launched
    const int bytes = sb::widest_access(static_cast<uint64_t>(p.w * kSize) | sb::alignment_of(p.out, p.n, p.out_stride[0] * kSize) |
                                      sb::alignment_of(p.table, p.length, p.table_stride[0] * kSize));
    return launch<16 / kSize>(p, bytes / static_cast<int>(kSize), stream);
}
