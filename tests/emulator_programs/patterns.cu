// Accesses of known pattern, a kernel each, so that counters of a GPU can be compared with what --trace says of them.
#include <cuda_runtime.h>

constexpr int kThreads = 128, kBlocks = 4, kElements = kThreads * kBlocks, kShared = 32 * kThreads;

__global__ void coalesced(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];  // 4 sectors for 32 lanes
}

__global__ void stride_2(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[2 * i];  // 8 sectors
}

__global__ void stride_32(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[32 * i];  // 32 sectors
}

__global__ void gathered(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[(unsigned(i) * unsigned(i) * 2654435761u >> 20) % kElements];  // any of 64 sectors a lane
}

__global__ void misaligned(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i + 1];  // 5 sectors
}

__global__ void broadcast(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[blockIdx.x];  // 1 sector
}

__global__ void vectors(const float4* x, float4* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];  // 16 sectors
}

__global__ void scattered(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[32 * i] = x[i];  // 32 sectors written
}

__global__ void a_bank_a_lane(const float* x, float* y) {
  __shared__ float s[kShared];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = threadIdx.x; k < kShared; k += kThreads) s[k] = x[k];  // a bank a lane
  __syncthreads();
  y[i] = s[threadIdx.x ^ 32];
}

__global__ void two_lanes_a_bank(const float* x, float* y) {
  __shared__ float s[kShared];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = threadIdx.x; k < kShared; k += kThreads) s[k] = x[k];  // a bank a lane
  __syncthreads();
  y[i] = s[2 * threadIdx.x];
}

__global__ void one_bank(const float* x, float* y) {
  __shared__ float s[kShared];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = threadIdx.x; k < kShared; k += kThreads) s[k] = x[k];  // a bank a lane
  __syncthreads();
  y[i] = s[32 * threadIdx.x];  // 32 lanes a bank
}

__global__ void padded(const float* x, float* y) {
  __shared__ float s[kShared];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = threadIdx.x; k < kShared; k += kThreads) s[k] = x[k];  // a bank a lane
  __syncthreads();
  y[i] = s[33 * (threadIdx.x % 32) + threadIdx.x / 32];  // a bank a lane
}

__global__ void written_to_one_bank(const float* x, float* y) {
  __shared__ float s[kShared];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[32 * threadIdx.x] = x[i];  // 32 lanes a bank
  __syncthreads();
  y[i] = s[32 * (threadIdx.x ^ 32)];
}

__global__ void shared_vectors(const float4* x, float4* y) {
  __shared__ float4 s[2 * kThreads];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[2 * threadIdx.x] = x[i];  // 8 lanes a pass, two of them a bank
  __syncthreads();
  y[i] = s[2 * (threadIdx.x ^ 32)];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 32 * kElements * sizeof(float));
  cudaMalloc(&y, 32 * kElements * sizeof(float));
  cudaMemset(x, 0, 32 * kElements * sizeof(float));
  coalesced<<<kBlocks, kThreads>>>(x, y);
  stride_2<<<kBlocks, kThreads>>>(x, y);
  stride_32<<<kBlocks, kThreads>>>(x, y);
  gathered<<<kBlocks, kThreads>>>(x, y);
  misaligned<<<kBlocks, kThreads>>>(x, y);
  broadcast<<<kBlocks, kThreads>>>(x, y);
  vectors<<<kBlocks, kThreads>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(y));
  scattered<<<kBlocks, kThreads>>>(x, y);
  a_bank_a_lane<<<kBlocks, kThreads>>>(x, y);
  two_lanes_a_bank<<<kBlocks, kThreads>>>(x, y);
  one_bank<<<kBlocks, kThreads>>>(x, y);
  padded<<<kBlocks, kThreads>>>(x, y);
  written_to_one_bank<<<kBlocks, kThreads>>>(x, y);
  shared_vectors<<<kBlocks, kThreads>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(y));
  cudaDeviceSynchronize();
  cudaFree(x);
  cudaFree(y);
  return 0;
}
