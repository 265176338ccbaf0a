// Barriers that are variables in shared memory and count arrivals and bytes (mbarrier), bulk copies that they wait for, and the numbered
// barriers of a block. A place in the source is the call's.
#pragma once

#include "thread.h"

namespace samebits {
void mbarrier_init(void*, unsigned count, SAMEBITS_SITE);
void mbarrier_inval(void*, SAMEBITS_SITE);
void mbarrier_bytes(void*, long long more, SAMEBITS_SITE);  // to come before its phase ends
unsigned long long mbarrier_arrive(void*, unsigned count, bool drop, SAMEBITS_SITE);  // its phase before, and above 32 bits who is missing
bool mbarrier_wait(void*, unsigned long long phase, SAMEBITS_SITE);  // of the phase's lowest bit; false, after a while: ask again

void bulk_to_shared(void* to, const void* from, unsigned bytes, void* mbarrier, SAMEBITS_SITE);
void bulk_to_global(void* to, const void* from, unsigned bytes, SAMEBITS_SITE);
void bulk_commit();
void bulk_wait(unsigned allowed, bool read);  // until at most so many groups are under way, or have yet to be read
void proxy_fence();  // fence.proxy.async: what the thread has written before may be read by bulk copies
void async_arrive(void* mbarrier, bool own, SAMEBITS_SITE);  // when the thread's cp.async have come; own: an arrival beside those counted

void async_bytes_for(void* to, const void* from, size_t bytes, size_t rank, size_t count, void* mbarrier, SAMEBITS_SITE);  // async_bytes(), counted

void named_barrier(unsigned number, unsigned count, bool wait, bool aligned, SAMEBITS_SITE);  // count 0: of the whole block
}  // namespace samebits
