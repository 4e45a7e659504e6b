// SPDX-License-Identifier: Apache-2.0
// Bad options of builders, names of backends, and words and sizes of caches.
#include <gtest/gtest.h>

#include <memory>

#include "fovea/attention/host_batch.h"
#include "fovea/kv/block_table.h"
#include "select/bad_configurations.h"

namespace fovea::testing {
namespace {

class Workers final : public Executor {
 public:
  explicit Workers(int count) : count_(count) {}
  int num_workers() const override { return count_; }
  void run(int, Task) override { throw std::logic_error("a check ran something"); }

 private:
  int count_;
};

// Options of a builder of the backend cpu.
template <class F>
std::function<Refused()> builder(F change, int num_workers = 1) {
  return [change, num_workers] {
    BuilderOptions options{.key = {.backend = "cpu",
                                   .num_heads = 9,
                                   .num_kv_heads = 3,
                                   .head_size = 64,
                                   .head_size_v = 64,
                                   .block_size = {16}},
                           .bounds = {.max_num_reqs = 2, .max_num_tokens = 8, .max_model_len = 64}};
    change(options);
    const Registry registry = Registry::builtin();
    Workers workers(num_workers);
    return thrown_by([&] { registry.find("cpu").make_builder(options, Context{&workers}); });
  };
}

std::function<Refused()> kv_word(const char* word) {
  return [word] { return thrown_by([word] { parse_kv_dtype(word, DType::kBF16); }); };
}
std::function<Refused()> layout_word(const char* word) {
  return [word] { return thrown_by([word] { parse_cache_layout(word); }); };
}
std::function<Refused()> preferred(const char* name) {
  return [name] {
    return thrown_by(
        [name] { select(Registry::builtin(), Problem{}, Device{}, {.names = {name}}); });
  };
}

// The page of a cache.
template <class F>
std::function<Refused()> page(F change) {
  return [change] {
    SplitKV format{8, 128, 128, KVDType::kBF16};
    KVCacheSpec spec{.block_size = {16}};
    change(spec, format);
    spec.format = format;
    return thrown_by([&] { (void)page_size_bytes(spec); });
  };
}

const Bad kBuilders[] = {
    {"no heads", builder([](BuilderOptions& o) { o.key.num_heads = 0; }),
     "invalid value: key.num_heads: 0, expected at least 1 (take the key from AttentionLayer)"},
    {"KV heads that do not divide", builder([](BuilderOptions& o) { o.key.num_kv_heads = 2; }),
     "invalid value: key.num_kv_heads: 2, expected a divisor of num_heads = 9 (take the key from "
     "AttentionLayer)"},
    {"no head size", builder([](BuilderOptions& o) { o.key.head_size = -1; }),
     "invalid value: key.head_size: -1, expected at least 1 (take the key from AttentionLayer)"},
    {"a head size of no row", builder([](BuilderOptions& o) { o.key.head_size = 600; }),
     "invalid value: key: heads 9/3 of 600/64, kv_dtype f32, blocks of 16, expected the key of a "
     "layer of this backend (take the key from AttentionLayer)"},
    {"no block size", builder([](BuilderOptions& o) { o.key.block_size = {0}; }),
     "invalid value: key.block_size: 0, expected at least 1 (take the key from AttentionLayer)"},
    {"a side of the window", builder([](BuilderOptions& o) { o.key.mask.left = -2; }),
     "invalid value: key.mask.left: -2, expected at least -1 (take the key from AttentionLayer)"},
    {"no requests", builder([](BuilderOptions& o) { o.bounds.max_num_reqs = 0; }),
     "invalid value: max_num_reqs: 0, expected at least 1 (give the most requests of a step)"},
    {"negative tokens", builder([](BuilderOptions& o) { o.bounds.max_num_tokens = -8; }),
     "invalid value: max_num_tokens: -8, expected at least 1 (give the most query tokens of a "
     "step)"},
    {"no length", builder([](BuilderOptions& o) { o.bounds.max_model_len = 0; }),
     "invalid value: max_model_len: 0, expected at least 1 (give the most tokens of a request)"},
    {"nothing at all", builder([](BuilderOptions& o) { o = {}; }),
     "invalid value:\n"
     "key.num_heads: 0, expected at least 1 (take the key from AttentionLayer)\n"
     "key.num_kv_heads: 0, expected at least 1 (take the key from AttentionLayer)\n"
     "key.head_size: 0, expected at least 1 (take the key from AttentionLayer)\n"
     "key.head_size_v: 0, expected at least 1 (take the key from AttentionLayer)\n"
     "key.block_size: 0, expected at least 1 (take the key from AttentionLayer)\n"
     "max_num_reqs: 0, expected at least 1 (give the most requests of a step)\n"
     "max_num_tokens: 0, expected at least 1 (give the most query tokens of a step)\n"
     "max_model_len: 0, expected at least 1 (give the most tokens of a request)"},
    {"no workers", builder([](BuilderOptions&) {}, 0),
     "invalid value: executor.num_workers: 0, expected 1 to 65536 (use a ThreadPool of "
     "Device::host().num_cores, or no executor)"},
    {"a batch of no size", [] { return thrown_by([] { HostBatch batch(-1); }); },
     "invalid value: max_num_reqs: -1, expected a number from 0 on (give the most requests of one "
     "step)"},
    {"a pool of no threads", [] { return thrown_by([] { ThreadPool pool(0); }); },
     "invalid value: num_workers: 0, expected 1 to 1024 (use Device::host().num_cores)"},
};

const Bad kNames[] = {
    {"an unknown backend", preferred("NOPE"),
     "invalid value: backend: unknown name 'NOPE', expected cpu, cpu_reference (name one of these, "
     "or none to have one chosen)"},
    {"a backend that is nearly right", preferred("cpu_refrence"),
     "invalid value: backend: unknown name 'cpu_refrence', expected cpu, cpu_reference (did you "
     "mean 'cpu_reference'? name one of these, or none to have one chosen)"},
    {"a backend in capitals", preferred("CPU"),
     "invalid value: backend: unknown name 'CPU', expected cpu, cpu_reference (did you mean 'cpu'? "
     "name one of these, or none to have one chosen)"},
    {"no backend's name", preferred(""),
     "invalid value: backend: unknown name '', expected cpu, cpu_reference (name one of these, or "
     "none to have one chosen)"},
    {"a name from an empty registry",
     [] { return thrown_by([] { (void)Registry{}.find("cpu"); }); },
     "invalid value: backend: unknown name 'cpu', expected nothing: the registry is empty (add a "
     "backend to the registry)"},
    {"a name twice",
     [] {
       const FakeBackend a("a", {plain_row()}), again("a", {plain_row()});
       return thrown_by([&] { Registry{}.add(a).add(again); });
     },
     "invalid value: backend: 'a' a second time, expected a name besides a (rename one of the two, "
     "or use a registry without the other)"},
    {"no name",
     [] {
       const FakeBackend empty("", {plain_row()});
       return thrown_by([&] { Registry{}.add(empty); });
     },
     "invalid value: backend: an empty name, expected a name (let its name() return one)"},
    {"a layer without backends",
     [] {
       return thrown_by(
           [] { make_layer({.num_heads = 1, .head_size = 8}, Registry{}, Device{}, Context{}); });
     },
     "unsupported configuration: backend: any, expected nothing: the registry is empty (add a "
     "backend to the registry)"},
    {"a backend is required, but none named",
     [] {
       return thrown_by([] {
         make_layer({.num_heads = 1, .head_size = 8}, Registry::builtin(), Device{}, Context{},
                    {.required = true});
       });
     },
     "unsupported configuration: backend: one by name, but none is named, expected one of 2 by "
     "name (name a backend, or let any be chosen)"},
};

const Bad kWords[] = {
    {"an unknown cache type", kv_word("fp9"),
     "invalid value: kv_cache_dtype: fp9, expected auto, f32, float32, float, f16, float16, half, "
     "bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, int8, fp8_per_token_head, "
     "int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla (did you mean 'fp8'? auto stores "
     "the type of keys and values)"},
    {"a cache type that is nearly right", kv_word("fp8e4m3"),
     "invalid value: kv_cache_dtype: fp8e4m3, expected auto, f32, float32, float, f16, float16, "
     "half, bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, int8, "
     "fp8_per_token_head, int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla (did you mean "
     "'fp8_e4m3'? auto stores the type of keys and values)"},
    {"a cache type in capitals", kv_word("BF16"),
     "invalid value: kv_cache_dtype: BF16, expected auto, f32, float32, float, f16, float16, half, "
     "bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, int8, fp8_per_token_head, "
     "int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla (did you mean 'bf16'? auto stores "
     "the type of keys and values)"},
    {"no cache type", kv_word(""),
     "invalid value: kv_cache_dtype: an empty word, expected auto, f32, float32, float, f16, "
     "float16, half, bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, int8, "
     "fp8_per_token_head, int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla (auto stores "
     "the type of keys and values)"},
    {"a cache type that is far off", kv_word("turbo"),
     "invalid value: kv_cache_dtype: turbo, expected auto, f32, float32, float, f16, float16, "
     "half, bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, int8, "
     "fp8_per_token_head, int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla (auto stores "
     "the type of keys and values)"},
    {"a cache type that is left out", kv_word("turboquant_4bit_nc"),
     "unsupported configuration: kv_cache_dtype: turboquant_4bit_nc, expected auto, f32, float32, "
     "float, f16, float16, half, bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, "
     "int8, fp8_per_token_head, int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla "
     "(turboquant_4bit_nc is left out of this library on purpose; auto stores the type of keys and "
     "values)"},
    {"another one", kv_word("fp8_e4m3fnuz"),
     "unsupported configuration: kv_cache_dtype: fp8_e4m3fnuz, expected auto, f32, float32, float, "
     "f16, float16, half, bf16, bfloat16, fp8_e4m3, fp8, fp8_e5m2, int8_per_token_head, int8, "
     "fp8_per_token_head, int4_per_token_head, int4, nvfp4, nvfp4_4over6, fp8_ds_mla (fp8_e4m3fnuz "
     "is left out of this library on purpose; auto stores the type of keys and values)"},
    {"an automatic cache type of integers",
     [] { return thrown_by([] { parse_kv_dtype("auto", DType::kI32); }); },
     "invalid value: kv_cache_dtype: int32, expected f32, f16, bf16 (choose the cache's format by "
     "name)"},
    {"an unknown layout", layout_word("NCHW"),
     "invalid value: cache_layout: NCHW, expected NHD, HND, LBHNC, LBNHC, LHBNC, BLHNC, BLNHC, "
     "BHLNC (NHD is token-major, HND head-major)"},
    {"a layout in small letters", layout_word("nhd"),
     "invalid value: cache_layout: nhd, expected NHD, HND, LBHNC, LBNHC, LHBNC, BLHNC, BLNHC, "
     "BHLNC (did you mean 'NHD'? NHD is token-major, HND head-major)"},
    {"no layout", layout_word(""),
     "invalid value: cache_layout: an empty word, expected NHD, HND, LBHNC, LBNHC, LHBNC, BLHNC, "
     "BLNHC, BHLNC (NHD is token-major, HND head-major)"},
};

const Bad kPages[] = {
    {"no KV heads", page([](KVCacheSpec&, SplitKV& f) { f.num_kv_heads = 0; }),
     "invalid value: num_kv_heads: 0, expected at least 1 (give the model's number of KV heads)"},
    {"a head size that a format cannot store",
     page([](KVCacheSpec&, SplitKV& f) { f = {8, 72, 64, KVDType::kNvfp4}; }),
     "invalid value: head_size: 72, expected a positive multiple of 16 for nvfp4 (pad the heads "
     "with zeros to 80, or store the cache in another format)"},
    {"no head size", page([](KVCacheSpec&, SplitKV& f) { f.head_size = 0; }),
     "invalid value: head_size: 0, expected a positive number (give the model's head size)"},
    {"MLA records of other heads",
     page([](KVCacheSpec&, SplitKV& f) { f = {1, 128, 128, KVDType::kFp8DsMla}; }),
     "invalid value: head_size: 128 and 128 for values, expected 576 and 0 for fp8_ds_mla (store "
     "the cache in another format)"},
    {"no tokens in a block", page([](KVCacheSpec& s, SplitKV&) { s.block_size = {0}; }),
     "invalid value: block_size: 0, expected at least 1 (use 16, the usual size)"},
    {"padding that is too small",
     page([](KVCacheSpec& s, SplitKV&) { s.page_size_padded = 65535; }),
     "invalid value: page_size_padded: 65535, expected at least the content of a page, 65536 bytes "
     "(leave it at 0 for no padding)"},
    {"kernel blocks that do not divide",
     [] { return thrown_by([] { (void)kernel_blocks_per_manager_block({16}, {5}); }); },
     "invalid value: kernel_block_size: 5, expected a divisor of the manager block size 16 (use 16 "
     "for both)"},
    {"no layers",
     [] {
       return thrown_by([] {
         (void)make_paged_layout({.format = SplitKV{1, 8, 8}, .block_size = {16}},
                                 CacheLayout::kLBNHC, 0, -1);
       });
     },
     "invalid value:\n"
     "num_layers: 0, expected at least 1 (give the number of layers that share the cache)\n"
     "num_blocks: -1, expected at least 1 (give the blocks that the memory holds)"},
    {"a table of no width", [] { return thrown_by([] { (void)block_table_width(0, {16}); }); },
     "invalid value: max_len: 0, expected at least 1 (give the most tokens of a request)"},
    {"a pool of no blocks", [] { return thrown_by([] { BlockPool pool({.num_blocks = 1}); }); },
     "invalid value: num_blocks: 1, expected 2 to 2147483648, the null block included (give the "
     "blocks that the memory holds)"},
};

TEST(BadOptions, Builders) { expect_refused(kBuilders); }
TEST(BadOptions, Names) { expect_refused(kNames); }
TEST(BadOptions, Words) { expect_refused(kWords); }
TEST(BadOptions, Pages) { expect_refused(kPages); }

}  // namespace
}  // namespace fovea::testing
