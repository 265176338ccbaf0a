// Checks: what an instrumented program (build.py, check=True) tells the runtime of its accesses, and what the runtime makes of it.
//
// Happens-before by vector clocks that know the machine's structure. A thread's own clock counts its releases; at a barrier of the block
// all threads take the clock `base`, and everything below it is known to all. Between barriers a thread knows of its warp what
// __syncwarp() told it (`warp`), and of others what it acquired: atomics after a fence (Sync).
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "worker.h"

namespace samebits {

// Of a byte: written; an asynchronous copy has not brought it yet; a bulk copy has not read it yet.
constexpr uint8_t kInitialised = 1, kPending = 2, kLeaving = 4;
constexpr unsigned kCopies = 0x8000;  // "thread" of marks that copies leave for which the mbarrier of that number waits

enum Access : unsigned { kRead = 0, kWrite = 1, kAtomic = 2, kRmw = 4 };

constexpr const char* kDeviceHeap = "device malloc";  // name of what device code allocates

// One access that memory remembers.
struct Mark {
  uint32_t seq;    // which block, over all launches; 0: none
  uint32_t clock;  // of its thread
  uint32_t site;   // index of the code address
  uint16_t thread;
  uint16_t atomic;
};
struct Cell {  // of one granule: the last write, and of the reads since then two by different threads
  Mark write, read, other;
};

// A stretch of memory with an extent of its own: an allocation, a shared variable, or what a caller registered.
struct Region {
  uintptr_t begin, end;
  std::string name;
  bool freed = false, shared = false, bounded = true;
  size_t pad = 0;              // bytes on either side that are nobody's
  unsigned shift = 2;          // log2 of the granule, down to 0 where bytes are accessed alone
  Cell* cells = nullptr;       // mapped at the first access
  size_t cell_bytes = 0;
  uint8_t* state = nullptr;    // of each byte: kInitialised and so on; nullptr: all of it is initialised
};

struct Sync;
struct Ref {  // the first `count` releases to one address
  Sync* sync;
  size_t count;
};
struct Known {
  uint32_t seq, base;                               // of that block everything before `base`,
  std::vector<std::pair<uint16_t, uint32_t>> more;  // of these threads, in order, everything up to that clock,
  std::vector<Ref> refs;                            // and what was known through these
  bool block_only;                                  // by __threadfence_block()
  std::pair<uint16_t, uint32_t> atomic{0, 0};       // that released it: its thread and clock, which that one access alone has
};
struct Sync {
  bool cumulative = false;  // every entry holds what the earlier ones of its block hold
  std::vector<Known> log;
  std::unordered_map<uint32_t, std::vector<size_t>> by_block;
};

struct Clocks {  // of one thread of the running block
  uint32_t clock;
  uint32_t warp[32];
  uint32_t proxied, proxied_base;  // its clock, and its block's, at its last fence.proxy.async
  uint32_t phase;        // barriers of the cluster that it has waited for
  uint32_t arrived[3];   // its clock at its arrival for phase p, at p % 3: others may be one behind it, or one ahead
  bool returned;
  std::vector<Ref> refs, acquired;   // ordered before it; seen by atomics, ordered before it from its next fence on
  Known device, block;               // what its last fences released
  bool released_device = false, released_block = false;
};

struct Report {
  std::string kind, kernel, message, file;
  int line = 0;
  uint64_t block = 0;
  int thread = -1;
  dim3 grid{}, dim{};
  uint32_t site = 0, other_site = 0;
  uint64_t other_block = 0;
  int other_thread = -1;
  std::string other_file;
  int other_line = 0;
};

// Clocks and shared variables of one running block.
struct BlockCheck {
  uint32_t seq = 0, base = 1, most = 1;
  uint32_t cluster = 0;                // seq of the first block of its cluster: the others follow
  std::vector<BlockCheck*> blocks;     // of the cluster, by rank
  std::map<uint64_t, Mark> visits;     // the last access of each thread of another block to its shared memory, by seq and thread
  uint64_t number = 0;
  std::vector<Clocks> threads;
  std::unordered_map<unsigned, std::pair<uint32_t, unsigned>> copies;  // of each mbarrier that have come: how many, who issued the last
  std::vector<unsigned> dirty;  // threads whose refs or acquired are not empty
  std::vector<Ref> refs;        // known to all of the block
  std::vector<Region*> shared;
  Region* at[256] = {};  // of shared, by 64 KiB of the window: variables lie further apart than that
};

struct TraceRequest {
  std::vector<std::pair<uintptr_t, unsigned>> lanes;  // address and bytes
};
struct TraceSite {
  uint32_t seq = 0;
  unsigned kind = 0;
  std::vector<uint32_t> times;  // of each thread of the block `seq`
  unsigned long long requests = 0, lanes = 0, bytes = 0, sectors = 0, wavefronts = 0, fewest = 0;
  std::map<std::string, unsigned long long> arrays;
};
struct Trace {
  std::map<uint32_t, TraceSite> sites;  // by site << 1 | shared
  std::unordered_map<uint64_t, TraceRequest> open;
};

std::string quoted(const std::string&);  // as JSON

class Check {
 public:
  static Check* on;       // nullptr: off
  static std::recursive_mutex mutex;  // launches run one at a time, and what other threads of the host do waits for them
  static thread_local Worker* active __attribute__((tls_model("initial-exec")));  // whose device code this OS thread runs
  bool strict = false;    // an address in no region is an error
  bool leaks = false;
  Trace* trace = nullptr;  // not wanted
  const void* recent = nullptr;  // code address of the last access

  void begin_launch(Grid&);
  void end_launch();
  void begin_block(Worker&, uint64_t number);
  void end_block(Worker&);
  void finish(Worker&, const Thread&);
  void gather(Worker&, Thread*, uintptr_t barrier);  // a thread arrives at a barrier that is a variable,
  void delivered(Worker& owner, const AsyncCopy&, unsigned number, unsigned issuer);  // a copy comes for an mbarrier,
  void gather_copies(Worker& owner, uintptr_t barrier, unsigned number);              // all of its flight have,
  void learn_copies(Worker& worker, Thread*, unsigned number);                        // their thread has waited for them by itself,
  void end_phase(uintptr_t barrier);                 // the last one of its phase,
  void pass_phase(Worker&, Thread*, uintptr_t barrier);  // and one that has waited for it
  void arrive(Worker&, const Thread*);  // at a barrier of the cluster
  void pass(Worker&, const Thread*);    // has waited for it
  void place(Worker&, const char* name, uintptr_t begin, size_t bytes, unsigned slot);

  void access(Worker&, Thread*, uintptr_t address, size_t bytes, unsigned kind, const void* pc);
  void atomic(Worker&, Thread*, uintptr_t address, size_t bytes, bool reads, bool writes, const void* pc);
  void fence(Worker&, Thread*, bool device);
  void barrier(Worker&, bool everybody);
  void grid_barrier();
  void new_sequence(Worker&);
  void warp_barrier(Worker&, unsigned warp, uint32_t group);
  void compared(Worker&, Thread*, uintptr_t, size_t);  // by a compare-and-swap
  void settle();  // decides on a write that may have changed nothing

  Region* add(uintptr_t begin, size_t bytes, std::string name, bool initialised);
  Region* find(uintptr_t address);
  void forget(uintptr_t begin);  // a registered region
  void* retire(void* freed, const void* pc);  // by device code or its program: what can be given back now
  void host_write(uintptr_t, size_t, const char* what, const void* pc);
  void host_copy(uintptr_t to, uintptr_t from, size_t, const void* pc);
  bool host_range(uintptr_t, size_t, const char* what, const void* pc);
  void proxy_fence(Worker&, Thread*);
  void leave(Worker&, Thread*, uintptr_t, size_t, const void* pc);  // a bulk copy will read these bytes
  void pend(Worker&, uintptr_t, size_t, uint8_t mark, bool on);

  void report(std::string kind, std::string message, const Thread*, uint32_t site, const Mark* other, const char* file = nullptr, int line = 0);
  void failure(const std::string& what, const Thread*, const void* pc = nullptr, const Here* here = nullptr);
  void report_leaks();
  void note_access(Worker&, const Thread*, const Region&, uintptr_t, size_t, unsigned kind, uint32_t site);
  void close_requests();
  std::string trace_json();
  std::string json();
  size_t count() const { return reports_.size(); }
  void clear() { reports_.clear(), guesses_.clear(), seen_.clear(); }
  uint32_t site_of(const void* pc);
  std::map<uintptr_t, Region*>& regions() { return regions_; }

 private:
  Region* recently_found(uintptr_t address) const;
  uint32_t new_site(const void* pc);
  void locate(Worker&, Thread*, uintptr_t, size_t bytes, unsigned kind, const void* pc);
  bool quick(const BlockCheck&, const Thread*, Region&, uintptr_t, size_t bytes, unsigned kind, const void* pc);
  bool knows(const BlockCheck&, const Thread*, const Region&, const Mark&) const;
  bool through(const std::vector<Ref>&, uint32_t own_seq, const Mark&) const;
  Sync* sync_at(uintptr_t);
  unsigned copier(const Thread*, const Mark&) const;
  bool across(const BlockCheck&, uint32_t phase, const Mark&) const;
  void visit(Worker&, Worker& owner, Thread*, Region&, uint32_t site);
  void touch(Worker&, Thread*, Region&, uintptr_t, size_t, unsigned kind, uint32_t site);
  void race(Worker&, Thread*, Region&, uintptr_t, unsigned kind, uint32_t site, const Mark&, bool other_writes);
  void outside(Worker&, Thread*, uintptr_t, size_t, unsigned kind, uint32_t site);
  void refine(Region&, unsigned shift);
  Region* segment(uintptr_t address);
  std::string place_of(const Region&, uintptr_t) const;

  std::map<uintptr_t, Region*> regions_;  // by begin
  std::deque<void*> retired_;             // of the heap of device code, freed
  Region* last_[4] = {};  // found lately
  unsigned turn_ = 0;
  std::unordered_map<uint64_t, Region*> slots_;
  std::unordered_map<uintptr_t, Sync*> syncs_;
  std::vector<Sync*> old_syncs_;
  Known& gathered(uintptr_t barrier, const BlockCheck&);
  std::unordered_map<uintptr_t, std::vector<Known>> gathering_;  // of the phase of each barrier that is under way, by block
  std::vector<uint64_t> numbers_;  // block of each seq of the launch
  uint32_t first_ = 1, next_ = 1;  // seq of the launch's first block; below it everything is ordered
  Grid* grid_ = nullptr;
  std::vector<const void*> pcs_{nullptr};
  std::unordered_map<const void*, uint32_t> site_ids_;
  std::vector<Report> reports_;
  std::set<std::string> seen_;
  struct Guess {  // a plain read of what others change by atomics: a race, unless its thread checks it by a compare-and-swap
    uintptr_t address;
    uint32_t seq;
    unsigned thread;
    Report report;
    std::string key;
  };
  std::vector<Guess> guesses_;
  void report_guesses();
  struct {
    bool waiting = false;
    uintptr_t address;
    size_t bytes;
    unsigned char old[16];
    Report report;
    std::string key;
  } doubtful_;
};

const char* access_name(unsigned kind);
bool of_the_emulator(const std::string& file);  // whether a file is one of its headers
std::vector<std::pair<std::string, int>> resolve(const std::vector<const void*>& pcs);  // file and line of the user's code

}  // namespace samebits
