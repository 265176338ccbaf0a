// Arithmetic with a rounding direction, by the CPU's own. The operands are volatile: nothing may be computed before the direction is set.
#include <fenv.h>
#include <math.h>

#include "samebits/more_math.h"
#include "device.h"

namespace samebits {

namespace {

class Direction {
 public:
  explicit Direction(int round) : before_(fegetround()) {
    static const int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    fesetround(kModes[round]);
  }
  ~Direction() { fesetround(before_); }

 private:
  int before_;
};

template <class T>
__attribute__((noinline)) T compute(Arith what, int round, T a, T b, T c) {
  Direction direction(round);
  volatile T x = a, y = b, z = c, r = 0;
  switch (what) {
    case Arith::add: r = x + y; break;
    case Arith::sub: r = x - y; break;
    case Arith::mul: r = x * y; break;
    case Arith::div: r = x / y; break;
    case Arith::sqrt: r = sizeof(T) == 4 ? T(sqrtf(float(x))) : T(sqrt(double(x))); break;
    case Arith::fma: r = sizeof(T) == 4 ? T(fmaf(float(x), float(y), float(z))) : T(fma(double(x), double(y), double(z))); break;
    case Arith::convert: break;
  }
  return r;
}

}  // namespace

float directed(Arith what, int round, float a, float b, float c) { return compute(what, round, a, b, c); }
double directed(Arith what, int round, double a, double b, double c) { return compute(what, round, a, b, c); }
float directed_float(int round, double v) {
  Direction direction(round);
  volatile double x = v;
  volatile float r = float(x);
  return r;
}

}  // namespace samebits

long long samebits_clock() { return (long long)(samebits::now_ms() * 1.98e6); }
