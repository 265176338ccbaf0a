// Float operations by name on many operands: every compiler must give the same bytes.
#include <cuda_runtime.h>

__global__ void operations(int n, const float* a, const float* b, const float* c, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float* o = out + i * 8;
  o[0] = __fadd_rn(a[i], b[i]);
  o[1] = __fsub_rn(a[i], b[i]);
  o[2] = __fmul_rn(a[i], b[i]);
  o[3] = __fdiv_rn(a[i], b[i]);
  o[4] = __fsqrt_rn(a[i]);
  o[5] = __fmaf_rn(a[i], b[i], c[i]);
  o[6] = a[i] * b[i] + c[i];  // C2: two roundings
  o[7] = min(a[i], b[i]) + max(a[i], c[i]);
}
extern "C" int run(int n, const float* a, const float* b, const float* c, float* out) {
  operations<<<(n + 127) / 128, 128>>>(n, a, b, c, out);
  return cudaGetLastError();
}
