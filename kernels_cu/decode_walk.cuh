// The walk of paged_decode over states of tiles and spans (C13.3, C13.4): in a block, and over states that other blocks have stored.
#pragma once

#include "decode_shape.cuh"

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
