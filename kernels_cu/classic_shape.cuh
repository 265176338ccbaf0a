// What specialises paged_attention_v1 and paged_attention_v2, the classic mapping of threads that follows from it (C14), and their arguments.
//
// The mapping depends on the dtype of q, head size and page size alone; an fp8 cache is read in as many elements, not in as many bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "dtypes.cuh"

namespace sb::classic {

using T = SB_T;  // of q and out
using C = SB_C;  // of the caches
constexpr int kD = SB_D;
constexpr int kPage = SB_PAGE;
constexpr bool kFp8 = !std::is_same<T, C>::value;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPartition = 512;
constexpr int64_t kMaxGrid = 65535;  // blocks along y and z

constexpr int at_least_1(int x) { return x > 1 ? x : 1; }
__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// How many of `reads` reads are in flight at once, at most `most`: a divisor that is not much less, or what leaves the last turn
/// nearly full.
constexpr int in_flight(int reads, int most) {
    for (int n = most; n >= ceil_div(most, 2); --n) {
        if (reads % n == 0) return n;
    }
    return ceil_div(reads, ceil_div(reads, most));
}

// QK
constexpr int kSize = static_cast<int>(sizeof(T));
constexpr int kCacheSize = static_cast<int>(sizeof(C));
constexpr int kX = 16 / kCacheSize;                       // elements of one token that lie together in K
constexpr int kGroup = at_least_1(32 / kPage);            // lanes of a thread group
constexpr int kKVec = at_least_1(16 / (kGroup * kSize));  // elements that a lane reads at once; a divisor of kX
constexpr int kSpan = kGroup * kKVec;                     // elements that a thread group reads at once
constexpr int kKVectors = kD / kSpan;                     // vectors of a lane
constexpr int kKInFlight = in_flight(kKVectors, smaller(32, 128 / (kKVec * kCacheSize)));  // vectors loaded before the first is used

constexpr int kKTokens = 32 / kGroup;      // tokens that a warp works on at once
constexpr int kKTurns = kPage / kKTokens;  // 1, unless a page has more than 32 tokens

/// Where element e of a token lies in K, counted from the token's first: e / kX rows of the page further. A sum of such places is the place
/// of the sum where one of the two is a multiple of kX, or both stay below it.
__host__ __device__ constexpr int place_in_k(int e) { return e / kX * (kPage * kX) + e % kX; }

// PV
constexpr int kVVec = smaller(16 / kSize, kPage);          // tokens of one row that a lane reads at once
constexpr int kVVectors = kPage / kVVec;                   // vectors of a row
constexpr int kVLanes = smaller(kVVectors, 32);            // lanes on one row
constexpr int kVTurns = kVVectors / kVLanes;               // vectors of a row that a lane takes: 1, or 2
constexpr int kVRows = 32 / kVLanes;                       // rows that a warp reads at once
constexpr int kVReads = ceil_div(kD, kVRows);              // reads for all rows of a page
constexpr int kVInFlight = in_flight(kVReads, 8);          // reads that a lane has in flight: their data and sums are registers
constexpr bool kVWhole = kD % (kVRows * kVInFlight) == 0;  // no lane has a row beyond d

static_assert(kD % 8 == 0 && kD <= 512, "head size: a multiple of 8 up to 512");
static_assert(kPage <= 256 && (kPage & (kPage - 1)) == 0, "page size: a power of two up to 256");
static_assert(kD % kSpan == 0, "the lanes of a thread group must divide the head size");
static_assert(kD % kX == 0, "16 bytes of K are of one token");

constexpr int kOwned = ceil_div(kD, kThreads);  // head dimensions of a thread once sums are closed: thread, thread + 128, ...

/// The arguments of a call, as pyref/classic_spec.py declares them. A source that defines SB_WORKSPACE has a workspace among them.
struct Params {
    T* out;  // [n, h, d]
    int64_t out_stride[2];
    const T* q;  // [n, h, d]
    int64_t q_stride[2];
    const C* k_cache;  // [pages, g, d/x, page, x]
    int64_t k_cache_stride[2];
    const C* v_cache;  // [pages, g, d, page]
    int64_t v_cache_stride[2];
    const int32_t* block_tables;  // [n, max_pages]
    int64_t block_tables_stride[1];
    const int32_t* seq_lens;    // [n]
    const float* alibi_slopes;  // [h]; null: none
    const float* k_scale;       // [1] or [g]; null unless the caches are fp8
    const float* v_scale;       // likewise
    float* lse;                 // [n, h]; null where nobody wants it
    int64_t lse_stride[2];
#ifdef SB_WORKSPACE
    float* tmp_out;  // [n, h, parts, d]: a; partitions in which no token takes part are neither written nor read
    int64_t tmp_out_stride[3];
    float* exp_sums;    // [n, h, parts]: l
    float* max_logits;  // [n, h, parts]: m
#endif
    float scale;
    float scale2;
    float cap;       // 0: none
    int64_t window;  // 0: none
    int64_t tp_rank;
    int64_t blocksparse_local_blocks;
    int64_t blocksparse_vert_stride;  // 0, 1: no pattern
    int64_t blocksparse_block_size;
    int64_t blocksparse_head_sliding_step;
    int64_t max_seq_len;
    int64_t n;
    int64_t h;
    int64_t pages;
    int64_t g;
    int64_t max_pages;
    int64_t k_scales;
    int64_t v_scales;
#ifdef SB_WORKSPACE
    int64_t parts;
#endif
};

/// N neighbouring elements, read in one access of up to 16 bytes (in several beyond).
template <typename U, int N>
struct alignas(smaller(16, N * static_cast<int>(sizeof(U)))) Pack {
    U at[N];
};

template <int N, typename U>
__device__ __forceinline__ Pack<U, N> load(const U* address) {
    return *reinterpret_cast<const Pack<U, N>*>(address);
}

/// The values of elements of a cache: exact, or of fp8 dequantised (C11).
template <int N>
__device__ __forceinline__ Pack<float, N> values_of(const Pack<C, N>& pack, float scale) {
    Pack<float, N> values;
    to_f32<N>(pack.at, values.at);
    if constexpr (kFp8) {
#pragma unroll
        for (int e = 0; e < N; ++e) values.at[e] = mul(values.at[e], scale);
    }
    return values;
}

}  // namespace sb::classic
