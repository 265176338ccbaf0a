// One tile of paged_decode: logits, weights, and the weighted sum of V, by kWarps warps (C13.1, C13.2).
#pragma once

#include "decode_copy.cuh"

// The value of an element of a cache: exact, or of fp8 dequantised (C11): times 1 is a product that need not be made.
template <bool kScaled>
__device__ __forceinline__ float value_of(float exact, float scale) {
    return kScaled ? sb::mul(exact, scale) : exact;
}

// C12: base-2 logits of dot products where there is a cap or a bias, in place, one by one through shared memory: short code counts more there.
template <class S>
__device__ __forceinline__ void make_special_logits(const PagedDecodeParams& p, Block<S>& s, const Tile& at,
                                                    float (&s2)[S::kTokens][S::kPad]) {
    constexpr int kPad = S::kPad;
    float* own = &s.scratch[at.slot][at.thread];  // own[e * kLanes], e = i * kPad + h
#pragma unroll
    for (int e = 0; e < S::kTokens * kPad; ++e) own[e * S::kLanes] = s2[e / kPad][e % kPad];
#pragma unroll 1
    for (int e = 0; e < S::kTokens * kPad; ++e) {
        float logit = sb::mul(own[e * S::kLanes], p.scale);
        if (p.cap != 0.0f) logit = sb::mul(p.cap, sb::tanh(sb::div(logit, p.cap)));
        if (p.alibi_slopes != nullptr && e % kPad < s.row.heads) {
            const int token = at.origin + at.thread + S::kLanes * (e / kPad);
            logit = sb::add(logit, sb::mul(p.alibi_slopes[s.row.head + e % kPad], static_cast<float>(token - (s.row.len - 1))));
        }
        own[e * S::kLanes] = sb::logits2(logit);
    }
#pragma unroll
    for (int e = 0; e < S::kTokens * kPad; ++e) s2[e / kPad][e % kPad] = own[e * S::kLanes];
    wait_for_tile<S>();
}

// C12: base-2 logits of dot products, in place; -inf, whose p is +0, where a token takes no part.
template <class S>
__device__ __forceinline__ void make_logits(const PagedDecodeParams& p, Block<S>& s, const Tile& at,
                                            float (&s2)[S::kTokens][S::kPad]) {
    constexpr int kPad = S::kPad;
    if (p.alibi_slopes == nullptr && p.cap == 0.0f) {
#pragma unroll
        for (int i = 0; i < S::kTokens; ++i) {
#pragma unroll
            for (int h = 0; h < kPad; ++h) s2[i][h] = sb::mul(s2[i][h], p.scale2);
        }
    } else {
        make_special_logits(p, s, at, s2);
    }
    if (at.whole()) return;
#pragma unroll
    for (int i = 0; i < S::kTokens; ++i) {
        const bool live = at.thread + S::kLanes * i >= at.low && at.thread + S::kLanes * i < at.high;
#pragma unroll
        for (int h = 0; h < kPad; ++h) s2[i][h] = live ? s2[i][h] : -sb::kInf;
    }
}

// sum[i][h] += factor[h] * value[i] (C8). Neighbours share a factor or a value: registers lie in two banks by their parity, and each gives one
// number a cycle, so that an instruction whose three are all new takes two.
template <int kHeads, int kCount, int kPad>
__device__ __forceinline__ void add_products(const float* factor, const float (&value)[kCount], float (&sum)[kCount][kPad]) {
#pragma unroll
    for (int first = 0; first < kHeads; first += 4) {
        const int heads = kHeads - first < 4 ? kHeads - first : 4;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const int i = first / 4 % 2 == 0 ? kCount - 1 - k : k;
#pragma unroll
            for (int j = 0; j < heads; ++j) {
                const int h = first + (k % 2 == 0 ? heads - 1 - j : j);
                sum[i][h] = sb::fma(factor[h], value[i], sum[i][h]);
            }
        }
    }
}

// The part of the dot products of this thread's tokens thread + kLanes * i that a stage of K holds (C13.1).
template <bool kScaled, class S>
__device__ __forceinline__ void add_dot_products(const Block<S>& s, const Tile& at, int vector, const unsigned char* stage,
                                                 float (&dot)[S::kTokens][S::kPad]) {
    constexpr int kUnroll = S::kWarps == 1 ? 1 : S::kVectorsOfStage;  // short code where many warps hide each other's waiting
#pragma unroll kUnroll
    for (int v = 0; v < S::kVectorsOfStage; ++v) {
        if (kVectors % S::kVectorsOfStage != 0 && vector + v >= kVectors) break;
        sb::Words<16> key[S::kTokens];
#pragma unroll
        for (int i = 0; i < S::kTokens; ++i) key[i].read(stage + 16 * (place_of_key<S::kVectorsOfStage>(at.thread, v) + S::kLanes * i));
#pragma unroll
        for (int x = 0; x < kX; x += S::kRun) {
            const Run<S> q = *reinterpret_cast<const Run<S>*>(&s.q[((vector + v) * kX + x) * S::kPad]);
#pragma unroll
            for (int r = 0; r < S::kRun; ++r) {
                float value[S::kTokens];
#pragma unroll
                for (int i = 0; i < S::kTokens; ++i) value[i] = value_of<kScaled>(key[i].template element<C>(x + r), s.row.k_scale);
                add_products<S::kHeads>(&q.at[r * S::kPad], value, dot);
            }
        }
    }
}

// p[t][h] into scratch, m and the sums of C7's rows of the tile (C12), from the base-2 logits of its threads.
template <class S>
__device__ __forceinline__ void softmax(Block<S>& s, const Tile& at, const float (&s2)[S::kTokens][S::kPad]) {
    constexpr int kTokens = S::kTokens, kPad = S::kPad;
    const int warp = at.thread / 32, lane = at.thread % 32;
    float top[kPad];
#pragma unroll
    for (int h = 0; h < kPad; ++h) {
        top[h] = -sb::kInf;
#pragma unroll
        for (int i = 0; i < kTokens; ++i) top[h] = sb::running_max(top[h], s2[i][h]);
    }
    const float most = sb::fold<kPad>(top, lane, [](float a, float b) { return sb::running_max(a, b); });
    if (lane % (32 / kPad) == 0) s.maxima[at.slot][warp][sb::folded_index<kPad>(lane)] = most;
    wait_for_tile<S>();
    float weights[kTokens * kPad];
#pragma unroll
    for (int h = 0; h < kPad; ++h) {
        float m = s.maxima[at.slot][0][h];
#pragma unroll
        for (int w = 1; w < S::kWarps; ++w) m = sb::running_max(m, s.maxima[at.slot][w][h]);
        m = sb::ceil(m);
        if (at.thread == 0) s.m[at.slot][h] = m;
#pragma unroll
        for (int i = 0; i < kTokens; ++i) weights[i * kPad + h] = sb::weight_p(s2[i][h], m);
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
        float* p = &s.scratch[at.slot][(at.thread + S::kLanes * i) * kPad];
#pragma unroll
        for (int h = 0; h < kPad; h += 4) {
            if constexpr (kPad < 4) {
                for (int j = 0; j < kPad; ++j) p[j] = weights[i * kPad + j];
            } else {
                const float* w = &weights[i * kPad + h];
                *reinterpret_cast<float4*>(p + h) = {w[0], w[1], w[2], w[3]};
            }
        }
    }
    constexpr int kValues = kTokens * kPad;
    const float sum = sb::fold<kValues>(weights, lane, [](float a, float b) { return sb::add(a, b); });  // C7: lanes
    const int value = sb::folded_index<kValues>(lane);
    if (lane % (32 / kValues) == 0) s.rows[at.slot][warp + S::kWarps * (value / kPad)][value % kPad] = sum;
}

// Dimension i of a thread in PV; it may lie past the last.
template <class S>
__device__ __forceinline__ int dimension(const Tile& at, int i) {
    return (at.thread + i / S::kUnit * S::kLanes) * S::kUnit + i % S::kUnit;
}

// The part of a[h,d] (C13.2) that a stage of V holds, tokens [token, token + kTokensOfStage), all of which take part.
template <bool kScaled, class S>
__device__ __forceinline__ void add_values(const Block<S>& s, const Tile& at, int token, const unsigned char* stage,
                                           float (&a)[S::kDims][S::kHeads]) {
    constexpr int kStep = kRows ? (S::kRun > 2 ? S::kRun : 2) : kX;  // tokens at a time
    using Vector = sb::Words<(kRows ? S::kUnit * kSize : 16)>;
    constexpr int kVectorsOfStep = kRows ? kStep * S::kUnits : S::kDims;
    constexpr int kUnroll = S::kWarps == 1 ? 1 : 4;
#pragma unroll kUnroll
    for (int t = 0; t < S::kTokensOfStage; t += kStep) {
        Vector value[kVectorsOfStep];
#pragma unroll
        for (int i = 0; i < kVectorsOfStep; ++i) {
            const int dim = dimension<S>(at, kRows ? i % S::kUnits * S::kUnit : i), there = dim < D ? dim : 0;
            if constexpr (kRows) {
                value[i].read(stage + ((t + i / S::kUnits) * D + there) * kSize);
            } else {
                value[i].read(stage + 16 * place_of_value<S::kTokensOfStage / kX>(there, t / kX));
            }
        }
#pragma unroll
        for (int u = 0; u < kStep; u += S::kRun) {
            const Run<S> weight = *reinterpret_cast<const Run<S>*>(&s.scratch[at.slot][(token + t + u) * S::kPad]);
#pragma unroll
            for (int r = 0; r < S::kRun; ++r) {
                float v[S::kDims];
#pragma unroll
                for (int i = 0; i < S::kDims; ++i) {
                    const float exact = kRows ? value[(u + r) * S::kUnits + i / S::kUnit].template element<C>(i % S::kUnit)
                                              : value[i].template element<C>(u + r);
                    v[i] = value_of<kScaled>(exact, s.row.v_scale);
                }
                add_products<S::kHeads>(&weight.at[r * S::kPad], v, a);
            }
        }
    }
}

// The same where some tokens of the stage take no part: those execute nothing (C8).
template <class S>
__device__ __forceinline__ void add_some_values(const Block<S>& s, const Tile& at, int token, const unsigned char* stage,
                                                float (&a)[S::kDims][S::kHeads]) {
    const int first = at.low > token ? at.low - token : 0;
    const int last = at.high < token + S::kTokensOfStage ? at.high - token : S::kTokensOfStage;
#pragma unroll 1
    for (int t = first; t < last; ++t) {
#pragma unroll
        for (int i = 0; i < S::kDims; ++i) {
            const int dim = dimension<S>(at, i), there = dim < D ? dim : 0;
            const int place = kRows ? t * D + there : kX * place_of_value<S::kTokensOfStage / kX>(there, t / kX) + t % kX;
            const float v = value_of<kFp8>(sb::to_f32(reinterpret_cast<const C*>(stage)[place]), s.row.v_scale);
#pragma unroll
            for (int h = 0; h < S::kHeads; ++h) a[i][h] = sb::fma(s.scratch[at.slot][(token + t) * S::kPad + h], v, a[i][h]);
        }
    }
}

// a[h][d] of the tile into scratch, whose p everybody has read.
template <class S>
__device__ __forceinline__ void put_values(Block<S>& s, const Tile& at, const float (&a)[S::kDims][S::kHeads]) {
    wait_for_tile<S>();
#pragma unroll
    for (int i = 0; i < S::kDims; ++i) {
        const int dim = dimension<S>(at, i);
#pragma unroll
        for (int h = 0; h < S::kHeads; ++h) {
            if (dim < D) s.scratch[at.slot][h * D + dim] = a[i][h];
        }
    }
}
