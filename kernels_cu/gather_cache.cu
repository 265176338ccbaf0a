// gather_cache: copies tokens of several sequences from their pages into contiguous rows, sequence after sequence, bit for bit.
//
// Row r of K and V belongs to the sequence n with offsets[n] <= r < offsets[n+1] and takes its token starts[n] + r - offsets[n]. The threads
// of a block find the places of its rows first, a thread a row, and leave them in shared memory; then all copy, 16 bytes an access or the
// widest that head size, strides and addresses allow. Rows that no sequence has, tokens beyond the table and ids outside the cache: nothing.

#include <cstdint>

#include "access.cuh"
#include "pack.cuh"
#include "row_tiles.cuh"

using T = SB_T;
using Index = SB_INDEX;

struct GatherCacheParams {
    T* k;  // [t, g, d]
    int64_t k_stride[2];
    T* v;  // [t, g, d]; null where nobody wants it
    int64_t v_stride[2];
    const T* k_cache;  // [pages, page, g, d]
    int64_t k_cache_stride[3];
    const T* v_cache;  // [pages, page, g, d]; null without v
    int64_t v_cache_stride[3];
    const Index* block_table;  // [n, entries]
    int64_t block_table_stride[1];
    const Index* offsets;  // [bounds], n + 1 of them
    const Index* starts;   // [n]; null: every sequence from its first token
    int64_t t;
    int64_t g;
    int64_t d;
    int64_t pages;
    int64_t page;
    int64_t n;
    int64_t entries;
    int64_t bounds;
};

constexpr int kMostRows = sb::kTileThreads * sb::kInFlight;
constexpr int64_t kNowhere = INT64_MIN;  // strides may be negative, and with them the places of elements

/// Where the elements of row r begin in a cache with these strides, or kNowhere: nothing is copied to it.
__device__ inline int64_t source_of(const GatherCacheParams& p, int64_t r, const int64_t* stride) {
    if (p.n == 0 || r < static_cast<int64_t>(p.offsets[0]) || r >= static_cast<int64_t>(p.offsets[p.n])) return kNowhere;
    int64_t n = 0;
#pragma unroll 1
    for (int64_t end = p.n; end - n > 1;) {  // offsets[n] <= r < offsets[end]
        const int64_t middle = n + (end - n) / 2;
        if (static_cast<int64_t>(p.offsets[middle]) <= r) {
            n = middle;
        } else {
            end = middle;
        }
    }
    const int64_t start = p.starts == nullptr ? 0 : static_cast<int64_t>(p.starts[n]);
    const int64_t token = start + r - static_cast<int64_t>(p.offsets[n]);
    if (token < 0 || token >= p.entries * p.page) return kNowhere;
    const int64_t entry = token / p.page;
    const int64_t id = static_cast<int64_t>(p.block_table[n * p.block_table_stride[0] + entry]);  // C16
    if (id < 0 || id >= p.pages) return kNowhere;
    return id * stride[0] + (token - entry * p.page) * stride[1];
}

template <int N>
__global__ void __launch_bounds__(sb::kTileThreads) gather_rows(const GatherCacheParams p, const sb::RowTiles<> tiles) {
    __shared__ int64_t source[kMostRows];
    const bool is_v = blockIdx.y != 0;
    const int64_t first_row = tiles.first_row();
    const int rows = static_cast<int>(p.t - first_row < tiles.height() ? p.t - first_row : tiles.height());
    for (int r = threadIdx.y * blockDim.x + threadIdx.x; r < rows; r += blockDim.x * blockDim.y) {
        source[r] = source_of(p, first_row + r, is_v ? p.v_cache_stride : p.k_cache_stride);
    }
    __syncthreads();

    const int64_t piece = tiles.piece();
    if (piece >= tiles.pieces) return;
    const unsigned in_head = static_cast<unsigned>(p.d) / N;  // a row has less than 2^31 elements (SPEC)
    const unsigned head = static_cast<unsigned>(piece) / in_head;
    const int64_t i = static_cast<int64_t>(static_cast<unsigned>(piece) - head * in_head) * N;
    const T* from = (is_v ? p.v_cache : p.k_cache) + head * (is_v ? p.v_cache_stride[2] : p.k_cache_stride[2]) + i;
    T* to = (is_v ? p.v : p.k) + head * (is_v ? p.v_stride[1] : p.k_stride[1]) + i;
    const int64_t row_stride = is_v ? p.v_stride[0] : p.k_stride[0];

    sb::Pack<T, N> held[sb::kInFlight];
    bool found[sb::kInFlight];
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        const int row = tiles.row_in_tile(u);
        found[u] = row < rows && source[row] != kNowhere;
        if (found[u]) held[u] = sb::load_pack<N>(from + source[row]);
    }
#pragma unroll
    for (int u = 0; u < sb::kInFlight; ++u) {
        if (found[u]) sb::store_pack<N>(to + (first_row + tiles.row_in_tile(u)) * row_stride, held[u]);
    }
}

/// Launches with pieces of N elements, or of the most that are not more than `elements`.
template <int N>
int launch(const GatherCacheParams& p, int elements, void* stream) {
    if constexpr (N > 1) {
        if (elements < N) return launch<N / 2>(p, elements, stream);
    }
    const auto tiles = sb::RowTiles<>::cut(p.t, p.g * p.d / N);
    gather_rows<N><<<dim3(tiles.blocks(), p.v == nullptr ? 1 : 2), tiles.threads(), 0, static_cast<cudaStream_t>(stream)>>>(p, tiles);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int gather_cache(const GatherCacheParams* params, void* stream) {
    GatherCacheParams p = *params;
    constexpr int64_t kSize = sizeof(T);
    if (p.t == 0) return 0;  // an empty grid cannot be launched
    const bool both = p.v != nullptr;
    const auto dense = [&](const int64_t* rows, const int64_t* cache) { return rows[1] == p.d && cache[2] == p.d; };
    if (p.g > 1 && dense(p.k_stride, p.k_cache_stride) && (!both || dense(p.v_stride, p.v_cache_stride))) {
        p.d *= p.g;  // the heads of a row are one: wider accesses where a head allows none
        p.g = 1;
    }
    const auto alignment = [&](const T* rows, const int64_t* row, const T* cache, const int64_t* stride) {
        return sb::alignment_of(rows, p.t, row[0] * kSize) | sb::alignment_of(rows, p.g, row[1] * kSize) |
               sb::alignment_of(cache, p.pages, stride[0] * kSize) | sb::alignment_of(cache, p.page, stride[1] * kSize) |
               sb::alignment_of(cache, p.g, stride[2] * kSize);
    };
    uint64_t bits = static_cast<uint64_t>(p.d * kSize) | alignment(p.k, p.k_stride, p.k_cache, p.k_cache_stride);
    if (both) bits |= alignment(p.v, p.v_stride, p.v_cache, p.v_cache_stride);
    return launch<16 / kSize>(p, sb::widest_access(bits) / static_cast<int>(kSize), stream);
}
