// The second kernel of paged_decode: walks the states that several blocks have stored of a row. A block takes a head, or some dimensions of it.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "decode_balance.cuh"

constexpr int kStates = D > 128 ? 64 : 128;  // states at a time, one a thread where weights are made
constexpr int kJoiners = 128;  // threads of a block
constexpr int kDimsOfThread = (D + kJoiners - 1) / kJoiners;

// The running maximum of a walk up to this lane, over groups of `width` lanes.
__device__ __forceinline__ float prefix_max(float m, int lane, int width) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float before = __shfl_up_sync(0xFFFFFFFFu, m, step);
        if (step < width && lane % width >= step) m = sb::running_max(before, m);
    }
    return m;
}

// Copies `dims` floats of each of `count` states, `stride` floats apart, kBytes at a time.
template <int kBytes>
__device__ __forceinline__ void copy_states(float* to, const float* from, int64_t stride, int dims, int count, int thread) {
    const int pieces = dims * 4 / kBytes;  // of a state
    int state = thread / pieces, piece = thread % pieces;
    const int states = kJoiners / pieces, others = kJoiners % pieces;
#pragma unroll 4
    while (state < count) {
        __pipeline_memcpy_async(to + state * dims + piece * (kBytes / 4), from + state * stride + piece * (kBytes / 4), kBytes);
        state += states, piece += others;
        if (piece >= pieces) piece -= pieces, ++state;
    }
}

// A state is that of a tile, and tiles are joined to spans first (C13.3), or of the kTiles of a span.
template <int kTiles>
__global__ void __launch_bounds__(kJoiners) join_states(const PagedDecodeParams p) {
    constexpr int kStep = kTiles == 1 ? kSpan : 1;  // states of a span
    extern __shared__ __align__(16) float a_of[];  // a_of[state][d]
    __shared__ float l_of[kStates], top_of[kStates / 32];
    __shared__ Weights of_tile[kStates], of_span[kStates];  // join a tile to its span; at a span's last state, the span to the row
    const int thread = static_cast<int>(threadIdx.x % kJoiners), warp = thread / 32, lane = thread % 32;
    const int64_t n = blockIdx.x, head = blockIdx.y, part = (n * p.h + head) * p.states;
    const int dims = D / static_cast<int>(gridDim.z), first_dim = static_cast<int>(blockIdx.z) * dims;
    const float* a_parts = p.part_a + n * p.part_a_stride[0] + head * p.part_a_stride[1] + first_dim;
    const bool in_vectors = (reinterpret_cast<uintptr_t>(a_parts) | static_cast<uintptr_t>(4 * p.part_a_stride[2])) % 16 == 0;
    Row row;
    measure<kTiles>(p, n, p.seq_lens[n], row);
    if (is_finished<kTiles>(p, row, head)) return;
    float carried = -sb::kInf;  // the row's maximum so far
    float a[kDimsOfThread], span_a[kDimsOfThread], l = 0.0f, span_l = 0.0f;  // every thread walks l
    for (int base = row.first_unit / kStates * kStates; base < row.units; base += kStates) {
        const int from = row.first_unit > base ? row.first_unit - base : 0;
        const int to = row.units - base < kStates ? row.units - base : kStates;
        __syncthreads();  // the last states have been joined
        const float* parts = a_parts + (base + from) * p.part_a_stride[2];
        if (in_vectors) {
            copy_states<16>(&a_of[from * dims], parts, p.part_a_stride[2], dims, to - from, thread);
        } else {
            copy_states<4>(&a_of[from * dims], parts, p.part_a_stride[2], dims, to - from, thread);
        }
        __pipeline_commit();
        float top = -sb::kInf, m = -sb::kInf;
        if (thread < kStates) {
            const bool there = thread >= from && thread < to;
            const float m_u = there ? p.part_m[part + base + thread] : -sb::kInf;
            l_of[thread] = there ? p.part_l[part + base + thread] : 0.0f;
            m = m_u;
            if (kStep > 1) {  // C13.3: over the tiles of the span so far
                m = prefix_max(m_u, lane, kStep);
                const float shifted = __shfl_up_sync(0xFFFFFFFFu, m, 1), before = lane % kStep == 0 ? -sb::kInf : shifted;
                of_tile[thread] = {sb::pow2_weight(sb::sub(before, m)), sb::pow2_weight(sb::sub(m_u, m))};
            }
            top = prefix_max(m, lane, 32);
            if (lane == 31) top_of[warp] = top;
        }
        __syncthreads();
        float before_warp = carried;
#pragma unroll
        for (int w = 0; w < kStates / 32; ++w) {
            if (w < warp) before_warp = sb::running_max(before_warp, top_of[w]);
            carried = sb::running_max(carried, top_of[w]);
        }
        if (thread < kStates) {
            top = sb::running_max(before_warp, top);
            float before = __shfl_sync(0xFFFFFFFFu, top, (lane / kStep * kStep + 31) % 32);  // at the end of the span before
            if (lane < kStep) before = before_warp;
            of_span[thread] = {sb::pow2_weight(sb::sub(before, top)), sb::pow2_weight(sb::sub(m, top))};
        }
        __pipeline_wait_prior(0);
        __syncthreads();
#pragma unroll 4
        for (int u = from; u < to; ++u) {
            const int number = base + u;
            const bool begins = kStep == 1 || number == row.first_unit || number % kStep == 0;
            const bool ends = kStep == 1 || number + 1 == row.units || number % kStep == kStep - 1;
            const bool opens = number / kStep == row.first_unit / kStep;
            const Weights tile = kStep == 1 ? Weights{} : of_tile[u], span = of_span[u];
            span_l = join(begins, span_l, tile, l_of[u]);
            if (ends) l = join(opens, l, span, span_l);
#pragma unroll
            for (int i = 0; i < kDimsOfThread; ++i) {
                const int d = thread + i * kJoiners;
                span_a[i] = join(begins, span_a[i], tile, a_of[u * dims + (d < dims ? d : 0)]);
                if (ends) a[i] = join(opens, a[i], span, span_a[i]);
            }
        }
    }
    Walk walk = {carried, l};
    Weights sink = {};
    if (p.sinks != nullptr) sink = walk.step_sink(p.sinks[head]);
    if (thread == 0 && first_dim == 0) write_lse(p, n, head, walk);
#pragma unroll
    for (int i = 0; i < kDimsOfThread; ++i) {
        const int d = thread + i * kJoiners;
        if (p.sinks != nullptr) a[i] = join(false, a[i], sink, 0.0f);
        if (d < dims) write_out(p, n, head, first_dim + d, a[i], walk.l);
    }
}
