// Rows of softmax in half and bfloat16: a warp a row, maxima and sums by shuffles.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "program.h"

template <class T> __device__ float to_float(T v);
template <> __device__ float to_float(half v) { return __half2float(v); }
template <> __device__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
template <class T> __device__ T from_float(float v);
template <> __device__ half from_float(float v) { return __float2half(v); }
template <> __device__ __nv_bfloat16 from_float(float v) { return __float2bfloat16(v); }

template <class T>
__global__ void softmax(const T* in, T* out, int rows, int columns) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;
  if (row >= rows) return;
  float most = -INFINITY, sum = 0;
  for (int c = lane; c < columns; c += warpSize) most = fmaxf(most, to_float(in[row * columns + c]));
  for (int d = 16; d > 0; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, d));
  for (int c = lane; c < columns; c += warpSize) sum += __expf(to_float(in[row * columns + c]) - most);
  for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xFFFFFFFF, sum, d);
  for (int c = lane; c < columns; c += warpSize) out[row * columns + c] = from_float<T>(__fdividef(__expf(to_float(in[row * columns + c]) - most), sum));
}

template <class T>
bool test(double most) {
  int rows = 7, columns = 83;
  std::vector<float> x = numbers(rows * columns), want(rows * columns);
  std::vector<T> h(x.begin(), x.end());
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int c = 0; c < columns; ++c) sum += std::exp(double(float(h[r * columns + c])));
    for (int c = 0; c < columns; ++c) want[r * columns + c] = float(std::exp(double(float(h[r * columns + c]))) / sum);
  }
  T *in = upload(h), *out = fresh<T>(rows * columns);
  softmax<T><<<(rows * 32 + 127) / 128, 128>>>(in, out, rows, columns);
  std::vector<T> got = download(out, rows * columns);
  return close(std::vector<float>(got.begin(), got.end()), want, most);
}

int main() { return verdict(test<half>(2e-5) && test<__nv_bfloat16>(2e-4)); }
