// Faults of device code (a wild pointer, a misaligned vector, an exhausted stack, a division by zero) end the launch, not the process.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "gang.h"

#if defined(__APPLE__)
#include <sys/ucontext.h>
#else
#include <ucontext.h>
#endif

namespace samebits {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr size_t kAltStackBytes = 64 * 1024;

std::mutex fault_mutex;
unsigned fault_users = 0;
struct sigaction previous[3];

uintptr_t stack_of(void* context) {
#if defined(__linux__) && defined(__x86_64__)
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
#elif defined(__linux__) && defined(__aarch64__)
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.sp);
#elif defined(__APPLE__) && defined(__aarch64__)
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext->__ss.__sp);
#elif defined(__APPLE__) && defined(__x86_64__)
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext->__ss.__rsp);
#else
  (void)context;
  return 0;
#endif
}

const void* pc_of(void* context) {
#if defined(__linux__) && defined(__x86_64__)
  return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
  return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
  (void)context;
  return nullptr;
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Worker* worker = active_worker();
  uintptr_t stack = stack_of(context);
  if (worker != nullptr && worker->holds(stack)) {
    worker->fault_signal = signal;
    worker->fault_code = info->si_code;
    worker->fault_address = reinterpret_cast<uintptr_t>(info->si_addr);
    worker->fault_stack = stack;
    worker->fault_pc = pc_of(context);
    siglongjmp(worker->gang().fault, 1);
  }
  for (int i = 0; i < 3; ++i) {
    if (kSignals[i] != signal) continue;
    if (previous[i].sa_flags & SA_SIGINFO) {
      previous[i].sa_sigaction(signal, info, context);
    } else if (previous[i].sa_handler == SIG_DFL || previous[i].sa_handler == SIG_IGN) {
      sigaction(signal, &previous[i], nullptr);  // the faulting instruction runs again and meets it
    } else {
      previous[i].sa_handler(signal);
    }
  }
}

}  // namespace

Worker*& active_worker() {
  thread_local Worker* worker = nullptr;
  return worker;
}

void catch_faults() {
  std::lock_guard<std::mutex> lock(fault_mutex);
  if (fault_users++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &previous[i]);
}

void release_faults() {
  std::lock_guard<std::mutex> lock(fault_mutex);
  if (--fault_users > 0) return;
  for (int i = 0; i < 3; ++i) {
    struct sigaction now;
    sigaction(kSignals[i], nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) sigaction(kSignals[i], &previous[i], nullptr);
  }
}

// The handler needs a stack of its own: the thread's may be what is exhausted.
void enter_fault_stack(bool on) {
  thread_local stack_t outer;
  thread_local void* memory = nullptr;
  if (!on) {
    sigaltstack(&outer, nullptr);
    free(memory);
    memory = nullptr;
    return;
  }
  memory = malloc(kAltStackBytes);
  stack_t mine = {};
  mine.ss_sp = memory;
  mine.ss_size = kAltStackBytes;
  sigaltstack(&mine, &outer);
}

std::string describe_fault(const Worker& worker) {
  char address[32];
  snprintf(address, sizeof address, "0x%zx", size_t(worker.fault_address));
  if (worker.fault_signal == SIGFPE) return "integer division by zero";
  if (worker.holds(worker.fault_address) && Stacks::in_guard(worker.fault_address)) {
    return "stack of " + std::to_string((kStackBytes - kStackGuard) / 1024) + " KiB exhausted";
  }
#ifdef SI_KERNEL
  if (worker.fault_signal == SIGSEGV && worker.fault_code == SI_KERNEL) return "misaligned vector access or wild pointer";
#endif
  if (worker.fault_signal == SIGBUS) return std::string("bus error at address ") + address;
  return std::string("access to address ") + address + ", which is not mapped";
}

int code_of_fault(const Worker& worker) {
  if (worker.fault_signal == SIGFPE) return cudaErrorLaunchFailure;
#ifdef SI_KERNEL
  if (worker.fault_signal == SIGSEGV && worker.fault_code == SI_KERNEL) return cudaErrorMisalignedAddress;
#endif
  return cudaErrorIllegalAddress;
}

}  // namespace samebits
