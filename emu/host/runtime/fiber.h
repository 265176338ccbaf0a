// Stacks for CUDA threads and the switch between them.
#pragma once

#include <vector>

#include "samebits/thread.h"

namespace samebits {

// Leaves the running stack, whose place to go on is stored in *save, and continues with `to`.
extern "C" __attribute__((visibility("hidden"))) void samebits_switch_stack(void** save, void* to);
inline void switch_stack(void** save, void* to) { samebits_switch_stack(save, to); }

// A place to go on that calls entry() on the stack that ends at `top`. entry() never returns.
void* prepare_stack(void* top, void (*entry)());

// A stack and where the code on it goes on, while no thread of a block runs there.
struct Fiber {
  Thread* thread;
  void* stack_pointer;
};

// Stacks of one worker. They are mapped in chunks, kept, and touched only as far as threads use them.
class Stacks {
 public:
  ~Stacks();
  Thread* create(BlockView* block);  // nullptr: no memory
  bool holds(uintptr_t address) const;
  static bool in_guard(uintptr_t address) { return (address & (kStackBytes - 1)) < kStackGuard; }
  const std::vector<Thread*>& all() const { return threads_; }

 private:
  static constexpr unsigned kChunk = 32;
  bool grow();
  std::vector<char*> chunks_;      // as mapped
  std::vector<char*> unused_;      // aligned stacks that have no Thread yet
  std::vector<Thread*> threads_;
};

}  // namespace samebits
