// One tile of paged_decode: logits, weights, and the weighted sum of V, by kWarps warps (C13.1, C13.2).
#pragma once

#include "decode_shape.cuh"

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
