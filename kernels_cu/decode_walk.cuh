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

// The walk's maxima before and after every one of 32 states, one a lane: a prefix maximum. Which lanes begin a walk says `first`.
__device__ __forceinline__ float prefix_max(float m, int lane, int width) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float before = __shfl_up_sync(0xFFFFFFFFu, m, step);
        if (step < width && lane % width >= step) m = sb::running_max(before, m);
    }
    return m;
}

// Weights of 32 consecutive stored states of head h, one a lane, into shared memory. Where states are tiles, [0] joins a tile to its span and
// [1], at a span's last tile, the span to the row; where they are spans, [1] joins them to the row. `carried` is the row's maximum so far.
template <int kWarps>
__device__ __forceinline__ void weigh_stored(const PagedDecodeParams& p, const Row& row, Block<kWarps>& s, int h, int64_t base, int64_t from, int64_t to,
                                             float* carried) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t number = base + lane;
    const bool there = number >= from && number < to;
    const float m_u = there ? __ldcg(p.part_m + (row.n * p.h + row.head + h) * p.states + number) : -sb::kInf;
    float m = m_u;
    if (kWarps == 4) {
        m = prefix_max(m_u, lane, kSpan);  // over the tiles of the span so far
        float before = __shfl_up_sync(0xFFFFFFFFu, m, 1);
        if (lane % kSpan == 0) before = -sb::kInf;
        s.stored[lane][0][h] = {sb::pow2_weight(sb::sub(before, m)), sb::pow2_weight(sb::sub(m_u, m))};
    }
    const float top = sb::running_max(*carried, prefix_max(m, lane, 32));
    constexpr int kStep = kWarps == 4 ? kSpan : 1;
    float before = __shfl_sync(0xFFFFFFFFu, top, (lane / kStep * kStep + 31) % 32);  // the state before this span
    if (lane < kStep) before = *carried;
    s.stored[lane][1][h] = {sb::pow2_weight(sb::sub(before, top)), sb::pow2_weight(sb::sub(m, top))};
    *carried = __shfl_sync(0xFFFFFFFFu, top, 31);
}

// Joins the stored states [from, to) of a row: those of a span first where they are tiles. l is walked as one more dimension.
template <int kWarps>
__device__ __forceinline__ void walk_stored(const PagedDecodeParams& p, const Row& row, Block<kWarps>& s, int64_t from, int64_t to, Walk& walk,
                                            float (&a)[kElements]) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const float* a_of[kElements];
    int head[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
        int h, d;
        const bool there = element_of(row, e, &h, &d);
        head[e] = there ? h : 0;
        a_of[e] = p.part_a + row.n * p.part_a_stride[0] + (row.head + head[e]) * p.part_a_stride[1] + d;
    }
    const float* l_of = p.part_l + (row.n * p.h + row.head + (lane < row.heads ? lane : 0)) * p.states;
    const int own = lane < row.heads ? lane : 0;
    float carried[kPad], span_a[kElements], span_l = 0.0f;
#pragma unroll
    for (int h = 0; h < kPad; ++h) carried[h] = -sb::kInf;
    for (int64_t base = from / 32 * 32; base < to; base += 32) {
        __syncthreads();  // the last weights have been read
#pragma unroll
        for (int h = 0; h < kPad; ++h) {
            if (h % 4 == warp && h < row.heads) weigh_stored(p, row, s, h, base, from, to, &carried[h]);
        }
        __syncthreads();
        const int64_t end = base + 32 < to ? base + 32 : to;
        for (int64_t chunk = base > from ? base : from; chunk < end; chunk += kChunk) {
            float a_u[kChunk][kElements], l_u[kChunk];
#pragma unroll
            for (int c = 0; c < kChunk; ++c) {
                const int64_t number = chunk + c < end ? chunk + c : end - 1;
                l_u[c] = __ldcg(l_of + number);
#pragma unroll
                for (int e = 0; e < kElements; ++e) a_u[c][e] = __ldcg(a_of[e] + number * p.part_a_stride[2]);
            }
#pragma unroll
            for (int c = 0; c < kChunk; ++c) {
                const int64_t number = chunk + c;
                if (number >= end) continue;
                const bool begins = kWarps == 1 || number == from || number % kSpan == 0;
                const bool ends = kWarps == 1 || number + 1 == to || number % kSpan == kSpan - 1;
                const bool opens = kWarps == 1 ? number == from : number / kSpan == from / kSpan;
                const auto& weights = s.stored[number - base];
                span_l = join(begins, span_l, weights[0][own], l_u[c]);
                if (ends) walk.l = join(opens, walk.l, weights[1][own], span_l);
#pragma unroll
                for (int e = 0; e < kElements; ++e) {
                    span_a[e] = join(begins, span_a[e], weights[0][head[e]], a_u[c][e]);
                    if (ends) a[e] = join(opens, a[e], weights[1][head[e]], span_a[e]);
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < kPad; ++h) {  // the row's maximum, which lanes of warp h % 4 have, to the lanes that walk head h
        if (h % 4 == warp && lane == 0) s.m[0][h] = carried[h];
    }
    __syncthreads();
    walk.m = s.m[0][own];
}
