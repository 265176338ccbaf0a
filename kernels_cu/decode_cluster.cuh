// The join of paged_decode where the blocks of a row form a cluster, a span each: they read each other's states from shared memory.
// CUDA's own functions are called: cooperative_groups.h around them takes half as long to compile as the kernel.
#pragma once

#include "decode_walk.cuh"

// A block's state lies where q and the maxima were. That of unit u is in block u of the cluster.
template <class S>
struct State {
    float *a, *m, *l;  // [h * D + d], [h], [h]

    __device__ __forceinline__ explicit State(Block<S>& s) : a(s.q), m(s.maxima[0][0]), l(s.maxima[1][0]) {}
};

// Whether this block is launched in a cluster, whose blocks are those of a row.
template <class S>
__device__ __forceinline__ bool in_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if constexpr (S::kClusters) return __clusterSizeInBlocks() > 1;
#endif
    return false;
}

__device__ __forceinline__ void wait_for_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
#endif
}

// What the threads do that have nothing to join.
template <class S>
__device__ __forceinline__ void attend_join(const Row& row) {
    if (!S::kClusters || !row.cluster) return;
    wait_for_cluster();
    wait_for_cluster();
}

// Whether the blocks that share the row form a cluster.
template <class S>
__device__ __forceinline__ bool shares_in_cluster(const Row& row) {
    return row.units > row.first_unit + 1 && in_cluster<S>();
}

// Joins the spans of the row (C13.4) and writes it out, a part of the head dimensions a block.
template <class S>
__device__ __forceinline__ void join_cluster(const PagedDecodeParams& p, Block<S>& s) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kMost = 8;  // blocks of a cluster
    const Row& row = s.row;
    const int blocks = static_cast<int>(__clusterSizeInBlocks()), rank = static_cast<int>(__clusterRelativeBlockRank());
    const int elements = row.heads * D, part = (elements + blocks - 1) / blocks;
    const int end = (rank + 1) * part < elements ? (rank + 1) * part : elements;
    wait_for_cluster();  // all states are there
    for (int at = rank * part + S::thread(); at < end; at += S::kThreads) {
        const int h = at / D, d = at % D;
        float m_u[kMost], l_u[kMost], a_u[kMost];
#pragma unroll
        for (int u = 0; u < kMost; ++u) {
            if (u < row.first_unit || u >= row.units) continue;
            const State<S> state(*static_cast<Block<S>*>(__cluster_map_shared_rank(&s, u)));
            m_u[u] = state.m[h], l_u[u] = state.l[h], a_u[u] = state.a[at];
        }
        Walk walk = {0.0f, 0.0f};
        float a = 0.0f;
#pragma unroll
        for (int u = 0; u < kMost; ++u) {
            if (u < row.first_unit || u >= row.units) continue;
            const bool first = u == row.first_unit;
            a = join(first, a, walk.step(first, m_u[u], l_u[u]), a_u[u]);
        }
        if (p.sinks != nullptr) a = join(false, a, walk.step_sink(p.sinks[row.head + h]), 0.0f);
        if (d == 0) write_lse(p, row.n, row.head + h, walk);
        write_out(p, row.n, row.head + h, d, a, walk.l);
    }
    wait_for_cluster();  // nobody reads this block's state any more
#endif
}
