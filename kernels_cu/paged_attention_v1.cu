// paged_attention_v1: decode attention of one query token a sequence over a paged KV cache, one block a head and sequence.
//
// Grid (h, n), 128 threads. All logits of the sequence lie in dynamic shared memory; softmax and PV walk over them in partitions of 512
// tokens, whose states are joined in registers. The same bytes as paged_attention_v2.

#include "classic.cuh"

using namespace sb::classic;

struct PagedAttentionV1Params {
  T* out;  // [n, h, d]
  int64_t out_stride[2];
  const T* q;  // [n, h, d]
  int64_t q_stride[2];
  const T* k_cache;  // [pages, g, d/x, page, x]
  int64_t k_cache_stride[2];
  const T* v_cache;  // [pages, g, d, page]
  int64_t v_cache_stride[2];
  const int32_t* block_tables;  // [n, max_pages]
  int64_t block_tables_stride[1];
  const int32_t* seq_lens;    // [n]
  const float* alibi_slopes;  // [h]; null: the plain path
  float* lse;                 // [n, h]; null where nobody wants it
  int64_t lse_stride[2];
  float scale;
  float scale2;
  int64_t max_seq_len;
  int64_t n;
  int64_t h;
  int64_t pages;
  int64_t g;
  int64_t max_pages;
};

__global__ void __launch_bounds__(kThreads) paged_attention_v1_kernel(const PagedAttentionV1Params p, const int64_t first_sequence) {
  extern __shared__ float logits[];  // of every token; then, a partition at a time, its weights
  __shared__ alignas(16) float q[kD];
  __shared__ float sums[kWarps * kD];  // [warp, d]
  __shared__ float rows[2 * kWarps];

  const Row row = row_of(p, first_sequence + blockIdx.y);
  if (row.len <= 0) {
    finish_empty(p, row.n, row.h);
    return;
  }
  stage_q(p, row, q);
  __syncthreads();
  qk(p, row, q, 0, row.len, logits);
  __syncthreads();

  Walk walk{};
  float a[kOwned] = {};  // a[d], d = thread + 128 i
  for (int first = 0; first < row.len; first += kPartition) {
    const int tokens = smaller(row.len - first, kPartition);
    float m_u, l_u;
    softmax(logits + first, tokens, rows, &m_u, &l_u);
    pv(p, row, first, tokens, logits + first, sums);
    __syncthreads();
    if (first == 0) {
      walk.m = m_u;
      walk.l = l_u;
    } else {
      walk.join(m_u, l_u);
    }
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      const int d = threadIdx.x + i * kThreads;
      if (d < kD) a[i] = first == 0 ? close(sums, d) : sb::join_scalar(a[i], walk.w, close(sums, d), walk.w_u);
    }  // the barriers of the next softmax stand between these reads of `sums` and its next writes
  }
  finish(p, row.n, row.h, a, walk.m, walk.l);
}

extern "C" int paged_attention_v1(const PagedAttentionV1Params* params, void* stream) {
  const PagedAttentionV1Params& p = *params;
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
