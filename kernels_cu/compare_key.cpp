// compare_key: the length of the common prefix of two token sequences, on the CPU.
//
// A radix tree of cached prefixes compares keys at every step. Blocks are compared by memcmp, which every C library has vectorised; in the
// first block that differs, words of 8 bytes are, and in the first such word its elements.

#include <algorithm>
#include <cstdint>
#include <cstring>

using T = SB_T;

struct CompareKeyParams {
    int64_t* length;  // [1]
    const T* a;       // [n_a]
    const T* b;       // [n_b]
    int64_t n_a;
    int64_t n_b;
};

constexpr int64_t kBlock = 2048 / sizeof(T);  // elements: long enough for memcmp to run, short enough to search
constexpr int64_t kWord = 8 / sizeof(T);

extern "C" int compare_key(const CompareKeyParams* params, void*) {
    const T *a = params->a, *b = params->b;
    const int64_t n = std::min(params->n_a, params->n_b);
    int64_t i = 0;
    while (i + kBlock <= n && std::memcmp(a + i, b + i, kBlock * sizeof(T)) == 0) i += kBlock;
    for (; i + kWord <= n; i += kWord) {
        uint64_t left, right;  // from any address
        std::memcpy(&left, a + i, sizeof left);
        std::memcpy(&right, b + i, sizeof right);
        if (left != right) break;
    }
    while (i < n && a[i] == b[i]) ++i;
    *params->length = i;
    return 0;
}
