// store_kvcache: writes row i of K and V, which may be slices of a fused qkv, to slot slots[i] of paged caches [pages, g, slot, d].
//
// The device code is that of reshape_and_cache_flash (cache_rows.cuh) with the axes of the cache in another order; nothing is converted.

#include <cstdint>

#include "cache_rows.cuh"

using T = SB_T;
using Index = SB_INDEX;

struct StoreKvcacheParams {
    const T* k;  // [n, g, d]
    int64_t k_stride[2];
    const T* v;  // [n, g, d]
    int64_t v_stride[2];
    T* k_cache;  // [pages, g, page, d]
    int64_t k_cache_stride[3];
    T* v_cache;  // [pages, g, page, d]
    int64_t v_cache_stride[3];
    const Index* slots;  // [m], m <= n: rows from m on are padding
    int64_t n;
    int64_t g;
    int64_t d;
    int64_t pages;
    int64_t page;
    int64_t m;
};

extern "C" int store_kvcache(const StoreKvcacheParams* params, void* stream) {
    const StoreKvcacheParams& p = *params;
    const auto side = [](const T* rows, const int64_t* row, T* cache, const int64_t* stride) {
        return sb::CacheRows<T, T>{rows, row[0], row[1], cache, stride[0], stride[2], stride[1], nullptr, 0};
    };
    const sb::CacheWrite<T, T, Index> write{side(p.k, p.k_stride, p.k_cache, p.k_cache_stride), side(p.v, p.v_stride, p.v_cache, p.v_cache_stride),
                                            p.slots, p.m, p.g, p.d, p.page};
    return sb::write_cache(write, p.n, p.pages, stream);
}
