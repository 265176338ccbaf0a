// Order by barriers that have phases: of the cluster, and those that are variables; and whether a block is there whose memory others use.
#include <algorithm>

#include "check.h"
#include "gang.h"

namespace samebits {

// Whether the barriers of the cluster that a thread of it has waited for, `phase` of them, order the mark before what it does now.
bool Check::across(const BlockCheck& block, uint32_t phase, const Mark& mark) const {
  if (mark.seq - block.cluster >= block.blocks.size()) return false;
  if (mark.thread >= kCopies) return phase != 0;
  const Clocks& theirs = block.blocks[mark.seq - block.cluster]->threads[mark.thread];
  return phase != 0 && ((theirs.returned && phase > theirs.phase) || mark.clock <= theirs.arrived[(phase - 1) % 3]);
}

void Check::arrive(Worker& worker, const Thread* thread) {
  settle();
  Clocks& mine = worker.check.threads[thread->linear];
  mine.arrived[mine.phase % 3] = mine.clock;
  worker.check.most = std::max(worker.check.most, ++mine.clock);
}

void Check::pass(Worker& worker, const Thread* thread) {
  settle();
  ++worker.check.threads[thread->linear].phase;
}

void Check::finish(Worker& worker, const Thread& thread) { worker.check.threads[thread.linear].returned = true; }

// An access to the shared memory of another block: that block must be there, and stay until the access is done.
void Check::visit(Worker& worker, Worker& owner, Thread* thread, Region& region, uint32_t site) {
  const Clocks& mine = worker.check.threads[thread->linear];
  std::string what = "access to shared " + region.name + " of block " + coordinates(owner.block_idx.x, owner.block_idx.y, owner.block_idx.z);
  if (owner.alive() == 0) {
    report("block lifetime", what + ", which has returned", thread, site, nullptr);
  } else if (mine.phase == 0 && mine.refs.empty() && worker.check.refs.empty() && !worker.cooperative()) {
    report("block lifetime", what + " before a barrier of the cluster: it may not have started", thread, site, nullptr);
  }
  owner.check.visits[uint64_t(worker.check.seq) << 16 | thread->linear] = {worker.check.seq, mine.clock, site, uint16_t(thread->linear), 0};
}

// All threads of a block have returned: accesses of others to its shared memory must be ordered before that.
void Check::end_block(Worker& worker) {
  settle();
  BlockCheck& block = worker.check;
  uint32_t phase = 0;
  for (const Clocks& t : block.threads) phase = std::max(phase, t.phase);
  for (const auto& [key, mark] : block.visits) {
    auto by = [&, &mark = mark](const Clocks& t) { return through(t.refs, block.seq, mark); };
    if (mark.seq < first_ || across(block, phase, mark) || through(block.refs, block.seq, mark)) continue;
    if (std::any_of(block.threads.begin(), block.threads.end(), by)) continue;
    Worker& visitor = worker.gang().peer(worker, mark.seq - block.cluster);
    Thread there{};
    there.block = &visitor;
    there.linear = mark.thread;
    report("block lifetime", "access to shared memory of block " + coordinates(worker.block_idx.x, worker.block_idx.y, worker.block_idx.z) +
                                 ", which may return before it: no barrier of the cluster follows",
           &there, mark.site, nullptr);
  }
}

// Barriers that are variables: a phase publishes what those who arrived knew, together, and what its copies brought.
void Check::gather(Worker& worker, Thread* thread, uintptr_t address) {
  settle();
  Clocks& mine = worker.check.threads[thread->linear];
  Known& known = gathered(address, worker.check);
  add_clock(known.more, thread->linear, mine.clock);
  unsigned first = thread->linear & ~31u;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (mine.warp[lane] >= worker.check.base) add_clock(known.more, first + lane, mine.warp[lane]);
  }
  Sync* own = sync_at(address);
  std::vector<Ref> others = mine.refs;
  others.erase(std::remove_if(others.begin(), others.end(), [own](const Ref& ref) { return ref.sync == own; }), others.end());
  join(known.refs, others);
  worker.check.most = std::max(worker.check.most, ++mine.clock);
}

Known& Check::gathered(uintptr_t address, const BlockCheck& block) {
  std::vector<Known>& all = gathering_[address];
  auto found = std::find_if(all.begin(), all.end(), [&](const Known& known) { return known.seq == block.seq; });
  if (found == all.end()) found = all.insert(all.end(), {block.seq, block.base, {}, {}, false});
  found->base = block.base;
  return *found;
}

// The copy has written, at no thread's place in the order: who has waited for the mbarrier comes after it.
void Check::delivered(Worker& owner, const AsyncCopy& copy, unsigned number, unsigned issuer) {
  auto& [count, last] = owner.check.copies[number];
  ++count, last = issuer;
  Mark mark{owner.check.seq, 0x80000000u + count, site_of(copy.pc), uint16_t(number), 0};
  for (Region* region : owner.check.shared) {
    uintptr_t begin = reinterpret_cast<uintptr_t>(copy.to) - region->begin;
    if (begin >= region->end - region->begin || region->cells == nullptr) continue;
    uintptr_t end = std::min<uintptr_t>(begin + copy.bytes, region->end - region->begin);
    for (uintptr_t i = begin >> region->shift; i < (end + (1u << region->shift) - 1) >> region->shift; ++i) region->cells[i] = {mark, {}, {}};
  }
}

// The thread that issued the copy which left that mark.
unsigned Check::copier(const Thread* thread, const Mark& mark) const {
  const BlockCheck& block = static_cast<const Worker*>(thread->block)->check;
  return block.blocks[mark.seq - block.cluster]->copies[mark.thread].second;
}

void Check::gather_copies(Worker& owner, uintptr_t address, unsigned number) {
  settle();
  add_clock(gathered(address, owner.check).more, number, 0x80000000u + owner.check.copies[number].first);
}

// As if they had a barrier to themselves, which the thread has waited for.
void Check::learn_copies(Worker& worker, Thread* thread, unsigned number) {
  uintptr_t place = uintptr_t(1) << 63 | uintptr_t(worker.check.seq) << 16 | number;  // where no memory is
  gather_copies(worker, place, number);
  end_phase(place);
  pass_phase(worker, thread, place);
}

void Check::proxy_fence(Worker& worker, Thread* thread) {
  settle();
  Clocks& mine = worker.check.threads[thread->linear];
  mine.proxied = mine.clock;
  mine.proxied_base = worker.check.base;
  worker.check.most = std::max(worker.check.most, ++mine.clock);
}

// What threads have written reaches a bulk copy through a fence.proxy.async: of the writer, or of who issues the copy since the last barrier.
void Check::leave(Worker& worker, Thread* thread, uintptr_t address, size_t bytes, const void* pc) {
  const BlockCheck& block = worker.check;
  if (block.threads[thread->linear].proxied_base == block.base) return;
  for (const Region* region : block.shared) {
    if (address - region->begin >= region->end - region->begin || region->cells == nullptr) continue;
    for (uintptr_t at = address; at < std::min<uintptr_t>(address + bytes, region->end); at += size_t(1) << region->shift) {
      const Mark& mark = region->cells[(at - region->begin) >> region->shift].write;
      if (mark.seq != block.seq || mark.thread >= kCopies || mark.clock <= block.threads[mark.thread].proxied) continue;
      return report("async copy", "bulk copy of " + place_of(*region, at) + " that was written without a fence.proxy.async after it", thread, site_of(pc), &mark);
    }
  }
}

void Check::end_phase(uintptr_t address) {
  Sync& sync = *sync_at(address);
  sync.cumulative = sync.cumulative || sync.log.empty();
  for (Known& known : gathering_[address]) {
    std::vector<size_t>& of_block = sync.by_block[known.seq];
    if (sync.cumulative && !of_block.empty()) {
      const Known& before = sync.log[of_block.back()];
      for (auto [thread, clock] : before.more) add_clock(known.more, thread, clock);
      join(known.refs, before.refs);
    }
    of_block.push_back(sync.log.size());
    sync.log.push_back(std::move(known));
  }
  gathering_.erase(address);
}

void Check::pass_phase(Worker& worker, Thread* thread, uintptr_t address) {
  settle();
  Clocks& mine = worker.check.threads[thread->linear];
  if (mine.acquired.empty() && mine.refs.empty()) worker.check.dirty.push_back(thread->linear);
  join(mine.refs, {{sync_at(address), sync_at(address)->log.size()}});
}

Sync* Check::sync_at(uintptr_t address) {
  Sync*& sync = syncs_[address];
  if (sync == nullptr) sync = new Sync;
  return sync;
}

}  // namespace samebits
