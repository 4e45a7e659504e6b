// SPDX-License-Identifier: Apache-2.0
// One attention layer over a paged cache: five tokens of a prompt, 4 query heads on 2 KV heads.
#include <cstdio>
#include <vector>

#include "fovea/fovea.h"

int main() {
  using namespace fovea;
  ThreadPool pool(2);
  Stream stream;
  const AttentionLayer layer = make_layer(
      {.name = "layers.0", .num_heads = 4, .num_kv_heads = 2, .head_size = 64, .scale = 0.125F},
      Registry::builtin(), Device::host(), Context{&pool});

  // A cache of 32 blocks of 16 tokens; one request owns as many as its five tokens need.
  const PagedLayout layout =
      make_paged_layout(kv_cache_spec(layer.spec()), CacheLayout::kLBHNC, 1, 32);
  const Buffer cache(static_cast<std::size_t>(layout.total_bytes));
  BlockPool blocks({.num_blocks = 32});
  RequestBlocks request(blocks, {16});
  BlockTable table(1, block_table_width(512, {16}), {16}, {16});
  std::vector<std::int64_t> slots(5);
  if (!request.reserve(5)) return 1;
  table.set(0, request.blocks());
  table.slots(0, 0, slots);

  // The plan of a step, shared by all layers of equal key.
  HostBatch batch(1);
  batch.set(std::vector<RequestLengths>{{.query_len = 5, .seq_len = 5}});
  const auto builder = layer.backend().make_builder(
      {layer.plan_key(), {.max_num_reqs = 1, .max_num_tokens = 5, .max_model_len = 512}}, {&pool});
  const auto plan = builder->allocate();
  builder->build(batch.metadata(), {}, *plan, stream);
  const Buffer workspace(builder->facts().workspace_bytes);

  // The step: writes k and v into the cache, then attends.
  std::vector<float> q(5 * 4 * 64, 0.0F), k(5 * 2 * 64, 1.0F), v(5 * 2 * 64, 3.0F), out(q.size());
  layer.forward(plan.get(),
                {.q = {q.data(), DType::kF32, {5, 4, 64}},
                 .k = {k.data(), DType::kF32, {5, 2, 64}},
                 .v = {v.data(), DType::kF32, {5, 2, 64}},
                 .cache = layer_view(layout, cache.data(), 0, {16}),
                 .tables = {table.view(1), {slots.data(), DType::kI64, {5}}},
                 .out = {out.data(), DType::kF32, {5, 4, 64}},
                 .workspace = workspace.view()},
                stream);
  std::printf("the mean of equal values is %g\n", double{out[0]});
  return out[0] == 3.0F ? 0 : 1;
}
