// functions: the contract's functions one by one, so that machines can be compared: over all binary32 inputs, and on given operands.
//
// exhaust_<name>: digests or results of chunks of 2^20 consecutive bit patterns, for functions of one operand. A chunk's digest is the sum
// of mix(pattern, result) modulo 2^64, whatever the order; the caller adds the parts that threads wrote.
// apply_<name>: results for arrays of up to three operands.

#include <cstdint>

#include "../contract.cuh"
#include "../dtypes.cuh"

struct ExhaustParams {
    uint64_t* digests;    // [chunks, kThreads]; null where nobody wants them
    uint32_t* values;     // [chunks, kChunk] bits of the results; null where nobody wants them
    int64_t first_chunk;  // of the 4,096
    int64_t chunks;
};

struct ApplyParams {
    uint32_t* values;  // [count] bits of the results
    const float* a;    // [count]
    const float* b;
    const float* c;
    int64_t count;
};

constexpr int kThreads = 256;
constexpr uint32_t kChunk = 1u << 20;

__device__ inline uint32_t bits_of(float y) { return __float_as_uint(sb::canonical_nan(y)); }  // C9
template <typename T>
__device__ inline uint32_t bits_of(T y) {
    return y.bits;
}

// Bits of a as storage of another type.
template <typename T, typename Bits>
__device__ inline T stored(float a) {
    return T{static_cast<Bits>(__float_as_uint(a))};
}

// A bijection of 64 bits that spreads every bit: two rounds of shift and multiply.
__device__ inline uint64_t mix(uint32_t pattern, uint32_t result) {
    uint64_t z = (static_cast<uint64_t>(pattern) << 32 | result) + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// One block a chunk.
template <typename F>
__global__ void __launch_bounds__(kThreads) exhaust(const ExhaustParams p) {
    const int64_t block = static_cast<int64_t>(blockIdx.x);
    const uint32_t first = static_cast<uint32_t>(p.first_chunk + block) * kChunk;
    uint64_t digest = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < kChunk; i += kThreads) {
        const uint32_t result = F::at(__uint_as_float(first + i), 0.0f, 0.0f);
        if (p.values != nullptr) {
            p.values[block * kChunk + i] = result;
        }
        digest += mix(first + i, result);
    }
    if (p.digests != nullptr) {
        p.digests[block * kThreads + threadIdx.x] = digest;
    }
}

template <typename F>
__global__ void __launch_bounds__(kThreads) apply(const ApplyParams p) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < p.count; i += stride) {
        p.values[i] = F::at(p.a[i], p.b[i], p.c[i]);
    }
}

template <typename F>
int launch(const ExhaustParams& p, void* stream) {
    exhaust<F><<<static_cast<unsigned>(p.chunks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
    return static_cast<int>(cudaGetLastError());
}

template <typename F>
int launch(const ApplyParams& p, void* stream) {
    const int64_t blocks = (p.count + kThreads - 1) / kThreads;
    apply<F><<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
    return static_cast<int>(cudaGetLastError());
}

// A function of the operands a, b, c.
#define SB_FUNCTION(name, result)                                                                                      \
    struct Call_##name {                                                                                               \
        static __device__ inline uint32_t at(float a, float b, float c) {                                              \
            static_cast<void>(a), static_cast<void>(b), static_cast<void>(c);                                          \
            return bits_of(result);                                                                                    \
        }                                                                                                              \
    };                                                                                                                 \
    extern "C" int apply_##name(const ApplyParams* p, void* stream) { return launch<Call_##name>(*p, stream); }

// A function of one operand, which can be exhausted.
#define SB_FUNCTION_OF_ONE(name, result)                                                                               \
    SB_FUNCTION(name, result)                                                                                          \
    extern "C" int exhaust_##name(const ExhaustParams* p, void* stream) { return launch<Call_##name>(*p, stream); }

SB_FUNCTION_OF_ONE(exp2, sb::exp2(a))
SB_FUNCTION_OF_ONE(exp, sb::exp(a))
SB_FUNCTION_OF_ONE(log2, sb::log2(a))
SB_FUNCTION_OF_ONE(log, sb::log(a))
SB_FUNCTION_OF_ONE(tanh, sb::tanh(a))
SB_FUNCTION_OF_ONE(sqrt, sb::sqrt(a))
SB_FUNCTION_OF_ONE(ceil, sb::ceil(a))
SB_FUNCTION_OF_ONE(round_even, sb::round_even(a))
SB_FUNCTION_OF_ONE(from_f32_f16, sb::from_f32<sb::f16>(a))
SB_FUNCTION_OF_ONE(from_f32_bf16, sb::from_f32<sb::bf16>(a))
SB_FUNCTION_OF_ONE(from_f32_e4m3, sb::from_f32<sb::e4m3>(a))
SB_FUNCTION_OF_ONE(from_f32_e5m2, sb::from_f32<sb::e5m2>(a))

SB_FUNCTION(from_f32_f32, sb::from_f32<float>(a))
SB_FUNCTION(to_f32_f16, sb::to_f32(stored<sb::f16, unsigned short>(a)))
SB_FUNCTION(to_f32_bf16, sb::to_f32(stored<sb::bf16, unsigned short>(a)))
SB_FUNCTION(to_f32_e4m3, sb::to_f32(stored<sb::e4m3, unsigned char>(a)))
SB_FUNCTION(to_f32_e5m2, sb::to_f32(stored<sb::e5m2, unsigned char>(a)))
SB_FUNCTION(quantize_e4m3, sb::quantize<sb::e4m3>(a, b))
SB_FUNCTION(dequantize_e4m3, sb::dequantize(stored<sb::e4m3, unsigned char>(a), b))
SB_FUNCTION(mul, sb::mul(a, b))
SB_FUNCTION(add, sb::add(a, b))
SB_FUNCTION(sub, sb::sub(a, b))
SB_FUNCTION(div, sb::div(a, b))
SB_FUNCTION(fma, sb::fma(a, b, c))
SB_FUNCTION(running_max, sb::running_max(a, b))
SB_FUNCTION(logits2, sb::logits2(a))
SB_FUNCTION(pow2_weight, sb::pow2_weight(a))
SB_FUNCTION(weight_p, sb::weight_p(a, b))
SB_FUNCTION(mul_add, sb::add(sb::mul(a, b), c))
SB_FUNCTION(join_scalar_half, sb::join_scalar(a, 0.5f, b, c))
SB_FUNCTION(lse, sb::lse(a, b))
