// Attention without its matrix of scores: wmma products of tiles of queries and keys, a softmax that is corrected as maxima grow.
#include <cuda_fp16.h>
#include <mma.h>

#include "program.h"

using namespace nvcuda;
constexpr int kRows = 32, kKeys = 32, kDim = 64, kWarps = 4;

struct Shared {
  half q[kRows * kDim], k[kKeys * kDim], v[kKeys * kDim], p[kRows * kKeys];
  float scores[kRows * kKeys], out[kRows * kDim], most[kRows], sum[kRows], correction[kRows];
};

template <class Layout>
__device__ void add_product(wmma::fragment<wmma::accumulator, 16, 16, 16, float>& sum, const half* a, int lda, const half* b, int ldb) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, Layout> fb;
  wmma::load_matrix_sync(fa, a, lda);
  wmma::load_matrix_sync(fb, b, ldb);
  wmma::mma_sync(sum, fa, fb, sum);
}

__device__ void copy_tile(half* to, const half* from, int n) {
  for (int i = threadIdx.x * 8; i < n; i += blockDim.x * 8) *reinterpret_cast<int4*>(to + i) = __ldg(reinterpret_cast<const int4*>(from + i));
}

__global__ void __launch_bounds__(32 * kWarps) attention(const half* q, const half* k, const half* v, float* out, int n, float scale, bool causal) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * kRows;
  size_t head = size_t(blockIdx.y) * n * kDim;
  copy_tile(s.q, q + head + first * kDim, kRows * kDim);
  for (int i = threadIdx.x; i < kRows * kDim; i += blockDim.x) s.out[i] = 0;
  if (threadIdx.x < kRows) s.most[threadIdx.x] = -INFINITY, s.sum[threadIdx.x] = 0;

  for (int key = 0; key < (causal ? min(n, first + kRows) : n); key += kKeys) {
    __syncthreads();
    copy_tile(s.k, k + head + key * kDim, kKeys * kDim);
    copy_tile(s.v, v + head + key * kDim, kKeys * kDim);
    __syncthreads();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    int row = warp / 2 * 16, column = warp % 2 * 16;
    for (int d = 0; d < kDim; d += 16) add_product<wmma::col_major>(sum, s.q + row * kDim + d, kDim, s.k + column * kDim + d, kDim);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= scale;
    wmma::store_matrix_sync(s.scores + row * kKeys + column, sum, kKeys, wmma::mem_row_major);
    __syncthreads();

    for (int r = warp; r < kRows; r += kWarps) {
      float score = causal && key + lane > first + r ? -INFINITY : s.scores[r * kKeys + lane], most = score;
      for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, d));
      float before = s.most[r], now = fmaxf(before, most), p = __expf(score - now), total = p;
      for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, d);
      s.p[r * kKeys + lane] = __float2half(p);
      __syncwarp();
      if (lane == 0) {
        s.correction[r] = __expf(before - now);
        s.most[r] = now;
        s.sum[r] = s.sum[r] * s.correction[r] + total;
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * kDim; i += blockDim.x) s.out[i] *= s.correction[i / kDim];
    __syncthreads();
    for (int tile = warp; tile < kRows / 16 * (kDim / 16); tile += kWarps) {
      float* at = s.out + tile / (kDim / 16) * 16 * kDim + tile % (kDim / 16) * 16;
      wmma::load_matrix_sync(sum, at, kDim, wmma::mem_row_major);
      for (int c = 0; c < kKeys; c += 16) {
        add_product<wmma::row_major>(sum, s.p + tile / (kDim / 16) * 16 * kKeys + c, kKeys, s.v + c * kDim + tile % (kDim / 16) * 16, kDim);
      }
      wmma::store_matrix_sync(at, sum, kDim, wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * kDim; i += blockDim.x) out[head + first * kDim + i] = s.out[i] / s.sum[i / kDim];
}

int main() {
  int n = 64, heads = 2, count = heads * n * kDim;
  std::vector<half> q(count), k(count), v(count);
  for (int i = 0; i < count; ++i) q[i] = half(std::sin(i * 0.37f)), k[i] = half(std::cos(i * 0.11f)), v[i] = half(std::sin(i * 0.05f));
  half *dq = upload(q), *dk = upload(k), *dv = upload(v);
  float* out = fresh<float>(count);
  CHECK(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  CHECK(cudaFuncSetAttribute(attention, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  bool good = true;
  for (bool causal : {false, true}) {
    attention<<<dim3(n / kRows, heads), 32 * kWarps, sizeof(Shared)>>>(dq, dk, dv, out, n, 0.125f, causal);
    CHECK(cudaGetLastError());
    std::vector<float> want(count);
    for (int row = 0; row < heads * n; ++row) {
      double p[64], sum = 0;
      for (int j = 0; j < n; ++j) {
        double score = 0;
        for (int d = 0; d < kDim; ++d) score += double(float(q[row * kDim + d])) * float(k[(row / n * n + j) * kDim + d]);
        sum += p[j] = causal && j > row % n ? 0 : std::exp(score * 0.125);
      }
      for (int d = 0; d < kDim; ++d) {
        double total = 0;
        for (int j = 0; j < n; ++j) total += p[j] * float(v[(row / n * n + j) * kDim + d]);
        want[row * kDim + d] = float(total / sum);
      }
    }
    good = good && close(download(out, count), want, 1e-3);
  }
  return verdict(good);
}
