// SPDX-License-Identifier: Apache-2.0
#include "paged_run.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "rules.h"

namespace fovea::conformance {

namespace {
std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Such a backend needs the keys and values of every step.
bool writes_cache(const AttentionBackend& backend) {
  return std::ranges::any_of(
      backend.rows(), [](const fovea::Row& row) { return row.forward_includes_kv_cache_update; });
}
}  // namespace

LayerSpec layer_spec(const Call& call) {
  const Case& c = call.problem;
  return {.name = "layer",
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_size = c.head_size,
          .head_size_v = c.head_size_v,
          .scale = c.scale,
          .logits_soft_cap = c.soft_cap,
          .dtype = c.dtype,
          .output_dtype = c.out_dtype,
          .kv_dtype = plain_kv_dtype(c.kv_dtype),
          .sliding_window = c.window,
          .non_causal = call.non_causal || !c.causal,
          .return_lse = call.return_lse,
          .block_size = {call.block_size * call.kernel_blocks_per_manager_block},
          .kernel_block_size = {call.block_size},
          .layout = call.layout};
}

PagedRun::PagedRun(const Call& call) : PagedRun(call, make_values(call)) {}

PagedRun::PagedRun(Call call, std::vector<Values> values)
    : call_(std::move(call)), values_(std::move(values)), pool_(call_, values_) {}

void PagedRun::fill_inputs(StepTensors& step) const {
  const Case& c = call_.problem;
  const auto set_row = [](HostTensor& t, int token, std::pair<int, int> dims, const double* from) {
    for (int h = 0; h < dims.first; ++h) {
      for (int e = 0; e < dims.second; ++e) t.set(token, h, e, from[h * dims.second + e]);
    }
  };
  int token = 0;
  for (std::size_t r = 0; r < step.requests.size(); ++r) {
    const Request &whole = c.requests[r], &part = step.requests[r];
    const int first = part.kv_len - part.query_len;
    for (int i = 0; i < part.query_len; ++i, ++token) {
      const auto from = index(first + i - (whole.kv_len - whole.query_len));
      const auto g = index(c.num_kv_heads);
      set_row(step.q, token, {c.num_heads, c.head_size},
              values_[r].q.data() + from * index(c.num_heads) * index(c.head_size));
      set_row(step.k, token, {c.num_kv_heads, c.head_size},
              values_[r].new_keys.data() + from * g * index(c.head_size));
      set_row(step.v, token, {c.num_kv_heads, c.head_size_v},
              values_[r].new_values.data() + from * g * index(c.head_size_v));
      const std::int64_t s = pool_.slot(static_cast<int>(r), first + i);
      std::memcpy(step.slots.data() + token * sizeof(s), &s, sizeof(s));
    }
  }  // the slots of padding rows are -1: that is what poison reads as
  if (call_.poison.has(Poison::kPadding)) return;
  const std::vector<double> zeros(index(std::max(c.head_size, c.head_size_v)) * index(c.num_heads));
  for (; token < step.rows; ++token) {
    set_row(step.q, token, {c.num_heads, c.head_size}, zeros.data());
    set_row(step.k, token, {c.num_kv_heads, c.head_size}, zeros.data());
    set_row(step.v, token, {c.num_kv_heads, c.head_size_v}, zeros.data());
  }
}

namespace {
// Bytes of everything that a call may only read.
std::vector<std::byte> snapshot(std::initializer_list<const Memory*> memories) {
  std::vector<std::byte> all;
  for (const Memory* m : memories) all.insert(all.end(), m->bytes().begin(), m->bytes().end());
  return all;
}
}  // namespace

void PagedRun::serve(const AttentionBackend& backend, Executor* executor) {
  if (served_ == nullptr || !served_->is_of(backend, executor)) {
    planner_.reset();
    served_ = std::make_shared<const Served>(call_, backend, executor, bounds_of(call_));
  }
  if (!planner_) planner_.emplace(*served_);
}

void PagedRun::forward(StepTensors& step, const AttentionBackend& backend, Executor* executor,
                       const Edit* edit) {
  serve(backend, executor);
  std::vector<RequestLengths> lengths;
  lengths.reserve(step.requests.size());
  for (const Request& r : step.requests) lengths.push_back({r.query_len, r.kv_len});
  // What is spoiled must be all that is not as usual.
  const Leeway leeway = edit == nullptr ? leeway_of(call_.seed) : Leeway{};
  const ToldStep told(lengths, call_.problem.causal, leeway, served_->bounds);
  Memory workspace(served_->builder->facts().workspace_bytes);
  Given given{
      .batch = told.metadata(),
      .q = step.given(step.q),
      .k = step.given(step.k),
      .v = step.given(step.v),
      .out = step.given(step.out),
      .cache = pool_.view(),
      .tables = pool_.tables(static_cast<int>(step.requests.size()), step.slots),
      .lse = step.lse_view,
      .wants_lse = call_.return_lse,
      .workspace = {workspace.data(), DType::kU8, {static_cast<std::int64_t>(workspace.size())}},
      .bounds = served_->bounds};
  if (step.is_in_cache) given.k = given.v = given.tables.slot_mapping = {};
  BuildOptions options{.fast_build = leeway.is_fast_build};
  if (leeway.tells_common_prefix)
    options.common_prefix_len =
        common_prefix_of(given.tables.block_table, lengths, call_.block_size);
  const bool through_empty = call_.seed / kNumLeeways % 2 != 0;
  if (edit == nullptr) {
    call_layer(step, given, *served_, *planner_, options, through_empty);
  } else {
    (*edit)(given);
    const Served spoiled(call_, backend, executor, given.bounds);
    Planner planner(spoiled);
    call_layer(step, given, spoiled, planner, options, through_empty);
  }
  if (!workspace.guards_intact()) step.faults.emplace_back("wrote outside the workspace");
}

void PagedRun::call_layer(StepTensors& step, Given& given, const Served& served, Planner& planner,
                          const BuildOptions& options, bool through_empty) {
  step.has_lse = given.wants_lse;
  try {
    planner.build(given.batch, options, through_empty);
  } catch (const InputError&) {
    if (planner.changed_in_refusal()) step.faults.emplace_back("changed a plan that it refused");
    throw;
  }
  const AttentionMetadata& plan = planner.plan();
  step.workspace_bytes = plan.workspace_bytes;
  if (given.cuts_workspace && step.workspace_bytes > 0)
    given.workspace =
        given.workspace.slice(0, 0, static_cast<std::int64_t>(step.workspace_bytes) - 1);
  if (plan.key.backend != served.backend->name())
    throw ContractError("a plan that names another backend than the one whose builder made it");
  Stream stream;
  served.layer.forward(&plan,
                       {.q = given.q,
                        .k = given.k,
                        .v = given.v,
                        .cache = given.cache,
                        .tables = given.tables,
                        .out = given.out,
                        .lse = given.wants_lse ? &given.lse : nullptr,
                        .workspace = given.workspace},
                       stream);
}

StepResult PagedRun::run(const AttentionBackend& backend, Executor* executor) {
  return run(backend, executor, call_.problem.requests);
}

StepResult PagedRun::run(const AttentionBackend& backend, Executor* executor,
                         const std::vector<Request>& requests) {
  StepTensors step(call_, requests);
  fill_inputs(step);
  if (call_.lazy_memory) {
    from_backend([&] { forward(step, backend, executor, nullptr); });
    return collect(step);
  }
  StepResult result = run_guarded(step, backend, executor, nullptr);
  if (leeway_of(call_.seed).repeats && !writes_cache(backend))
    repeat(backend, executor, requests, result);
  return result;
}

void PagedRun::repeat(const AttentionBackend& backend, Executor* executor,
                      const std::vector<Request>& requests, StepResult& result) {
  StepTensors step(call_, requests);
  fill_inputs(step);
  step.is_in_cache = true;
  const auto fault = [&](const std::string& text) {
    result.faults.push_back("without new keys and values, for the cache holds them: " + text);
  };
  try {
    const StepResult again = run_guarded(step, backend, executor, nullptr);
    for (const std::string& text : again.faults) fault(text);
    if (again.bits != result.bits) fault("other bits");
  } catch (const std::exception& e) {
    fault(e.what());
  }
}

StepResult PagedRun::run_edited(const AttentionBackend& backend, Executor* executor,
                                const Edit& edit) {
  StepTensors step(call_, call_.problem.requests);
  fill_inputs(step);
  return run_guarded(step, backend, executor, &edit);
}

StepResult PagedRun::run_guarded(StepTensors& step, const AttentionBackend& backend,
                                 Executor* executor, const Edit* edit) {
  const auto inputs = [&] {
    return snapshot(
        {&step.q.memory(), &step.k.memory(), &step.v.memory(), &step.slots, &pool_.table()});
  };
  const std::vector<std::byte> inputs_before = inputs();
  std::vector<std::byte> pool_expected(pool_.memory().bytes().begin(),
                                       pool_.memory().bytes().end());
  std::optional<std::vector<Reason>> refusal;
  try {
    from_backend([&] { forward(step, backend, executor, edit); });
  } catch (const InputError& e) {
    if (edit == nullptr) throw;
    refusal = e.reasons();
  }
  for (std::size_t r = 0; !refusal && r < step.requests.size(); ++r) {
    const Request& part = step.requests[r];
    for (int p = std::max(0, part.kv_len - part.query_len); p < part.kv_len; ++p) {
      pool_.write_cell(pool_expected.data(), values_, static_cast<int>(r), p);
    }
  }
  if (inputs() != inputs_before) step.faults.emplace_back("wrote into an input");
  if (!std::equal(pool_expected.begin(), pool_expected.end(), pool_.memory().data())) {
    step.faults.emplace_back(refusal ? "wrote into the cache before it refused"
                                     : "the cache is not what it was and the new tokens");
  }
  const bool guards = pool_.memory().guards_intact() && pool_.table().guards_intact() &&
                      step.slots.guards_intact() && step.q.outside_intact() &&
                      step.k.outside_intact() && step.v.outside_intact();
  if (!guards) step.faults.emplace_back("wrote beside an input or the cache");
  if (!refusal) return collect(step);
  if (!step.out.untouched() || !step.lse.untouched())
    step.faults.emplace_back("wrote into an output before it refused");
  StepResult result;
  result.faults = step.faults;
  result.refusal = std::move(refusal);
  result.workspace_bytes = step.workspace_bytes;
  return result;
}

StepResult PagedRun::collect(StepTensors& step) const {
  const Case& c = call_.problem;
  StepResult result;
  result.faults = step.faults;
  result.workspace_bytes = step.workspace_bytes;
  if (!step.out.outside_intact()) result.faults.emplace_back("wrote beside the output");
  if (!step.lse.outside_intact()) result.faults.emplace_back("wrote beside the LSE");
  const bool is_unwanted = call_.return_lse && !step.has_lse && !call_.lazy_memory;
  if (is_unwanted && !step.lse.untouched())
    result.faults.emplace_back("wrote an LSE that it was not given");
  for (int t = 0; t < step.live; ++t) {
    for (int h = 0; h < c.num_heads; ++h) {
      std::vector<double>& row = result.out.emplace_back();
      for (int e = 0; e < c.head_size_v; ++e) {
        row.push_back(step.out.get(t, h, e));
        result.bits.push_back(step.out.bits(t, h, e));
      }
      if (!step.has_lse) continue;
      result.lse.push_back(step.lse_at(t, h));
      result.bits.push_back(step.lse_bits(t, h));
    }
  }
  check_padding(step, result);
  return result;
}

void PagedRun::check_padding(const StepTensors& step, StepResult& result) const {
  const Case& c = call_.problem;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int t = step.live; t < step.rows; ++t) {
    for (int h = 0; h < c.num_heads; ++h) {
      bool zero = !step.has_lse || step.lse_at(t, h) == -kInfinity;
      for (int e = 0; e < c.head_size_v; ++e) zero = zero && step.out.get(t, h, e) == 0;
      if (!zero) result.faults.emplace_back("a padding row is not empty");
    }
  }
}

}  // namespace fovea::conformance
