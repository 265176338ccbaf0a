// paged_decode: decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans.
//
// A block of four warps serves up to eight query heads of one kv head, so that K and V are read once. kWarps warps share a tile: with one
// warp a tile the block takes whole spans, with four it takes a tile alone, for batches too small to fill a GPU. In QK a lane owns 4 / kWarps
// tokens and every head; in PV it owns the head dimensions `dim(i)` and every head. K and V go straight into registers, one group ahead.
// States that other blocks made of the same row are joined by the block that finishes last. The bytes depend on none of this (C13).
#include <cuda_runtime.h>

#include <cstdint>

#include "contract.cuh"
#include "dtypes.cuh"
#include "decode_parts.cuh"

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

template <int kWarps>
struct Block {
    static constexpr int kTiles = kSpan / kWarps;  // tiles at a time
    static constexpr int kTokens = 4 / kWarps;     // tokens of a lane in QK
    static constexpr int kLanes = 32 * kWarps;     // threads that share a tile
    static constexpr int kUnit = kRows ? sb::unit_of(D / kLanes, kX) : 1;  // neighbouring dimensions of a thread in PV
    static constexpr int kUnits = (D / kUnit + kLanes - 1) / kLanes;
    static constexpr int kDims = kUnit * kUnits;   // dimensions of a thread in PV
    static constexpr int kScratch = kPad * kTile > kHeads * D ? kPad * kTile : kHeads * D;

    float q[D][kPad];
    float scratch[kTiles][kScratch];  // p[t][h], then a[h][d]
    float m[kTiles][kPad], l[kTiles][kPad];
    float partial[kTiles][4][kPad];   // maxima of warps, then sums of C7's rows
    Weights weights[4][kChunk][2][kPad];  // of every warp: it walks by itself
    int32_t table[kTiles][kTable];
    int last;
};

// One row of work: what a block needs of sequence n and kv head g.
struct Row {
    const T* k;  // k[page, g, ...] of page 0
    const T* v;
    const int32_t* table;
    int64_t n, head;  // head: the first query head of this block
    int heads;        // query heads of this block
    int start, len;   // tokens [start, len) take part
};

// A tile and this thread's place in it.
struct Place {
    int64_t origin;  // first token of the tile
    int low, high;   // tokens [low, high) of the tile take part
    int slot;        // which of the block's tiles it is
    int warp, lane;  // warp: of those that share the tile
};

template <int kWarps>
__device__ __forceinline__ void wait_for_tile() {
    if (kWarps == 1) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// The page ids of a tile into shared memory: those of tokens that take part, no others are read.
template <int kWarps>
__device__ __forceinline__ void read_table(const Row& row, Block<kWarps>& s, const Place& at) {
    const int64_t first = at.origin / kPage;
    for (int i = at.warp * 32 + at.lane; i < kTable; i += 32 * kWarps) {
        const int64_t begin = (first + i) * kPage - at.origin;  // of the page's tokens in the tile
        if (begin < at.high && begin + kPage > at.low) s.table[at.slot][i] = row.table[first + i];
    }
}

// Offset of a page and of a token in it; t counts from the tile's first token and takes part.
template <int kWarps>
__device__ __forceinline__ int64_t token_offset(const Block<kWarps>& s, const Place& at, int t, int64_t page_stride, int64_t token_stride) {
    const int place = static_cast<int>(at.origin % kPage) + t;  // a page may hold several tiles
    return s.table[at.slot][place / kPage] * page_stride + static_cast<int64_t>(place % kPage) * token_stride;
}

// C12: the base-2 logit of a dot product.
__device__ __forceinline__ float base2(const PagedDecodeParams& p, const Row& row, float dot, int h, int64_t token) {
    if (p.alibi_slopes == nullptr && p.cap == 0.0f) return sb::mul(dot, p.scale2);
    float s = sb::mul(dot, p.scale);
    if (p.cap != 0.0f) s = sb::mul(p.cap, sb::tanh(sb::div(s, p.cap)));
    if (p.alibi_slopes != nullptr) {
        const int64_t head = row.head + (h < row.heads ? h : row.heads - 1);
        s = sb::add(s, sb::mul(p.alibi_slopes[head], static_cast<float>(token - (row.len - 1))));
    }
    return sb::logits2(s);
}

// Dot products of this lane's tokens first + 32 * i (C13.1). A token that takes no part reads another's K, and its product is not used.
template <int kWarps>
__device__ __forceinline__ void dot_products(const PagedDecodeParams& p, const Row& row, const Block<kWarps>& s, const Place& at, int first,
                                             float (&dot)[4 / kWarps][kPad]) {
    constexpr int kTokens = 4 / kWarps, kVectors = D / kX;
    constexpr int kWanted = kWarps == 1 ? kAheadK : 16;  // a tile alone has nothing else to hide its loads behind
    constexpr int kAhead = kVectors % kWanted == 0 ? kWanted : kVectors < kWanted ? kVectors : 1;
    const T* k[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
        const int wanted = first + 32 * i;
        const int t = wanted < at.low ? at.low : wanted >= at.high ? at.high - 1 : wanted;
        k[i] = row.k + token_offset(s, at, t, p.k_cache_stride[0], p.k_cache_stride[3]);
#pragma unroll
        for (int h = 0; h < kPad; ++h) dot[i][h] = 0.0f;
    }
    sb::Words<16> now[kAhead][kTokens], next[kAhead][kTokens];
    const auto load = [&](int j, sb::Words<16>(&into)[kAhead][kTokens]) {
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
#pragma unroll
            for (int i = 0; i < kTokens; ++i) into[u][i].load(k[i] + (j + u) * p.k_cache_stride[2]);
        }
    };
    load(0, now);
#pragma unroll 2
    for (int j = 0; j < kVectors; j += kAhead) {
        if (j + kAhead < kVectors) load(j + kAhead, next);
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
#pragma unroll
            for (int x = 0; x < kX; ++x) {
                const Heads q = *reinterpret_cast<const Heads*>(s.q[(j + u) * kX + x]);
#pragma unroll
                for (int i = 0; i < kTokens; ++i) {
                    const float key = now[u][i].template element<T>(x);
#pragma unroll
                    for (int h = 0; h < kHeads; ++h) dot[i][h] = sb::fma(q.at[h], key, dot[i][h]);  // C8
                }
            }
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
#pragma unroll
            for (int i = 0; i < kTokens; ++i) now[u][i] = next[u][i];
        }
    }
}

// p[t][h] into scratch, m and l of the tile (C12, C7), from the base-2 logits of its lanes.
template <int kWarps>
__device__ __forceinline__ void softmax(Block<kWarps>& s, const Place& at, int first, const float (&s2)[4 / kWarps][kPad]) {
    constexpr int kTokens = 4 / kWarps;
    float top[kPad];
    bool live[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) live[i] = first + 32 * i >= at.low && first + 32 * i < at.high;
#pragma unroll
    for (int h = 0; h < kPad; ++h) {
        top[h] = -sb::kInf;
#pragma unroll
        for (int i = 0; i < kTokens; ++i) top[h] = live[i] ? sb::running_max(top[h], s2[i][h]) : top[h];
    }
    const float most = sb::fold<kPad>(top, at.lane, [](float a, float b) { return sb::running_max(a, b); });
    s.partial[at.slot][at.warp][sb::folded_index<kPad>(at.lane)] = most;
    wait_for_tile<kWarps>();
    float weights[kTokens * kPad];
#pragma unroll
    for (int h = 0; h < kPad; ++h) {
        float m = s.partial[at.slot][0][h];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) m = sb::running_max(m, s.partial[at.slot][w][h]);
        m = sb::ceil(m);
        if (at.lane == 0 && at.warp == 0) s.m[at.slot][h] = m;
#pragma unroll
        for (int i = 0; i < kTokens; ++i) weights[i * kPad + h] = live[i] ? sb::weight_p(s2[i][h], m) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
        Heads p;
#pragma unroll
        for (int h = 0; h < kPad; ++h) p.at[h] = weights[i * kPad + h];
        *reinterpret_cast<Heads*>(&s.scratch[at.slot][(first + 32 * i) * kPad]) = p;
    }
    const float sum = sb::fold<kTokens * kPad>(weights, at.lane, [](float a, float b) { return sb::add(a, b); });  // C7: lanes
    wait_for_tile<kWarps>();  // everybody has read the maxima
    const int value = sb::folded_index<kTokens * kPad>(at.lane);
    s.partial[at.slot][at.warp * kTokens + value / kPad][value % kPad] = sum;
    wait_for_tile<kWarps>();
    if (at.warp == 0 && at.lane < kPad) {
        const auto& rows = s.partial[at.slot];
        s.l[at.slot][at.lane] = sb::sum_rows(rows[0][at.lane], rows[1][at.lane], rows[2][at.lane], rows[3][at.lane]);  // C7: rows
    }
}

// V of a tile on its way through registers, a group of vectors ahead, and a[h][d] (C13.2).
template <int kWarps>
struct WeightedSum {
    using B = Block<kWarps>;
    static constexpr int kStep = kRows ? 1 : kX < kPage ? kX : kPage;  // tokens of a vector
    static constexpr int kAhead = kRows || kWarps == 4 ? 8 : kAheadV;
    static_assert(kTile / kStep % kAhead == 0, "groups of vectors tile a tile");
    using Vector = sb::Words<(kRows ? B::kUnit : kStep) * sizeof(T)>;

    Vector now[kAhead][B::kUnits];
    int64_t column[B::kUnits];  // where a unit's dimensions lie in a page

    __device__ __forceinline__ void load(const PagedDecodeParams& p, const Row& row, const B& s, const Place& at, int group,
                                         Vector (&into)[kAhead][B::kUnits]) const {
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
            const int wanted = group + u * kStep;
            const int t = wanted < at.low ? at.low / kStep * kStep : wanted >= at.high ? (at.high - 1) / kStep * kStep : wanted;
            const T* v = row.v + token_offset(s, at, t, p.v_cache_stride[0], p.v_cache_stride[3]);
#pragma unroll
            for (int i = 0; i < B::kUnits; ++i) into[u][i].load(v + column[i]);
        }
    }

    __device__ __forceinline__ static int first_group(const Place& at) { return at.low / (kStep * kAhead) * (kStep * kAhead); }

    __device__ __forceinline__ void begin(const PagedDecodeParams& p, const Row& row, const B& s, const Place& at) {
#pragma unroll
        for (int i = 0; i < B::kUnits; ++i) {
            const int unit = at.warp * 32 + at.lane + i * B::kLanes;
            column[i] = static_cast<int64_t>(unit < D / B::kUnit ? unit * B::kUnit : 0) * p.v_cache_stride[2];
        }
        load(p, row, s, at, first_group(at), now);
    }

    // a[h][d] of the tile into scratch, whose p is read before.
    __device__ __forceinline__ void finish(const PagedDecodeParams& p, const Row& row, B& s, const Place& at) {
        float acc[B::kDims][kHeads] = {};
        const auto token = [&](int u, int x, int t) {
            const Heads weight = *reinterpret_cast<const Heads*>(&s.scratch[at.slot][t * kPad]);
#pragma unroll
            for (int i = 0; i < B::kDims; ++i) {
                const float value = now[u][i / B::kUnit].template element<T>(kRows ? i % B::kUnit : x);
#pragma unroll
                for (int h = 0; h < kHeads; ++h) acc[i][h] = sb::fma(weight.at[h], value, acc[i][h]);  // C8
            }
        };
        Vector next[kAhead][B::kUnits];
#pragma unroll 1
        for (int group = first_group(at); group < at.high; group += kAhead * kStep) {
            if (group + kAhead * kStep < at.high) load(p, row, s, at, group + kAhead * kStep, next);
            if (group >= at.low && group + kAhead * kStep <= at.high) {
#pragma unroll
                for (int i = 0; i < kAhead * kStep; ++i) token(i / kStep, i % kStep, group + i);
            } else {  // C8: who takes no part executes nothing
#pragma unroll
                for (int i = 0; i < kAhead * kStep; ++i) {
                    if (group + i >= at.low && group + i < at.high) token(i / kStep, i % kStep, group + i);
                }
            }
#pragma unroll
            for (int u = 0; u < kAhead; ++u) {
#pragma unroll
                for (int i = 0; i < B::kUnits; ++i) now[u][i] = next[u][i];
            }
        }
        wait_for_tile<kWarps>();  // p has been read: its place takes a
#pragma unroll
        for (int i = 0; i < B::kDims; ++i) {
            const int dim = (at.warp * 32 + at.lane + i / B::kUnit * B::kLanes) * B::kUnit + i % B::kUnit;
#pragma unroll
            for (int h = 0; h < kHeads; ++h) {
                if (dim < D) s.scratch[at.slot][h * D + dim] = acc[i][h];
            }
        }
    }
};

// m and l of a walk (C13.3, C13.4) of the head that is this lane's number; every warp walks by itself.
struct Walk {
    float m, l;

    __device__ __forceinline__ Weights step(bool first, float m_u, float l_u) {
        const float top = first ? m_u : sb::running_max(m, m_u);
        const Weights w = {sb::pow2_weight(sb::sub(m, top)), sb::pow2_weight(sb::sub(m_u, top))};
        l = first ? l_u : sb::join_scalar(l, w.so_far, l_u, w.next);
        m = top;
        return w;
    }
};

__device__ __forceinline__ float join(bool first, float a, const Weights& w, float a_u) {
    return first ? a_u : sb::join_scalar(a, w.so_far, a_u, w.next);  // the first state is taken as it is: -0 stays
}

// Head and dimension of this thread's element e of a[h,d]; false past the last.
__device__ __forceinline__ bool element_of(const Row& row, int e, int* h, int* d) {
    const int at = static_cast<int>(threadIdx.x) + e * kThreads;
    *h = at / D;
    *d = at % D;
    return *h < row.heads;
}

// Joins the stored states [from, to) of a row: those of a span first where they are tiles.
template <int kWarps>
__device__ __forceinline__ void walk_stored(const PagedDecodeParams& p, const Row& row, Block<kWarps>& s, int64_t from, int64_t to, Walk& walk,
                                            float (&a)[kElements]) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const auto begins = [&](int64_t number) { return kWarps == 1 || number == from || number % kSpan == 0; };
    const auto ends = [&](int64_t number) { return kWarps == 1 || number + 1 == to || number % kSpan == kSpan - 1; };
    const auto opens = [&](int64_t number) { return (kWarps == 1 ? number : number / kSpan) == (kWarps == 1 ? from : from / kSpan); };
    Walk span;
    float span_a[kElements];
    for (int64_t base = from; base < to; base += kChunk) {
        float a_u[kChunk][kElements], m_u[kChunk], l_u[kChunk];
#pragma unroll
        for (int c = 0; c < kChunk; ++c) {
            const int64_t number = base + c < to ? base + c : to - 1;
#pragma unroll
            for (int e = 0; e < kElements; ++e) {
                int h, d;
                const int64_t head = row.head + (element_of(row, e, &h, &d) ? h : 0);
                a_u[c][e] = __ldcg(p.part_a + row.n * p.part_a_stride[0] + head * p.part_a_stride[1] + number * p.part_a_stride[2] + d);
            }
            const int64_t at = (row.n * p.h + row.head + (lane < row.heads ? lane : 0)) * p.states + number;
            m_u[c] = __ldcg(p.part_m + at);
            l_u[c] = __ldcg(p.part_l + at);
        }
#pragma unroll
        for (int c = 0; c < kChunk; ++c) {
            if (base + c >= to) continue;
            const Weights w = span.step(begins(base + c), m_u[c], l_u[c]);
            if (lane < kPad) s.weights[warp][c][0][lane] = w;
            if (!ends(base + c)) continue;
            const Weights row_w = walk.step(opens(base + c), span.m, span.l);
            if (lane < kPad) s.weights[warp][c][1][lane] = row_w;
        }
        __syncwarp();
#pragma unroll
        for (int c = 0; c < kChunk; ++c) {
            if (base + c >= to) continue;
#pragma unroll
            for (int e = 0; e < kElements; ++e) {
                int h, d;
                if (!element_of(row, e, &h, &d)) continue;
                span_a[e] = join(begins(base + c), span_a[e], s.weights[warp][c][0][h], a_u[c][e]);
                if (ends(base + c)) a[e] = join(opens(base + c), a[e], s.weights[warp][c][1][h], span_a[e]);
            }
        }
        __syncwarp();
    }
}

// Stores a state under a number, unnormalised, for the block that finishes last.
__device__ __forceinline__ void store(const PagedDecodeParams& p, const Row& row, const Walk& walk, const float (&a)[kElements], int64_t number) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
        int h, d;
        if (!element_of(row, e, &h, &d)) continue;
        p.part_a[row.n * p.part_a_stride[0] + (row.head + h) * p.part_a_stride[1] + number * p.part_a_stride[2] + d] = a[e];
    }
    if (static_cast<int>(threadIdx.x) < row.heads) {
        const int64_t at = (row.n * p.h + row.head + threadIdx.x) * p.states + number;
        p.part_m[at] = walk.m;
        p.part_l[at] = walk.l;
    }
}

// C13.5 for a finished row, after the sink where there is one.
template <int kWarps>
__device__ __forceinline__ void finish(const PagedDecodeParams& p, const Row& row, Block<kWarps>& s, Walk& walk, float (&a)[kElements]) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();  // the last weights have been read
    if (p.sinks != nullptr && lane < row.heads) {  // C13.4: one more span
        const float s2 = sb::logits2(p.sinks[row.head + lane]);
        const float m = sb::ceil(sb::running_max(-sb::kInf, s2));
        s.weights[warp][0][0][lane] = walk.step(false, m, sb::weight_p(s2, m));
    }
    if (lane < row.heads) {
        s.weights[warp][0][1][lane].next = walk.l;
        if (p.lse != nullptr && warp == 0) {
            p.lse[row.n * p.lse_stride[0] + (row.head + lane) * p.lse_stride[1]] = sb::canonical_nan(sb::lse(walk.m, walk.l));
        }
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
        int h, d;
        if (!element_of(row, e, &h, &d)) continue;
        if (p.sinks != nullptr) a[e] = join(false, a[e], s.weights[warp][0][0][h], 0.0f);
        p.out[row.n * p.out_stride[0] + (row.head + h) * p.out_stride[1] + d] = sb::from_f32<T>(sb::div(a[e], s.weights[warp][0][1][h].next));
    }
}

// C10: a row of no tokens.
__device__ __forceinline__ void finish_empty(const PagedDecodeParams& p, const Row& row) {
    for (int at = static_cast<int>(threadIdx.x); at < row.heads * D; at += kThreads) {
        p.out[row.n * p.out_stride[0] + (row.head + at / D) * p.out_stride[1] + at % D] = sb::from_f32<T>(0.0f);
        if (at % D == 0 && p.lse != nullptr) p.lse[row.n * p.lse_stride[0] + (row.head + at / D) * p.lse_stride[1]] = -sb::kInf;
    }
}

template <int kWarps>
__global__ void __launch_bounds__(kThreads, kResident) decode(const PagedDecodeParams p, const int64_t shares) {
    using B = Block<kWarps>;
    __shared__ B s;
    const int64_t share = blockIdx.x % shares;  // which part of the row this block takes
    const int64_t block = blockIdx.x / shares;
    Row row;
    row.n = block / (p.g * kHeadBlocks);
    const int64_t g = block / kHeadBlocks % p.g;
    row.head = g * kGroup + block % kHeadBlocks * kHeads;
    row.heads = static_cast<int>((g + 1) * kGroup - row.head < kHeads ? (g + 1) * kGroup - row.head : kHeads);
    row.len = p.seq_lens[row.n];
    row.start = p.window != 0 && p.window < row.len ? static_cast<int>(row.len - p.window) : 0;
    row.k = p.k_cache + g * p.k_cache_stride[1];
    row.v = p.v_cache + g * p.v_cache_stride[1];
    row.table = p.block_tables + row.n * p.block_tables_stride[0];
    if (row.len <= 0) {
        if (share == 0) finish_empty(p, row);
        return;
    }
    // A unit is what is stored as one state: a tile or a span. This block takes units [unit, last_unit) of the row's [first_unit, units).
    constexpr int kUnitTokens = B::kTiles * kTile;
    const int64_t units_a_block = kWarps == 1 ? p.split : 1;
    const int64_t first_unit = row.start / kUnitTokens, units = (row.len + kUnitTokens - 1) / kUnitTokens;
    int64_t unit = share * units_a_block;
    const int64_t last_unit = unit + units_a_block < units ? unit + units_a_block : units;
    unit = unit > first_unit ? unit : first_unit;
    if (unit >= last_unit) return;
    const int64_t blocks = (units - 1) / units_a_block - first_unit / units_a_block + 1;  // that share this row

    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    for (int at = thread; at < kPad * D; at += kThreads) {
        const int h = at / D < row.heads ? at / D : 0;
        s.q[at % D][at / D] = sb::to_f32(p.q[row.n * p.q_stride[0] + (row.head + h) * p.q_stride[1] + at % D]);
    }
    Walk walk;
    float a[kElements];
    for (; unit < last_unit; ++unit) {
        Place at;
        at.slot = thread / B::kLanes, at.warp = warp % kWarps, at.lane = lane;
        at.origin = unit * kUnitTokens + at.slot * kTile;
        at.low = row.start > at.origin ? static_cast<int>(row.start - at.origin) : 0;
        at.high = row.len - at.origin < kTile ? static_cast<int>(row.len - at.origin) : kTile;
        if (at.low < at.high) read_table(row, s, at);
        __syncthreads();  // q and the table are there; the last unit's states have been read
        if (at.low < at.high) {
            const int first = at.warp * B::kTokens * 32 + lane;
            float s2[B::kTokens][kPad];
            WeightedSum<kWarps> sum;
            if (kWarps == 4) sum.begin(p, row, s, at);
            dot_products<kWarps>(p, row, s, at, first, s2);
            if (kWarps == 1) sum.begin(p, row, s, at);
#pragma unroll
            for (int i = 0; i < B::kTokens; ++i) {
#pragma unroll
                for (int h = 0; h < kPad; ++h) s2[i][h] = h < kHeads ? base2(p, row, s2[i][h], h, at.origin + first + 32 * i) : 0.0f;
            }
            softmax<kWarps>(s, at, first, s2);
            sum.finish(p, row, s, at);
        }
        __syncthreads();
        // C13.3 over this unit's tiles, C10: those without tokens are skipped. Then C13.4, or the state is stored.
        const int64_t first_tile = unit * B::kTiles;
        const int from = row.start / kTile > first_tile ? static_cast<int>(row.start / kTile - first_tile) : 0;
        const int to = (row.len - 1) / kTile - first_tile < B::kTiles ? static_cast<int>((row.len - 1) / kTile - first_tile) + 1 : B::kTiles;
        Walk span;
#pragma unroll
        for (int u = 0; u < B::kTiles; ++u) {
            if (u < from || u >= to || lane >= kPad) continue;
            s.weights[warp][u][0][lane] = span.step(u == from, s.m[u][lane], s.l[u][lane]);
        }
        if (blocks == 1 && lane < kPad) s.weights[warp][0][1][lane] = walk.step(unit == first_unit, span.m, span.l);
        __syncwarp();
        float span_a[kElements];
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
            int h, d;
            if (!element_of(row, e, &h, &d)) continue;
#pragma unroll
            for (int u = 0; u < B::kTiles; ++u) {
                if (u >= from && u < to) span_a[e] = join(u == from, span_a[e], s.weights[warp][u][0][h], s.scratch[u][h * D + d]);
            }
            if (blocks == 1) a[e] = join(unit == first_unit, a[e], s.weights[warp][0][1][h], span_a[e]);
        }
        if (blocks > 1) store(p, row, span, span_a, unit);
    }
    if (blocks > 1) {
        __threadfence();
        __syncthreads();
        int32_t* done = p.done + row.n * p.h + row.head;
        if (thread == 0) s.last = atomicAdd(done, 1) == blocks - 1;
        __syncthreads();
        if (!s.last) return;
        __threadfence();
        walk_stored<kWarps>(p, row, s, first_unit, units, walk, a);
        if (thread == 0) *done = 0;
    }
    finish<kWarps>(p, row, s, walk, a);
}

template <int kWarps>
int launch(const PagedDecodeParams& p, void* stream) {
    const int64_t unit = kWarps == 1 ? p.split * kSpan * kTile : kTile;
    const int64_t shares = p.max_seq_len > unit ? (p.max_seq_len + unit - 1) / unit : 1;
    const int64_t blocks = p.n * p.g * kHeadBlocks * shares;
    if (blocks > 0x7FFFFFFF) return cudaErrorInvalidValue;
    decode<kWarps><<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, shares);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int paged_decode(const PagedDecodeParams* params, void* stream) {
    const PagedDecodeParams& p = *params;
    if (p.n == 0 || p.h == 0) return 0;  // an empty grid cannot be launched
    return p.split == 0 ? launch<4>(p, stream) : launch<1>(p, stream);
}
