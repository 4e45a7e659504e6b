// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "asked_layers.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "fovea/kv/spec.h"
#include "judge.h"
#include "refusal_words.h"
#include "sampler.h"
#include "serving.h"

namespace fovea::conformance {

namespace {
DType other_float(DType t) { return t == DType::kF32 ? DType::kBF16 : DType::kF32; }

constexpr std::array kArguments = {
    // Of the layer.
    OptionalArgument{"scale", [](Call& c) { c.problem.scale *= 3; }},
    OptionalArgument{"soft_cap", [](Call& c) { c.problem.soft_cap = 0.5F; }},
    OptionalArgument{"sliding_window", [](Call& c) { c.problem.window = 3; }},
    OptionalArgument{"non_causal",
                     [](Call& c) {
                       c.non_causal = true;
                       c.problem.causal = false;
                     }},
    OptionalArgument{"lse", [](Call& c) { c.return_lse = true; }},
    OptionalArgument{"lse",
                     [](Call& c) {
                       c.return_lse = true;
                       c.lse_base = LseBase::k2;
                     }},
    OptionalArgument{"lse",
                     [](Call& c) {
                       c.return_lse = true;
                       c.lse_layout = LseLayout::kTokensHeads;
                     }},
    OptionalArgument{"output_dtype",
                     [](Call& c) { c.problem.out_dtype = other_float(c.problem.dtype); }},
    OptionalArgument{"kv_cache_dtype",
                     [](Call& c) {  // shows only where rounding loses something
                       if (c.problem.dtype == DType::kF32) c.problem.kv_dtype = DType::kBF16;
                     }},
    OptionalArgument{"num_heads", [](Call& c) { c.problem.num_heads *= 3; }},
    OptionalArgument{"head_size_v", [](Call& c) { c.problem.head_size_v += 16; }},
    OptionalArgument{"block_size", [](Call& c) { c.block_size *= 2; }, false},
    OptionalArgument{"layout", [](Call& c) { c.layout = CacheLayout::kLBHNC; }, false},
    OptionalArgument{"layout", [](Call& c) { c.layout = CacheLayout::kBHLNC; }, false},
    // Of the call.
    OptionalArgument{"q", [](Call& c) { c.strided = Strided::kQ; }, false},
    OptionalArgument{"k", [](Call& c) { c.strided = Strided::kK; }, false},
    OptionalArgument{"v", [](Call& c) { c.strided = Strided::kV; }, false},
    OptionalArgument{"out", [](Call& c) { c.strided = Strided::kOut; }, false},
    OptionalArgument{"q", [](Call& c) { c.flat = true; }, false},
    OptionalArgument{"q", [](Call& c) { c.padding_rows = 3; }, false},
    OptionalArgument{"slot_mapping",
                     [](Call& c) {
                       c.padding_rows = 3;
                       c.padded_slots = true;
                     },
                     false},
    OptionalArgument{"cache", [](Call& c) { c.cache_form = CacheForm::kPlanes; }, false},
    OptionalArgument{"cache", [](Call& c) { c.cache_form = CacheForm::kSparseKeys; }, false},
    OptionalArgument{"block_table", [](Call& c) { c.block_zero_lives = true; }, false},
    OptionalArgument{"executor", [](Call& c) { c.num_workers = 2; }, false},
};

// What a layer is asked for: the block size as it is, unlike a selection.
Support support_of(const Rows& rows, const LayerSpec& spec, const Device& device) {
  Rows fitting;
  for (const fovea::Row& row : rows) {
    if (admits(row.block_sizes, spec.kernel_block_size.tokens)) fitting.push_back(row);
  }
  return validate(fitting, problem_of(complete(spec)), device);
}

class Arguments {
 public:
  Arguments(Runner& runner, const Device& device) : runner_(runner), device_(device) {}

  void check_row(const fovea::Row& row) {
    row_ = &row;
    const Call plain = plain_call(row);
    const Outcome expected = runner_.run(plain);
    if (!expected.text.empty()) return wrong("the plain call: " + expected.text, plain);
    for (const OptionalArgument& argument : optional_arguments()) {
      Call call = plain;
      argument.set(call);
      if (!(call == plain)) check_argument(argument, call, expected, row);
    }
    check_threads(plain, expected);
    Call with_lse = plain;
    with_lse.return_lse = true;
    const bool has_lse = may_have_lse(row);
    if (has_lse) check_unwanted_lse(with_lse, plain);
    for (const Corruption& corruption : corruptions()) {
      if (!corruption.needs_lse) {
        check_corruption(corruption, plain);
      } else if (has_lse) {
        check_corruption(corruption, with_lse);
      }
    }
  }

  ArgumentsReport take() { return std::move(report_); }

 private:
  void wrong(std::string what, const Call& call) {
    report_.wrong.push_back({std::move(what), call, row_});
  }

  // A layer that may return an LSE is right without one, too.
  void check_unwanted_lse(const Call& with_lse, const Call& plain) {
    try {
      PagedRun run(with_lse);
      const StepResult result =
          run.run_edited(runner_.backend(), nullptr, [](Given& given) { given.wants_lse = false; });
      const std::string text =
          result.refusal ? "refused: " + to_text(*result.refusal) : check(PagedRun(plain), result);
      if (!text.empty())
        wrong("a call without the LSE that its layer may return: " + text, with_lse);
    } catch (const std::exception& e) {
      wrong(fmt::format("a call without the LSE that its layer may return threw: {}", e.what()),
            with_lse);
    }
  }

  void check_argument(const OptionalArgument& argument, const Call& call, const Outcome& plain,
                      const fovea::Row& row) {
    const LayerSpec spec = layer_spec(call);
    const Support support = support_of(runner_.backend().rows(), spec, device_);
    if (!support) return check_refusal(argument, spec, call);
    const Outcome outcome = runner_.run(call);
    const bool is_same = outcome.bits == plain.bits;
    if (!outcome.text.empty()) {
      wrong(fmt::format("{}: {}", argument.name, outcome.text), call);
    } else if (argument.changes_result && is_same) {
      wrong(fmt::format("{} changes nothing", argument.name), call);
    } else if (!argument.changes_result && !is_same &&
               row.features.has(Feature::kBatchInvariance)) {
      wrong(fmt::format("{} changes bits", argument.name), call);
    }
  }

  void check_refusal(const OptionalArgument& argument, const LayerSpec& spec, const Call& call) {
    try {
      from_backend([&] { AttentionLayer(spec, runner_.backend(), device_, Context{}); });
      wrong(fmt::format("{} is not declared, and a layer was made of it", argument.name), call);
    } catch (const ConfigError& e) {
      if (names(e.reasons(), argument.name) ||
          names_combination(e.reasons(), runner_.backend().rows(), problem_of(complete(spec)),
                            device_)) {
        ++report_.refused;
      } else {
        wrong(fmt::format("{} was refused in other words: {}", argument.name, e.what()), call);
      }
    } catch (const std::exception& e) {
      wrong(fmt::format("{} threw something else than ConfigError: {}", argument.name, e.what()),
            call);
    }
  }

  // Twice at once, with the same layer and builder; nothing else is shared.
  void check_threads(const Call& plain, const Outcome& expected) {
    constexpr int kRounds = 3;
    const AttentionBackend& backend = runner_.backend();
    const auto served = std::make_shared<const Served>(plain, backend, nullptr, bounds_of(plain));
    std::array<std::string, 2> texts;
    const auto work = [&](std::string& text) {
      try {
        PagedRun run(plain);
        run.share(served);
        for (int round = 0; round < kRounds && text.empty(); ++round) {
          const StepResult result = run.run(backend, nullptr);
          text = check(run, result);
          if (text.empty() && result.bits != expected.bits) text = "other bits";
        }
      } catch (const std::exception& e) {
        text = fmt::format("threw: {}", e.what());
      }
    };
    std::thread other(work, std::ref(texts[0]));
    work(texts[1]);
    other.join();
    for (const std::string& text : texts) {
      if (!text.empty()) return wrong("a layer in two threads at once: " + text, plain);
    }
  }

  void check_corruption(const Corruption& corruption, const Call& call) {
    const auto fault = [&](std::string_view text) {
      wrong(fmt::format("{}: {}", corruption.what, text), call);
    };
    try {
      PagedRun run(call);
      const StepResult result = run.run_edited(runner_.backend(), nullptr, corruption.edit());
      for (const std::string& f : result.faults) fault(f);
      if (corruption.needs_workspace && !result.refusal && result.workspace_bytes == 0) return;
      if (!result.refusal) {
        fault("was accepted");
      } else if (!names(*result.refusal, corruption.argument)) {
        fault(fmt::format("was refused without naming {}: {}", corruption.argument,
                          to_text(*result.refusal)));
      } else {
        ++report_.refused;
      }
    } catch (const std::exception& e) {
      fault(fmt::format("threw something else than InputError: {}", e.what()));
    }
  }

  Runner& runner_;
  const Device& device_;
  const fovea::Row* row_ = nullptr;
  ArgumentsReport report_;
};
}  // namespace

std::span<const OptionalArgument> optional_arguments() { return kArguments; }

Call plain_call(const fovea::Row& row) {
  const LayerSpec layer = plain_layer(row);
  Call c;
  c.problem.requests = {{2, 9}, {3, 5}, {1, 12}};
  c.problem.num_heads = layer.num_heads;
  c.problem.num_kv_heads = layer.num_kv_heads;
  c.problem.head_size = layer.head_size;
  c.problem.head_size_v = layer.head_size_v;
  c.problem.scale = layer.scale;
  c.problem.dtype = c.problem.out_dtype = layer.dtype;
  if (layer.kv_dtype) c.problem.kv_dtype = plain_dtype(*layer.kv_dtype).value_or(c.problem.dtype);
  c.block_size = layer.block_size.tokens;
  c.layout = row.layouts.front();
  c.return_lse = false;
  c.seed = 5;
  return c;
}

bool may_have_lse(const fovea::Row& row) {
  Call call = plain_call(row);
  call.return_lse = true;
  return admits_call(row, call);
}

ArgumentsReport check_arguments(Runner& runner, const Device& device) {
  Arguments all(runner, device);
  for (const fovea::Row& row : runner.backend().rows()) {
    if (runs_on(row, device)) all.check_row(row);
  }
  return all.take();
}

}  // namespace fovea::conformance
