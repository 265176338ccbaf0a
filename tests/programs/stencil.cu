// A three-dimensional seven-point stencil with a halo in shared memory, two buffers that change places, pinned memory.
#include <utility>

#include "program.h"

constexpr int N = 20, B = 8;

__global__ void stencil(const float* in, float* out) {
  __shared__ float s[B + 2][B + 2];
  int x = blockIdx.x * B + threadIdx.x, y = blockIdx.y * B + threadIdx.y;
  int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  auto at = [&](int i, int j, int k) { return i < 0 || j < 0 || k < 0 || i >= N || j >= N || k >= N ? 0.0f : in[(k * N + j) * N + i]; };
  for (int z = 0; z < N; ++z) {
    __syncthreads();
    s[ty][tx] = at(x, y, z);
    if (threadIdx.x == 0) s[ty][0] = at(x - 1, y, z);
    if (threadIdx.x == B - 1) s[ty][B + 1] = at(x + 1, y, z);
    if (threadIdx.y == 0) s[0][tx] = at(x, y - 1, z);
    if (threadIdx.y == B - 1) s[B + 1][tx] = at(x, y + 1, z);
    __syncthreads();
    if (x < N && y < N) out[(z * N + y) * N + x] = 0.25f * (s[ty][tx - 1] + s[ty][tx + 1] + s[ty - 1][tx] + s[ty + 1][tx] + at(x, y, z - 1) + at(x, y, z + 1)) - s[ty][tx];
  }
}

int main() {
  std::vector<float> x = numbers(N * N * N);
  float *pinned, *a = fresh<float>(N * N * N), *b = fresh<float>(N * N * N);
  CHECK(cudaMallocHost((void**)&pinned, N * N * N * sizeof(float)));
  for (int i = 0; i < N * N * N; ++i) pinned[i] = x[i];
  CHECK(cudaMemcpyAsync(a, pinned, N * N * N * sizeof(float), cudaMemcpyHostToDevice, 0));
  for (int t = 0; t < 3; ++t) {
    stencil<<<dim3((N + B - 1) / B, (N + B - 1) / B), dim3(B, B)>>>(a, b);
    std::swap(a, b);
    std::vector<float> next(N * N * N);
    auto at = [&](int i, int j, int k) { return i < 0 || j < 0 || k < 0 || i >= N || j >= N || k >= N ? 0.0f : x[(k * N + j) * N + i]; };
    for (int k = 0; k < N; ++k)
      for (int j = 0; j < N; ++j)
        for (int i = 0; i < N; ++i)
          next[(k * N + j) * N + i] = 0.25f * (at(i - 1, j, k) + at(i + 1, j, k) + at(i, j - 1, k) + at(i, j + 1, k) + at(i, j, k - 1) + at(i, j, k + 1)) - at(i, j, k);
    x = next;
  }
  bool good = close(download(a, N * N * N), x, 1e-6);
  CHECK(cudaFreeHost(pinned));
  return verdict(good);
}
