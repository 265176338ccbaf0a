// __pipeline_*: asynchronous copies to shared memory.
#pragma once
#include "samebits/async.h"
static inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zero_filled = 0) {
  ::samebits::async_copy_of(shared, global, bytes, bytes - zero_filled, false);
}
static inline void __pipeline_commit() { ::samebits::async_commit(); }
static inline void __pipeline_wait_prior(size_t allowed) { ::samebits::async_wait(unsigned(allowed)); }
