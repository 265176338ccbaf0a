// The walk of paged_decode over states of tiles and spans (C13.3, C13.4): in a block, and over states that blocks have stored.
#pragma once

#include "decode_shape.cuh"

// m and l of a walk (C13.3, C13.4) of one head.
struct Walk {
    float m, l;

    __device__ __forceinline__ Weights step(bool first, float m_u, float l_u) {
        const float top = first ? m_u : sb::running_max(m, m_u);
        const Weights w = {sb::pow2_weight(sb::sub(m, top)), sb::pow2_weight(sb::sub(m_u, top))};
        l = first ? l_u : sb::join_scalar(l, w.so_far, l_u, w.next);
        m = top;
        return w;
    }

    // C13.4: a sink is one more span.
    __device__ __forceinline__ Weights step_sink(float sink) {
        const float s2 = sb::logits2(sink), m_u = sb::ceil(sb::running_max(-sb::kInf, s2));
        return step(false, m_u, sb::weight_p(s2, m_u));
    }
};

__device__ __forceinline__ float join(bool first, float a, const Weights& w, float a_u) {
    return first ? a_u : sb::join_scalar(a, w.so_far, a_u, w.next);  // the first state is taken as it is: -0 stays
}

// The first token of a sequence that takes part (C12).
__device__ __forceinline__ int first_token(const PagedDecodeParams& p, int len) {
    return p.window != 0 && p.window < len ? static_cast<int>(len - p.window) : 0;
}

// Which tokens and units of sequence n take part.
template <int kTiles>
__device__ __forceinline__ void measure(const PagedDecodeParams& p, int64_t n, int len, Row& row) {
    constexpr int kUnitTokens = kTiles * kTile;
    row.n = n;
    row.len = len;
    row.start = first_token(p, len);
    row.first_unit = row.start / kUnitTokens;
    row.units = (row.len + kUnitTokens - 1) / kUnitTokens;
}

// C13.5: output and LSE of a row's dimension.
__device__ __forceinline__ void write_out(const PagedDecodeParams& p, int64_t n, int64_t head, int d, float a, float l) {
    p.out[n * p.out_stride[0] + head * p.out_stride[1] + d] = sb::from_f32<T>(sb::div(a, l));
}
__device__ __forceinline__ void write_lse(const PagedDecodeParams& p, int64_t n, int64_t head, const Walk& walk) {
    if (p.lse != nullptr) p.lse[n * p.lse_stride[0] + head * p.lse_stride[1]] = sb::canonical_nan(sb::lse(walk.m, walk.l));
}

// Head and dimension of this thread's element e of a[h,d]; false past the last.
template <class S>
__device__ __forceinline__ bool element_of(const Row& row, int e, int* h, int* d) {
    const int at = S::thread() + e * S::kThreads;
    *h = at / D;
    *d = at % D;
    return (S::kHeads * D % S::kThreads == 0 && kGroup % S::kHeads == 0) || *h < row.heads;
}

// Stores a state under a number, unnormalised.
template <class S>
__device__ __forceinline__ void store(const PagedDecodeParams& p, const Row& row, const Walk& walk, const float (&a)[S::kElements],
                                      int64_t number) {
#pragma unroll
    for (int e = 0; e < S::kElements; ++e) {
        int h, d;
        if (!element_of<S>(row, e, &h, &d)) continue;
        p.part_a[row.n * p.part_a_stride[0] + (row.head + h) * p.part_a_stride[1] + number * p.part_a_stride[2] + d] = a[e];
    }
    if (static_cast<int>(threadIdx.x) < row.heads) {
        const int64_t at = (row.n * p.h + row.head + threadIdx.x) * p.states + number;
        p.part_m[at] = walk.m;
        p.part_l[at] = walk.l;
    }
}
