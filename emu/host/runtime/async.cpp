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
    Check::on->pend(worker, reinterpret_cast<uintptr_t>(to), bytes, kPending, true);
  }
  memset(to, worker.poison(), bytes);
  worker.async(thread->linear).plain.fresh.push_back({to, from, unsigned(bytes), unsigned(from_bytes), pc});
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
  static_cast<Worker*>(thread->block)->async(thread->linear).plain.commit(thread->linear);
}

// Copies for which their thread has waited.
void Worker::land(Thread* thread, const Batches& batches) {
  for (const auto& batch : batches) {
    if (batch->number != 0) {
      if (!batch->come) bring(*batch);
      if (Check::active != nullptr) Check::on->learn_copies(*this, thread, kCopies + batch->number - 1);
      continue;
    }
    if (batch->come) continue;
    batch->come = true;
    for (const AsyncCopy& c : batch->copies) {
      if (Check::active != nullptr) {
        Check::on->pend(*this, reinterpret_cast<uintptr_t>(c.to), c.bytes, kPending, false);
        if (c.bulk && !c.read) Check::on->pend(*this, reinterpret_cast<uintptr_t>(c.from), c.bytes, kLeaving, false);
        Check::on->access(*this, thread, reinterpret_cast<uintptr_t>(c.to), c.bytes, kWrite, c.pc);
        if (c.from_bytes != 0 && !c.read) Check::on->access(*this, thread, reinterpret_cast<uintptr_t>(c.from), c.from_bytes, kRead, c.pc);
      }
      if (!c.read) memcpy(c.to, c.from, c.from_bytes);
      memset(static_cast<char*>(c.to) + c.from_bytes, 0, c.bytes - c.from_bytes);
    }
  }
}

void async_wait(unsigned allowed) {
  Thread* thread = self();
  Worker& worker = *static_cast<Worker*>(thread->block);
  CopyGroups& queue = worker.async(thread->linear).plain;
  while (queue.groups.size() > allowed) {
    worker.land(thread, queue.groups.front());
    queue.groups.pop_front();
  }
}

void async_wait_all() {
  async_commit();
  async_wait(0);
}

// Groups of bulk copies from shared memory, of which all but `allowed` have come, or have been read.
void Worker::wait_bulk(Thread* thread, unsigned allowed, bool read) {
  CopyGroups& queue = async(thread->linear).bulk;
  if (!read) {
    for (; queue.groups.size() > allowed; queue.groups.pop_front()) land(thread, queue.groups.front());
    return;
  }
  for (size_t i = 0; i + allowed < queue.groups.size(); ++i) {
    for (auto& batch : queue.groups[i]) {
      for (AsyncCopy& c : batch->copies) {
        if (c.read) continue;
        if (Check::active != nullptr) Check::on->pend(*this, reinterpret_cast<uintptr_t>(c.from), c.bytes, kLeaving, false);
        memcpy(c.to, c.from, c.bytes);
        c.read = true;
      }
    }
  }
}

AsyncQueue& Worker::async(unsigned linear) {
  if (async_.empty()) async_.resize(1024);
  async_used_ = true;
  return async_[linear];
}

// What a thread never waited for has come by the time it has returned, except for what an mbarrier waits for.
void Worker::finish_async(Thread* thread) {
  AsyncQueue& all = async_[thread->linear];
  for (CopyGroups* queue : {&all.plain, &all.bulk}) {
    queue->commit(thread->linear);
    for (Batches& group : queue->groups) {
      group.erase(std::remove_if(group.begin(), group.end(), [](const auto& batch) { return batch->number != 0; }), group.end());
      land(thread, group);
    }
    queue->groups.clear();
  }
}

// Marks bytes that a copy is to bring, or has yet to read, where it is known of each byte whether it has been written.
void Check::pend(Worker& worker, uintptr_t address, size_t bytes, uint8_t mark, bool on) {
  Worker* owner = worker.gang().owner(worker, address);
  Region* region = nullptr;
  if (owner == nullptr) {
    region = find(address);
  } else {
    auto holds = [address](const Region* r) { return address - r->begin < r->end - r->begin; };
    auto found = std::find_if(owner->check.shared.begin(), owner->check.shared.end(), holds);
    if (found != owner->check.shared.end()) region = *found;
  }
  if (region == nullptr || region->state == nullptr) return;
  uint8_t* state = region->state + (address - region->begin);
  for (size_t i = 0; i < std::min<size_t>(bytes, region->end - address); ++i) {
    state[i] = on ? state[i] | mark : state[i] & uint8_t(~mark);
  }
}

}  // namespace samebits
