// Parts of paged_decode that know nothing of attention: vectors of storage, and folding many values over a warp at once.
#pragma once

#include <cstdint>

#include "contract.cuh"
#include "dtypes.cuh"

namespace sb {

// kSize bytes of storage in registers: whole 32-bit words where they are four bytes and more.
template <int kSize>
struct Words {
    static constexpr int kCount = kSize < 4 ? 1 : kSize / 4;
    unsigned at[kCount];

    __device__ __forceinline__ void read(const void* address) {
        if constexpr (kSize == 16) {
            const uint4 v = *static_cast<const uint4*>(address);
            at[0] = v.x, at[1] = v.y, at[2] = v.z, at[3] = v.w;
        } else if constexpr (kSize == 8) {
            const uint2 v = *static_cast<const uint2*>(address);
            at[0] = v.x, at[1] = v.y;
        } else if constexpr (kSize == 4) {
            at[0] = *static_cast<const unsigned*>(address);
        } else if constexpr (kSize == 2) {
            at[0] = *static_cast<const unsigned short*>(address);
        } else {
            at[0] = *static_cast<const unsigned char*>(address);
        }
    }

    // Element i of type T as binary32, exact (C11).
    template <typename T>
    __device__ __forceinline__ float element(int i) const {
        if constexpr (sizeof(T) == 4) {
            return __uint_as_float(at[i]);
        } else if constexpr (sizeof(T) == 1) {
            return to_f32_of_four<T>(at[i / 4], i % 4);
        } else {
            return to_f32(T{static_cast<unsigned short>(at[i / 2] >> (16 * (i % 2)))});
        }
    }
};

// The largest power of two up to `most` that is not above n; at least 1.
constexpr int unit_of(int n, int most) {
    int unit = 1;
    while (2 * unit <= n && 2 * unit <= most) unit *= 2;
    return unit;
}

// Combines kCount (a power of two up to 32) values of every lane over the 32 lanes of a warp, by 16, 8, 4, 2, 1 as C7 does: a transposed
// butterfly, in which lanes halve the values that they care for while there is more than one. Lane i returns value folded_index(i).
template <int kCount, int kStep = 16, typename Combine>
__device__ __forceinline__ float fold(const float (&value)[kCount], int lane, Combine combine) {
    if constexpr (kStep == 0) {
        return value[0];
    } else if constexpr (kCount == 1) {
        const float both[1] = {combine(value[0], __shfl_xor_sync(0xFFFFFFFFu, value[0], kStep))};
        return fold<1, kStep / 2>(both, lane, combine);
    } else {
        const bool upper = (lane & kStep) != 0;
        float half[kCount / 2];
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
            const float keep = upper ? value[i + kCount / 2] : value[i];
            const float give = upper ? value[i] : value[i + kCount / 2];
            half[i] = combine(keep, __shfl_xor_sync(0xFFFFFFFFu, give, kStep));
        }
        return fold<kCount / 2, kStep / 2>(half, lane, combine);
    }
}

// Which value fold() leaves in a lane.
template <int kCount>
__device__ __forceinline__ int folded_index(int lane) {
    return kCount * lane / 32;
}

}  // namespace sb
