// Threads that run on and on without a place where others could: they may poll plain or volatile memory. A clock interrupts them.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "gang.h"

#ifdef __linux__
#include <link.h>
#include <sys/syscall.h>
#endif

namespace samebits {

namespace {
constexpr long kTickNs = 200000;
// Ticks until a thread is taken for one that polls, and a block whose threads meet at warp operations; and then, where it is known to.
constexpr unsigned kThread = 50, kBlock = 2500, kKnownThread = 1, kKnownBlock = 50;

struct Text {  // of the program or library that the kernels of this OS thread come from
  uintptr_t low, high;
  bool holds(const void* pc) const { return reinterpret_cast<uintptr_t>(pc) - low < high - low; }
};
thread_local Text text = {0, 0};
}  // namespace

// A signal's handler, on the stack of the thread, which goes on from here when it is its turn again. In the middle of the emulator's own code,
// or of a library's, that must wait until the next access that is watched, or the next tick.
void Worker::tick(Thread* thread, const void* pc) {
  if (thread != ticked_ || thread->linear != ticked_linear_ || generation != ticked_generation_) ticks_ = 0;
  ticked_ = thread;
  ticked_linear_ = thread->linear;
  ticked_generation_ = generation;
  ++ticks_;
  ++turn_ticks_;
  if (ticks_ < (polls_ != 0 ? kKnownThread : kThread) && !turn_is_over()) return;
  if (text.holds(pc)) {
    interrupted_at = pc;
    interrupt(thread);
  } else {
    due_ = true;
  }
}

bool Worker::turn_is_over() const { return turn_ticks_ >= (gang_->polls_known() ? kKnownBlock : kBlock); }

void Worker::interrupt(Thread* thread) {
  due_ = false;
  ticks_ = 0;
  polls_ = std::max<uint64_t>(polls_, 1);
  unsigned next = unsigned(pick_after(thread->linear));
  if (next <= thread->linear || turn_is_over()) {  // each thread that can has had a turn
    turn_ticks_ = 0;
    gang_->let_others(*this);
    next = unsigned(pick_after(thread->linear));
  }
  current_ = next / 32;
  go_to(thread, next);
}

#ifdef __linux__

namespace {

void on_tick(int, siginfo_t*, void* context) {
  Worker* worker = active_worker();
  if (worker == nullptr || !worker->holds(stack_of(context))) return;
  int error = errno;
  worker->tick(thread_of(stack_of(context)), pc_of(context));
  errno = error;
}

// Of this OS thread.
class Clock {
 public:
  Clock() {
    static std::once_flag once;
    std::call_once(once, [] {
      struct sigaction action = {};
      action.sa_sigaction = on_tick;
      action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
      sigemptyset(&action.sa_mask);
      sigaction(SIGURG, &action, nullptr);
    });
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGURG;
    event._sigev_un._tid = int(syscall(SYS_gettid));
    made_ = getenv("SAMEBITS_NO_CLOCK") == nullptr && timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~Clock() {
    if (made_) timer_delete(timer_);
  }
  void run(bool on) {
    itimerspec time = {};
    time.it_interval.tv_nsec = time.it_value.tv_nsec = on ? kTickNs : 0;
    if (made_) timer_settime(timer_, 0, &time, nullptr);
  }

 private:
  bool made_;
  timer_t timer_;
};
Clock& clock_of_thread() {
  thread_local Clock clock;
  return clock;
}


int find_text(dl_phdr_info* module, size_t, void* code) {
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& part = module->dlpi_phdr[i];
    Text found{module->dlpi_addr + part.p_vaddr, module->dlpi_addr + part.p_vaddr + part.p_memsz};
    if (part.p_type != PT_LOAD || !found.holds(code)) continue;
    text = found;
    return 1;
  }
  return 0;
}
}  // namespace

void start_clock(const Grid& grid) {
  void* code = reinterpret_cast<void*>(grid.run);
  if (!text.holds(code)) dl_iterate_phdr(find_text, code);
  clock_of_thread().run(true);
}
void stop_clock() { clock_of_thread().run(false); }

#else
void start_clock(const Grid&) {}
void stop_clock() {}
#endif

}  // namespace samebits
