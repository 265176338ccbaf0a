// What paged_decode is called with, what specialises it, and what a block of it holds in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "contract.cuh"
#include "decode_parts.cuh"
#include "dtypes.cuh"

using T = SB_T;  // of q and out
using C = SB_C;  // of the caches
constexpr bool kFp8 = !std::is_same<T, C>::value;
constexpr int D = SB_D;  // head dimensions
constexpr int kPage = SB_PAGE;  // tokens of a page
constexpr int kGroup = SB_GROUP; // query heads of a kv head
constexpr bool kDense = SB_DENSE; // a page's K of a kv head lies in one piece, and its V
constexpr bool kRows = SB_ROWS;  // V has a token's head dimensions side by side, else a dimension's tokens

struct PagedDecodeParams {
    T* out;  // [n, h, d]
    int64_t out_stride[2];
    float* lse;  // [n, h] or null
    int64_t lse_stride[2];
    const T* q;  // [n, h, d]
    int64_t q_stride[2];
    const C* k_cache;  // [pages, g, d/x, page, x]
    int64_t k_cache_stride[4];
    const C* v_cache;  // [pages, g, d, page]
    int64_t v_cache_stride[4];
    const int32_t* block_tables;  // [n, max_pages]
    int64_t block_tables_stride[1];
    const int32_t* seq_lens;  // [n]
    const float* alibi_slopes;  // [h] or null
    const float* sinks;  // [h] or null
    const float* k_scale;  // [1] or [g]; null unless the caches are fp8
    const float* v_scale;  // likewise
    float* part_a;  // [n, h, states, d], unnormalised
    int64_t part_a_stride[3];
    float* part_l;  // [n, h, states]
    float* part_m;  // [n, h, states]
    float scale, scale2, cap;
    int64_t window, max_seq_len, split, warps;
    int64_t n, h, pages, g, max_pages, k_scales, v_scales, states;
};

// Bytes from one page, vector of head dimensions or token of K to the next, and from one page, dimension or token of V. They are below 4 GiB
// (decode_spec.py).
struct Steps {
    unsigned k_page, k_vector, k_token, v_page, v_dim, v_token;

    explicit Steps(const PagedDecodeParams& p)
        : k_page(bytes(p.k_cache_stride[0])), k_vector(bytes(p.k_cache_stride[2])), k_token(bytes(p.k_cache_stride[3])),
          v_page(bytes(p.v_cache_stride[0])), v_dim(bytes(p.v_cache_stride[2])), v_token(bytes(p.v_cache_stride[3])) {}
    static unsigned bytes(int64_t stride) { return static_cast<unsigned>(stride * static_cast<int64_t>(sizeof(C))); }
};

constexpr int kTile = 128, kSpan = 4;  // C13: tokens of a tile, tiles of a span
constexpr int kSize = static_cast<int>(sizeof(C));  // bytes of an element of the caches
constexpr int kX = 16 / kSize;  // elements of a 16-byte vector of them
constexpr int kVectors = D / kX;  // vectors of a token's K, or V where it lies in rows
constexpr int kTable = kTile / kPage > 0 ? kTile / kPage : 1;  // pages of a tile
constexpr int kSmallestCopy = kRows || kPage > kX ? 16 : kPage * kSize;  // bytes

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kHopper = true;  // clusters, and mbarriers that can be waited for
#else
constexpr bool kHopper = false;
#endif

struct Weights {  // of one step of C13's walk: x' = fma(x_u, next, RN(x * so_far))
    float so_far, next;
};

// One row of work: sequence n and the query heads [head, head + heads) of one kv head. It lies in shared memory: registers are needed elsewhere.
struct Row {
    int64_t n, head;
    int heads;
    int start, len;  // tokens [start, len) take part
    int first_unit, units;  // a unit is what is stored as one state, a tile or a span: the row has [first_unit, units)
    bool whole;  // this block takes all of them
    bool cluster;  // the blocks that share them form a cluster
    float k_scale, v_scale;  // of fp8 caches
};

constexpr int kClasses = 5;  // of parts, by length

// What a block takes: units [unit, end) of row `row` (a block of heads of a kv head) of sequence n, as far as there are so many.
struct Part {
    int64_t n;
    int row, unit, end;
};

__host__ __device__ constexpr int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// How a block shares out its work: kTiles tiles at a time, a span or one, kWarps warps each. A warp a tile wastes least; two, and one more that
// copies, let a GPU that holds few blocks work faster; for batches smaller still a block takes a tile and two or four heads alone, with four
// warps, all of K and V under way.
template <int kWarpsOfTile, int kTilesOfBlock, int kHeadsAtMost = 8>
struct Shape {
    static constexpr int kWarps = kWarpsOfTile, kTiles = kTilesOfBlock;
    static constexpr int kLanes = 32 * kWarps;  // threads that share a tile
    static constexpr int kThreads = kLanes * kTiles;
    static constexpr bool kClusters = kWarps > 1 && kTiles > 1;  // whether blocks may form clusters
    static constexpr bool kFeeds = kClusters;  // whether a warp a tile copies and does nothing else
    static constexpr int kCopiers = kFeeds ? 32 : kLanes;  // threads that copy a tile
    static constexpr int kAllThreads = kThreads + (kFeeds ? kTiles * kCopiers : 0);
    static constexpr bool kBalances = kWarps == 1 && kTiles > 1;  // whether blocks may take balanced parts
    static constexpr int kTokens = kTile / kLanes;  // tokens of a lane in QK
    static constexpr int kMaxHeads = D > 128 && kHeadsAtMost > 4 ? 4 : kHeadsAtMost;  // heads of a block at most: what registers hold
    static constexpr int kHeadBlocks = (kGroup + kMaxHeads - 1) / kMaxHeads;  // blocks that share a kv head
    static constexpr int kHeads = (kGroup + kHeadBlocks - 1) / kHeadBlocks;  // heads of a block (the last block may have fewer)
    static constexpr int kPad = kHeads <= 2 ? kHeads : (kHeads + 3) / 4 * 4;  // the same, in whole vectors
    static constexpr int kRun = kPad < 4 ? 4 / kPad : 1;  // dimensions of q or tokens of p in a vector of floats
    static constexpr int kElements = (kHeads * D + kThreads - 1) / kThreads;  // elements of a[h,d] that a thread joins
    static constexpr int kUnit = kRows ? sb::unit_of(D / kLanes, kX) : 1;  // neighbouring dimensions of a thread in PV
    static constexpr int kUnits = (D / kUnit + kLanes - 1) / kLanes;
    static constexpr int kDims = kUnit * kUnits;  // dimensions of a thread in PV

    // A stage is a part of a tile's K (a few vectors of every token) or V (some tokens), which is copied at once. 32 bytes of each are the least.
    static constexpr int kStage = kTiles == 1 ? 16384 : kWarps == 1 && D <= 64 ? 2048 : 4096;  // bytes wanted; of small stages more are under way
    static constexpr int kVectorsOfStage = kStage / (16 * kTile);
    static constexpr int kMaxTokens = kRows ? kTile : clamp(kCopiers * (kPage < kX ? kPage : kX), 0, kTile);  // a dimension's copies, one a thread
    static constexpr int kTokensOfStage = clamp(sb::unit_of(kStage / (D * kSize), kMaxTokens), 2 * kX, kTile);
    static constexpr int kStagesOfK = (kVectors + kVectorsOfStage - 1) / kVectorsOfStage;
    static constexpr int kStagesOfV = kTile / kTokensOfStage;
    static constexpr int kBytesOfV = kTokensOfStage * D * kSize;
    static constexpr int kBytes = kBytesOfV > kStage ? kBytesOfV : kStage;

    static constexpr int kScratch = kPad * kTile > kHeads * D ? kPad * kTile : kHeads * D;
    // Blocks on a multiprocessor, and buffers of stages that then fit beside q, p and a into its 227 KiB.
    static constexpr int kResident = kTiles == 1 ? 3 : kWarps == 1 ? 4 : 1;
    static constexpr int kFixed = 1024 + 4096 + 4 * (kPad * D + kTiles * kScratch);  // bytes, rounded up
    static constexpr int kStages = kStagesOfK + kStagesOfV;
    static constexpr int kMost = kFeeds ? 5 : kStages < 7 ? kStages + 1 : 8;  // a tile's page ids come with the first stage of the tile before
    static constexpr int kBuffers = kTiles == 1 ? clamp(kStages, 2, 4) : clamp((227 * 1024 / kResident - kFixed) / (kTiles * kBytes), 2, kMost);
    static constexpr int kAhead = kTiles == 1 && kBuffers == kStages ? kBuffers : kBuffers - 1;  // under way; a tile alone uses no buffer twice

    // The number of this thread among those that compute, with bounds that the compiler sees.
    __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x % kThreads); }
    // Of those that copy: the tile, and this thread's number in it.
    __device__ __forceinline__ static int fed_slot() { return kFeeds ? static_cast<int>((threadIdx.x - kThreads) / kCopiers) % kTiles : thread() / kLanes; }
    __device__ __forceinline__ static int fed_thread() { return kFeeds ? static_cast<int>(threadIdx.x % kCopiers) : thread() % kLanes; }
};

template <class S>
struct Block : S {
    alignas(128) unsigned char stage[S::kTiles][S::kBuffers][S::kBytes];  // copies to shared memory write lines of 128 bytes
    alignas(16) float q[D * S::kPad];  // q[d][h]
    alignas(16) float scratch[S::kTiles][S::kScratch];  // p[t][h], then a[h][d]
    float m[S::kTiles][S::kPad];
    float maxima[S::kTiles][S::kWarps][S::kPad], rows[S::kTiles][4][S::kPad];  // of warps; sums of C7's rows
    Weights weights[S::kThreads / 32][S::kTiles][2][S::kPad];  // of every warp: it walks by itself
    int32_t table[S::kTiles][2][kTable];  // pages of the tile that is worked on, and of the next
    uint64_t full[S::kFeeds ? S::kTiles * S::kBuffers : 1], empty[S::kFeeds ? S::kTiles * S::kBuffers : 1];  // mbarriers of buffers
    Row row;
    // Of balanced parts:
    Part part;
    long long sums[S::kThreads / 32];
    int counts[S::kThreads / 32][kClasses];
};

// A vector of floats: kRun dimensions of q or tokens of p, kPad heads each.
template <class S>
struct alignas(16) Run {
    float at[S::kRun * S::kPad];
};

// A tile and this thread's place in it.
struct Tile {
    int origin;  // first token of the tile
    int low, high;  // tokens [low, high) of the tile take part
    int slot;  // which of the block's tiles it is
    int buffer;  // which of its two tables
    int thread;  // of those that share the tile

    __device__ __forceinline__ bool live() const { return low < high; }
    __device__ __forceinline__ bool whole() const { return low == 0 && high == kTile; }
};

template <class S>
__device__ __forceinline__ Tile tile_of(const Row& row, int unit, int slot, int thread) {
    Tile at;
    at.slot = slot, at.thread = thread, at.buffer = unit & 1;
    at.origin = (unit * S::kTiles + at.slot) * kTile;  // MAX_SEQ_LEN keeps it in 32 bits
    at.low = row.start > at.origin ? row.start - at.origin : 0;
    at.high = row.len - at.origin < kTile ? row.len - at.origin : kTile;
    return at;
}

// Units [first_unit_of, end_unit_of) are what a block takes of a row; it may be none.
__device__ __forceinline__ int first_unit_of(const Part& own, const Row& row) { return own.unit > row.first_unit ? own.unit : row.first_unit; }
__device__ __forceinline__ int end_unit_of(const Part& own, const Row& row) { return own.end < row.units ? own.end : row.units; }

// A numbered barrier of `threads` threads of a block; at the second, others wait for this one.
template <int kThreads>
__device__ __forceinline__ void wait_at(int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void arrive_at(int number) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// A barrier of the threads that share a tile; of those that copy one; of all that compute; and, where others copy, of them with all those.
template <class S>
__device__ __forceinline__ void wait_for_tile() {
    if constexpr (S::kWarps == 1) {
        __syncwarp();
    } else if constexpr (S::kTiles == 1) {
        __syncthreads();
    } else {
        wait_at<S::kLanes>(1 + S::thread() / S::kLanes);
    }
}
template <class S>
__device__ __forceinline__ void wait_for_copiers() {
    if constexpr (S::kFeeds) {
        __syncwarp();
    } else {
        wait_for_tile<S>();
    }
}
template <class S>
__device__ __forceinline__ void wait_for_computing() {
    if constexpr (S::kFeeds) {
        wait_at<S::kThreads>(1 + S::kTiles);
    } else {
        __syncthreads();
    }
}
template <class S>
__device__ __forceinline__ void wait_for_feeders() {
    if constexpr (S::kFeeds) {
        wait_at<S::kAllThreads>(2 + S::kTiles);
    } else {
        __syncthreads();
    }
}
