// merge_attn_states: merges two attention states of every (token, head), each an output and a natural-log LSE, into one.
//
// A thread owns packs of 16 bytes of one (n, h) row of o[n,h,:] (or of the widest size that d, the strides and the addresses allow):
// one, or up to four where there are enough rows to fill a GPU. All are in flight before the first is stored. No byte depends on that.

#include <cstdint>

#include "access.cuh"
#include "contract.cuh"
#include "dtypes.cuh"

using T = SB_T;

struct MergeAttnStatesParams {
    T* out;  // [n, h, d]; may be prefix_out or suffix_out themselves
    int64_t out_stride[2];
    float* out_lse;  // [h, n]; null where nobody wants it
    int64_t out_lse_stride[2];
    const T* prefix_out;  // [n, h, d]
    int64_t prefix_out_stride[2];
    const float* prefix_lse;  // [h, n]
    int64_t prefix_lse_stride[2];
    const T* suffix_out;  // [n, h, d]
    int64_t suffix_out_stride[2];
    const float* suffix_lse;  // [h, n]
    int64_t suffix_lse_stride[2];
    int64_t n;
    int64_t h;
    int64_t d;
};

constexpr int kThreads = 256;
constexpr int kPacks = 4;                        // packs a thread may own: all are loaded before the first is stored
constexpr int64_t kFewPacks = int64_t{1} << 18;  // up to here every pack gets a thread of its own

/// What a row's two LSE make of it.
struct Merge {
    bool prefix, suffix;  // which outputs take part, and are read
    float weight_prefix, weight_suffix;
    float rest;       // every element where neither takes part
    float sum, top;   // the LSE is log(sum) + top where both take part,
    float other_lse;  // and this otherwise
};

__device__ inline Merge weigh(float prefix_lse, float suffix_lse) {
    Merge merge{};
    if (prefix_lse != prefix_lse || suffix_lse != suffix_lse) {  // Merge: a NaN LSE gives NaN, whatever the other side is
        merge.rest = merge.other_lse = sb::kNaN;
        return merge;
    }
    merge.prefix = sb::magnitude(prefix_lse) != sb::kInf;  // Merge: +inf and -inf both mean empty
    merge.suffix = sb::magnitude(suffix_lse) != sb::kInf;
    if (merge.prefix && merge.suffix) {
        merge.top = sb::running_max(prefix_lse, suffix_lse);
        const float e_prefix = sb::exp(sb::sub(prefix_lse, merge.top));
        const float e_suffix = sb::exp(sb::sub(suffix_lse, merge.top));
        merge.sum = sb::add(e_prefix, e_suffix);
        merge.weight_prefix = sb::div(e_prefix, merge.sum);  // C5
        merge.weight_suffix = sb::div(e_suffix, merge.sum);
    } else {
        merge.other_lse = merge.prefix ? prefix_lse : merge.suffix ? suffix_lse : sb::neg(sb::kInf);
    }
    return merge;
}

/// One element of o[n,h,:]: RN(RN(o_a * w_a) + RN(o_b * w_b)) where both take part (Merge).
/// Selections, not branches: the sum that they may throw away costs a GPU less.
__device__ inline T element(const Merge& merge, T prefix, T suffix) {
    const float a = sb::to_f32(prefix), b = sb::to_f32(suffix);
    const float sum = sb::add(sb::mul(a, merge.weight_prefix), sb::mul(b, merge.weight_suffix));
    const float one = merge.prefix ? a : merge.suffix ? b : merge.rest;
    return sb::from_f32<T>(merge.prefix && merge.suffix ? sum : one);  // C9, C11
}

template <int kElements>
struct alignas(kElements * sizeof(T)) Pack {
    T at[kElements];
};

template <int kElements>
__global__ void __launch_bounds__(kThreads) merge_rows(const MergeAttnStatesParams p, const int64_t lanes) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t row = thread / lanes;
    const int64_t lane = thread - row * lanes;
    if (row >= p.n * p.h) return;
    const int64_t n = row / p.h;
    const int64_t h = row - n * p.h;
    const int64_t packs = p.d / kElements;

    const Merge merge = weigh(p.prefix_lse[h * p.prefix_lse_stride[0] + n * p.prefix_lse_stride[1]],
                              p.suffix_lse[h * p.suffix_lse_stride[0] + n * p.suffix_lse_stride[1]]);
    const T* from_prefix = p.prefix_out + n * p.prefix_out_stride[0] + h * p.prefix_out_stride[1];
    const T* from_suffix = p.suffix_out + n * p.suffix_out_stride[0] + h * p.suffix_out_stride[1];
    T* to = p.out + n * p.out_stride[0] + h * p.out_stride[1];

    Pack<kElements> prefix[kPacks]{}, suffix[kPacks]{};
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
        const int64_t pack = lane + u * lanes;
        if (pack < packs && merge.prefix) prefix[u] = reinterpret_cast<const Pack<kElements>*>(from_prefix)[pack];
        if (pack < packs && merge.suffix) suffix[u] = reinterpret_cast<const Pack<kElements>*>(from_suffix)[pack];
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
        const int64_t pack = lane + u * lanes;
        if (pack >= packs) continue;
        Pack<kElements> merged;
#pragma unroll
        for (int i = 0; i < kElements; ++i) merged.at[i] = element(merge, prefix[u].at[i], suffix[u].at[i]);
        reinterpret_cast<Pack<kElements>*>(to)[pack] = merged;
    }
    if (lane == 0 && p.out_lse != nullptr) {
        const float lse = merge.prefix && merge.suffix ? sb::add(sb::log(merge.sum), merge.top) : merge.other_lse;
        p.out_lse[h * p.out_lse_stride[0] + n * p.out_lse_stride[1]] = sb::canonical_nan(lse);  // C9
    }
}

template <int kElements>
int launch(const MergeAttnStatesParams& p, void* stream) {
    const int64_t packs = p.d / kElements;
    const int64_t lanes = p.n * p.h * packs <= kFewPacks ? packs : (packs + kPacks - 1) / kPacks;
    const int64_t blocks = (p.n * p.h * lanes + kThreads - 1) / kThreads;
    merge_rows<kElements><<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, lanes);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int merge_attn_states(const MergeAttnStatesParams* params, void* stream) {
    const MergeAttnStatesParams& p = *params;
    constexpr int64_t kSize = sizeof(T);
    if (p.n == 0 || p.h == 0) return 0;  // an empty grid cannot be launched
    const auto rows = [&](const T* address, const int64_t* stride) {
        return sb::alignment_of(address, p.n, stride[0] * kSize) | sb::alignment_of(address, p.h, stride[1] * kSize);
    };
    const int bytes = sb::widest_access(static_cast<uint64_t>(p.d * kSize) | rows(p.out, p.out_stride) |
                                        rows(p.prefix_out, p.prefix_out_stride) | rows(p.suffix_out, p.suffix_out_stride));
    switch (bytes / kSize) {
        case 16 / kSize: return launch<16 / kSize>(p, stream);
        case 8 / kSize: return launch<8 / kSize>(p, stream);
        case 4 / kSize: return launch<4 / kSize>(p, stream);
        default: return launch<1>(p, stream);
    }
}
