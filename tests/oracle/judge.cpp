// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <numbers>
#include <sstream>
#include <string>
#include <vector>

#include "oracle/paged_run.h"

namespace fovea::oracle {

namespace {
// NaN and infinities must be met exactly.
bool within(double actual, double exact, double tolerance) {
  if (std::isnan(exact)) return std::isnan(actual);
  if (std::isinf(exact)) return actual == exact;
  return std::fabs(actual - exact) <= tolerance;
}
}  // namespace

std::string check(const PagedRun& run, const StepResult& result, int nth) {
  constexpr int kMostRows = 5;
  const Sample& sample = run.sample();
  const Case& c = sample.problem;
  const double per_nat = sample.lse_base == LseBase::kE ? 1 : 1 / std::numbers::ln2;
  std::ostringstream text;
  for (const std::string& fault : result.faults) text << fault << '\n';
  int row = 0, wrong = 0;
  for (std::size_t r = 0; r < c.requests.size(); ++r) {
    for (int i = 0; i < c.requests[r].query_len * c.num_heads; ++i, ++row) {
      if (row % nth != 0) continue;
      const RowId id{i / c.num_heads, i % c.num_heads};
      Row exact = exact_row(c, c.requests[r], run.values()[r], id);
      Row same = same_precision_row(c, c.requests[r], run.values()[r], id);
      exact.lse *= per_nat;
      same.lse *= per_nat;
      const Row allowed = tolerance(c, exact, same);
      const std::vector<double>& out = result.out[static_cast<std::size_t>(row)];
      std::size_t bad = 0;
      while (bad < out.size() && within(out[bad], exact.out[bad], allowed.out[bad])) ++bad;
      const bool lse_right = !sample.return_lse || within(result.lse[static_cast<std::size_t>(row)],
                                                          exact.lse, allowed.lse);
      if ((bad == out.size() && lse_right) || ++wrong > kMostRows) continue;
      text << "request " << r << " query " << id.query << " head " << id.head << ": ";
      text.precision(9);
      if (bad < out.size()) {
        text << "element " << bad << " is " << out[bad] << ", exactly " << exact.out[bad] << " +- "
             << allowed.out[bad] << ' ';
      }
      if (!lse_right) {
        text << "LSE is " << result.lse[static_cast<std::size_t>(row)] << ", exactly " << exact.lse
             << " +- " << allowed.lse;
      }
      text << '\n';
    }
  }
  if (wrong > kMostRows) text << wrong << " rows are wrong\n";
  return text.str();
}

}  // namespace fovea::oracle
