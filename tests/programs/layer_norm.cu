// Layer norm with Welford's moments merged over a block; managed memory, a struct of parameters, device printf and assert.
#include <cassert>

#include "program.h"

struct Moments {
  float mean, m2, n;
};
struct Parameters {
  const float* x;
  const float *gamma, *beta;
  float* y;
  int columns;
  float epsilon;
};

__device__ Moments merge(Moments a, Moments b) {
  float n = a.n + b.n;
  if (n == 0) return a;
  float delta = b.mean - a.mean;
  return {a.mean + delta * b.n / n, a.m2 + b.m2 + delta * delta * a.n * b.n / n, n};
}

__global__ void layer_norm(Parameters p) {
  __shared__ Moments s[4];
  const float* x = p.x + blockIdx.x * p.columns;
  Moments m{0, 0, 0};
  for (int c = threadIdx.x; c < p.columns; c += blockDim.x) m = merge(m, {x[c], 0, 1});
  for (int d = 16; d > 0; d /= 2) {
    Moments other{__shfl_down_sync(~0u, m.mean, d), __shfl_down_sync(~0u, m.m2, d), __shfl_down_sync(~0u, m.n, d)};
    m = merge(m, other);
  }
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = m;
  __syncthreads();
  m = merge(merge(s[0], s[1]), merge(s[2], s[3]));
  assert(m.n == p.columns);
  if (blockIdx.x == 0 && threadIdx.x == 0) printf("row %d of %d columns\n", blockIdx.x, p.columns);
  float scale = rsqrtf(m.m2 / m.n + p.epsilon);
  for (int c = threadIdx.x; c < p.columns; c += blockDim.x) p.y[blockIdx.x * p.columns + c] = (x[c] - m.mean) * scale * p.gamma[c] + p.beta[c];
}

int main() {
  int rows = 5, columns = 300;
  float *x, *gamma, *beta, *y;
  CHECK(cudaMallocManaged(&x, rows * columns * sizeof(float)));
  CHECK(cudaMallocManaged(&gamma, columns * sizeof(float)));
  CHECK(cudaMallocManaged(&beta, columns * sizeof(float)));
  CHECK(cudaMallocManaged(&y, rows * columns * sizeof(float)));
  std::vector<float> values = numbers(rows * columns), want(rows * columns);
  for (int i = 0; i < rows * columns; ++i) x[i] = values[i];
  for (int c = 0; c < columns; ++c) gamma[c] = 1.0f + c % 3, beta[c] = 0.5f * (c % 2);
  layer_norm<<<rows, 128>>>({x, gamma, beta, y, columns, 1e-5f});
  CHECK(cudaDeviceSynchronize());
  for (int r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int c = 0; c < columns; ++c) mean += x[r * columns + c] / double(columns);
    for (int c = 0; c < columns; ++c) variance += (x[r * columns + c] - mean) * (x[r * columns + c] - mean) / columns;
    for (int c = 0; c < columns; ++c) want[r * columns + c] = float((x[r * columns + c] - mean) / std::sqrt(variance + 1e-5) * gamma[c] + beta[c]);
  }
  return verdict(close(std::vector<float>(y, y + rows * columns), want, 1e-4));
}
