// Functions that CUDA has beside the C library's, computed in double by way of that library: not the bytes of a GPU.
#pragma once

#include <math.h>

namespace samebits {
inline double inverse_erf(double y, double complement) {  // y = erf(x), complement = 1 - y, whichever of them is exact
  if (!(y >= -1 && y <= 1 && complement >= 0 && complement <= 2)) return __builtin_nan("");
  if (complement == 0 || complement == 2) return complement == 0 ? HUGE_VAL : -HUGE_VAL;
  bool far = fabs(y) > 0.5;
  double tail = complement < 1 ? complement : 2 - complement, w = -log(tail * (2 - tail)), a = 2 / (M_PI * 0.147) - w / 2;
  double x = copysign(sqrt(sqrt(a * a + w / 0.147) - a), y);  // Winitzki's approximation, then Newton's method
  for (int i = 0; i < 4; ++i) {
    double error = far ? (tail - erfc(fabs(x))) * copysign(1.0, y) : erf(x) - y;
    x -= error / (2 / sqrt(M_PI) * exp(-x * x));
  }
  return x;
}
}  // namespace samebits

static inline double sinpi(double v) { return sin(fmod(v, 2) * M_PI); }
static inline double cospi(double v) { return cos(fmod(v, 2) * M_PI); }
static inline void sincospi(double v, double* s, double* c) { *s = sinpi(v), *c = cospi(v); }
static inline void sincospif(float v, float* s, float* c) { *s = float(sinpi(v)), *c = float(cospi(v)); }
static inline double rcbrt(double v) { return 1 / cbrt(v); }
static inline double rhypot(double a, double b) { return 1 / hypot(a, b); }
static inline double erfinv(double y) { return ::samebits::inverse_erf(y, 1 - y); }
static inline double erfcinv(double y) { return ::samebits::inverse_erf(1 - y, y); }
static inline double normcdf(double v) { return 0.5 * erfc(-v * M_SQRT1_2); }
static inline double normcdfinv(double p) { return -M_SQRT2 * erfcinv(2 * p); }
static inline double erfcx(double v) {
  if (v < 25) return exp(v * v) * erfc(v);
  double t = 1 / (2 * v * v);
  return 1 / (v * sqrt(M_PI)) * (1 - t * (1 - 3 * t * (1 - 5 * t)));
}
static inline double cyl_bessel_i0(double v) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17; ++k) sum += term *= v * v / (4.0 * k * k);
  return sum;
}
static inline double cyl_bessel_i1(double v) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17; ++k) sum += term *= v * v / (4.0 * k * (k + 1));
  return v / 2 * sum;
}
static inline double norm(int n, const double* v) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += v[i] * v[i];
  return sqrt(sum);
}
static inline double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
static inline double rnorm3d(double a, double b, double c) { return 1 / norm3d(a, b, c); }
static inline double norm4d(double a, double b, double c, double d) { return sqrt(a * a + b * b + c * c + d * d); }
static inline float normf(int n, const float* v) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double(v[i]) * v[i];
  return float(sqrt(sum));
}
static inline float rhypotf(float a, float b) { return float(rhypot(a, b)); }
#define SAMEBITS_F(NAME) static inline float NAME##f(float v) { return float(NAME(double(v))); }
SAMEBITS_F(erfinv) SAMEBITS_F(erfcinv) SAMEBITS_F(normcdf) SAMEBITS_F(normcdfinv) SAMEBITS_F(erfcx) SAMEBITS_F(cyl_bessel_i0)
SAMEBITS_F(cyl_bessel_i1)
#undef SAMEBITS_F
