// The arithmetic contract on the device: every rounding of every kernel of this project, by name. The same texts as pyref/contract*.py.
//
// Kernels hold no bare float operators; they call these. Each function is one rounding or says which roundings it makes, through CUDA's _rn
// intrinsics (C2), so that -fmad=true and -fmad=false compile to the same PTX. NaN payloads inside are free: from_f32 (dtypes.cuh) or
// canonical_nan lets a NaN out as the one pattern of C9. The clauses: pyref/CONTRACT.md.
#pragma once

#include "contract_math.cuh"

namespace sb {

// --- C9 ---

__device__ __forceinline__ float canonical_nan(float x) { return x != x ? __uint_as_float(0x7FFFFFFFu) : x; }

// --- C7: the tree sum of 128 values over 4 rows (warps) of 32 lanes: lanes by 16, 8, 4, 2, 1 with add(), then this ---

__device__ __forceinline__ float sum_rows(float row0, float row1, float row2, float row3) {
    return add(add(row0, row2), add(row1, row3));
}

// --- C12: weights relative to an integral maximum ---

// RN(s * log2 e): a natural logit to base 2, on the path with a bias or a cap.
__device__ __forceinline__ float logits2(float s) { return mul(s, kLog2E); }

// The least integral value that is not below x, never -0; NaN and infinities stay. m of a tile is ceil(max s2), the maximum by running_max
// from -inf.
__device__ __forceinline__ float ceil(float x) {
    const float j = round_even(x);
    return add(j < x ? add(j, 1.0f) : j, 0.0f);
}

// w(n) = 2^n if n >= -126 compares true, else +0, also for NaN. n is integral; from 128 on the weight is +inf.
__device__ __forceinline__ float pow2_weight(float n) {
    const bool in_range = n >= -126.0f && n < 128.0f;
    const float w = power_of_integral(in_range ? n : 0.0f);
    return in_range ? w : n >= 128.0f ? kInf : 0.0f;
}

// p for the base-2 logit s2 and the integral maximum m >= s2 of its own tile: NaN where s2 is NaN or +inf; +0 where s2 = -inf or
// j - m < -125; else 2^(s2 - m), never subnormal.
__device__ __forceinline__ float weight_p(float s2, float m) {
    const float j = round_even(s2);
    const float n = sub(j, m == -kInf ? 0.0f : m);  // NaN where s2 is NaN or +inf, as is the polynomial; -inf where s2 = -inf
    const float p = mul(exp2_poly(sub(s2, j)), power_of_integral(n));  // exact where n counts; n <= 0
    return n < -125.0f ? 0.0f : p;
}

// --- C13: states ---

// One value of a state (l or a[d]) joined with the next tile's or span's, in the order of the walk: fma(x_u, w_u, RN(x * w)), where m' =
// running_max(m, m_u), w = pow2_weight(m - m'), w_u = pow2_weight(m_u - m').
__device__ __forceinline__ float join_scalar(float x, float w, float x_u, float w_u) { return fma(x_u, w_u, mul(x, w)); }

// Natural log-sum-exp of a state: RN(RN(m + log2 l) * ln 2).
__device__ __forceinline__ float lse(float m, float l) { return mul(add(m, log2(l)), kLn2); }

}  // namespace sb
