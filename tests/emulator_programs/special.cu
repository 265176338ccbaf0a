// Functions beside the C library's, and the parts of words.
#include <curand_kernel.h>

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
#define INTEGERS(SUFFIX)                                                                                                    \
  ONE(__float2int_##SUFFIX) ONE(__float2uint_##SUFFIX) ONE(__float2ll_##SUFFIX) ONE(__float2ull_##SUFFIX)                   \
  ONE(__double2int_##SUFFIX) ONE(__double2uint_##SUFFIX) ONE(__double2ll_##SUFFIX) ONE(__double2ull_##SUFFIX)
__global__ void to_integers(const double* x, unsigned long long* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, at = 0;
  if (i >= n) return;
  INTEGERS(rn) INTEGERS(rz) INTEGERS(rd) INTEGERS(ru)
}
extern "C" int run_to_integers(const double* x, unsigned long long* out, int n) {
  to_integers<<<(n + 63) / 64, 64>>>(x, out, n);
  return cudaGetLastError();
}
__global__ void random_words(unsigned long long seed, unsigned* words, float* numbers) {
  curandStatePhilox4_32_10_t state, later;
  curand_init(seed, threadIdx.x, 0, &state);
  curand_init(seed, threadIdx.x, 2, &later);
  for (int i = 0; i < 8; ++i) words[threadIdx.x * 8 + i] = curand(&state);
  if (curand(&later) != words[threadIdx.x * 8 + 2]) words[threadIdx.x * 8] = 0;
  for (int i = 0; i < 8; ++i) numbers[threadIdx.x * 16 + i] = curand_uniform(&state);
  for (int i = 8; i < 16; ++i) numbers[threadIdx.x * 16 + i] = curand_normal(&state);
}
extern "C" int run_random(unsigned long long seed, unsigned* words, float* numbers, int threads) {
  random_words<<<1, threads>>>(seed, words, numbers);
  return cudaGetLastError();
}
