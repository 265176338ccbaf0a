// The classic mapping of paged attention (C14), shared by paged_attention_v1 and paged_attention_v2.
//
// A block of 4 warps works on one query head h of one sequence n. QK: a thread group of `kGroup` lanes computes the logit of one token;
// its lanes read neighbouring vectors of K[page, h', :, slot, :]. PV: the lanes of a warp read whole rows of V[page, h', d, :], `kVLanes`
// lanes a row, and keep one sum a row. In both, warps take pages in turn. A *partition* is 512 tokens, counted from token 0: its weights
// are relative to its own integral maximum, and its sums are closed before the next one begins, so it does not matter which block
// computes it. pyref/classic.py states the order of every sum.
#pragma once

#include <cstdint>

#include "classic_row.cuh"
#include "contract.cuh"

namespace sb::classic {

/// q[n,h,:] in binary32 (exact) to shared memory. A barrier must follow.
__device__ __forceinline__ void stage_q(const Params& p, const Row& row, float* q) {
    const T* from = p.q + row.n * p.q_stride[0] + row.h * p.q_stride[1];
    for (int d = threadIdx.x; d < kD; d += kThreads) q[d] = to_f32(from[d]);
}

/// A lane's part of q . k of one token: a chain for every vector position, then the positions in ascending order (C14).
__device__ __forceinline__ float partial_dot(const float* q, const C* k, float scale) {
    float chain[kKVec];
#pragma unroll
    for (int e = 0; e < kKVec; ++e) chain[e] = 0.0f;
#pragma unroll
    for (int first = 0; first < kKVectors; first += kKInFlight) {
        Pack<C, kKVec> read[kKInFlight];
#pragma unroll
        for (int u = 0; u < kKInFlight; ++u) {
            if (first + u < kKVectors) read[u] = load<kKVec>(k + place_in_k((first + u) * kSpan));
        }
#pragma unroll
        for (int u = 0; u < kKInFlight; ++u) {
            if (first + u < kKVectors) {
                const Pack<float, kKVec> query = load<kKVec>(q + (first + u) * kSpan), key = values_of(read[u], scale);
#pragma unroll
                for (int e = 0; e < kKVec; ++e) chain[e] = fma(query.at[e], key.at[e], chain[e]);
            }
        }
    }
    float sum = chain[0];
#pragma unroll
    for (int e = 1; e < kKVec; ++e) sum = add(sum, chain[e]);
    return sum;
}

/// The logit to base 2 of token t (C12). The path depends on the presence of a cap and of slopes, not on their values.
__device__ __forceinline__ float logit(const Params& p, const Row& row, int t, float dot) {
    if (p.alibi_slopes == nullptr && p.cap == 0.0f) return mul(dot, p.scale2);
    float s = mul(dot, p.scale);
    if (p.cap != 0.0f) s = mul(p.cap, tanh(div(s, p.cap)));
    if (p.alibi_slopes != nullptr) {
        const float distance = static_cast<float>(t - (row.len - 1));  // nearest even beyond 2^24
        s = add(s, mul(p.alibi_slopes[row.h], distance));
    }
    return logits2(s);
}

/// logits[t - first] of the tokens t in [first, end), end <= len; `first` is the start of a partition. Tokens that take no part are not
/// read and get -inf: their weight will be the +0 of C7's missing values. A barrier must follow.
__device__ __forceinline__ void qk(const Params& p, const Row& row, const float* q, int first, int end, float* logits) {
    const int lane = threadIdx.x % 32;
    const int member = lane % kGroup;
    const int in_span = member * kKVec;  // this lane's first element of a span
    for (int page = first / kPage + threadIdx.x / 32; page * kPage < end; page += kWarps) {
        const int start = page * kPage;
        const bool used = takes_part(p, row, start, smaller(start + kPage, end));
        const C* k = row.k + (used ? row.table[page] : int64_t{0}) * p.k_cache_stride[0] + place_in_k(in_span);
#pragma unroll 1
        for (int turn = 0; turn < kKTurns; ++turn) {
            if (kGroup == 1) __syncwarp();  // or nvcc lifts the loads of q out of the loop, and all of q into registers
            const int slot = turn * kKTokens + lane / kGroup;
            const int t = start + slot;
            const bool reads = used && t >= row.begin && t < end;
            float dot = reads ? partial_dot(q + in_span, k + slot * kX, row.k_scale) : 0.0f;
#pragma unroll
            for (int other = kGroup / 2; other > 0; other /= 2) dot = add(dot, __shfl_xor_sync(0xFFFFFFFFu, dot, other));
            if (member == 0 && t < end) logits[t - first] = reads ? logit(p, row, t, dot) : neg(kInf);
        }
    }
}

/// m and l of a partition, of what `softmax` leaves in `rows`.
__device__ __forceinline__ float m_of(const float* rows) {
    return ceil(running_max(running_max(rows[0], rows[1]), running_max(rows[2], rows[3])));  // integral, never -0
}
__device__ __forceinline__ float l_of(const float* rows) {
    return sum_rows(rows[kWarps], rows[kWarps + 1], rows[kWarps + 2], rows[kWarps + 3]);  // C7: rows
}

/// C12 and C7 on one partition: turns `tokens` logits into weights p in place. `rows`: 8 floats of shared memory, see m_of and l_of.
/// Ends with a barrier behind it: all weights can be read.
__device__ __forceinline__ void softmax(float* logits, int tokens, float* rows) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float top = neg(kInf);
    for (int t = threadIdx.x; t < tokens; t += kThreads) top = running_max(top, logits[t]);  // C6
#pragma unroll
    for (int other = 16; other > 0; other /= 2) top = running_max(top, __shfl_xor_sync(0xFFFFFFFFu, top, other));
    if (lane == 0) rows[warp] = top;
    __syncthreads();
    top = m_of(rows);
    float sum = 0.0f;
    for (int t = threadIdx.x; t < tokens; t += kThreads) {
        const float weight = weight_p(logits[t], top);
        logits[t] = weight;
        sum = add(sum, weight);
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum = add(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, other));  // C7: lanes
    if (lane == 0) rows[kWarps + warp] = sum;
    __syncthreads();
}

/// acc[u] += weights[t + e] * row u [e] of V, in ascending order of those of its tokens that lie in [low, high).
__device__ __forceinline__ void add_weighted(
        const Pack<C, kVVec> (&read)[kVInFlight], float scale, const float* weights, int t, int low, int high, float (&acc)[kVInFlight]) {
    if (low <= t && t + kVVec <= high) {
        const Pack<float, kVVec> weight = load<kVVec>(weights + t);
#pragma unroll
        for (int u = 0; u < kVInFlight; ++u) {
            const Pack<float, kVVec> value = values_of(read[u], scale);
#pragma unroll
            for (int e = 0; e < kVVec; ++e) acc[u] = fma(weight.at[e], value.at[e], acc[u]);
        }
    } else {  // the length ends or the window begins within this vector
#pragma unroll
        for (int e = 0; e < kVVec; ++e) {
            if (t + e >= low && t + e < high) {
                const float weight = weights[t + e];
#pragma unroll
                for (int u = 0; u < kVInFlight; ++u) acc[u] = fma(weight, values_of(Pack<C, 1>{read[u].at[e]}, scale).at[0], acc[u]);
            }
        }
    }
}

/// sums[warp, d]: each warp's sum of weight[t] * v[t,d] over its pages of the partition of `tokens` tokens that begins at token
/// `first`. Tokens that take no part execute nothing (C8); their slots may be read with their neighbours', never used. A barrier must
/// follow.
__device__ __forceinline__ void pv(const Params& p, const Row& row, int first, int tokens, const float* weights, float* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t* table = row.table + first / kPage;
    const int begin = row.begin - first;  // of the window
#pragma unroll 1
    for (int rows = 0; rows < kD; rows += kVRows * kVInFlight) {
        const int d = rows + lane / kVLanes;  // the first of the lane's `kVInFlight` rows
        float acc[kVInFlight];
#pragma unroll
        for (int u = 0; u < kVInFlight; ++u) acc[u] = 0.0f;
#pragma unroll 1
        for (int page = warp; page * kPage < tokens; page += kWarps) {
            if (!takes_part(p, row, first + page * kPage, first + smaller(page * kPage + kPage, tokens))) continue;
            const C* v = row.v + static_cast<int64_t>(table[page]) * p.v_cache_stride[0] + d * kPage;
#pragma unroll 1
            for (int turn = 0; turn < kVTurns; ++turn) {
                const int slot = (turn * kVLanes + lane % kVLanes) * kVVec;
                const int t = page * kPage + slot;
                if (t >= tokens || t + kVVec <= begin) continue;
                Pack<C, kVVec> read[kVInFlight] = {};  // rows beyond d: nothing is read, and their sums go nowhere
#pragma unroll
                for (int u = 0; u < kVInFlight; ++u) {
                    if (kVWhole || d + u * kVRows < kD) read[u] = load<kVVec>(v + u * kVRows * kPage + slot);
                }
                add_weighted(read, row.v_scale, weights, t, begin, tokens, acc);
            }
        }
#pragma unroll
        for (int u = 0; u < kVInFlight; ++u) {
#pragma unroll
            for (int other = kVLanes / 2; other > 0; other /= 2) acc[u] = add(acc[u], __shfl_xor_sync(0xFFFFFFFFu, acc[u], other));
            if (lane % kVLanes == 0 && (kVWhole || d + u * kVRows < kD)) sums[warp * kD + d + u * kVRows] = acc[u];
        }
    }
}

/// a[d] of a partition: the warps' sums by the classic tree (0+2)+(1+3).
__device__ __forceinline__ float close(const float* sums, int d) {
    return sum_rows(sums[d], sums[kD + d], sums[2 * kD + d], sums[3 * kD + d]);
}

/// The walk of C13 over partitions: the state so far and the weights with which the next one joins it.
struct Walk {
    float m, l;
    float w, w_u;    // of the state so far, of the following partition
    int partitions;  // joined so far

    __device__ __forceinline__ void join(float m_u, float l_u) {
        if (partitions++ == 0) {
            m = m_u;
            l = l_u;
            return;
        }
        const float top = running_max(m, m_u);
        w = pow2_weight(sub(m, top));
        w_u = pow2_weight(sub(m_u, top));
        l = join_scalar(l, w, l_u, w_u);
        m = top;
    }

    /// a[d] so far, after the partition that was joined last and has a_u[d].
    __device__ __forceinline__ float joined(float a, float a_u) const { return partitions == 1 ? a_u : join_scalar(a, w, a_u, w_u); }
};

/// out[n,h,:] and lse[n,h] of a state; a[i] belongs to d = thread + 128 i.
__device__ __forceinline__ void finish(const Params& p, int64_t n, int64_t h, const float* a, float m, float l) {
    T* out = p.out + n * p.out_stride[0] + h * p.out_stride[1];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
        const int d = threadIdx.x + i * kThreads;
        if (d < kD) out[d] = from_f32<T>(div(a[i], l));  // C5, C9, C11
    }
    if (p.lse != nullptr && threadIdx.x == 0) p.lse[n * p.lse_stride[0] + h * p.lse_stride[1]] = canonical_nan(lse(m, l));
}

/// C10: +0 and -inf.
__device__ __forceinline__ void finish_empty(const Params& p, int64_t n, int64_t h) {
    T* out = p.out + n * p.out_stride[0] + h * p.out_stride[1];
    for (int d = threadIdx.x; d < kD; d += kThreads) out[d] = from_f32<T>(0.0f);
    if (p.lse != nullptr && threadIdx.x == 0) p.lse[n * p.lse_stride[0] + h * p.lse_stride[1]] = neg(kInf);
}

}  // namespace sb::classic
