// SPDX-License-Identifier: Apache-2.0
#include "linear.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "divide.h"
#include "fovea/base/buffer.h"
#include "fovea/base/error.h"
#include "product.h"

namespace fovea::engine {
namespace {

using Desc = dnnl::memory::desc;

// Columns of the product that are packed together; slices begin at multiples of it.
constexpr std::int64_t kBlockColumns = 64;
// More slices than workers: the fast ones take over from one whose core is shared.
constexpr std::int64_t kSlicesPerWorker = 2;
// Up to so many rows a worker, the workers share the columns, so that each weight is read once;
// beyond, each takes rows of its own.
constexpr std::int64_t kSharedRowsPerWorker = 32;
constexpr std::int64_t kMaxTileRows = 128;
constexpr std::size_t kMaxProducts = 512;

// Batches come in all sizes, and compiling a product takes about as long as a step: they are
// compiled for some numbers of rows only, and rows of padding make up for the difference. Fewer
// where the workers share the columns, because each shape is then several products.
std::int64_t compiled_rows(std::int64_t rows) {
  const std::int64_t unit = rows <= 4 ? 1 : rows <= 16 ? 4 : 8;
  return divide_up(rows, unit) * unit;
}
std::int64_t compiled_height(std::int64_t rows) { return divide_up(rows, 4) * 4; }

// Rows [begin, end) of the sources, stacked.
void read_rows(std::span<const MatrixSource> sources, std::int64_t begin, std::int64_t end,
               std::span<float> out) {
  std::int64_t first = 0;
  for (const MatrixSource& source : sources) {
    const std::int64_t from = std::max(begin, first), to = std::min(end, first + source.rows);
    if (from < to) {
      const auto offset = static_cast<std::size_t>((from - begin) * source.columns);
      const auto count = static_cast<std::size_t>((to - from) * source.columns);
      source.read(from - first, to - first, out.subspan(offset, count));
    }
    first += source.rows;
  }
}

// Memory of packed weights in large chunks, on huge pages where the system has them: a step reads
// all weights once, and with small pages it would wait for address translation.
class WeightMemory {
 public:
  // Aligned to 64; lives as long as this.
  std::byte* allocate(std::size_t bytes) {
    bytes = (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
    if (bytes > left_) add_chunk(std::max(bytes, kChunkBytes));
    std::byte* const memory = chunks_.back().data() + chunks_.back().size() - left_;
    left_ -= bytes;
    return memory;
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{1} << 21, kChunkBytes = 16 * kHugePage;

  void add_chunk(std::size_t bytes) {
    Buffer& chunk = chunks_.emplace_back(bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(chunk.data());
    const std::size_t skipped = (kHugePage - address % kHugePage) % kHugePage;
    // Only a wish: without it everything is right, but slower.
    if (bytes > skipped) madvise(chunk.data() + skipped, bytes - skipped, MADV_HUGEPAGE);
    left_ = bytes;
  }

  std::vector<Buffer> chunks_;
  std::size_t left_ = 0;  // at the end of the last chunk
};

}  // namespace

struct LinearContext::State {
  Executor* executor;
  ProductCache products;
  WeightMemory memory;
  // Of each worker: a slice of columns, dense, before it is copied to its place. oneDNN's fast
  // products write no other form.
  std::vector<Buffer> slices;
  Buffer padded_x, padded_y;  // of the rows that have padding behind them

  // At least so large; what it held is lost.
  static std::byte* grown(Buffer& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer = Buffer(bytes);
    return buffer.data();
  }
  // The rows with others behind them that belong to nobody.
  const std::byte* pad(const std::byte* x, std::size_t rows_bytes, std::size_t padded_bytes) {
    if (rows_bytes == padded_bytes) return x;
    std::byte* const padded = grown(padded_x, padded_bytes);
    std::memcpy(padded, x, rows_bytes);
    return padded;
  }
};

LinearContext::LinearContext(Executor& executor, DType dtype)
    : state_(new State{
          &executor, ProductCache(dtype, executor.num_workers(), kMaxProducts), {}, {}, {}, {}}) {
  // Throws if there is no such product.
  state_->products.packed_weights(kBlockColumns, kBlockColumns);
  state_->slices.resize(static_cast<std::size_t>(executor.num_workers()));
}
LinearContext::~LinearContext() = default;
Executor& LinearContext::executor() const { return *state_->executor; }
DType LinearContext::dtype() const { return state_->products.dtype(); }
std::int64_t LinearContext::num_compiled() const { return state_->products.num_compiled(); }

struct Linear::State {
  struct Slice {
    std::int64_t begin, end;  // columns
    dnnl::memory weights;
    Product* product = nullptr;  // of the call that runs
  };
  LinearContext* context;
  std::int64_t in = 0, out = 0;
  std::byte* bytes = nullptr;  // the packed weights, in the context's memory
  std::size_t num_bytes = 0;
  dnnl::memory weights;
  std::vector<Slice> slices;

  ProductCache& products() const { return context->state_->products; }
  std::size_t row_bytes(std::int64_t rows) const {
    return static_cast<std::size_t>(rows * in) * size_of(context->dtype());
  }
  // Columns [begin, end) of the packed weights, as an object of their own.
  dnnl::memory columns(const Desc& packed, std::int64_t begin, std::int64_t end) const;
  void pack(std::span<const MatrixSource> sources, const Desc& packed);
  void share_columns(const std::byte* x, std::int64_t rows, float* y);
  void share_rows(const std::byte* x, std::int64_t rows, float* y);
};

dnnl::memory Linear::State::columns(const Desc& packed, std::int64_t begin,
                                    std::int64_t end) const {
  Desc part = packed.submemory_desc({in, end - begin}, {0, begin});
  std::byte* start =
      bytes + static_cast<std::size_t>(part.data.offset0) * size_of(context->dtype());
  part.data.offset0 = 0;
  return {part, products().engine(), start};
}

// A piece is one block of columns: its rows of W are read, rounded and put in their place.
void Linear::State::pack(std::span<const MatrixSource> sources, const Desc& packed) {
  const DType dtype = context->dtype();
  if (packed.get_size() > static_cast<std::size_t>(in * out) * size_of(dtype))
    std::memset(bytes, 0, num_bytes);  // what pads odd sizes is read by the products
  const auto piece = static_cast<std::size_t>(in * kBlockColumns);
  const auto pieces = static_cast<int>(divide_up(out, kBlockColumns));
  parallel_for(context->executor(), pieces, [&](int item, int) {
    const SingleThreadedOmp single;
    const std::int64_t begin = item * kBlockColumns, end = std::min(out, begin + kBlockColumns);
    const auto count = static_cast<std::size_t>((end - begin) * in);
    std::vector<float> values(piece);
    std::vector<BFloat16> rounded;
    read_rows(sources, begin, end, std::span(values).first(count));
    void* from = values.data();
    if (dtype == DType::kBF16) {
      rounded.resize(piece);
      std::ranges::transform(values, rounded.begin(), from_float<BFloat16>);
      from = rounded.data();
    }
    // Rows of W are columns of the product's right side.
    const Desc order({in, end - begin}, products().weight_type(), dnnl::memory::format_tag::ba);
    dnnl::memory source(order, products().engine(), from);
    dnnl::memory target = columns(packed, begin, end);
    dnnl::stream stream(products().engine());
    dnnl::reorder(source, target).execute(stream, source, target);
  });
}

Linear::Linear(LinearContext& context, std::span<const MatrixSource> sources)
    : state_(new State{&context, 0, 0, nullptr, 0, {}, {}}) {
  State& s = *state_;
  s.in = sources.empty() ? 0 : sources.front().columns;
  for (const MatrixSource& source : sources) {
    if (source.columns != s.in)
      throw InputError("columns", std::to_string(source.columns), std::to_string(s.in));
    s.out += source.rows;
  }
  if (s.in <= 0 || s.out <= 0) throw InputError("matrix", "no elements", "at least one row");
  try {
    const Desc packed = s.products().packed_weights(s.in, s.out);
    s.num_bytes = packed.get_size();
    s.bytes = context.state_->memory.allocate(s.num_bytes);
    s.pack(sources, packed);
    const SingleThreadedOmp single;
    s.weights = s.columns(packed, 0, s.out);
    const std::int64_t blocks = divide_up(s.out, kBlockColumns);
    const std::int64_t slices =
        std::min(blocks, kSlicesPerWorker * context.executor().num_workers());
    for (std::int64_t i = 0; i < slices; ++i) {
      const std::int64_t begin = blocks * i / slices * kBlockColumns;
      const std::int64_t end = std::min(s.out, blocks * (i + 1) / slices * kBlockColumns);
      s.slices.push_back({begin, end, s.columns(packed, begin, end), nullptr});
    }
  } catch (const dnnl::error& e) {
    throw DeviceError("pack", e.status, e.what());
  }
}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
std::int64_t Linear::in_features() const { return state_->in; }
std::int64_t Linear::out_features() const { return state_->out; }
std::int64_t Linear::bytes() const { return static_cast<std::int64_t>(state_->num_bytes); }

// The workers share the columns. A slice is computed into dense memory of its own and copied.
void Linear::State::share_columns(const std::byte* x, std::int64_t rows, float* y) {
  const std::int64_t padded = compiled_rows(rows);
  std::int64_t widest = 0;
  for (Slice& slice : slices) {
    const std::int64_t width = slice.end - slice.begin;
    slice.product = &products().get({padded, in, width}, slice.weights.get_desc());
    widest = std::max(widest, width);
  }
  x = context->state_->pad(x, row_bytes(rows), row_bytes(padded));
  const bool in_place = rows == 1 || (slices.size() == 1 && padded == rows);
  const auto needed = static_cast<std::size_t>(padded * widest) * sizeof(float);
  for (Buffer& buffer : context->state_->slices)
    if (!in_place) LinearContext::State::grown(buffer, needed);
  parallel_for(context->executor(), static_cast<int>(slices.size()), [&](int item, int worker) {
    const Slice& slice = slices[static_cast<std::size_t>(item)];
    if (in_place) return slice.product->run(worker, x, slice.weights, y + slice.begin);
    auto* dense =
        reinterpret_cast<float*>(context->state_->slices[static_cast<std::size_t>(worker)].data());
    slice.product->run(worker, x, slice.weights, dense);
    const std::int64_t width = slice.end - slice.begin;
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(dense + row * width, width, y + row * out + slice.begin);
  });
}

// The workers share the rows, in tiles of nearly equal height.
void Linear::State::share_rows(const std::byte* x, std::int64_t rows, float* y) {
  const std::int64_t workers = context->executor().num_workers();
  const std::int64_t wanted = divide_up(divide_up(rows, kMaxTileRows), workers) * workers;
  const std::int64_t height = compiled_height(divide_up(rows, wanted));
  const std::int64_t tiles = divide_up(rows, height), last_row = (tiles - 1) * height;
  const std::int64_t last_height = rows - last_row, padded = compiled_height(last_height);
  Product& full = products().get({height, in, out}, weights.get_desc());
  Product& last = products().get({padded, in, out}, weights.get_desc());
  const std::byte* const last_x =
      context->state_->pad(x + row_bytes(last_row), row_bytes(last_height), row_bytes(padded));
  float* last_y = y + last_row * out;
  if (padded != last_height)
    last_y = reinterpret_cast<float*>(LinearContext::State::grown(
        context->state_->padded_y, static_cast<std::size_t>(padded * out) * sizeof(float)));
  parallel_for(context->executor(), static_cast<int>(tiles), [&](int item, int worker) {
    const std::int64_t row = item * height;
    if (item + 1 < tiles) return full.run(worker, x + row_bytes(row), weights, y + row * out);
    last.run(worker, last_x, weights, last_y);
    if (padded != last_height) std::copy_n(last_y, last_height * out, y + last_row * out);
  });
}

void Linear::forward(const TensorView& x, const TensorView& y) const {
  State& s = *state_;
  const DType type = s.context->dtype(), result = DType::kF32;
  const std::array<std::int64_t, 2> x_shape{-1, s.in}, y_shape{x.ndim() > 0 ? x.size(0) : 0, s.out};
  check_tensor(x, {.argument = "x", .dtypes = {&type, 1}, .shape = x_shape});
  check_tensor(y, {.argument = "y", .dtypes = {&result, 1}, .shape = y_shape});
  if (!x.is_dense()) throw InputError("x", describe(x), "a dense tensor");
  if (!y.is_dense()) throw InputError("y", describe(y), "a dense tensor");
  const std::int64_t rows = x.size(0);
  if (rows == 0) return;
  const bool share_columns = rows <= kSharedRowsPerWorker * s.context->executor().num_workers();
  if (share_columns)
    s.share_columns(x.data_as<const std::byte>(), rows, y.data_as<float>());
  else
    s.share_rows(x.data_as<const std::byte>(), rows, y.data_as<float>());
}

}  // namespace fovea::engine
