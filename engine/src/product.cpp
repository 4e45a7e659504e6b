// SPDX-License-Identifier: Apache-2.0
#include "product.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fovea/base/device.h"
#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) throw DeviceError(call, static_cast<int>(status), "oneDNN failed");
}

}  // namespace

SingleThreadedOmp::SingleThreadedOmp() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}
SingleThreadedOmp::~SingleThreadedOmp() {
  if (before_ != 1) omp_set_num_threads(before_);
}

Product::Product(const dnnl::matmul::primitive_desc& description, int num_workers)
    : primitive_(description) {
  const dnnl::engine engine = description.get_engine();
  for (int i = 0; i < num_workers; ++i) {
    Buffer scratch(description.scratchpad_desc().get_size());
    void* const address = scratch.data();
    workers_.push_back({dnnl::stream(engine), dnnl::memory(description.src_desc(), engine, nullptr),
                        dnnl::memory(description.dst_desc(), engine, nullptr),
                        dnnl::memory(description.scratchpad_desc(), engine, address),
                        std::move(scratch)});
  }
}

// Through oneDNN's C interface: the C++ one builds a map for every call.
void Product::run(int worker, const void* x, const dnnl::memory& weights, float* y) {
  const SingleThreadedOmp single;
  const Worker& w = workers_[static_cast<std::size_t>(worker)];
  check(dnnl_memory_set_data_handle(w.x.get(), const_cast<void*>(x)), "set_data_handle");
  check(dnnl_memory_set_data_handle(w.y.get(), y), "set_data_handle");
  const std::array<dnnl_exec_arg_t, 4> args{{{DNNL_ARG_SRC, w.x.get()},
                                             {DNNL_ARG_WEIGHTS, weights.get()},
                                             {DNNL_ARG_DST, w.y.get()},
                                             {DNNL_ARG_SCRATCHPAD, w.scratch.get()}}};
  check(dnnl_primitive_execute(primitive_.get(), w.stream.get(), static_cast<int>(args.size()),
                               args.data()),
        "matmul");
}

ProductCache::ProductCache(DType dtype, int num_workers, std::size_t capacity)
    : dtype_(dtype),
      num_workers_(num_workers),
      capacity_(capacity),
      engine_(dnnl::engine::kind::cpu, 0) {}

dnnl::memory::data_type ProductCache::weight_type() const {
  return dtype_ == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::matmul::primitive_desc ProductCache::describe(const ProductShape& shape,
                                                    const Desc& weights) const {
  const Desc x({shape.rows, shape.in}, weight_type(), Tag::ab);
  const Desc y({shape.rows, shape.out}, dnnl::memory::data_type::f32, Tag::ab);
  dnnl::primitive_attr attributes;
  // Scratch memory is ours, so that one primitive can run in several threads at once.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {dnnl::matmul::desc(x, weights, y), attributes, engine_};
}

Desc ProductCache::packed_weights(std::int64_t in, std::int64_t out) const {
  // Any small number of rows: the choice of the order does not look at it.
  constexpr std::int64_t kRows = 16;
  const SingleThreadedOmp single;
  try {
    return describe({kRows, in, out}, Desc({in, out}, weight_type(), Tag::any)).weights_desc();
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw DeviceError("matmul", e.status, e.what());
    throw ConfigError("weights", name_of(dtype_), "f32",
                      "this machine (" + name_of(Device::host()) + ") has no such product");
  }
}

std::uint64_t ProductCache::hash_of(const ProductShape& shape) {
  std::uint64_t hash = 0;
  for (const std::int64_t extent : {shape.rows, shape.in, shape.out})
    hash = (hash ^ static_cast<std::uint64_t>(extent)) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

void ProductCache::drop_oldest() {
  const auto last_use = [](const auto& e) { return e.second.last_use; };
  entries_.erase(std::ranges::min_element(entries_, {}, last_use));
}

Product& ProductCache::get(const ProductShape& shape, const Desc& weights) {
  ++clock_;
  const std::uint64_t hash = hash_of(shape);
  const auto [first, last] = entries_.equal_range(hash);
  const auto found = std::find_if(first, last, [&](const auto& e) {
    return e.second.shape == shape && e.second.weights == weights;
  });
  if (found != last) {
    found->second.last_use = clock_;
    return *found->second.product;
  }
  const SingleThreadedOmp single;
  try {
    Entry made{shape, weights, std::make_unique<Product>(describe(shape, weights), num_workers_),
               clock_};
    ++num_compiled_;
    if (entries_.size() == capacity_) drop_oldest();
    return *entries_.emplace(hash, std::move(made))->second.product;
  } catch (const dnnl::error& e) {
    throw DeviceError("matmul", e.status, e.what());
  }
}

}  // namespace fovea::engine
