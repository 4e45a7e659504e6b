// SPDX-License-Identifier: Apache-2.0
#include "dense.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>

#include "number.h"

namespace fovea::conformance {

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Dims {
  int heads, size;
};

std::size_t offset(Dims dims, int row, int head) {
  return (static_cast<std::size_t>(row) * static_cast<std::size_t>(dims.heads) +
          static_cast<std::size_t>(head)) *
         static_cast<std::size_t>(dims.size);
}

// Calls f(head, element, index) for each element of one row.
template <class F>
void for_elements(Dims dims, int row, F&& f) {
  for (int head = 0; head < dims.heads; ++head) {
    for (int e = 0; e < dims.size; ++e) {
      f(head, e, offset(dims, row, head) + static_cast<std::size_t>(e));
    }
  }
}

// Keys or values of all positions, and those of the step as they were before they were cached.
struct Stored {
  std::vector<double> all, fresh;
};
Stored make_stored(const Case& c, const Request& r, Dims dims, const Fill& fill) {
  Stored s;
  s.all.resize(offset(dims, r.kv_len, 0));
  s.fresh.assign(offset(dims, r.query_len, 0), kNaN);
  const int first_new = r.kv_len - r.query_len;
  for (int position = 0; position < r.kv_len; ++position) {
    for_elements(dims, position, [&](int head, int e, std::size_t i) {
      const double given = round_to(c.dtype, fill(position, head, e));
      s.all[i] = round_to(c.kv_dtype, given);
      if (position >= first_new) {
        s.fresh[offset(dims, position - first_new, head) + static_cast<std::size_t>(e)] = given;
      }
    });
  }
  return s;
}

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::fabs(x));
  return largest;
}

// The error of a plain program. One that leaves the range of its numbers is no yardstick: by an
// infinite bound anything would be right.
double plain_error(double exact, double plain) {
  const double error = exact == plain ? 0 : std::fabs(exact - plain);
  return std::isfinite(error) ? error : 0;
}
}  // namespace

std::string describe(const Case& c) {
  std::ostringstream s;
  s << "q=[";
  for (const Request& r : c.requests) s << ' ' << r.query_len;
  s << " ] kv=[";
  for (const Request& r : c.requests) s << ' ' << r.kv_len;
  s << " ] H=" << c.num_heads << '/' << c.num_kv_heads << " D=" << c.head_size
    << " Dv=" << c.head_size_v << " scale=" << c.scale << " soft_cap=" << c.soft_cap
    << " window=" << c.window << (c.causal ? " causal" : " non-causal") << ' ' << name_of(c.dtype)
    << " kv " << name_of(c.kv_dtype) << " out " << name_of(c.out_dtype);
  return s.str();
}

Values make_values(const Case& c, const Request& r, const Fills& fills) {
  Values v;
  const Dims q_dims{c.num_heads, c.head_size};
  v.q.resize(offset(q_dims, r.query_len, 0));
  for (int query = 0; query < r.query_len; ++query) {
    for_elements(q_dims, query, [&](int head, int e, std::size_t i) {
      v.q[i] = round_to(c.dtype, fills.q(query, head, e));
    });
  }
  Stored keys = make_stored(c, r, {c.num_kv_heads, c.head_size}, fills.k);
  Stored values = make_stored(c, r, {c.num_kv_heads, c.head_size_v}, fills.v);
  v.keys = std::move(keys.all);
  v.new_keys = std::move(keys.fresh);
  v.values = std::move(values.all);
  v.new_values = std::move(values.fresh);
  return v;
}

bool is_visible(const Case& c, const Request& r, int query, int key) {
  const long long q = static_cast<long long>(r.kv_len) - r.query_len + query, k = key;
  if (k < 0 || k >= r.kv_len) return false;
  if (c.causal) return k <= q && (c.window == 0 || q - k < c.window);
  return c.window == 0 || std::llabs(q - k) < c.window;
}

OutputRow exact_row(const Case& c, const Request& r, const Values& v, RowId id) {
  const int kv_head = id.head / (c.num_heads / c.num_kv_heads);
  const double* q =
      v.q.data() + offset({c.num_heads, c.head_size}, id.earlier_queries + id.query, id.head);
  std::vector<double> logits(static_cast<std::size_t>(r.kv_len), -kInfinity);
  double m = -kInfinity;
  for (int key = 0; key < r.kv_len; ++key) {
    if (!is_visible(c, r, id.query, key)) continue;
    const double* k = v.keys.data() + offset({c.num_kv_heads, c.head_size}, key, kv_head);
    double x = 0;
    for (int e = 0; e < c.head_size; ++e) x += q[e] * k[e];
    x *= static_cast<double>(c.scale);
    if (c.soft_cap > 0) {
      const auto cap = static_cast<double>(c.soft_cap);
      x = cap * std::tanh(x / cap);
    }
    logits[static_cast<std::size_t>(key)] = x;
    m = std::max(m, x);
  }
  OutputRow row{std::vector<double>(static_cast<std::size_t>(c.head_size_v), 0.0), -kInfinity};
  double z = 0;
  for (int key = 0; key < r.kv_len; ++key) {
    if (!is_visible(c, r, id.query, key)) continue;
    const double p = std::exp(logits[static_cast<std::size_t>(key)] - m);
    const double* value = v.values.data() + offset({c.num_kv_heads, c.head_size_v}, key, kv_head);
    for (int e = 0; e < c.head_size_v; ++e) row.out[static_cast<std::size_t>(e)] += p * value[e];
    z += p;
  }
  if (z == 0) return row;
  for (double& x : row.out) x /= z;
  row.lse = m + std::log(z);
  return row;
}

OutputRow same_precision_row(const Case& c, const Request& r, const Values& v, RowId id) {
  const int kv_head = id.head / (c.num_heads / c.num_kv_heads);
  const double* q =
      v.q.data() + offset({c.num_heads, c.head_size}, id.earlier_queries + id.query, id.head);
  std::vector<float> p(static_cast<std::size_t>(r.kv_len));
  float m = -std::numeric_limits<float>::infinity();
  for (int key = 0; key < r.kv_len; ++key) {
    if (!is_visible(c, r, id.query, key)) continue;
    const double* k = v.keys.data() + offset({c.num_kv_heads, c.head_size}, key, kv_head);
    float x = 0;
    for (int e = 0; e < c.head_size; ++e) x += static_cast<float>(q[e]) * static_cast<float>(k[e]);
    x *= c.scale;
    if (c.soft_cap > 0) x = c.soft_cap * std::tanh(x / c.soft_cap);
    p[static_cast<std::size_t>(key)] = x;
    m = std::max(m, x);
  }
  float z = 0;
  for (int key = 0; key < r.kv_len; ++key) {
    if (!is_visible(c, r, id.query, key)) continue;
    float& x = p[static_cast<std::size_t>(key)];
    x = std::exp(x - m);
    z += x;
  }
  std::vector<float> sum(static_cast<std::size_t>(c.head_size_v), 0.0F);
  for (int key = 0; key < r.kv_len; ++key) {
    if (!is_visible(c, r, id.query, key)) continue;
    const auto weight = static_cast<float>(
        round_to(c.kv_dtype, static_cast<double>(p[static_cast<std::size_t>(key)] / z)));
    const double* value = v.values.data() + offset({c.num_kv_heads, c.head_size_v}, key, kv_head);
    for (int e = 0; e < c.head_size_v; ++e) {
      sum[static_cast<std::size_t>(e)] += weight * static_cast<float>(value[e]);
    }
  }
  OutputRow row{std::vector<double>(sum.size(), 0.0), -kInfinity};
  if (z == 0) return row;
  for (std::size_t e = 0; e < sum.size(); ++e) {
    row.out[e] = round_to(c.out_dtype, static_cast<double>(sum[e]));
  }
  row.lse = static_cast<double>(m + std::log(z));
  return row;
}

OutputRow tolerance(const Case& c, const OutputRow& exact, const OutputRow& same_precision) {
  double error = 0;
  for (std::size_t e = 0; e < exact.out.size(); ++e) {
    error = std::max(error, plain_error(exact.out[e], same_precision.out[e]));
  }
  const double largest = largest_magnitude(exact.out);
  OutputRow t;
  for (const double x : exact.out) {
    const double at = c.out_dtype == DType::kF32 ? largest : std::max(std::fabs(x), error);
    t.out.push_back(2 * error + ulp(c.out_dtype, at));
  }
  if (!std::isfinite(exact.lse)) return t;  // only the same is right
  const double lse_error = plain_error(exact.lse, same_precision.lse);
  t.lse = std::max(2 * lse_error + ulp(DType::kF32, std::max(std::fabs(exact.lse), lse_error)),
                   4 * ulp(DType::kF32, exact.lse));
  return t;
}

}  // namespace fovea::conformance
