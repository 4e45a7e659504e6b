// SPDX-License-Identifier: Apache-2.0
// Runs many small pieces of work on several threads: the library's own pool, or the caller's
// threads.
#pragma once

#include <memory>
#include <type_traits>

namespace fovea {

// A call without ownership: a function and the object that it works on. Never allocates.
struct Task {
  void (*call)(void* object, int item, int worker) = nullptr;
  void* object = nullptr;
  void operator()(int item, int worker) const { call(object, item, worker); }
};

// An engine that owns threads implements this over them. All members may be called from any thread.
class Executor {
 public:
  virtual ~Executor() = default;
  // Threads that may run items at once, the calling one included; at least 1.
  virtual int num_workers() const = 0;
  // Calls task(item, worker) once for each item in [0, num_items), with worker in [0,
  // num_workers()) and no two items at once under one worker number of this call. Returns when all
  // have ended. If items throw, the remaining ones may be left out and one of the exceptions is
  // thrown again here. No items: nothing is done; a null function for some: InputError. A call from
  // inside an item, or while another thread's call is running, is legal and may run on the calling
  // thread alone.
  virtual void run(int num_items, Task task) = 0;
};

// Calls f(item, worker) for each item; f is not copied.
template <class F>
void parallel_for(Executor& executor, int num_items, F&& f) {
  using Body = std::remove_reference_t<F>;
  const Task task{
      [](void* object, int item, int worker) { (*static_cast<Body*>(object))(item, worker); },
      const_cast<std::remove_const_t<Body>*>(&f)};
  executor.run(num_items, task);
}

// Everything on the calling thread, in order.
class SerialExecutor final : public Executor {
 public:
  int num_workers() const override { return 1; }
  void run(int num_items, Task task) override;
};

// Own threads. A worker that finds no work spins for about 20 µs, then sleeps, so that processes
// which share cores do not starve each other. Items are handed out one by one in rising order.
// run() neither allocates nor takes a mutex unless an item throws. A call from inside an item, or
// while another thread's call is running, runs on the calling thread alone, as worker 0.
class ThreadPool final : public Executor {
 public:
  // Threads in all, the caller of run() included; throws ConfigError unless 1 <= num_workers <=
  // 1024, and DeviceError if the system gives no more threads.
  explicit ThreadPool(int num_workers);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int num_workers() const override;
  void run(int num_items, Task task) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the parts of the library are given instead of globals. Not owned; outlives everything made
// with it.
struct Context {
  Executor* executor = nullptr;  // null: the calling thread alone
};

}  // namespace fovea
