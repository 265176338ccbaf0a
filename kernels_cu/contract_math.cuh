// Rounded operations (C1-C3, C5, C6) and exp2, exp, log2, log, tanh (C4): line by line the algorithms of pyref/contract_math.py, where they
// are explained with their errors; tools/fit.py fits the coefficients.
#pragma once

namespace sb {

// --- one rounding each ---

__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float div(float a, float b) { return __fdiv_rn(a, b); }           // C5
__device__ __forceinline__ float sqrt(float x) { return __fsqrt_rn(x); }                     // C5
__device__ __forceinline__ float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }  // C3

// C6: a NaN in x never wins. Start from -inf, so that m is never NaN.
__device__ __forceinline__ float running_max(float m, float x) { return x > m ? x : m; }

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e430p-1f;
constexpr float kLn2High = 0x1.62e400p-1f;  // 15 significant bits: e * kLn2High is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20f;
constexpr float kLog2ELow = 0x1.4ae0c0p-26f;
constexpr float kSqrt2 = 0x1.6a09e6p+0f;
constexpr float kTanhCut = 0x1.0p+0f;
constexpr float kInf = __builtin_huge_valf();
constexpr float kNaN = __builtin_nanf("");

__device__ __forceinline__ float neg(float x) { return __uint_as_float(__float_as_uint(x) ^ 0x80000000u); }
__device__ __forceinline__ float magnitude(float x) { return __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu); }

// x rounded to an integral value, ties to even; x itself from 2^23 on, where every value is integral.
__device__ __forceinline__ float round_even(float x) { return rintf(x); }

// 2^n for n in [-126, 127], by its bits.
__device__ __forceinline__ float power_of_two(int n) { return __uint_as_float(static_cast<unsigned>(n + 127) << 23); }

// The same for an integral float, without a conversion: n + 1.5 * 2^23 has n in its low bits.
__device__ __forceinline__ float power_of_integral(float n) {
    return __uint_as_float((__float_as_uint(add(n, 0x1.8p+23f)) + 127u) << 23);
}

// RN(p * 2^j) for p in [1/2, 2], integral j in [-150, 128]: one rounding (C4).
__device__ __forceinline__ float scale_by_power(float p, float j) {
    const int n = static_cast<int>(j);
    if (n < -126) {
        return mul(mul(p, power_of_two(n + 64)), 0x1.0p-64f);
    }
    if (n > 127) {
        return mul(mul(p, power_of_two(n - 64)), 0x1.0p+64f);
    }
    return mul(p, power_of_two(n));
}

// 2^f for f in [-1/2, 1/2].
__device__ __forceinline__ float exp2_poly(float f) {
    float q = 0x1.416b50p-13f;
    q = fma(q, f, 0x1.5f082ep-10f);
    q = fma(q, f, 0x1.3b2de0p-7f);
    q = fma(q, f, 0x1.c6af7cp-5f);
    q = fma(q, f, 0x1.ebfbdcp-3f);
    q = fma(q, f, 0x1.62e430p-1f);
    return fma(q, f, 1.0f);
}

__device__ __forceinline__ float exp2(float x) {
    if (x != x) {
        return x;
    }
    if (x >= 128.0f) {
        return kInf;
    }
    if (x < -150.0f) {
        return 0.0f;
    }
    const float j = round_even(x);
    return scale_by_power(exp2_poly(sub(x, j)), j);
}

__device__ __forceinline__ float exp(float x) {
    if (x != x) {
        return x;
    }
    if (x >= 89.0f) {
        return kInf;
    }
    if (x < -104.0f) {
        return 0.0f;
    }
    const float j = round_even(mul(x, kLog2E));
    const float high = fma(neg(j), kLn2High, x);  // exact
    const float r = fma(neg(j), kLn2Low, high);
    float q = 0x1.6a5192p-10f;
    q = fma(q, r, 0x1.123980p-7f);
    q = fma(q, r, 0x1.5558acp-5f);
    q = fma(q, r, 0x1.555492p-3f);
    q = fma(q, r, 0x1.fffffcp-2f);
    const float p = add(1.0f, high);
    const float rest = fma(neg(j), kLn2Low, sub(high, sub(p, 1.0f)));  // what r and p lost
    return scale_by_power(add(p, fma(mul(r, r), q, rest)), j);
}

// x = 2^e * (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], both exact; x positive and finite.
__device__ __forceinline__ void split_log(float x, float* e, float* f) {
    const bool subnormal = x < 0x1.0p-126f;
    const unsigned bits = __float_as_uint(subnormal ? mul(x, 0x1.0p+24f) : x);
    int n = static_cast<int>(bits >> 23) - (subnormal ? 151 : 127);
    float s = __uint_as_float((bits & 0x7FFFFFu) | 0x3F800000u);  // [1, 2)
    if (s > kSqrt2) {
        s = mul(s, 0.5f);
        n = n + 1;
    }
    *e = static_cast<float>(n);
    *f = sub(s, 1.0f);
}

// ln(1 + f) = u + v: u = RN(f - f^2 / 2), v the small rest.
__device__ __forceinline__ void log1p_parts(float f, float* u, float* v) {
    const float h = mul(f, f);
    const float half = mul(h, 0.5f);  // exact
    *u = sub(f, half);
    float rest = sub(sub(f, *u), half);  // exact
    rest = fma(-0.5f, fma(f, f, neg(h)), rest);
    float q = 0x1.146098p-4f;
    q = fma(q, f, -0x1.ddf90ep-4f);
    q = fma(q, f, 0x1.e6c284p-4f);
    q = fma(q, f, -0x1.fc2a18p-4f);
    q = fma(q, f, 0x1.233b98p-3f);
    q = fma(q, f, -0x1.555c3ep-3f);
    q = fma(q, f, 0x1.99a476p-3f);
    q = fma(q, f, -0x1.000006p-2f);
    q = fma(q, f, 0x1.555548p-2f);
    *v = fma(mul(h, f), q, rest);
}

// The logarithms' values outside the positive finite numbers: true and the value there.
__device__ __forceinline__ bool log_special(float x, float* value) {
    if (x != x || x < 0.0f) {
        *value = kNaN;
        return true;
    }
    if (x == 0.0f) {
        *value = neg(kInf);
        return true;
    }
    *value = x;
    return x == kInf;
}

__device__ __forceinline__ float log2(float x) {
    float e, f, u, v;
    if (log_special(x, &u)) {
        return u;
    }
    split_log(x, &e, &f);
    log1p_parts(f, &u, &v);
    const float high = mul(u, kLog2E);
    float low = fma(u, kLog2E, neg(high));  // exact: what high lost
    low = fma(v, kLog2E, fma(u, kLog2ELow, low));
    const float total = add(e, high);
    return add(total, add(sub(high, sub(total, e)), low));
}

__device__ __forceinline__ float log(float x) {
    float e, f, u, v;
    if (log_special(x, &u)) {
        return u;
    }
    split_log(x, &e, &f);
    log1p_parts(f, &u, &v);
    const float big = mul(e, kLn2High);  // exact
    const float total = add(big, u);
    return add(total, add(fma(e, kLn2Low, sub(u, sub(total, big))), v));
}

__device__ __forceinline__ float tanh(float x) {
    const float a = magnitude(x);
    float result;
    if (a < kTanhCut) {
        const float u = mul(a, a);
        float q = 0x1.e76c16p-14f;
        q = fma(q, u, -0x1.ae8cbap-11f);
        q = fma(q, u, 0x1.8f862cp-9f);
        q = fma(q, u, -0x1.18db64p-7f);
        q = fma(q, u, 0x1.64c044p-6f);
        q = fma(q, u, -0x1.b9f6dap-5f);
        q = fma(q, u, 0x1.11103cp-3f);
        q = fma(q, u, -0x1.555552p-2f);
        result = fma(mul(a, u), q, a);
    } else {
        result = sub(1.0f, div(2.0f, add(exp(add(a, a)), 1.0f)));
    }
    return __uint_as_float(__float_as_uint(result) | (__float_as_uint(x) & 0x80000000u));
}

}  // namespace sb
