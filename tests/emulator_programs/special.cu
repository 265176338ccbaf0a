// Functions beside the C library's, and the parts of words.
#define ONE(NAME) out[at++ * n + i] = NAME(x[i]);
__global__ void functions(const double* x, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, at = 0;
  if (i >= n) return;
  ONE(erfinv) ONE(erfcinv) ONE(normcdf) ONE(normcdfinv) ONE(erfcx) ONE(cyl_bessel_i0) ONE(sinpi) ONE(cospi) ONE(rcbrt)
  ONE(erfinvf) ONE(normcdff)
}
#define BOTH(NAME) out[at++ * n + i] = NAME(a[i], b[i]);
__global__ void parts(const unsigned* a, const unsigned* b, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, at = 0;
  if (i >= n) return;
  BOTH(__vadd4) BOTH(__vaddss4) BOTH(__vaddus2) BOTH(__vsubss2) BOTH(__vmaxs4) BOTH(__vminu2) BOTH(__vavgs4) BOTH(__vavgu2)
  BOTH(__vabsdiffs4) BOTH(__vcmpgts2) BOTH(__vsetleu4) BOTH(__vsadu4)
  out[at++ * n + i] = __vabsss4(a[i]);
  out[at++ * n + i] = __vneg2(a[i]);
  out[at++ * n + i] = unsigned(__dp2a_hi(int(a[i]), int(b[i]), 7));
}
extern "C" int run_functions(const double* x, double* out, int n) {
  functions<<<(n + 63) / 64, 64>>>(x, out, n);
  return cudaGetLastError();
}
extern "C" int run_parts(const unsigned* a, const unsigned* b, unsigned* out, int n) {
  parts<<<(n + 63) / 64, 64>>>(a, b, out, n);
  return cudaGetLastError();
}
