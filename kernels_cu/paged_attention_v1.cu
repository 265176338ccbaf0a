// paged_attention_v1: decode attention of one query token a sequence over a paged KV cache, one block a head and sequence.
//
// Grid (h, n), 128 threads. All logits of the sequence lie in dynamic shared memory; softmax and PV walk over them in partitions of 512
// tokens, whose states are joined in registers. The same bytes as paged_attention_v2.

#include "classic.cuh"

using namespace sb::classic;

using PagedAttentionV1Params = Params;

// Blocks that a multiprocessor has room for: this bounds the registers of a thread, loosely enough that none of them spills.
constexpr int kBlocks = kGroup == 1 ? 4 : 6;

__global__ void __launch_bounds__(kThreads, kBlocks) paged_attention_v1_kernel(const Params p, const int64_t first_sequence) {
    extern __shared__ float logits[];  // of every token; then, a partition at a time, its weights
    __shared__ alignas(16) float q[kD];
    __shared__ float sums[kWarps * kD];  // [warp, d]
    __shared__ float rows[2 * kWarps];

    const Row row = row_of(p, first_sequence + blockIdx.y);
    if (!takes_part(p, row, 0, row.len)) {
        finish_empty(p, row.n, row.h);
        return;
    }
    stage_q(p, row, q);
    __syncthreads();
    const int begin = row.begin / kPartition * kPartition;
    qk(p, row, q, begin, row.len, logits + begin);
    __syncthreads();

    Walk walk{};
    float a[kOwned] = {};  // a[d], d = thread + 128 i
    for (int first = begin; first < row.len; first += kPartition) {
        const int tokens = smaller(row.len - first, kPartition);
        if (!takes_part(p, row, first, first + tokens)) continue;  // C10
        softmax(logits + first, tokens, rows);
        pv(p, row, first, tokens, logits + first, sums);
        const float m_u = m_of(rows), l_u = l_of(rows);  // before the barrier: the next softmax begins to write them
        __syncthreads();
        walk.join(m_u, l_u);
#pragma unroll
        for (int i = 0; i < kOwned; ++i) {
            const int d = threadIdx.x + i * kThreads;
            if (d < kD) a[i] = walk.joined(a[i], close(sums, d));
        }  // the barriers of the next softmax stand between these reads of `sums` and its next writes
    }
    finish(p, row.n, row.h, a, walk.m, walk.l);
}

extern "C" int paged_attention_v1(const PagedAttentionV1Params* params, void* stream) {
    const Params& p = *params;
    if (p.n == 0 || p.h == 0) return 0;  // an empty grid cannot be launched
    const size_t bytes = static_cast<size_t>(p.max_seq_len) * sizeof(float);
    constexpr size_t fixed = (kD + kWarps * kD + 2 * kWarps) * sizeof(float);
    if (fixed + bytes > 48 * 1024) {
        const cudaError_t refused =
                cudaFuncSetAttribute(paged_attention_v1_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
        if (refused != cudaSuccess) return static_cast<int>(refused);
    }
    for (int64_t first = 0; first < p.n; first += kMaxGrid) {
        const int64_t sequences = p.n - first < kMaxGrid ? p.n - first : kMaxGrid;
        const dim3 grid(static_cast<unsigned>(p.h), static_cast<unsigned>(sequences));
        paged_attention_v1_kernel<<<grid, kThreads, bytes, static_cast<cudaStream_t>(stream)>>>(p, first);
        const cudaError_t failed = cudaGetLastError();
        if (failed != cudaSuccess) return static_cast<int>(failed);
    }
    return 0;
}
