// SPDX-License-Identifier: Apache-2.0
#include "judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "number.h"

namespace fovea::conformance {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Element {
  double actual, exact, bound;
  DType dtype;
};

// A number beyond those of its type is stored as infinity.
bool is_overflow(const Element& e) {
  return std::isinf(e.actual) && e.actual == round_to(e.dtype, e.exact);
}

// Takes one element into account; true if it is right.
template <class Place>
bool note(OutputError& worst, const Element& e, Place&& place) {
  const double ratio = is_overflow(e) ? 0 : error_ratio(e.actual, e.exact, e.bound);
  if (worst.at.empty() || ratio > worst.error_ratio) {
    worst.error_ratio = ratio;
    worst.bound = e.bound;
    worst.at = place();
  }
  if (ratio == 0) return true;
  const double error = std::isfinite(ratio) ? std::fabs(e.actual - e.exact) : kInfinity;
  worst.max_abs_error = std::max(worst.max_abs_error, error);
  if (e.exact != 0) worst.max_rel_error = std::max(worst.max_rel_error, error / std::fabs(e.exact));
  return ratio <= 1;
}

class Judge {
 public:
  Judge(const PagedRun& run, const StepResult& result) : run_(run), result_(result) {
    if (run.call().lse_base == LseBase::k2) per_nat_ = 1 / std::numbers::ln2;
    for (const std::string& fault : result.faults) judgement_.text += fault + '\n';
    judgement_.out.name = "out";
    if (run.call().return_lse) judgement_.lse.name = "lse";
  }

  void compare(std::size_t request, const Request& part, int nth) {
    const Case& c = run_.call().problem;
    const Request& whole = c.requests[request];
    const int earlier = part.kv_len - part.query_len - (whole.kv_len - whole.query_len);
    for (int i = 0; i < part.query_len * c.num_heads; ++i, ++row_) {
      if (row_ % nth == 0) compare_row(request, part, {i / c.num_heads, i % c.num_heads, earlier});
    }
  }

  Judgement take() {
    constexpr int kMost = 5;
    if (wrong_ > kMost) judgement_.text += fmt::format("{} rows are wrong\n", wrong_);
    return std::move(judgement_);
  }

 private:
  void compare_row(std::size_t request, const Request& part, RowId id) {
    const Case& c = run_.call().problem;
    const Values& values = run_.values()[request];
    OutputRow exact = exact_row(c, part, values, id);
    OutputRow same = same_precision_row(c, part, values, id);
    exact.lse *= per_nat_;
    same.lse *= per_nat_;
    const OutputRow allowed = tolerance(c, exact, same);
    const std::vector<double>& out = result_.out[static_cast<std::size_t>(row_)];
    const auto where = [&] {
      return fmt::format("request {} query {} head {}", request, id.query, id.head);
    };
    std::string text;
    for (std::size_t e = 0; e < out.size(); ++e) {
      const Element element{out[e], exact.out[e], allowed.out[e], c.out_dtype};
      judgement_.out_bounds.push_back(element.bound);
      const auto place = [&] { return fmt::format("{} element {}", where(), e); };
      if (!note(judgement_.out, element, place) && text.empty()) {
        text = fmt::format("element {} is {:.9}, exactly {:.9} +- {:.9} ", e, element.actual,
                           element.exact, element.bound);
      }
    }
    if (run_.call().return_lse) {
      const Element element{result_.lse[static_cast<std::size_t>(row_)], exact.lse, allowed.lse,
                            DType::kF32};
      judgement_.lse_bounds.push_back(element.bound);
      if (!note(judgement_.lse, element, where))
        text += fmt::format("LSE is {:.9}, exactly {:.9} +- {:.9}", element.actual, element.exact,
                            element.bound);
    }
    constexpr int kMost = 5;
    if (!text.empty() && ++wrong_ <= kMost)
      judgement_.text += fmt::format("{}: {}\n", where(), text);
  }

  const PagedRun& run_;
  const StepResult& result_;
  double per_nat_ = 1;
  int row_ = 0, wrong_ = 0;
  Judgement judgement_;
};
}  // namespace

double error_ratio(double actual, double exact, double bound) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : kInfinity;
  if (actual == exact) return 0;
  if (!std::isfinite(exact) || !std::isfinite(actual)) return kInfinity;
  return std::fabs(actual - exact) / bound;
}

Judgement judge(const PagedRun& run, const StepResult& result, const std::vector<Request>& requests,
                int nth) {
  Judge all(run, result);
  for (std::size_t r = 0; r < requests.size(); ++r) all.compare(r, requests[r], nth);
  return all.take();
}

std::string check(const PagedRun& run, const StepResult& result, int nth) {
  return judge(run, result, run.call().problem.requests, nth).text;
}

}  // namespace fovea::conformance
