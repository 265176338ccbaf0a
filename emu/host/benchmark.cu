// What tools/bench_emulator.py times: nanoseconds for each CUDA thread, or for each thread and barrier, of typical kernels, as JSON.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

__global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void barriers(float*, int count) {
  for (int i = 0; i < count; ++i) __syncthreads();
}
__global__ void shuffles(float* out, int count) {
  float v = float(threadIdx.x);
  for (int i = 0; i < count; ++i) v += __shfl_xor_sync(0xFFFFFFFFu, v, 1 << i % 5);
  out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
constexpr int kTile = 16;
__global__ void matmul(const float* a, const float* b, float* c, int n) {
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
__global__ void histogram(const float* x, int* bins, int n) {
  __shared__ int mine[64];
  if (threadIdx.x < 64) mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[int(x[i]) & 63], 1);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

static double now() {  // of the processor, which other programs do not slow down as much
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

template <class F>
static void measure(const char* before, const char* name, double units, F launch) {
  double best = 0;
  for (int round = 0; round < 4; ++round) {  // the first one maps memory
    double begin = now();
    launch();
    double took = now() - begin;
    if (round == 1 || (round > 1 && took < best)) best = took;
  }
  printf("%s\"%s\": %.4g", before, name, best / units);
  if (cudaGetLastError() != cudaSuccess) exit(1);
}

int main() {
  const int n = 1 << 18, side = 64, count = 200, blocks = 16, threads = 256;
  float *x, *y;
  int* bins;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  cudaMalloc(&bins, 64 * sizeof(int));
  cudaMemset(x, 0, n * sizeof(float));
  cudaMemset(y, 0, n * sizeof(float));
  cudaMemset(bins, 0, 64 * sizeof(int));
  measure("{", "saxpy", n, [=] { saxpy<<<n / threads, threads>>>(2.0f, x, y, n); });
  measure(", ", "barrier", double(blocks) * threads * count, [=] { barriers<<<blocks, threads>>>(y, count); });
  measure(", ", "shuffle", double(blocks) * threads * count, [=] { shuffles<<<blocks, threads>>>(y, count); });
  measure(", ", "matmul step", double(side) * side * side / kTile, [=] { matmul<<<dim3(side / kTile, side / kTile), dim3(kTile, kTile)>>>(x, x, y, side); });
  measure(", ", "histogram", n, [=] { histogram<<<blocks, threads>>>(x, bins, n); });
  printf("}\n");
  cudaFree(x);
  cudaFree(y);
  cudaFree(bins);
}
