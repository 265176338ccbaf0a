// half, bfloat16 and fp8 of the emulator's own headers, and arithmetic with a rounding direction.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

template <class T>
__device__ void binary(const unsigned short* a, const unsigned short* b, unsigned short* out, int i, int n) {
  T x, y;
  x.__x = a[i];
  y.__x = b[i];
  out[i] = (x + y).__x;
  out[n + i] = (x - y).__x;
  out[2 * n + i] = (x * y).__x;
  out[3 * n + i] = (x / y).__x;
  out[4 * n + i] = __hfma(x, y, x).__x;
}
__global__ void operations(int kind, const unsigned short* a, const unsigned short* b, unsigned short* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  kind == 0 ? binary<__half>(a, b, out, i, n) : binary<__nv_bfloat16>(a, b, out, i, n);
}
extern "C" int run_operations(int kind, const unsigned short* a, const unsigned short* b, unsigned short* out, int n) {
  operations<<<(n + 255) / 256, 256>>>(kind, a, b, out, n);
  return cudaGetLastError();
}

// Bits of a result, for each pair: comparisons with NaN as they say, saturation, and masks of pairs (the second of each is y, x).
template <class T, class T2>
__device__ void compared(const unsigned short* a, const unsigned short* b, unsigned* out, int i) {
  T x, y;
  x.__x = a[i];
  y.__x = b[i];
  bool bits[] = {__heq(x, y), __hne(x, y), __hlt(x, y), __hge(x, y), __hequ(x, y), __hneu(x, y), __hltu(x, y), __hgeu(x, y), x != y, x < y};
  unsigned word = 0;
  for (int k = 0; k < 10; ++k) word |= unsigned(bits[k]) << k;
  T2 p(x, y), q(y, x);
  out[4 * i] = word, out[4 * i + 1] = __hlt2_mask(p, q), out[4 * i + 2] = __hneu2_mask(p, q);
  out[4 * i + 3] = unsigned(__hadd_sat(x, y).__x) << 16 | __hfma_sat(x, y, x).__x;
}
__global__ void comparisons(int kind, const unsigned short* a, const unsigned short* b, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  kind == 0 ? compared<__half, __half2>(a, b, out, i) : compared<__nv_bfloat16, __nv_bfloat162>(a, b, out, i);
}
extern "C" int run_comparisons(int kind, const unsigned short* a, const unsigned short* b, unsigned* out, int n) {
  comparisons<<<(n + 63) / 64, 64>>>(kind, a, b, out, n);
  return cudaGetLastError();
}

__global__ void narrow(int kind, const float* x, unsigned short* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  switch (kind) {
    case 0: out[i] = __half_as_ushort(__float2half(x[i])); break;
    case 1: out[i] = __bfloat16_as_ushort(__float2bfloat16(x[i])); break;
    case 2: out[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3); break;
    case 3: out[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2); break;
    case 4: out[i] = __half_as_ushort(__float2half_rz(x[i])); break;
    case 5: out[i] = __half_as_ushort(__float2half_ru(x[i])); break;
    case 6: out[i] = __half_as_ushort(__float2half_rd(x[i])); break;
    case 7: out[i] = __nv_fp8_e4m3(x[i]).__x; break;
  }
}
extern "C" int run_narrow(int kind, const float* x, unsigned short* out, int n) {
  narrow<<<(n + 255) / 256, 256>>>(kind, x, out, n);
  return cudaGetLastError();
}

__global__ void widen(int kind, const unsigned short* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = kind == 0   ? __half2float(__ushort_as_half(x[i]))
           : kind == 1 ? __bfloat162float(__ushort_as_bfloat16(x[i]))
           : kind == 2 ? __half2float(__nv_cvt_fp8_to_halfraw((unsigned char)x[i], __NV_E4M3))
                       : __half2float(__nv_cvt_fp8_to_halfraw((unsigned char)x[i], __NV_E5M2));
}
extern "C" int run_widen(int kind, const unsigned short* x, float* out, int n) {
  widen<<<(n + 255) / 256, 256>>>(kind, x, out, n);
  return cudaGetLastError();
}

__global__ void rounded(const float* a, const float* b, const float* c, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#define ALL(S, AT)                            \
  out[(AT) * n + i] = __fadd_##S(a[i], b[i]);     \
  out[(AT + 1) * n + i] = __fmul_##S(a[i], b[i]); \
  out[(AT + 2) * n + i] = __fdiv_##S(a[i], b[i]); \
  out[(AT + 3) * n + i] = __fmaf_##S(a[i], b[i], c[i]);
  ALL(rn, 0)
  ALL(rz, 4)
  ALL(rd, 8)
  ALL(ru, 12)
}
extern "C" int run_rounded(const float* a, const float* b, const float* c, float* out, int n) {
  rounded<<<(n + 255) / 256, 256>>>(a, b, c, out, n);
  return cudaGetLastError();
}
