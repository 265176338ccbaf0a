// One worker runs blocks one after the other on one core; its fibers are the threads of the block.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fiber.h"
#include "waiting.h"
#include "samebits/async.h"
#include "samebits/cluster.h"
#include "samebits/launch.h"
#include "samebits/mbarrier.h"
#include "samebits/warp.h"

namespace samebits {

struct BlockCheck;
class Gang;

enum class Order { forward, reverse, shuffle, prefer };

// What shuffled order mixes. Decisions by chance that differ from forward order are counted; those before `from` and from `to` on are
// not followed.
enum Mixed : unsigned { kBlocks = 1, kWarps = 2, kLanes = 4 };
struct Shuffle {
  unsigned mixed = kBlocks | kWarps | kLanes;
  uint64_t from = 0, to = UINT64_MAX, made = 0;
  char last[512] = "";  // the last one that was followed, if `to` says which that is
};
extern Shuffle shuffle;

// Forward order but for one warp, lane or gang of blocks, which comes before all others or after them.
struct Prefer {
  Mixed which = kWarps;
  bool first = true;
  unsigned index = 0;
};
extern Prefer prefer;

extern std::atomic<const char*> notes[8];  // what is not bit-accurate in what has run

// A launch. Gangs take their numbers from `next`.
struct Grid {
  Kernel* kernel;
  void (*run)(void*);
  void* closure;
  size_t closure_bytes;
  dim3 grid, block;
  unsigned threads;
  size_t dynamic_bytes;
  size_t shared_limit;  // for static and dynamic shared memory together
  Order order;
  uint64_t seed;
  int poison;
  double patience_ms;
  uint64_t blocks;
  dim3 cluster;             // blocks along each axis
  unsigned cluster_blocks;  // their product
  bool cooperative;
  uint64_t gang_blocks() const { return cooperative ? blocks : cluster_blocks; }  // that run together
  unsigned depth = 0;                           // of the launch that it came from, and one more
  std::vector<std::function<void()>> children;  // launches by its threads
  std::atomic<uint64_t> next{0};  // gang
  std::atomic<bool> stop{false};
  std::atomic<unsigned> gangs{0};  // cores that run blocks of it
  std::mutex mutex;  // for the failure below
  int code = 0;
  std::string text;
};

struct Across {  // a warp's lanes at a barrier of several blocks:
  uint32_t arrived, passed, waiting;  // that have come, whose barrier had ended before they waited for it, that wait
  const char* file;                   // where the first of them came
  int line;
};

struct Warp {
  uint32_t alive;       // lanes that have not returned
  uint32_t ready;       // of those, lanes that wait for nothing (the running one too)
  uint32_t at_barrier;  // lanes in __syncthreads
  uint32_t waiting;     // lanes in a collective; mask, op, value and source belong to it
  uint32_t converging;  // lanes in __activemask
  uint32_t held;        // lanes that wait for an mbarrier or at a numbered barrier
  uint32_t mask[32];
  Op op[32];
  uint8_t source[32];
  uint64_t value[32];
  uint64_t result[32];
  Across across[2];     // by Scope
};

void fiber_main();

class Worker : public BlockView {
 public:
  Worker();
  ~Worker();

  // For its gang.
  void begin(Grid&, Gang&, unsigned position);
  void end();
  void begin_block(uint64_t index);  // counted by clusters, then by rank
  bool resume(void** main);          // until the block has ended or cannot go on; false: no memory for it
  bool can_run() const { return ready_warps_ != 0; }
  unsigned alive() const { return alive_; }  // threads that have not returned
  bool only_polls = false;  // whether it gave way since a block of its gang ended
  bool all_came(Scope scope) const { return came_[scope] == alive_; }
  void release_across(Scope);
  bool waits_within() const;  // at a barrier of the block or in a warp operation
  void record_deadlock();
  void record_fault();
  void poison_shared();
  void** resume_at() { return &resume_at_; }
  unsigned position() const { return position_; }
  Gang& gang() const { return *gang_; }
  int poison() const { return grid_->poison; }
  bool cooperative() const { return grid_->cooperative; }
  unsigned cluster_blocks() const { return grid_->cluster_blocks; }

  void barrier(Thread*, Op, int predicate, const char* file, int line);
  void collective(Thread*, Op, unsigned source, unsigned mask, uint64_t value, const char* file, int line);
  void yield(Thread*, const void* pc);  // pc: of the code that polls
  void tick(Thread*, const void* pc);   // the clock, while the thread runs
  bool due() const { return due_; }
  void interrupt(Thread*);
  const void* interrupted_at = nullptr;  // by the clock, last
  bool turn_is_over() const;
  void arrive(Thread*, Scope, bool aligned, const char* file, int line);
  void wait(Thread*, Scope, const char* file, int line);
  void* map_shared(Thread*, const void*, unsigned rank);
  int rank_of(const void*) const;
  void* place_shared(Thread*, Slot*);
  void init_mbarrier(Thread*, void*, unsigned count, const Here&);
  void inval_mbarrier(Thread*, void*, const Here&);
  void expect(Thread*, const void*, long long more, const Here&);
  unsigned long long arrive_mbarrier(Thread*, const void*, unsigned count, bool drop, const Here&);
  bool wait_mbarrier(Thread*, const void*, unsigned phase, const Here&);
  void checked_flights();
  void arrive_with_copies(Thread*, const void*, bool own, const Here&);
  AsyncCopy start_bulk(Thread*, void* to, const void* from, unsigned bytes, const Here&);
  void copy_for(Thread*, AsyncCopy, const void* mbarrier, const Here&);
  void let_go(std::vector<unsigned>& waiters);
  bool wake_all();
  void named(Thread*, unsigned number, unsigned count, bool wait, bool aligned, const Here&);
  [[noreturn]] void fail(const Thread*, int code, const std::string& what);
  [[noreturn]] void fail(const Thread*, int code, const Here&, const std::string& what);
  [[noreturn]] void fail(const Thread*, int code, const void* pc, const std::string& what);
  [[noreturn]] void stop(const Thread*, int code, const void* pc, const std::string& what);  // what has been reported
  std::string where(const Thread*) const;
  void launch_later(const char* file, int line, std::function<void()> launch);

  AsyncQueue& async(unsigned linear);
  void land(Thread*, const Batches&);
  void wait_bulk(Thread*, unsigned allowed, bool read);
  void finish_async(Thread*);

  // For the checks.
  const Thread* partner = nullptr;  // that waits elsewhere, in a failure that has two places
  BlockCheck& check;
  unsigned check_id;
  char* window() const { return window_; }
  size_t window_bytes() const { return window_bytes_; }
  bool own(uintptr_t address) const {  // of the emulator itself: this object, its tables, stacks of threads
    return address - reinterpret_cast<uintptr_t>(this) < sizeof(Worker) ||
           address - reinterpret_cast<uintptr_t>(entries_.data()) < entries_.size() * sizeof(SharedEntry) || stacks_.holds(address);
  }

  // For the fault handler.
  bool holds(uintptr_t stack_pointer) const { return stacks_.holds(stack_pointer); }
  const Thread* running(uintptr_t stack_pointer) const { return thread_of(stack_pointer); }
  int fault_signal = 0, fault_code = 0;
  uintptr_t fault_address = 0, fault_stack = 0;
  const void* fault_pc = nullptr;

 private:
  friend void fiber_main();
  bool add_fiber();
  void* acquire(unsigned linear);  // a fiber for a thread that has not started: where to go on
  int pick();
  int pick_slow();
  int pick_shuffled();
  int pick_preferred();
  int pick_after(unsigned linear);
  void go_to(Thread* from, unsigned next);
  void block_on(Thread*, Warp&);  // its lane is no longer ready: run the others until it is again
  void idle(Warp&);               // no lane of it is ready
  bool complete(Warp&, unsigned lane);
  void release_barrier();
  void checked_barrier();
  void checked_across(Scope) const;
  void leave_across(unsigned linear);
  void checked_collective(Warp&, unsigned lane, uint32_t group);
  Worker& holder(Thread*, const void*, const Here&);
  Mbarrier& mbarrier(Thread*, const void*, const Here&);
  void bring(Batch&);
  void deliver(Mbarrier&, Flight&);
  std::string held_text(const Thread*) const;
  void release_named(unsigned number);
  unsigned came(const Named&) const;
  uintptr_t named_place(unsigned number) const;
  void hold(Thread*, std::vector<unsigned>& waiters);
  void finish(Thread*);
  void discard_fibers();
  void record(int code, std::string text);
  std::string deadlock() const;
  std::string decision(unsigned chosen, unsigned usual) const;
  unsigned waiting_thread(bool at_barrier) const;
  void check_patience(Thread*, const void* pc);
  [[noreturn]] void diverge(Thread*);
  [[noreturn]] void foreign_mask(Thread*);
  [[noreturn]] void leave();

  Grid* grid_ = nullptr;
  Order order_ = Order::forward;
  Stacks stacks_;
  std::vector<Fiber> free_;
  Gang* gang_ = nullptr;
  unsigned position_ = 0;      // in its gang
  bool started_ = false;       // the block
  void* resume_at_ = nullptr;  // once it has been suspended
  unsigned came_[2] = {};      // threads at barriers of several blocks, by Scope
  unsigned current_ = 0;  // warp of the thread that runs
  uint32_t ready_warps_ = 0;
  unsigned warp_count_ = 0;
  unsigned alive_ = 0;
  unsigned arrived_ = 0, predicates_ = 0;
  Op barrier_op_ = Op::none;
  const char* barrier_file_ = nullptr;
  int barrier_line_ = 0;
  unsigned barrier_first_ = 0;
  uint64_t random_ = 0;
  uint64_t turns_ = 0;  // that its threads have given away
  uint64_t polls_ = 0;  // since a thread of the block last reached a barrier's end, a warp operation's or its own
  double polling_since_ = 0;
  const Thread* ticked_ = nullptr;  // which thread the clock's last ticks met, and how many
  unsigned ticked_linear_ = 0, ticks_ = 0, turn_ticks_ = 0;  // turn: of the block, until it gives way
  unsigned long ticked_generation_ = 0;
  volatile bool due_ = false;  // an interruption
  char* window_ = nullptr;  // shared memory of the block: dynamic, then static
  size_t window_bytes_ = 0, window_used_ = 0, gap_ = 0;
  std::vector<SharedEntry> entries_;
  std::vector<AsyncQueue> async_;
  bool async_used_ = false;
  std::unordered_map<uintptr_t, Mbarrier> mbarriers_;
  unsigned mbarriers_made_ = 0, rounds_ = 0;
  Named named_[16];
  bool named_used_ = false;
  unsigned most_static_ = 0;
  void* stack_pointer_[1024 + 1] = {};  // of threads that wait; nullptr of those that have not started
  Thread* fiber_of_[1024] = {};
  Warp warps_[32] = {};
};

// Defined here because every barrier and warp operation goes through them.

// The next thread, -1 if the block is finished. A warp goes on until none of its lanes can.
inline int Worker::pick() {
  if (__builtin_expect(order_ != Order::forward || ready_warps_ == 0, 0)) return pick_slow();
  uint32_t lanes = warps_[current_].ready;
  if (lanes == 0) {
    current_ = unsigned(__builtin_ctz(ready_warps_));
    lanes = warps_[current_].ready;
  }
  return int(current_ * 32 + unsigned(__builtin_ctz(lanes)));
}

inline void Worker::go_to(Thread* from, unsigned next) {
  if (next == from->linear) return;
  void* to = stack_pointer_[next];
  if (__builtin_expect(to == nullptr, 0)) to = acquire(next);
  // In forward order the thread after it comes next, and its stack is no longer in the first-level cache.
  char* later = static_cast<char*>(stack_pointer_[next + 1]);
  __builtin_prefetch(later);
  __builtin_prefetch(later + 64);
  __builtin_prefetch(thread_of(reinterpret_cast<uintptr_t>(later)));
  switch_stack(&stack_pointer_[from->linear], to);
}

inline void Worker::block_on(Thread* thread, Warp& warp) {
  if (warp.ready == 0) idle(warp);
  go_to(thread, unsigned(pick()));
}

std::string site(const char* file, int line);
std::string op_name(Op);
std::string coordinates(unsigned x, unsigned y, unsigned z);
uint64_t mix(uint64_t);
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed);

void run_grid(Grid&);
uint64_t resident_blocks(const Kernel&, unsigned threads, size_t dynamic_bytes);  // on the device at once

Worker*& active_worker();  // of this OS thread, nullptr outside of a launch
void start_clock(const Grid&);  // that interrupts threads of it on this OS thread
void stop_clock();
void catch_faults();       // SIGSEGV, SIGBUS and SIGFPE of device code end the launch, not the process
void release_faults();
void enter_fault_stack(bool);
std::string describe_fault(const Worker&);
int code_of_fault(const Worker&);

}  // namespace samebits
