// paged_attention_v2: decode attention of one query token a sequence over a paged KV cache, one block a head, sequence and 512 tokens.
//
// Grid (h, n, partitions), 128 threads: every partition's unnormalised state (m, l, a) goes to the workspace in binary32. A second kernel,
// grid (h, n), joins the states in ascending order. The same bytes as paged_attention_v1.

#include "classic.cuh"

using namespace sb::classic;

struct PagedAttentionV2Params {
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
  float* tmp_out;  // [n, h, parts, d]: a; partitions without tokens are neither written nor read
  int64_t tmp_out_stride[3];
  float* exp_sums;    // [n, h, parts]: l
  float* max_logits;  // [n, h, parts]: m
  float scale;
  float scale2;
  int64_t max_seq_len;
  int64_t n;
  int64_t h;
  int64_t pages;
  int64_t g;
  int64_t max_pages;
  int64_t parts;
};

__global__ void __launch_bounds__(kThreads) partition_kernel(const PagedAttentionV2Params p, const int64_t first_sequence) {
  __shared__ alignas(16) float logits[kPartition];
  __shared__ alignas(16) float q[kD];
  __shared__ float sums[kWarps * kD];  // [warp, d]
  __shared__ float rows[2 * kWarps];

  const Row row = row_of(p, first_sequence + blockIdx.y);
  const int first = blockIdx.z * kPartition;
  if (first >= row.len) return;
  const int tokens = smaller(row.len - first, kPartition);
  stage_q(p, row, q);
  __syncthreads();
  qk(p, row, q, first, first + tokens, logits);
  __syncthreads();
  float m, l;
  softmax(logits, tokens, rows, &m, &l);
  pv(p, row, first, tokens, logits, sums);
  __syncthreads();
  const int64_t part = blockIdx.z;
  float* a = p.tmp_out + row.n * p.tmp_out_stride[0] + row.h * p.tmp_out_stride[1] + part * p.tmp_out_stride[2];
  for (int d = threadIdx.x; d < kD; d += kThreads) a[d] = sb::canonical_nan(close(sums, d));  // C9
  if (threadIdx.x == 0) {
    const int64_t at = (row.n * p.h + row.h) * p.parts + part;
    p.exp_sums[at] = sb::canonical_nan(l);
    p.max_logits[at] = m;  // never NaN (C6)
  }
}

__global__ void __launch_bounds__(kThreads) reduce_kernel(const PagedAttentionV2Params p, const int64_t first_sequence) {
  const int64_t n = first_sequence + blockIdx.y, h = blockIdx.x;
  const int len = p.seq_lens[n];
  if (len <= 0) {
    finish_empty(p, n, h);
    return;
  }
  const float* exp_sums = p.exp_sums + (n * p.h + h) * p.parts;
  const float* max_logits = p.max_logits + (n * p.h + h) * p.parts;
  const float* a_u = p.tmp_out + n * p.tmp_out_stride[0] + h * p.tmp_out_stride[1];
  const int parts = (len + kPartition - 1) / kPartition;

  Walk walk{max_logits[0], exp_sums[0], 0.0f, 0.0f};
  float a[kOwned] = {};  // a[d], d = thread + 128 i
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    if (threadIdx.x + i * kThreads < kD) a[i] = a_u[threadIdx.x + i * kThreads];
  }
  for (int part = 1; part < parts; ++part) {
    walk.join(max_logits[part], exp_sums[part]);
    a_u += p.tmp_out_stride[2];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      const int d = threadIdx.x + i * kThreads;
      if (d < kD) a[i] = sb::join_scalar(a[i], walk.w, a_u[d], walk.w_u);
    }
  }
  finish(p, n, h, a, walk.m, walk.l);
}

extern "C" int paged_attention_v2(const PagedAttentionV2Params* params, void* stream) {
  const PagedAttentionV2Params& p = *params;
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
