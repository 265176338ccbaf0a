#ifdef __APPLE__
#define _XOPEN_SOURCE 700  // ucontext
#define _DARWIN_C_SOURCE
#define SAMEBITS_UCONTEXT
#endif

#include "fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

#if !defined(SAMEBITS_UCONTEXT) && !(defined(__x86_64__) && !defined(__ILP32__)) && !defined(__aarch64__)
#define SAMEBITS_UCONTEXT
#endif
#ifdef SAMEBITS_UCONTEXT
#include <ucontext.h>
#endif

namespace samebits {

#if defined(SAMEBITS_UCONTEXT)

extern "C" void samebits_switch_stack(void** save, void* to) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

void* prepare_stack(void* top, void (*entry)()) {
  uintptr_t end = reinterpret_cast<uintptr_t>(top);
  uintptr_t base = (end & ~(kStackBytes - 1)) + kStackGuard;
  ucontext_t* context = reinterpret_cast<ucontext_t*>((end - sizeof(ucontext_t)) & ~uintptr_t(63));
  getcontext(context);
  context->uc_stack.ss_sp = reinterpret_cast<void*>(base);
  context->uc_stack.ss_size = reinterpret_cast<uintptr_t>(context) - base;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

#elif defined(__x86_64__)

// Saves what the System V ABI lets a callee keep. The return is a jump, not a ret: a ret would always be predicted wrong.
asm(R"(
  .text
  .p2align 4
  .globl samebits_switch_stack
  .hidden samebits_switch_stack
  .type samebits_switch_stack, @function
samebits_switch_stack:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
  .cfi_endproc
  .size samebits_switch_stack, . - samebits_switch_stack
)");
void* prepare_stack(void* top, void (*entry)()) {
  void** sp = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63));
  *--sp = nullptr;  // return address of entry(): none. It also aligns the stack as a call would.
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}

#else  // __aarch64__

asm(R"(
  .text
  .p2align 4
  .globl samebits_switch_stack
  .hidden samebits_switch_stack
  .type samebits_switch_stack, %function
samebits_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  br x30
  .size samebits_switch_stack, . - samebits_switch_stack
)");
void* prepare_stack(void* top, void (*entry)()) {
  void** sp = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63)) - 20;
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[11] = reinterpret_cast<void*>(entry);  // x30
  return sp;
}

#endif

// A kernel maps at most 65,530 pieces of memory for a process (vm.max_map_count), and a guard makes two of a stack. Thousands of stacks are
// of blocks that are there together, whose threads are as deep as those of the first ones.
constexpr unsigned kGuarded = 16384;
std::atomic<unsigned> guarded{0};

bool Stacks::grow() {
  size_t bytes = (kChunk + 1) * kStackBytes;
  void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  chunks_.push_back(static_cast<char*>(p));
  bool guards = guarded.fetch_add(kChunk) < kGuarded;
  if (!guards && mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  uintptr_t first = (reinterpret_cast<uintptr_t>(p) + kStackBytes - 1) & ~(kStackBytes - 1);
  for (unsigned i = kChunk; i-- > 0;) {
    unused_.push_back(reinterpret_cast<char*>(first + i * kStackBytes));
    if (guards && mprotect(unused_.back() + kStackGuard, kStackBytes - kStackGuard, PROT_READ | PROT_WRITE) != 0) return false;
  }
  return true;
}

Thread* Stacks::create(BlockView* block) {
  if (unused_.empty() && !grow()) return nullptr;
  char* base = unused_.back();
  unused_.pop_back();
  Thread* thread = new (thread_of(reinterpret_cast<uintptr_t>(base))) Thread{};
  thread->block = block;
  threads_.push_back(thread);
  return thread;
}

bool Stacks::holds(uintptr_t address) const {
  return std::any_of(chunks_.begin(), chunks_.end(), [address](char* chunk) {
    return address - reinterpret_cast<uintptr_t>(chunk) < (kChunk + 1) * kStackBytes;
  });
}

Stacks::~Stacks() {
  for (char* chunk : chunks_) munmap(chunk, (kChunk + 1) * kStackBytes);
  guarded -= unsigned(chunks_.size()) * kChunk;
}

}  // namespace samebits
