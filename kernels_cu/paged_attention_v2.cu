// paged_attention_v2: decode attention of one query token a sequence over a paged KV cache, one block a head, sequence and 512 tokens.
//
// Grid (h, n, partitions), 128 threads: every partition's unnormalised state (m, l, a) goes to the workspace in binary32. A second kernel,
// grid (h, n), joins the states in ascending order. The same bytes as paged_attention_v1.

#define SB_WORKSPACE
#include "classic.cuh"

using namespace sb::classic;

using PagedAttentionV2Params = Params;

// Blocks that a multiprocessor has room for: this bounds the registers of a thread, loosely enough that none of them spills.
constexpr int kBlocks = kGroup == 1 ? 5 : 7;

__global__ void __launch_bounds__(kThreads, kBlocks) partition_kernel(const Params p, const int64_t first_sequence) {
    __shared__ alignas(16) float logits[kPartition];
    __shared__ alignas(16) float q[kD];
    __shared__ float sums[kWarps * kD];  // [warp, d]
    __shared__ float rows[2 * kWarps];

    const Row row = row_of(p, first_sequence + blockIdx.y);
    const int first = blockIdx.z * kPartition;
    const int tokens = smaller(row.len - first, kPartition);
    if (!takes_part(p, row, first, first + tokens)) return;
    stage_q(p, row, q);
    __syncthreads();
    qk(p, row, q, first, first + tokens, logits);
    __syncthreads();
    softmax(logits, tokens, rows);
    pv(p, row, first, tokens, logits, sums);
    __syncthreads();
    const int64_t part = blockIdx.z;
    float* a = p.tmp_out + row.n * p.tmp_out_stride[0] + row.h * p.tmp_out_stride[1] + part * p.tmp_out_stride[2];
    for (int d = threadIdx.x; d < kD; d += kThreads) a[d] = sb::canonical_nan(close(sums, d));  // C9
    if (threadIdx.x == 0) {
        const int64_t at = (row.n * p.h + row.h) * p.parts + part;
        p.exp_sums[at] = sb::canonical_nan(l_of(rows));
        p.max_logits[at] = m_of(rows);  // never NaN (C6)
    }
}

__global__ void __launch_bounds__(kThreads) reduce_kernel(const Params p, const int64_t first_sequence) {
    const Row row = row_of(p, first_sequence + blockIdx.y);
    if (!takes_part(p, row, 0, row.len)) {
        finish_empty(p, row.n, row.h);
        return;
    }
    const int64_t row_at = (row.n * p.h + row.h) * p.parts;
    const float* a_of_row = p.tmp_out + row.n * p.tmp_out_stride[0] + row.h * p.tmp_out_stride[1];

    Walk walk{};
    float a[kOwned] = {};  // a[d], d = thread + 128 i
    for (int part = row.begin / kPartition; part * kPartition < row.len; ++part) {
        const int first = part * kPartition;
        if (!takes_part(p, row, first, smaller(first + kPartition, row.len))) continue;  // C10
        const float* a_u = a_of_row + part * p.tmp_out_stride[2];
        walk.join(p.max_logits[row_at + part], p.exp_sums[row_at + part]);
#pragma unroll
        for (int i = 0; i < kOwned; ++i) {
            const int d = threadIdx.x + i * kThreads;
            if (d < kD) a[i] = walk.joined(a[i], a_u[d]);
        }
    }
    finish(p, row.n, row.h, a, walk.m, walk.l);
}

extern "C" int paged_attention_v2(const PagedAttentionV2Params* params, void* stream) {
    const Params& p = *params;
    if (p.n == 0 || p.h == 0) return 0;  // an empty grid cannot be launched
    const auto on = static_cast<cudaStream_t>(stream);
    const unsigned heads = static_cast<unsigned>(p.h);
    const unsigned parts = static_cast<unsigned>((p.max_seq_len + kPartition - 1) / kPartition);
    for (int64_t first = 0; first < p.n; first += kMaxGrid) {
        const unsigned sequences = static_cast<unsigned>(p.n - first < kMaxGrid ? p.n - first : kMaxGrid);
        if (parts > 0) {
            partition_kernel<<<dim3(heads, sequences, parts), kThreads, 0, on>>>(p, first);
            const cudaError_t failed = cudaGetLastError();
            if (failed != cudaSuccess) return static_cast<int>(failed);
        }
        reduce_kernel<<<dim3(heads, sequences), kThreads, 0, on>>>(p, first);
        const cudaError_t failed = cudaGetLastError();
        if (failed != cudaSuccess) return static_cast<int>(failed);
    }
    return 0;
}
