// SPDX-License-Identifier: Apache-2.0
// The architectures once more, in float64 and plain loops over the whole prompt, without a cache:
// what TinyModel's files mean.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "tiny_model.h"

namespace fovea::engine::test {

class TinyTransformer {
 public:
  explicit TinyTransformer(const TinyModel& model) : m_(model) {}

  // Logits of every position.
  std::vector<std::vector<double>> logits(std::span<const std::int32_t> tokens) const {
    std::vector<std::vector<double>> x;
    for (const std::int32_t token : tokens) x.push_back(row("token_embd.weight", token));
    if (m_.gemma)
      for (Vector& v : x)
        for (double& value : v) value *= std::sqrt(double(m_.width));
    for (int i = 0; i < m_.layers; ++i) block(i, x);
    const char* output = m_.own_output ? "output.weight" : "token_embd.weight";
    for (auto& v : x) v = times(output, norm(v, "output_norm.weight"));
    return x;
  }

 private:
  using Vector = std::vector<double>;

  const std::vector<float>& tensor(const std::string& name) const { return m_.tensors.at(name); }
  Vector row(const std::string& name, int index) const {
    const auto* from = tensor(name).data() + index * m_.width;
    return {from, from + m_.width};
  }
  Vector times(const std::string& name, const Vector& x) const {
    const std::vector<float>& w = tensor(name);
    Vector y(w.size() / x.size());
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t c = 0; c < x.size(); ++c) y[r] += double{w[r * x.size() + c]} * x[c];
    return y;
  }
  Vector norm(Vector x, const std::string& name) const {
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * double{tensor(name)[i]};
    return x;
  }
  bool has_window(int layer) const {
    return m_.gemma && (layer + 1) % (m_.pattern > 0 ? m_.pattern : 6) != 0;
  }
  void norm_heads(Vector& heads, const std::string& name) const {
    const auto size = static_cast<std::ptrdiff_t>(m_.head_size);
    for (auto head = heads.begin(); head != heads.end(); head += size)
      std::ranges::copy(norm(Vector(head, head + size), name), head);
  }
  void rotate(Vector& heads, double position, double base) const {
    for (std::size_t head = 0; head < heads.size(); head += static_cast<std::size_t>(m_.head_size))
      for (int i = 0; i < m_.rotated / 2; ++i) {
        const auto factor = m_.rope_factors.empty() ? 1.0F : m_.rope_factors[std::size_t(i)];
        const double angle = position * std::pow(base, -2.0 * i / m_.rotated) / factor;
        double& a = heads[head + std::size_t(m_.gemma ? i : 2 * i)];
        double& b = heads[head + std::size_t(m_.gemma ? i + m_.rotated / 2 : 2 * i + 1)];
        const double x = a, y = b;
        a = x * std::cos(angle) - y * std::sin(angle);
        b = x * std::sin(angle) + y * std::cos(angle);
      }
  }
  // One head of one query over the keys so far; adds to out.
  void attend(const Vector& q, std::span<const Vector> k, std::span<const Vector> v, int head,
              Vector& out) const {
    const auto size = static_cast<std::size_t>(m_.head_size);
    const auto at = static_cast<std::size_t>(head) * size;
    const auto kv_at = static_cast<std::size_t>(head / (m_.heads / m_.kv_heads)) * size;
    Vector weights;
    double sum = 0;
    for (const Vector& key : k) {
      double dot = 0;
      for (std::size_t i = 0; i < size; ++i) dot += q[at + i] * key[kv_at + i];
      weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(size))));
      sum += weights.back();
    }
    for (std::size_t t = 0; t < v.size(); ++t)
      for (std::size_t i = 0; i < size; ++i) out[at + i] += weights[t] / sum * v[t][kv_at + i];
  }
  static double gelu(double g) {
    return g / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g)));
  }
  double activated(double g) const { return m_.gemma ? gelu(g) : g / (1 + std::exp(-g)); }
  Vector after(Vector x, const std::string& name) const { return m_.gemma ? norm(x, name) : x; }
  void block(int layer, std::vector<Vector>& x) const {
    const std::string p = "blk." + std::to_string(layer) + ".";
    const bool windowed = has_window(layer);
    const double local = m_.local_rope_base > 0 ? m_.local_rope_base : 10000;
    const double base = windowed ? local : m_.rope_base;
    const double factor = !windowed && m_.full_rope_factor > 0 ? m_.full_rope_factor : 1;
    std::vector<Vector> k, v;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Vector h = norm(x[t], p + "attn_norm.weight");
      Vector q = times(p + "attn_q.weight", h);
      k.push_back(times(p + "attn_k.weight", h));
      v.push_back(times(p + "attn_v.weight", h));
      if (m_.gemma) {
        norm_heads(q, p + "attn_q_norm.weight");
        norm_heads(k.back(), p + "attn_k_norm.weight");
      }
      rotate(q, static_cast<double>(t) / factor, base);
      rotate(k.back(), static_cast<double>(t) / factor, base);
      Vector attended(q.size());
      const std::size_t first =
          windowed && t + 1 > std::size_t(m_.window) ? t + 1 - std::size_t(m_.window) : 0;
      for (int head = 0; head < m_.heads; ++head)
        attend(q, std::span(k).subspan(first), std::span(v).subspan(first), head, attended);
      add(x[t], after(times(p + "attn_output.weight", attended), p + "post_attention_norm.weight"));
    }
    for (Vector& token : x) {
      const Vector h = norm(token, p + "ffn_norm.weight");
      Vector gate = times(p + "ffn_gate.weight", h);
      const Vector up = times(p + "ffn_up.weight", h);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activated(gate[i]) * up[i];
      add(token, after(times(p + "ffn_down.weight", gate), p + "post_ffw_norm.weight"));
    }
  }
  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const TinyModel& m_;
};

}  // namespace fovea::engine::test
