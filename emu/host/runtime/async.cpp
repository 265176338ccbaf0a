// Asynchronous copies to shared memory. The bytes land when the thread waits for them, the latest that CUDA allows; until then poison
// stands in their place, since they could have come at any time before.
#include <string.h>

#include <algorithm>

#include "check.h"

namespace samebits {

void async_copy(void* to, const void* from, size_t bytes, size_t from_bytes) {
  Thread* thread = self();
  Worker& worker = *static_cast<Worker*>(thread->block);
  const void* pc = __builtin_return_address(0);
  if (from_bytes > bytes) {
    worker.fail(thread, cudaErrorLaunchFailure, "an asynchronous copy of " + std::to_string(from_bytes) + " bytes to " + std::to_string(bytes));
  }
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & (bytes - 1)) != 0) {
    worker.fail(thread, cudaErrorMisalignedAddress, "misaligned asynchronous copy of " + std::to_string(bytes) + " bytes");
  }
  if (Check::active != nullptr) {
    if (from_bytes != 0) Check::on->access(worker, thread, reinterpret_cast<uintptr_t>(from), from_bytes, kRead, pc);
    Check::on->access(worker, thread, reinterpret_cast<uintptr_t>(to), bytes, kWrite, pc);
    Check::on->pend(worker, reinterpret_cast<uintptr_t>(to), bytes, true);
  }
  memset(to, worker.poison(), bytes);
  worker.async(thread->linear).open.push_back({to, from, unsigned(bytes), unsigned(from_bytes), pc});
}

void async_copy_of(void* to, const void* from, size_t bytes, size_t from_bytes, bool past_l1) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || (past_l1 && bytes != 16)) {
    static_cast<Worker*>(self()->block)->fail(self(), cudaErrorLaunchFailure, "an asynchronous copy" + std::string(past_l1 ? " by .cg" : "") +
                                              " of " + std::to_string(bytes) + " bytes, not " + (past_l1 ? "16" : "4, 8 or 16"));
  }
  async_copy(to, from, bytes, from_bytes);
}

void async_commit() {
  Thread* thread = self();
  AsyncQueue& queue = static_cast<Worker*>(thread->block)->async(thread->linear);
  queue.groups.push_back(std::move(queue.open));
  queue.open.clear();
}

void Worker::land(Thread* thread, const std::vector<AsyncCopy>& copies) {
  for (const AsyncCopy& c : copies) {
    if (Check::active != nullptr) {
      Check::on->pend(*this, reinterpret_cast<uintptr_t>(c.to), c.bytes, false);
      Check::on->access(*this, thread, reinterpret_cast<uintptr_t>(c.to), c.bytes, kWrite, c.pc);
      if (c.from_bytes != 0) Check::on->access(*this, thread, reinterpret_cast<uintptr_t>(c.from), c.from_bytes, kRead, c.pc);
    }
    memcpy(c.to, c.from, c.from_bytes);
    memset(static_cast<char*>(c.to) + c.from_bytes, 0, c.bytes - c.from_bytes);
  }
}

void async_wait(unsigned allowed) {
  Thread* thread = self();
  Worker& worker = *static_cast<Worker*>(thread->block);
  AsyncQueue& queue = worker.async(thread->linear);
  while (queue.groups.size() > allowed) {
    worker.land(thread, queue.groups.front());
    queue.groups.pop_front();
  }
}

void async_wait_all() {
  async_commit();
  async_wait(0);
}

AsyncQueue& Worker::async(unsigned linear) {
  if (async_.empty()) async_.resize(1024);
  async_used_ = true;
  return async_[linear];
}

// What a thread never waited for has come by the time it has returned.
void Worker::finish_async(Thread* thread) {
  AsyncQueue& queue = async_[thread->linear];
  for (const auto& group : queue.groups) land(thread, group);
  land(thread, queue.open);
  queue.groups.clear();
  queue.open.clear();
}

void Check::pend(Worker& worker, uintptr_t address, size_t bytes, bool on) {
  for (Region* region : worker.check.shared) {
    if (address - region->begin >= region->end - region->begin) continue;
    for (size_t i = address - region->begin; i < std::min<size_t>(address - region->begin + bytes, region->end - region->begin); ++i) {
      region->state[i] = on ? region->state[i] | kPending : region->state[i] & uint8_t(~kPending);
    }
  }
}

}  // namespace samebits
