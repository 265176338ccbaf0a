// cp.async: copies to shared memory that a thread waits for in groups.
#pragma once

#include "thread.h"

namespace samebits {
void async_copy(void* shared, const void* global, size_t bytes, size_t from_bytes);  // the rest of `bytes` becomes zero
void async_copy_of(void* shared, const void* global, size_t bytes, size_t from_bytes, bool past_l1);  // as hardware does: 4, 8 or 16
void async_commit();
inline void async_bytes(void* to, const void* from, size_t bytes, size_t rank, size_t count) {  // by `count` threads together, in pieces of up to 16
  char* d = static_cast<char*>(to);
  const char* s = static_cast<const char*>(from);
  size_t unit = 1;
  while (unit < 16 && ((reinterpret_cast<size_t>(d) | reinterpret_cast<size_t>(s) | bytes) & unit) == 0) unit *= 2;
  for (size_t i = rank * unit; i < bytes; i += count * unit) async_copy(d + i, s + i, unit, unit);
}
void async_wait(unsigned allowed);  // until at most so many groups are under way
void async_wait_all();

// Addresses of the shared window count from the block's dynamic array; those of other blocks of the cluster lie above kWindow.
constexpr size_t kWindow = size_t(1) << 24;
void* far_shared_pointer(size_t address);
size_t far_shared_address(const void*);
inline void* shared_pointer(size_t address) {
  return address < kWindow ? static_cast<char*>(dynamic_shared()) + address : far_shared_pointer(address);
}
inline size_t shared_address(const void* p) {
  size_t offset = size_t(static_cast<const char*>(p) - static_cast<char*>(dynamic_shared()));
  return offset < kWindow ? offset : far_shared_address(p);
}
}  // namespace samebits

static inline size_t __cvta_generic_to_shared(const void* p) { return ::samebits::shared_address(p); }
static inline void* __cvta_shared_to_generic(size_t a) { return ::samebits::shared_pointer(a); }
static inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
static inline void* __cvta_global_to_generic(size_t a) { return reinterpret_cast<void*>(a); }
static inline unsigned __isShared(const void* p) {
  return size_t(static_cast<const char*>(p) - static_cast<char*>(::samebits::dynamic_shared())) < ::samebits::kWindow;
}
static inline unsigned __isGlobal(const void* p) { return !__isShared(p); }
