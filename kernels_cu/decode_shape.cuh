// What paged_decode is called with, what specialises it, and what a block of it holds in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "contract.cuh"
#include "decode_parts.cuh"
#include "dtypes.cuh"

using T = SB_T;
constexpr int D = SB_D;          // head dimensions
constexpr int kPage = SB_PAGE;   // tokens of a page
constexpr int kGroup = SB_GROUP; // query heads of a kv head
constexpr bool kRows = SB_ROWS;  // V has a token's head dimensions side by side, else a dimension's tokens

struct PagedDecodeParams {
    T* out;  // [n, h, d]
    int64_t out_stride[2];
    float* lse;  // [n, h] or null
    int64_t lse_stride[2];
    const T* q;  // [n, h, d]
    int64_t q_stride[2];
    const T* k_cache;  // [pages, g, d/x, page, x]
    int64_t k_cache_stride[4];
    const T* v_cache;  // [pages, g, d, page]
    int64_t v_cache_stride[4];
    const int32_t* block_tables;  // [n, max_pages]
    int64_t block_tables_stride[1];
    const int32_t* seq_lens;    // [n]
    const float* alibi_slopes;  // [h] or null
    const float* sinks;         // [h] or null
    float* part_a;              // [n, h, states, d], unnormalised
    int64_t part_a_stride[3];
    float* part_l;  // [n, h, states]
    float* part_m;  // [n, h, states]
    int32_t* done;  // [n, h], zero between launches
    float scale, scale2, cap;
    int64_t window, max_seq_len, split;
    int64_t n, h, pages, g, max_pages, states;
};

constexpr int kThreads = 128, kTile = 128, kSpan = 4;
constexpr int kMaxHeads = D > 128 ? 4 : 8;                         // heads a block serves at most: what registers hold
constexpr int kHeadBlocks = (kGroup + kMaxHeads - 1) / kMaxHeads;  // blocks that share a kv head
constexpr int kHeads = (kGroup + kHeadBlocks - 1) / kHeadBlocks;   // heads of a block (the last block may have fewer)
constexpr int kPad = kHeads <= 2 ? kHeads : (kHeads + 3) / 4 * 4;  // the same, in whole vectors
constexpr int kX = 16 / sizeof(T);                                 // elements of a 16-byte vector
constexpr int kElements = (kHeads * D + kThreads - 1) / kThreads;  // elements of a[h,d] that a thread joins
constexpr int kTable = kTile / kPage > 0 ? kTile / kPage : 1;      // pages of a tile
constexpr int kChunk = kElements > 4 ? 4 : 8;                      // stored states whose loads are in flight together
// Measured on an H200: blocks on a multiprocessor, and vectors of K and V a lane has in flight beside those it works on.
constexpr int kResident = 4, kAheadK = 2, kAheadV = 1;

struct alignas(kPad < 4 ? 4 * kPad : 16) Heads {  // one float a head
    float at[kPad];
};

struct Weights {  // of one step of C13's walk: x' = fma(x_u, next, RN(x * so_far))
    float so_far, next;
};

// One row of work: what a block needs of sequence n and kv head g. It lies in shared memory: registers are needed elsewhere.
struct Row {
    const T* k;  // k[page, g, ...] of page 0
    const T* v;
    const int32_t* table;
    int64_t n, head;  // head: the first query head of this block
    int heads;        // query heads of this block
    int start, len;   // tokens [start, len) take part
    // A unit is what is stored as one state, a tile or a span: the row has [first_unit, units), `blocks` blocks share them.
    int first_unit, units, blocks;
};

template <int kWarps>
struct Block {
    static constexpr int kTiles = kSpan / kWarps;  // tiles at a time
    static constexpr int kTokens = 4 / kWarps;     // tokens of a lane in QK
    static constexpr int kLanes = 32 * kWarps;     // threads that share a tile
    static constexpr int kUnit = kRows ? sb::unit_of(D / kLanes, kX) : 1;  // neighbouring dimensions of a thread in PV
    static constexpr int kUnits = (D / kUnit + kLanes - 1) / kLanes;
    static constexpr int kDims = kUnit * kUnits;   // dimensions of a thread in PV
    static constexpr int kScratch = kPad * kTile > kHeads * D ? kPad * kTile : kHeads * D;

    Row row;
    float q[D][kPad];
    float scratch[kTiles][kScratch];  // p[t][h], then a[h][d]
    float m[kTiles][kPad], l[kTiles][kPad];
    float partial[kTiles][4][kPad];   // maxima of warps, then sums of C7's rows
    Weights weights[4][kTiles][2][kPad];  // of every warp: it walks by itself
    Weights stored[32][2][kPad];          // of 32 states that other blocks have stored
    int32_t table[kTiles][kTable];
    int last;
};

// A tile and this thread's place in it.
struct Place {
    int64_t origin;  // first token of the tile
    int low, high;   // tokens [low, high) of the tile take part
    int slot;        // which of the block's tiles it is
    int warp, lane;  // warp: of those that share the tile
};
