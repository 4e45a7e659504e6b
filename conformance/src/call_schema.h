// SPDX-License-Identifier: Apache-2.0
// The fields of a call's document, written once for reading and writing. docs/call_file.md says
// what they mean.
#pragma once

namespace fovea::conformance {

// `Fields` takes each field of an object by name: required(name, value), optional(name, value)
// with the default that the value holds, optional(name, value, default), and group(name, f) for an
// object in it. C is Call to be filled or const Call to be read.
template <class Fields, class C>
void visit_layer(Fields& f, C& call) {
  auto& p = call.problem;
  f.required("num_heads", p.num_heads);
  f.required("num_kv_heads", p.num_kv_heads);
  f.required("head_size", p.head_size);
  f.required("head_size_v", p.head_size_v);
  f.optional("scale", p.scale);
  f.optional("logits_soft_cap", p.soft_cap);
  f.optional("sliding_window", p.window);
  f.optional("dtype", p.dtype);
  f.optional("output_dtype", p.out_dtype, p.dtype);
  f.optional("kv_dtype", p.kv_dtype, p.dtype);
  f.optional("non_causal", call.non_causal);
}

template <class Fields, class C>
void visit_cache(Fields& f, C& call) {
  f.optional("layout", call.layout);
  f.optional("form", call.cache_form);
  f.optional("kernel_block_size", call.block_size);
  f.optional("kernel_blocks_per_manager_block", call.kernel_blocks_per_manager_block);
  f.optional("num_layers", call.num_layers);
  f.optional("layer", call.layer);
  f.optional("blocks", call.blocks);
  f.optional("num_blocks", call.num_blocks);
  f.optional("block_zero_lives", call.block_zero_lives);
  f.optional("seed", call.seed);
}

template <class Fields, class C>
void visit_placement(Fields& f, C& call) {
  f.optional("strided", call.strided);
  f.optional("head_major", call.head_major);
  f.optional("q_strides", call.strides.q);
  f.optional("k_strides", call.strides.k);
  f.optional("v_strides", call.strides.v);
  f.optional("out_strides", call.strides.out);
  f.optional("lse_stride", call.strides.lse);
  f.optional("flat", call.flat);
  f.optional("padding_rows", call.padding_rows);
  f.optional("padded_slots", call.padded_slots);
  f.optional("token_stride", call.token_stride);
  f.optional("lazy_memory", call.lazy_memory);
}

template <class Fields, class C>
void visit_call(Fields& f, C& call) {
  f.version(1);
  f.group("layer", [&](auto& layer) { visit_layer(layer, call); });
  f.required("requests", call.problem.requests);
  f.optional("causal", call.problem.causal);
  f.optional("steps", call.steps);
  f.group("tensors", [&](auto& tensors) {
    tensors.optional("q", call.q);
    tensors.optional("k", call.k);
    tensors.optional("v", call.v);
  });
  f.optional("streams", call.streams);
  f.optional("poison", call.poison);
  f.group("cache", [&](auto& cache) { visit_cache(cache, call); });
  f.group("placement", [&](auto& placement) { visit_placement(placement, call); });
  f.group("outputs", [&](auto& outputs) {
    outputs.optional("lse", call.return_lse);
    outputs.optional("lse_base", call.lse_base);
    outputs.optional("lse_layout", call.lse_layout);
  });
  f.group("execution", [&](auto& execution) { execution.optional("threads", call.num_workers); });
  f.group("origin", [&](auto& origin) {
    origin.optional("relation", call.origin.relation);
    origin.optional("seed", call.origin.seed);
  });
}

}  // namespace fovea::conformance
