// SPDX-License-Identifier: Apache-2.0
// exp and tanh on vectors of float or double, for any Simd.
//
// exp(x) = 2^n · e^r with n = round(x / ln 2) and r = x - n · ln 2 in [-0.347, 0.347]. ln 2 is
// taken in two parts, the first of so few bits that n times it is exact; so the reduced argument is
// good to its last bit with or without a fused multiply-add. e^r = 1 + r + r² q(r), q fitted to the
// least greatest relative error; what remains in float is rounding, below one unit in the last
// place. Results below the smallest normal number become 0: there is no term of a softmax for which
// that could be seen, and no subnormal number slows down the products.
//
// tanh(y) = y + y³ p(y²) up to |y| = 0.55; beyond, 1 - 2e / (1 + e) with e = exp(-2|y|), where the
// subtraction loses nothing.
#pragma once

namespace fovea::cpu {

template <class Number>
struct Constants;

template <>
struct Constants<float> {
  static constexpr float kLowest = -3.40282347e38F;  // the least finite number
  static constexpr float kExpLowest = -87.0F;
  static constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  // Relative errors 3e-9 and 1e-9. Highest power first.
  static constexpr float kExp[] = {0.00138145401791F, 0.00836874510887F, 0.0416683907835F,
                                   0.16666520399F, 0.499999934321F};
  static constexpr float kTanh[] = {-0.00627423944188F, 0.0210716789363F, -0.0538523098604F,
                                    0.133325861377F, -0.333333175596F};
};

template <>
struct Constants<double> {
  static constexpr double kLowest = -1.7976931348623157e308;
  static constexpr double kExpLowest = -708.0;
  static constexpr double kLn2High = 0.693147180369123816490, kLn2Low = 1.90821492927058770002e-10;
  // Relative errors 2e-14 and 7e-16.
  static constexpr double kExp[] = {2.7493061437576567302e-6,  0.000024880809902423172636,
                                    0.00019841539097521325961, 0.001388881114462293293,
                                    0.0083333330950861736728,  0.041666666962242379038,
                                    0.16666666667265213547,    0.49999999999664310173};
  static constexpr double kTanh[] = {
      -0.00013354096352008558978, 0.00053012212290840732611, -0.001435922979135154486,
      0.0035880431155808296621,   -0.0088627129601828703065, 0.021869447878009364248,
      -0.053968252170725014981,   0.13333333329424856337,    -0.33333333333303996545};
};

template <class S, int kTerms>
typename S::V polynomial(const typename S::Number (&coefficients)[kTerms], typename S::V x) {
  auto sum = S::set(coefficients[0]);
#pragma GCC unroll 8
  for (int i = 1; i < kTerms; ++i) sum = S::fma(sum, x, S::set(coefficients[i]));
  return sum;
}

template <class S>
typename S::V exp(typename S::V x) {
  using C = Constants<typename S::Number>;
  const auto lowest = S::set(C::kExpLowest);
  const auto bounded = S::max(lowest, x);  // a NaN stays
  const auto n = S::round(S::mul(bounded, S::set(1.44269504088896341F)));
  auto r = S::fnma(n, S::set(C::kLn2High), bounded);
  r = S::fnma(n, S::set(C::kLn2Low), r);
  const auto q = polynomial<S>(C::kExp, r);
  const auto e = S::add(S::fma(S::mul(r, r), q, r), S::set(1));
  return S::select_less(x, lowest, S::zero(), S::scale_by_power(e, n));
}

template <class S>
typename S::V tanh(typename S::V y) {
  using C = Constants<typename S::Number>;
  const auto magnitude = S::abs(y), one = S::set(1), square = S::mul(y, y);
  const auto small = S::fma(S::mul(square, y), polynomial<S>(C::kTanh, square), y);
  const auto e = exp<S>(S::mul(magnitude, S::set(-2)));
  const auto large = S::sub(one, S::div(S::add(e, e), S::add(one, e)));
  return S::select_less(magnitude, S::set(typename S::Number(0.55)), small, S::copy_sign(large, y));
}

}  // namespace fovea::cpu
