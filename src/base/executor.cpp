// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/base/error.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fovea {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr std::size_t kCacheLine = 64;

void check_task(const Task& task) {
  if (task.call == nullptr) throw InputError("task", "null", "a function");
}

void run_alone(int num_items, const Task& task) {
  for (int item = 0; item < num_items; ++item) task(item, 0);
}

// Sleeps while `word` holds `expected`; may return early. On Linux the system call itself, because
// the standard library's wait() goes through a table of locks that all waiters of a program share.
void park(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
#if defined(__linux__)
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
#else
  word.wait(expected);
#endif
}

// Wakes at most `count` threads that are parked at `word`.
void unpark(std::atomic<std::uint32_t>& word, int count) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
#else
  for (int i = 0; i < count; ++i) word.notify_one();
#endif
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits for `ready` for kSpinTime at most; whether it came. By the clock, because a pause takes
// from 40 to 140 cycles.
template <class Ready>
bool spin_until(Ready ready) {
  constexpr int kPausesPerLook = 16;
  if (ready()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      relax();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

void SerialExecutor::run(int num_items, Task task) {
  if (num_items <= 0) return;
  check_task(task);
  run_alone(num_items, task);
}

// One run at a time. `gate` lets workers in and out: the caller opens it, everybody who comes in is
// counted, and when the items are used up the caller closes it and waits for those inside. Workers
// that are late find it closed, so nobody waits for a thread that has not been scheduled. Between
// the gate's opening and the last one's leaving, the members of the run do not change.
struct ThreadPool::State {
  static constexpr std::uint32_t kOpen = 1u << 31, kCallerParked = 1u << 30;
  static constexpr std::uint32_t kInside = kCallerParked - 1;  // mask of the count
  static constexpr std::uint32_t kStop = 1, kRun = 2;          // of `epoch`

  // The run.
  Task task = {};
  int num_items = 0;
  std::exception_ptr error;  // written by the one who sets `failed`
  std::atomic<bool> failed = false;

  alignas(kCacheLine) std::atomic<std::int64_t> next = 0;  // the item to hand out
  alignas(kCacheLine) std::atomic<std::uint32_t> gate = 0;
  // Idle workers watch it: each run adds 2, and the end of the pool sets the lowest bit for good.
  alignas(kCacheLine) std::atomic<std::uint32_t> epoch = 0;
  alignas(kCacheLine) std::atomic<int> num_parked = 0;  // workers that sleep, or are about to
  alignas(kCacheLine) std::atomic<bool> busy = false;   // a run is going on
  std::vector<std::thread> threads;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    epoch.fetch_or(kStop, std::memory_order_seq_cst);
    wake(static_cast<int>(threads.size()));
    for (std::thread& t : threads) t.join();
  }

  // Wakes some of the workers that sleep, after `epoch` has moved. None is missed: a worker counts
  // itself before it looks at `epoch` for the last time, and here it is the reverse.
  void wake(int most) {
    const int count = std::min(most, num_parked.load(std::memory_order_seq_cst));
    if (count > 0) unpark(epoch, count);
  }

  // Returns the value of `epoch` when it is no longer `seen`.
  std::uint32_t wait_for_news(std::uint32_t seen) {
    const auto moved = [&] { return epoch.load(std::memory_order_seq_cst) != seen; };
    if (!spin_until(moved)) {
      num_parked.fetch_add(1, std::memory_order_seq_cst);
      while (!moved()) park(epoch, seen);
      num_parked.fetch_sub(1, std::memory_order_seq_cst);
    }
    return epoch.load(std::memory_order_seq_cst);
  }

  bool enter() {
    std::uint32_t now = gate.load(std::memory_order_relaxed);
    while ((now & kOpen) != 0) {
      if (gate.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  void leave() {
    const std::uint32_t before = gate.fetch_sub(1, std::memory_order_release);
    if (before == (kCallerParked | 1)) unpark(gate, 1);
  }

  // Only the caller: nobody comes in any more, and all who were inside have left.
  void close() {
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto all_out = [&] { return (gate.load(std::memory_order_acquire) & kInside) == 0; };
    if (spin_until(all_out)) return;
    gate.fetch_or(kCallerParked, std::memory_order_acq_rel);
    for (auto now = gate.load(std::memory_order_acquire); (now & kInside) != 0;
         now = gate.load(std::memory_order_acquire)) {
      park(gate, now);
    }
  }

  void work(int worker) {
    try {
      while (true) {
        const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= num_items) return;
        task(static_cast<int>(item), worker);
      }
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
      next.store(num_items, std::memory_order_relaxed);  // leave the rest out
    }
  }

  void serve(int worker) {
    std::uint32_t seen = 0;
    while (true) {
      seen = wait_for_news(seen);
      if ((seen & kStop) != 0) return;
      if (!enter()) continue;
      work(worker);
      leave();
    }
  }
};

ThreadPool::ThreadPool(int num_workers) {
  if (num_workers < 1 || num_workers > kMaxWorkers) {
    throw ConfigError("num_workers", std::to_string(num_workers),
                      "1 to " + std::to_string(kMaxWorkers), "use Device::host().num_cores");
  }
  state_ = std::make_unique<State>();
  state_->threads.reserve(static_cast<std::size_t>(num_workers - 1));
  try {
    for (int worker = 1; worker < num_workers; ++worker) {
      state_->threads.emplace_back([state = state_.get(), worker] { state->serve(worker); });
    }
  } catch (const std::system_error& e) {
    throw DeviceError("creating a thread", e.code().value(), e.what());
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::num_workers() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run(int num_items, Task task) {
  if (num_items <= 0) return;
  check_task(task);
  State& s = *state_;
  // A second run, from inside an item or from another thread, does not wait for the first.
  if (num_items == 1 || s.threads.empty() || s.busy.exchange(true, std::memory_order_acquire)) {
    run_alone(num_items, task);
    return;
  }
  s.task = task;
  s.num_items = num_items;
  s.failed.store(false, std::memory_order_relaxed);
  s.next.store(0, std::memory_order_relaxed);
  s.gate.store(State::kOpen, std::memory_order_release);
  s.epoch.fetch_add(State::kRun, std::memory_order_seq_cst);
  s.wake(num_items - 1);
  s.work(0);
  s.close();
  const std::exception_ptr error = std::exchange(s.error, nullptr);
  s.busy.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

}  // namespace fovea
