// Matrix product with shared tiles, float4 loads and a kernel chosen by pointer; dynamic shared memory above 48 KiB.
#include "program.h"

constexpr int kTile = 16;

__global__ void tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float s[kTile][kTile], t[kTile][kTile];
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    s[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += s[threadIdx.y][i] * t[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void all_of_b(const float* a, const float* b, float* c, int n) {  // a row of threads computes a row of c
  extern __shared__ float4 whole[];
  const float4* from = reinterpret_cast<const float4*>(b);
  for (int i = threadIdx.x; i < n * n / 4; i += blockDim.x) whole[i] = __ldg(from + i);
  __syncthreads();
  const float* s = reinterpret_cast<const float*>(whole);
  for (int row = blockIdx.x; row < n; row += gridDim.x)
    for (int column = threadIdx.x; column < n; column += blockDim.x) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[row * n + k] * s[k * n + column];
      c[row * n + column] = sum;
    }
}

int main() {
  int n = 48;
  std::vector<float> a = numbers(n * n, 1), b = numbers(n * n, 2), want(n * n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) want[i * n + j] += a[i * n + k] * b[k * n + j];
  float *da = upload(a), *db = upload(b), *c = fresh<float>(n * n);
  void (*kernel)(const float*, const float*, float*, int) = tiled;
  kernel<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(da, db, c, n);
  bool good = close(download(c, n * n), want, 1e-5);
  size_t bytes = 50 * 1024;
  CHECK(cudaFuncSetAttribute(all_of_b, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, all_of_b, 64, bytes));
  void* arguments[] = {&da, &db, &c, &n};
  CHECK(cudaLaunchKernel((const void*)all_of_b, dim3(4), dim3(64), arguments, bytes, 0));
  return verdict(good && blocks >= 1 && close(download(c, n * n), want, 1e-5));
}
