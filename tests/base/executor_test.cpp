// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

// Lets threads meet: returns when `count` have come. Unlike a run's items, which need not run at
// once, so only for runs in which they can.
class Meeting {
 public:
  explicit Meeting(int count) : missing_(count) {}
  void wait() {
    missing_.fetch_sub(1);
    while (missing_.load() > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> missing_;
};

void let_workers_sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// Runs of items that count themselves.
class Counted {
 public:
  explicit Counted(int num_items) : counts_(static_cast<std::size_t>(num_items)) {}
  void operator()(int item, int) { counts_.at(static_cast<std::size_t>(item)).fetch_add(1); }
  bool all_are(int count) const {
    return std::all_of(counts_.begin(), counts_.end(),
                       [&](const std::atomic<int>& c) { return c.load() == count; });
  }

 private:
  std::vector<std::atomic<int>> counts_;
};

std::vector<std::unique_ptr<Executor>> all_executors() {
  std::vector<std::unique_ptr<Executor>> all;
  all.push_back(std::make_unique<SerialExecutor>());
  for (const int n : {1, 2, 3, 8}) all.push_back(std::make_unique<ThreadPool>(n));
  return all;
}

TEST(Executors, RunEveryItemOnce) {
  for (const auto& executor : all_executors()) {
    for (const int num_items : {1, 2, 3, 7, 64, 1000}) {
      Counted counted(num_items);
      parallel_for(*executor, num_items, counted);
      EXPECT_TRUE(counted.all_are(1)) << num_items << " by " << executor->num_workers();
    }
  }
}

TEST(Executors, DoNothingWithoutItems) {
  for (const auto& executor : all_executors()) {
    int calls = 0;
    parallel_for(*executor, 0, [&](int, int) { ++calls; });
    parallel_for(*executor, -5, [&](int, int) { ++calls; });
    executor->run(0, Task{});
    EXPECT_EQ(calls, 0);
  }
}

TEST(Executors, RefuseANullTask) {
  for (const auto& executor : all_executors()) {
    EXPECT_THROW(executor->run(1, Task{}), InputError);
    EXPECT_THROW(executor->run(9, Task{}), InputError);
  }
}

TEST(Executors, CarryExceptionsAndStayUsable) {
  for (const auto& executor : all_executors()) {
    for (const int bad : {0, 1, 50, 99}) {
      std::atomic<int> calls = 0;
      try {
        parallel_for(*executor, 100, [&](int item, int) {
          ++calls;
          if (item == bad) throw std::runtime_error("item " + std::to_string(item));
        });
        FAIL() << "nothing thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(e.what(), "item " + std::to_string(bad));
      }
      EXPECT_GT(calls.load(), bad);
      Counted counted(100);
      parallel_for(*executor, 100, counted);
      EXPECT_TRUE(counted.all_are(1));
    }
  }
}

TEST(Executors, CarryOneOfManyExceptions) {
  for (const auto& executor : all_executors()) {
    EXPECT_THROW(parallel_for(*executor, 100,
                              [](int item, int) { throw std::out_of_range(std::to_string(item)); }),
                 std::out_of_range);
    EXPECT_THROW(parallel_for(*executor, 1, [](int, int) { throw 7; }), int);
  }
}

TEST(Executors, TakeFunctionsByReference) {
  SerialExecutor serial;
  struct Uncopyable {
    int sum = 0;
    Uncopyable() = default;
    Uncopyable(const Uncopyable&) = delete;
    void operator()(int item, int) { sum += item; }
  } f;
  parallel_for(serial, 5, f);
  EXPECT_EQ(f.sum, 10);
  std::vector<int> seen;
  const auto constant = [&seen](int item, int) { seen.push_back(item); };
  parallel_for(serial, 3, constant);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(SerialExecutor, KeepsOrderAndThread) {
  SerialExecutor serial;
  EXPECT_EQ(serial.num_workers(), 1);
  std::vector<int> items;
  parallel_for(serial, 4, [&](int item, int worker) {
    EXPECT_EQ(worker, 0);
    items.push_back(item);
  });
  EXPECT_EQ(items, (std::vector<int>{0, 1, 2, 3}));
}

TEST(ThreadPool, RefusesBadNumbersOfWorkers) {
  for (const int n : {0, -1, 1025, 1 << 30}) {
    try {
      ThreadPool pool(n);
      FAIL() << n;
    } catch (const ConfigError& e) {
      ASSERT_EQ(e.reasons().size(), 1u);
      EXPECT_EQ(e.reasons()[0].field, "num_workers");
      EXPECT_EQ(e.reasons()[0].wanted, std::to_string(n));
    }
  }
}

TEST(ThreadPool, CountsTheCaller) {
  EXPECT_EQ(ThreadPool(1).num_workers(), 1);
  EXPECT_EQ(ThreadPool(5).num_workers(), 5);
}

TEST(ThreadPool, AllWorkersRunAtOnce) {
  constexpr int kWorkers = 6;
  ThreadPool pool(kWorkers);
  for (int round = 0; round < 20; ++round) {
    if (round % 4 == 0) let_workers_sleep();  // so that some rounds have to wake them
    Meeting meeting(kWorkers);
    std::mutex mutex;
    std::set<int> workers;
    std::set<std::thread::id> threads;
    parallel_for(pool, kWorkers, [&](int, int worker) {
      {
        const std::scoped_lock lock(mutex);
        workers.insert(worker);
        threads.insert(std::this_thread::get_id());
      }
      meeting.wait();
    });
    EXPECT_EQ(workers, (std::set<int>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(threads.size(), 6u);
    EXPECT_EQ(threads.count(std::this_thread::get_id()), 1u);
  }
}

TEST(ThreadPool, OneWorkerNumberRunsOneItemAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> overlap = false;
  for (int round = 0; round < 100; ++round) {
    parallel_for(pool, 64, [&](int, int worker) {
      std::atomic<int>& mine = inside.at(static_cast<std::size_t>(worker));
      if (mine.fetch_add(1) != 0) overlap = true;
      if (mine.fetch_sub(1) != 1) overlap = true;
    });
  }
  EXPECT_FALSE(overlap.load());
}

TEST(ThreadPool, EachWorkerGetsItemsInRisingOrder) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<int>> items(3);
    parallel_for(pool, 200, [&](int item, int worker) {
      items.at(static_cast<std::size_t>(worker)).push_back(item);
    });
    std::size_t total = 0;
    for (const auto& of_one : items) {
      EXPECT_TRUE(std::is_sorted(of_one.begin(), of_one.end()));
      total += of_one.size();
    }
    EXPECT_EQ(total, 200u);
  }
}

TEST(ThreadPool, WritesOfItemsAreSeenAfterTheRunAndByTheNext) {
  ThreadPool pool(4);
  std::vector<int> values(100, 0);  // not atomic: the run itself orders
  for (int round = 0; round < 200; ++round) {
    parallel_for(pool, 100, [&](int item, int) { ++values[static_cast<std::size_t>(item)]; });
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 100 * (round + 1));
  }
}

TEST(ThreadPool, ASingleItemRunsOnTheCaller) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    parallel_for(pool, 1, [&, caller = std::this_thread::get_id()](int item, int worker) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(item, 0);
      EXPECT_EQ(worker, 0);
    });
  }
}

TEST(ThreadPool, ASingleItemLeavesThePoolFree) {
  ThreadPool pool(2);
  int meetings = 0;
  parallel_for(pool, 1, [&](int, int) {
    Meeting meeting(2);
    parallel_for(pool, 2, [&](int, int) { meeting.wait(); });
    ++meetings;
  });
  EXPECT_EQ(meetings, 1);
}

TEST(ThreadPool, NestedCallsRunOnTheirOwnThread) {
  ThreadPool pool(3);
  std::atomic<int> inner_items = 0;
  std::atomic<bool> wrong = false;
  parallel_for(pool, 10, [&](int, int) {
    const auto outer = std::this_thread::get_id();
    parallel_for(pool, 5, [&](int, int worker) {
      if (worker != 0 || std::this_thread::get_id() != outer) wrong = true;
      ++inner_items;
    });
  });
  EXPECT_EQ(inner_items.load(), 50);
  EXPECT_FALSE(wrong.load());
}

TEST(ThreadPool, LeavesTheRestOutAfterAnException) {
  constexpr int kMany = std::numeric_limits<int>::max();
  ThreadPool pool(2);
  Meeting meeting(2);                      // both are at work before one throws
  std::array<std::int64_t, 2> calls = {};  // of each worker
  EXPECT_THROW(parallel_for(pool, kMany,
                            [&](int item, int worker) {
                              ++calls.at(static_cast<std::size_t>(worker));
                              if (item < 2) meeting.wait();
                              if (item == 3) throw item;
                            }),
               int);
  EXPECT_LT(calls[0] + calls[1], kMany);
}

TEST(ThreadPool, NestedExceptionsGoThrough) {
  ThreadPool pool(3);
  EXPECT_THROW(parallel_for(pool, 10,
                            [&](int, int) {
                              parallel_for(pool, 5, [](int item, int) {
                                if (item == 3) throw std::out_of_range("inner");
                              });
                            }),
               std::out_of_range);
}

TEST(ThreadPool, ASecondCallerDoesNotWaitForTheFirst) {
  ThreadPool pool(2);
  Meeting started(3), end(3);
  std::thread first([&] {
    parallel_for(pool, 2, [&](int, int) {
      started.wait();
      end.wait();
    });
  });
  started.wait();  // both workers are busy until `end`
  std::vector<int> items;
  parallel_for(pool, 4, [&](int item, int worker) {
    EXPECT_EQ(worker, 0);
    items.push_back(item);
  });
  EXPECT_EQ(items, (std::vector<int>{0, 1, 2, 3}));
  end.wait();
  first.join();
}

TEST(ThreadPool, ItemsMayUseAnotherPool) {
  ThreadPool outer(2), inner(2);
  Counted counted(20);
  parallel_for(outer, 20, [&](int item, int) {
    parallel_for(inner, 3, [&](int, int worker) { counted(item, worker); });
  });
  EXPECT_TRUE(counted.all_are(3));
}

TEST(ThreadPool, ComesAndGoesInEveryState) {
  for (int round = 0; round < 60; ++round) {
    ThreadPool pool(1 + round % 5);
    if (round % 3 != 0) parallel_for(pool, 8, [](int, int) {});
    if (round % 20 == 1) let_workers_sleep();
  }
}

// Many short runs: waking, sleeping, callers at once, nesting, exceptions.
TEST(ThreadPool, Stress) {
  ThreadPool pool(4);
  std::atomic<int> wrong = 0;
  const auto caller = [&](int seed) {
    for (int round = 0; round < 600; ++round) {
      const int num_items = 1 + (round * 7 + seed) % 13;
      const bool throws = (round + seed) % 11 == 0, nests = (round + seed) % 5 == 0;
      std::atomic<int> sum = 0;
      try {
        parallel_for(pool, num_items, [&](int item, int) {
          if (throws && item == num_items / 2) throw round;
          if (nests) parallel_for(pool, 3, [&](int i, int) { sum += i; });
          sum += item;
        });
        const int expected = num_items * (num_items - 1) / 2 + (nests ? 3 * num_items : 0);
        if (throws || sum.load() != expected) ++wrong;
      } catch (int thrown) {
        if (!throws || thrown != round) ++wrong;
      }
      if (round % 97 == seed) std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  };
  std::vector<std::thread> callers;
  for (int seed = 1; seed < 4; ++seed) callers.emplace_back(caller, seed);
  caller(0);
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

// One caller, so that every run goes through the gate.
TEST(ThreadPool, ManyShortRuns) {
  ThreadPool pool(3);
  for (int round = 0; round < 5000; ++round) {
    std::array<int, 4> values = {};
    parallel_for(pool, 4,
                 [&](int item, int) { values[static_cast<std::size_t>(item)] = item + 1; });
    ASSERT_EQ(values, (std::array<int, 4>{1, 2, 3, 4}));
  }
}

}  // namespace
}  // namespace fovea

// The sanitizers bring an operator new of their own, so there nothing can be counted.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {
std::atomic<std::int64_t> num_allocations = 0;
}

void* operator new(std::size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
// Not inlined, or the compiler sees free() beside an operator new that it does not know.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace fovea {
namespace {

TEST(ThreadPool, RunsDoNotAllocate) {
  const std::int64_t at_first = num_allocations.load();
  ThreadPool pool(4);
  std::atomic<int> sum = 0;
  const std::int64_t before = num_allocations.load();
  EXPECT_GT(before, at_first);  // the pool's own: counting works
  for (int round = 0; round < 300; ++round) {
    if (round % 100 == 0) let_workers_sleep();
    parallel_for(pool, 16, [&](int item, int) {
      sum += item;
      if (item == 3) parallel_for(pool, 2, [&](int, int) { ++sum; });
    });
  }
  EXPECT_EQ(num_allocations.load(), before);
  EXPECT_EQ(sum.load(), 300 * (120 + 2));
}

}  // namespace
}  // namespace fovea
#endif
