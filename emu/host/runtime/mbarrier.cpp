// Barriers that are variables in shared memory (mbarrier) and the copies that they wait for. A copy lands when somebody who waits asks
// for the second time: until then poison stands in its place, since it may take that long.
#include <string.h>

#include <algorithm>

#include "check.h"
#include "gang.h"

namespace samebits {

namespace {

constexpr long long kMostBytes = (1 << 20) - 1, kMostArrivals = (1 << 20) - 1;  // PTX ISA, mbarrier: ranges of its counts

Worker& running() { return *static_cast<Worker*>(self()->block); }

}  // namespace

// The place of an operation is where its thread is, for reports.
Worker& Worker::holder(Thread* thread, const void* address, const Here& here) {
  thread->file = here.file;
  thread->line = here.line;
  thread->op = Op::mbarrier;
  uintptr_t at = reinterpret_cast<uintptr_t>(address);
  Worker* owner = at - reinterpret_cast<uintptr_t>(window_) < window_bytes_ ? this : gang_->owner(*this, at);
  if (owner == nullptr) fail(thread, cudaErrorIllegalAddress, here, "the address of an mbarrier that is not in shared memory");
  if (at % 8 != 0) fail(thread, cudaErrorMisalignedAddress, here, "a misaligned mbarrier: its address is no multiple of 8");
  if (Check::active != nullptr) Check::on->access(*this, thread, at, 8, here.kind, here.pc);
  return *owner;
}

Mbarrier& Worker::mbarrier(Thread* thread, const void* address, const Here& here) {
  Worker& owner = holder(thread, address, here);
  auto found = owner.mbarriers_.find(reinterpret_cast<uintptr_t>(address));
  if (found == owner.mbarriers_.end()) fail(thread, cudaErrorLaunchFailure, here, "an mbarrier that has not been initialised");
  return found->second;
}

void Worker::init_mbarrier(Thread* thread, void* address, unsigned count, const Here& here) {
  Worker& owner = holder(thread, address, here);
  if (count == 0 || count > kMostArrivals) fail(thread, cudaErrorLaunchFailure, here, "an mbarrier of " + std::to_string(count) + " arrivals");
  Mbarrier fresh;
  fresh.owner = &owner;
  fresh.address = reinterpret_cast<uintptr_t>(address);
  fresh.expected = fresh.pending = count;
  fresh.number = owner.mbarriers_made_++ % 0x7000;
  owner.mbarriers_[fresh.address] = std::move(fresh);
}

void Worker::inval_mbarrier(Thread* thread, void* address, const Here& here) {
  Mbarrier& b = mbarrier(thread, address, here);
  b.owner->mbarriers_.erase(b.address);
}

void Mbarrier::end_phase_if_complete() {
  if (pending != 0 || bytes != 0) return;
  if (Check::active != nullptr) Check::on->end_phase(address);
  ++phase;
  pending = expected;
  owner->let_go(waiters);
}

// When nothing else can go on: waiting has its time limit. False: nobody waits, or nothing has happened for many such rounds.
bool Worker::wake_all() {
  constexpr unsigned kRounds = 1000;
  rounds_ = polls_ == 0 ? 0 : rounds_ + 1;
  polls_ = std::max<uint64_t>(polls_, 1);
  if (rounds_ > kRounds) return false;
  uint64_t polls = polls_;
  for (auto& [address, b] : mbarriers_) let_go(b.waiters);
  polls_ = polls;
  return ready_warps_ != 0;
}

void Worker::expect(Thread* thread, const void* address, long long more, const Here& here) {
  Mbarrier& b = mbarrier(thread, address, here);
  b.bytes += more;
  if (b.bytes > kMostBytes || b.bytes < -kMostBytes) {
    fail(thread, cudaErrorLaunchFailure, here, "an mbarrier that expects " + std::to_string(b.bytes) + " bytes, beyond " + std::to_string(kMostBytes));
  }
  polls_ = b.owner->polls_ = 0;
  b.end_phase_if_complete();
}

unsigned long long Worker::arrive_mbarrier(Thread* thread, const void* address, unsigned count, bool drop, const Here& here) {
  Mbarrier& b = mbarrier(thread, address, here);
  if (count == 0 || count > b.pending) {
    fail(thread, cudaErrorLaunchFailure, here, std::to_string(count) + " arrivals at an mbarrier whose phase waits for " + std::to_string(b.pending));
  }
  unsigned long long state = (unsigned long long)b.pending << 32 | (b.phase & 1);
  if (Check::active != nullptr) Check::on->gather(*this, thread, b.address);
  if (drop) b.expected -= std::min(b.expected, count);
  b.pending -= count;
  polls_ = b.owner->polls_ = 0;
  b.end_phase_if_complete();
  return state;
}

bool Worker::wait_mbarrier(Thread* thread, const void* address, unsigned phase, const Here& here) {
  for (bool waited = false;; waited = true) {
    Mbarrier& b = mbarrier(thread, address, here);
    if (b.owner != this) fail(thread, cudaErrorLaunchFailure, here, "a wait for an mbarrier of another block");
    if (((b.phase ^ phase) & 1) == 0) {
      std::vector<Flight> asked;
      auto first = std::stable_partition(b.flights.begin(), b.flights.end(), [](const Flight& f) { return !f.asked; });
      std::move(first, b.flights.end(), std::back_inserter(asked));
      b.flights.erase(first, b.flights.end());
      for (Flight& flight : asked) deliver(b, flight);
    }
    if (((b.phase ^ phase) & 1) != 0) {
      if (Check::active != nullptr) Check::on->pass_phase(*this, thread, b.address);
      return true;
    }
    if (waited) return false;
    if (!b.flights.empty()) {
      for (Flight& flight : b.flights) flight.asked = true;
      yield(thread, nullptr);
      return false;
    }
    hold(thread, b.waiters);
  }
}

// Copies come that an mbarrier has been told of.
void Worker::bring(Batch& batch) {
  batch.come = true;
  for (const AsyncCopy& c : batch.copies) {
    if (Check::active != nullptr) {
      Check::on->pend(*this, reinterpret_cast<uintptr_t>(c.to), c.bytes, kPending, false);
      if (c.bulk) Check::on->pend(*this, reinterpret_cast<uintptr_t>(c.from), c.bytes, kLeaving, false);
    }
    memcpy(c.to, c.from, c.from_bytes);
    memset(static_cast<char*>(c.to) + c.from_bytes, 0, c.bytes - c.from_bytes);
    if (Check::active != nullptr) Check::on->delivered(*this, c, kCopies + batch.number - 1, batch.issuer);
  }
}

// All copies of a flight have come, some perhaps before.
void Worker::deliver(Mbarrier& b, Flight& flight) {
  long long bytes = 0;
  for (const auto& batch : flight.batches) {
    if (!batch->come) bring(*batch);
    for (const AsyncCopy& c : batch->copies) bytes += c.bytes;
    if (Check::active != nullptr) Check::on->gather_copies(*this, b.address, kCopies + batch->number - 1);
  }
  polls_ = 0;
  if (flight.bulk) {
    b.bytes -= bytes;
  } else {
    --b.pending;
  }
  b.end_phase_if_complete();
}

// The block has returned: copies into it that nobody has waited for would meet the next block's memory.
void Worker::checked_flights() {
  for (const auto& [address, b] : mbarriers_) {
    for (const Flight& flight : b.flights) {
      if (!flight.bulk) continue;
      Thread there{};
      there.block = this;
      there.linear = flight.batches[0]->issuer;
      const AsyncCopy& c = flight.batches[0]->copies[0];
      Check::on->report("async copy", "bulk copy of " + std::to_string(c.bytes) + " bytes, which nobody has waited for when the block returns", &there,
                        Check::on->site_of(c.pc), nullptr);
    }
  }
}

AsyncCopy Worker::start_bulk(Thread* thread, void* to, const void* from, unsigned bytes, const Here& here) {
  uintptr_t target = reinterpret_cast<uintptr_t>(to), source = reinterpret_cast<uintptr_t>(from);
  if (bytes % 16 != 0 || bytes == 0) {
    fail(thread, cudaErrorLaunchFailure, here, "misaligned bulk copy: its " + std::to_string(bytes) + " bytes are no multiple of 16");
  }
  for (auto [address, which] : {std::pair{target, "target"}, std::pair{source, "source"}}) {
    if (address % 16 == 0) continue;
    fail(thread, cudaErrorMisalignedAddress, here, std::string("misaligned bulk copy: its ") + which + " is no multiple of 16 bytes");
  }
  if (Check::active != nullptr) {
    Check::on->access(*this, thread, source, bytes, kRead, here.pc);
    Check::on->leave(*this, thread, source, bytes, here.pc);
    Check::on->access(*this, thread, target, bytes, kWrite, here.pc);
    Check::on->pend(*this, source, bytes, kLeaving, true);
    Check::on->pend(*this, target, bytes, kPending, true);
  }
  memset(to, poison(), bytes);
  return {to, from, bytes, bytes, here.pc, true};
}

void Worker::copy_for(Thread* thread, AsyncCopy copy, const void* address, const Here& here) {
  Mbarrier& b = mbarrier(thread, address, here);
  b.flights.push_back({{std::make_shared<Batch>(Batch{{copy}, thread->linear, false, b.number + 1})}, true});
}

void Worker::arrive_with_copies(Thread* thread, const void* address, bool own, const Here& here) {
  Mbarrier& b = mbarrier(thread, address, here);
  if (!own && b.pending == 0) fail(thread, cudaErrorLaunchFailure, here, "an arrival at an mbarrier whose phase waits for none");
  CopyGroups& queue = async(thread->linear).plain;
  queue.close(thread->linear);
  Flight flight{queue.open, false};
  for (const Batches& group : queue.groups) flight.batches.insert(flight.batches.end(), group.begin(), group.end());
  flight.batches.erase(std::remove_if(flight.batches.begin(), flight.batches.end(), [](const auto& batch) { return batch->come; }), flight.batches.end());
  for (auto& batch : flight.batches) {
    if (batch->number == 0) batch->number = b.number + 1;
  }
  if (Check::active != nullptr) Check::on->gather(*this, thread, b.address);
  b.pending += own;
  b.flights.push_back(std::move(flight));
}

std::string Mbarrier::text() const {
  std::string text = " for its phase " + std::to_string(phase);
  if (pending != 0) text += ", which lacks " + std::to_string(pending) + " of " + std::to_string(expected) + " arrivals";
  if (bytes > 0) text += ", for which no copy brings " + std::to_string(bytes) + " bytes that are expected";
  if (bytes < 0) text += ", to which copies have brought " + std::to_string(-bytes) + " bytes more than were expected";
  return text;
}

// What headers call.
#define PC __builtin_return_address(0)
void mbarrier_init(void* p, unsigned count, const char* file, int line) {
  running().init_mbarrier(self(), p, count, {file, line, PC, kWrite});
}
void mbarrier_inval(void* p, const char* file, int line) { running().inval_mbarrier(self(), p, {file, line, PC, kWrite}); }
void mbarrier_bytes(void* p, long long more, const char* file, int line) {
  running().expect(self(), p, more, {file, line, PC, kRead});
}
unsigned long long mbarrier_arrive(void* p, unsigned count, bool drop, const char* file, int line) {
  return running().arrive_mbarrier(self(), p, count, drop, {file, line, PC, kRead});
}
bool mbarrier_wait(void* p, unsigned long long phase, const char* file, int line) {
  return running().wait_mbarrier(self(), p, unsigned(phase), {file, line, PC, kRead});
}
void async_arrive(void* p, bool own, const char* file, int line) {
  running().arrive_with_copies(self(), p, own, {file, line, PC, kRead});
}
void async_bytes_for(void* to, const void* from, size_t bytes, size_t rank, size_t count, void* mbarrier, const char* file, int line) {
  CopyGroups &queue = running().async(self()->linear).plain, others;
  std::swap(queue, others);
  async_bytes(to, from, bytes, rank, count);
  running().arrive_with_copies(self(), mbarrier, true, {file, line, PC, kRead});
  std::swap(queue, others);
}
void bulk_to_shared(void* to, const void* from, unsigned bytes, void* mbarrier, const char* file, int line) {
  Here here{file, line, PC, kRead};
  running().copy_for(self(), running().start_bulk(self(), to, from, bytes, here), mbarrier, here);
}
void bulk_to_global(void* to, const void* from, unsigned bytes, const char* file, int line) {
  AsyncCopy copy = running().start_bulk(self(), to, from, bytes, {file, line, PC, 0});
  running().async(self()->linear).bulk.fresh.push_back(copy);
}
void proxy_fence() {
  if (Check::active != nullptr) Check::on->proxy_fence(running(), self());
}
void bulk_commit() { running().async(self()->linear).bulk.commit(self()->linear); }
void bulk_wait(unsigned allowed, bool read) { running().wait_bulk(self(), allowed, read); }
#undef PC

}  // namespace samebits
