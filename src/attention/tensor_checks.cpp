// SPDX-License-Identifier: Apache-2.0
#include "attention/tensor_checks.h"

#include <fmt/format.h>

#include <array>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <numeric>

#include "fovea/base/error.h"

namespace fovea {
namespace {

// Where the bytes of a view lie: runs of `run` bytes at `first` plus any multiples of `step` (0:
// one run only), all of them in [first, last).
struct Extent {
  std::uintptr_t first = 0, last = 0;
  std::int64_t run = 0, step = 0;
};

Extent extent_of(const TensorView& t) {
  const auto element = static_cast<std::int64_t>(size_of(t.dtype()));
  Extent e{.run = element};
  std::int64_t below = 0, above = element;
  for (int d = t.ndim(); d-- > 0;) {
    if (t.size(d) == 1) continue;
    const std::int64_t stride = t.stride(d) * element, reach = stride * (t.size(d) - 1);
    (stride < 0 ? below : above) += reach;
    if (e.step == 0 && stride == e.run) {
      e.run *= t.size(d);
    } else {
      e.step = std::gcd(e.step, stride);
    }
  }
  const auto address = reinterpret_cast<std::uintptr_t>(t.data());
  e.first = address + static_cast<std::uintptr_t>(below);
  e.last = address + static_cast<std::uintptr_t>(above);
  return e;
}

}  // namespace

TensorView heads_view(const TensorView& t, const HeadsRule& rule) {
  const std::array dtypes = {rule.dtype};
  const std::int64_t heads = rule.num_heads, size = rule.head_size;
  TensorView view = t;
  if (t.ndim() == 2) {
    const std::array<std::int64_t, 2> flat = {-1, heads * size};
    check_tensor(t, {.argument = rule.argument, .dtypes = dtypes, .shape = flat});
    view = TensorView(t.data(), t.dtype(), {t.size(0), heads, size}, {t.stride(0), size, 1},
                      t.device());
  } else {
    const std::array<std::int64_t, 3> split = {-1, heads, size};
    check_tensor(t, {.argument = rule.argument, .dtypes = dtypes, .shape = split});
  }
  if (view.size(0) < rule.min_tokens) {
    throw InputError(rule.argument, describe(t),
                     fmt::format("at least {} rows, one for each token", rule.min_tokens));
  }
  return view;
}

bool is_injective(const TensorView& t) {
  if (t.numel() == 0) return true;
  // Each round takes the smallest stride that is left.
  std::array<bool, TensorView::kMaxDims> done = {};
  std::int64_t reach = 0;  // of the dimensions so far, in elements
  for (int round = 0; round < t.ndim(); ++round) {
    int next = -1;
    for (int d = 0; d < t.ndim(); ++d) {
      if (done[static_cast<std::size_t>(d)] || t.size(d) == 1) continue;
      if (next == -1 || std::abs(t.stride(d)) < std::abs(t.stride(next))) next = d;
    }
    if (next == -1) break;
    const std::int64_t stride = std::abs(t.stride(next));
    if (stride <= reach) return false;
    reach += stride * (t.size(next) - 1);
    done[static_cast<std::size_t>(next)] = true;
  }
  return true;
}

void check_writable(const TensorView& t, std::string_view argument) {
  if (!is_injective(t)) {
    throw InputError(argument, describe(t), "strides that put no two elements at one address");
  }
}

bool may_overlap(const TensorView& a, const TensorView& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const Extent x = extent_of(a), y = extent_of(b);
  if (x.last <= y.first || y.last <= x.first) return false;
  const std::int64_t step = std::gcd(x.step, y.step);
  if (step == 0) return true;
  const auto distance = static_cast<std::int64_t>(y.first - x.first);
  const std::int64_t phase = (distance % step + step) % step;  // of y's runs behind x's
  return phase < x.run || y.run > step - phase;
}

void check_apart(const NamedView& written, std::initializer_list<NamedView> others) {
  for (const NamedView& other : others) {
    if (may_overlap(written.view, other.view))
      throw InputError(written.name, describe(written.view),
                       fmt::format("memory apart from {}: {}", other.name, describe(other.view)));
  }
}

std::int64_t num_tokens_of(const Lse& lse) {
  return lse.data.size(lse.layout == LseLayout::kHeadsTokens ? 1 : 0);
}

void check_lse(const Lse& lse, std::string_view argument, int num_heads, std::int64_t min_tokens) {
  const std::array dtypes = {DType::kF32};
  std::array<std::int64_t, 2> shape = {-1, -1};
  const bool heads_first = lse.layout == LseLayout::kHeadsTokens;
  shape[heads_first ? 0 : 1] = num_heads;
  check_tensor(lse.data,
               {.argument = argument, .dtypes = dtypes, .shape = shape, .last_dim_dense = false});
  if (num_tokens_of(lse) < min_tokens) {
    throw InputError(
        argument, describe(lse.data),
        fmt::format("at least {} tokens in dimension {}", min_tokens, heads_first ? 1 : 0));
  }
  if (num_tokens_of(lse) > INT_MAX)
    throw InputError(argument, describe(lse.data), "less than 2^31 tokens");
}

}  // namespace fovea
