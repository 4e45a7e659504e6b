// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "fovea/base/float_formats.h"

namespace fovea::engine {
namespace {

// Sixteen sums side by side: exact enough for long rows, and the compiler can use vectors.
float sum_of_squares(const float* x, std::int64_t n) {
  constexpr int kLanes = 16;
  std::array<float, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[static_cast<std::size_t>(l)] += x[i + l] * x[i + l];
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return static_cast<float>(sum);
}

// e^x to about one unit in the last place, without calls, so that loops over it become vectors.
// Above 88 it is infinity, below -87 about 1e-38; NaN stays.
inline float exponential(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 · 2^23: adding it leaves an integer in the low bits
  const float clamped = x > 88.0F ? 88.0F : (x < -87.0F ? -87.0F : x);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  const float result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + exponent);
  return x > 88.0F ? std::numeric_limits<float>::infinity() : result;
}

// Calls f with a pointer of the view's element type: float or BFloat16.
template <class F>
void with_elements(const TensorView& out, F&& f) {
  if (out.dtype() == DType::kBF16)
    f(out.data_as<BFloat16>());
  else
    f(out.data_as<float>());
}

template <class T>
void rotate_head(RopePairs pairs, const float* x, std::span<const float> table, T* out) {
  const bool adjacent = pairs == RopePairs::kAdjacent;
  const std::size_t distance = adjacent ? 1 : table.size() / 2, stride = adjacent ? 2 : 1;
  for (std::size_t i = 0; i < table.size() / 2; ++i) {
    const float cosine = table[2 * i], sine = table[2 * i + 1];
    const std::size_t first = stride * i, second = first + distance;
    const float a = x[first], b = x[second];
    out[first] = from_float<T>(a * cosine - b * sine);
    out[second] = from_float<T>(a * sine + b * cosine);
  }
}

float apply(Activation activation, float x) {
  // The GELU's 1 + tanh(u) is 2 / (1 + exp(-2 u)).
  const float exponent =
      activation == Activation::kSilu ? -x : -1.5957691216F * (x + 0.044715F * x * x * x);
  return x / (1.0F + exponential(exponent));
}

// In double, which holds the square of every float.
void norm_large_row(const float* x, std::span<const float> weight, float epsilon, auto* out) {
  using T = std::remove_reference_t<decltype(*out)>;
  double sum = 0;
  for (std::size_t i = 0; i < weight.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double root = std::sqrt(sum / static_cast<double>(weight.size()) + double{epsilon});
  for (std::size_t i = 0; i < weight.size(); ++i)
    out[i] = from_float<T>(static_cast<float>(static_cast<double>(x[i]) / root) * weight[i]);
}

void norm_row(const float* x, std::span<const float> weight, float epsilon, auto* out) {
  using T = std::remove_reference_t<decltype(*out)>;
  const auto n = static_cast<std::int64_t>(weight.size());
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  // An infinite mean would make every number a silent zero.
  if (!std::isfinite(mean)) return norm_large_row(x, weight, epsilon, out);
  const float scale = 1.0F / std::sqrt(mean + epsilon);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = from_float<T>(x[i] * scale * weight[static_cast<std::size_t>(i)]);
}

}  // namespace

void rms_norm(Executor& executor, const TensorView& x, std::span<const float> weight, float epsilon,
              const TensorView& out) {
  const std::int64_t n = x.size(1);
  const auto* from = x.data_as<const float>();
  with_elements(out, [&]<class T>(T* to) {
    for_rows(executor, x.size(0), n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        norm_row(from + row * n, weight, epsilon, to + row * n);
    });
  });
}

void norm_heads(Executor& executor, const TensorView& x, std::span<const float> weight,
                float epsilon) {
  const std::int64_t heads = x.size(1), n = heads * x.size(2);
  auto* values = x.data_as<float>();
  for_rows(executor, x.size(0), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t head = 0; head < heads; ++head) {
        float* const v = values + row * x.stride(0) + head * x.stride(1);
        norm_row(v, weight, epsilon, v);
      }
  });
}

void add(Executor& executor, const TensorView& x, const TensorView& y) {
  const std::int64_t n = x.size(1);
  auto* to = x.data_as<float>();
  const auto* from = y.data_as<const float>();
  for_rows(executor, x.size(0), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * n; i < end * n; ++i) to[i] += from[i];
  });
}

void gate(Executor& executor, Activation activation, const TensorView& x, const TensorView& out) {
  const std::int64_t n = out.size(1);
  const auto* from = x.data_as<const float>();
  with_elements(out, [&]<class T>(T* to) {
    for_rows(executor, out.size(0), n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* gates = from + row * 2 * n;
        const float* up = gates + n;
        T* o = to + row * n;
        // One loop each, so that the choice is not made inside.
        if (activation == Activation::kSilu)
          for (std::int64_t i = 0; i < n; ++i)
            o[i] = from_float<T>(apply(Activation::kSilu, gates[i]) * up[i]);
        else
          for (std::int64_t i = 0; i < n; ++i)
            o[i] = from_float<T>(apply(Activation::kGelu, gates[i]) * up[i]);
      }
    });
  });
}

RopeTable::RopeTable(const RopeParams& params, std::int64_t max_rows)
    : pairs_(params.pairs),
      frequencies_(static_cast<std::size_t>(params.rotated / 2)),
      values_(static_cast<std::size_t>(max_rows * params.rotated)) {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double factor =
        params.frequency_factors.empty() ? 1.0 : static_cast<double>(params.frequency_factors[i]);
    const double exponent = -2.0 * static_cast<double>(i) / params.rotated;
    frequencies_[i] = std::pow(params.base, exponent) / factor / params.linear_factor;
  }
}

void RopeTable::set(std::span<const std::int32_t> positions) {
  float* value = values_.data();
  for (const std::int32_t position : positions)
    for (const double frequency : frequencies_) {
      const double angle = position * frequency;
      *value++ = static_cast<float>(std::cos(angle));
      *value++ = static_cast<float>(std::sin(angle));
    }
}

void rope(Executor& executor, const RopeTable& table, const RopeArgs& args) {
  const std::int64_t heads = args.x.size(1), head_size = args.x.size(2), n = heads * head_size;
  const auto* from = args.x.data_as<const float>();
  with_elements(args.out, [&]<class T>(T* to) {
    for_rows(executor, args.x.size(0), n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto angles = table.row(row);
        const float* x = from + row * n;
        T* out = to + row * n;
        for (std::int64_t head = 0; head < heads; ++head) {
          const bool rotate = head < args.rotated_heads;
          const std::int64_t passed = rotate ? table.rotated() : 0;
          if (rotate)
            rotate_head(table.pairs(), x + head * head_size, angles, out + head * head_size);
          for (std::int64_t i = head * head_size + passed; i < (head + 1) * head_size; ++i)
            out[i] = from_float<T>(x[i]);
        }
      }
    });
  });
}

}  // namespace fovea::engine
