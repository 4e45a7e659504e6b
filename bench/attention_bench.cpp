// SPDX-License-Identifier: Apache-2.0
// Prefill and decode of one attention layer, for every built-in backend whose rows admit the case.
//
// GFLOP/s counts the products of visible pairs alone, GB/s each key and value once a KV head. The
// cache has so many layers, used in turn, that no last-level cache holds them all: as in a model,
// whose weights flush the keys of one layer before the next step needs them.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "fovea/fovea.h"

namespace {

using namespace fovea;

struct Case {
  std::string kind;
  std::vector<RequestLengths> requests;
  int num_heads, num_kv_heads, head_size;
  DType dtype;
  bool return_lse = false;
};

constexpr int kBlockSize = 16;
constexpr std::int64_t kCacheBytes = std::int64_t{256} << 20;

std::string name_of(const Case& c) {
  const RequestLengths first = c.requests.front();
  return fmt::format("{}/b{}_q{}_kv{}_h{}x{}_d{}_{}{}", c.kind, c.requests.size(), first.query_len,
                     first.seq_len, c.num_heads, c.num_kv_heads, c.head_size,
                     fovea::name_of(c.dtype), c.return_lse ? "_lse" : "");
}

LayerSpec spec_of(const Case& c) {
  return {.name = "bench",
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_size = c.head_size,
          .scale = 1.0F / 8,
          .dtype = c.dtype,
          .return_lse = c.return_lse,
          .block_size = {kBlockSize}};
}

void store(DType dtype, std::byte* at, float x) {
  visit_float(dtype, [&](auto t) {
    t = from_float<decltype(t)>(x);
    std::memcpy(at, &t, sizeof t);
  });
}

// Numbers of about unit variance, a short pattern repeated.
void fill(const Buffer& buffer, DType dtype) {
  constexpr std::size_t kPattern = 4099;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> pattern(kPattern);
  for (float& x : pattern) x = normal(random);
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < buffer.size() / size; ++i)
    store(dtype, buffer.data() + i * size, pattern[i % kPattern]);
}

// Pairs of a query and a key that it sees, of one head.
double visible_pairs(const Case& c) {
  double pairs = 0;
  for (const RequestLengths& r : c.requests) {
    const double context = r.seq_len - r.query_len;
    pairs += r.query_len * (context + (r.query_len + 1) / 2.0);
  }
  return pairs;
}

double cache_bytes(const Case& c) {
  double tokens = 0;
  for (const RequestLengths& r : c.requests) tokens += r.seq_len;
  return tokens * 2 * c.num_kv_heads * c.head_size * static_cast<double>(size_of(c.dtype));
}

// Everything that a call needs, ready to be repeated.
class Step {
 public:
  Step(const Case& c, const AttentionBackend& backend, Executor* executor)
      : layer_(spec_of(c), backend, Device::host(), Context{executor}),
        batch_(static_cast<int>(c.requests.size())) {
    const auto num_reqs = static_cast<int>(c.requests.size());
    const CommonAttentionMetadata& batch = batch_.set(c.requests);
    make_cache(c);
    make_table(c);
    const std::int64_t tokens = batch.num_actual_tokens;
    q_ = Buffer(static_cast<std::size_t>(tokens * c.num_heads * c.head_size) * size_of(c.dtype));
    out_ = Buffer(q_.size());
    lse_memory_ = Buffer(static_cast<std::size_t>(tokens * c.num_heads) * sizeof(float));
    fill(q_, c.dtype);
    q_view_ = {q_.data(), c.dtype, {tokens, c.num_heads, c.head_size}};
    out_view_ = {out_.data(), c.dtype, {tokens, c.num_heads, c.head_size}};
    lse_ = {.data = {lse_memory_.data(), DType::kF32, {c.num_heads, tokens}}};
    const Bounds bounds{.max_num_reqs = num_reqs,
                        .max_num_tokens = batch.num_actual_tokens,
                        .max_model_len = batch.max_seq_len};
    const auto builder = backend.make_builder({layer_.plan_key(), bounds}, Context{executor});
    plan_ = builder->allocate();
    builder->build(batch, {}, *plan_, stream_);
    workspace_ = Buffer(builder->facts().workspace_bytes);
  }

  void run() {
    const TensorView none;
    layer_.forward(plan_.get(),
                   {.q = q_view_,
                    .k = none,
                    .v = none,
                    .cache = caches_[next_],
                    .tables = {.block_table = table_->view(batch_.metadata().num_reqs)},
                    .out = out_view_,
                    .lse = layer_.spec().return_lse ? &lse_ : nullptr,
                    .workspace = workspace_.view()},
                   stream_);
    next_ = (next_ + 1) % caches_.size();
  }

 private:
  static int blocks_of(const RequestLengths& r) {
    return (r.seq_len + kBlockSize - 1) / kBlockSize;
  }

  void make_cache(const Case& c) {
    for (const RequestLengths& r : c.requests) num_blocks_ += blocks_of(r);
    const KVCacheSpec spec = kv_cache_spec(layer_.spec());
    const std::int64_t layer_bytes = page_size_bytes(spec) * num_blocks_;
    const auto layers =
        static_cast<int>(std::clamp<std::int64_t>(kCacheBytes / layer_bytes, 1, 1000));
    const PagedLayout layout = make_paged_layout(spec, CacheLayout::kLBHNC, layers, num_blocks_);
    cache_ = Buffer(static_cast<std::size_t>(layout.total_bytes));
    fill(cache_, c.dtype);
    for (int i = 0; i < layers; ++i)
      caches_.push_back(layer_view(layout, cache_.data(), i, layer_.spec().kernel_block_size));
  }

  // Blocks in a random order, as they are after many requests have come and gone.
  void make_table(const Case& c) {
    std::vector<BlockId> ids(static_cast<std::size_t>(num_blocks_));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(2));
    const KernelBlockSize kernel = layer_.spec().kernel_block_size;
    const int longest = batch_.metadata().max_seq_len;
    table_ = std::make_unique<BlockTable>(static_cast<int>(c.requests.size()),
                                          block_table_width(longest, kernel),
                                          ManagerBlockSize{kBlockSize}, kernel);
    std::size_t used = 0;
    for (std::size_t r = 0; r < c.requests.size(); ++r) {
      const auto count = static_cast<std::size_t>(blocks_of(c.requests[r]));
      table_->set(static_cast<int>(r), std::span(ids).subspan(used, count));
      used += count;
    }
  }

  AttentionLayer layer_;
  HostBatch batch_;
  std::int64_t num_blocks_ = 0;
  Buffer cache_, q_, out_, lse_memory_, workspace_;
  TensorView q_view_, out_view_;
  Lse lse_;
  std::vector<KVCacheView> caches_;
  std::unique_ptr<BlockTable> table_;
  std::unique_ptr<AttentionMetadata> plan_;
  std::size_t next_ = 0;
  Stream stream_;
};

void measure(benchmark::State& state, const Case& c, const AttentionBackend& backend,
             int num_threads) {
  ThreadPool pool(num_threads);
  Step step(c, backend, num_threads == 1 ? nullptr : &pool);
  step.run();
  for (auto _ : state) step.run();
  using benchmark::Counter;
  const double flops = visible_pairs(c) * c.num_heads * 4.0 * c.head_size;
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["B/s"] = Counter(cache_bytes(c), Counter::kIsIterationInvariantRate);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    all.push_back({"prefill", {{512, 512}}, 9, 3, 64, dtype});
    all.push_back({"prefill", {{512, 4096}}, 32, 8, 128, dtype});
    all.push_back({"decode", {{1, 512}}, 9, 3, 64, dtype});
    all.push_back({"decode", {{1, 4096}}, 32, 8, 128, dtype});
    all.push_back({"decode", {{1, 8192}}, 16, 2, 128, dtype});
    all.push_back({"decode", {{1, 4096}}, 8, 8, 128, dtype});
    all.push_back({"decode", std::vector<RequestLengths>(8, {1, 1024}), 32, 8, 128, dtype});
    all.push_back({"verify", {{4, 4096}}, 32, 8, 128, dtype});
  }
  all.push_back({"prefill", {{512, 512}}, 9, 3, 64, DType::kBF16, true});
  all.push_back({"decode", {{1, 4096}}, 32, 8, 128, DType::kBF16, true});
  return all;
}

void register_all(const std::vector<Case>& all) {
  const int cores = Device::host().num_cores;
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    for (const Case& c : all) {
      if (!validate(*backend, problem_of(complete(spec_of(c))), Device::host())) continue;
      for (int threads = 1; threads <= cores; threads *= 2) {
        const std::string name = fmt::format("{}/{}/t{}", backend->name(), name_of(c), threads);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [c, backend, threads](benchmark::State& state) {
                                       measure(state, c, *backend, threads);
                                     })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_all(cases());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
