// How wide an access to memory may be: the largest size that a row's length, its stride and its address allow.
#pragma once

#include <cstdint>

namespace sb {

/// Bytes that no address of a row [address + i * stride, i < rows] may be cut by, or'ed into one number.
inline uint64_t alignment_of(const void* address, int64_t rows, int64_t stride_in_bytes) {
    return reinterpret_cast<uint64_t>(address) | (rows > 1 ? static_cast<uint64_t>(stride_in_bytes) : 0);  // one row has no stride
}

/// The widest of 16, 8, 4, 2 and 1 bytes that divides every number or'ed into `bits`: addresses, strides and lengths in bytes.
inline int widest_access(uint64_t bits) {
    bits |= 16;
    return static_cast<int>(bits & (~bits + 1));  // the lowest bit that is set
}

}  // namespace sb
