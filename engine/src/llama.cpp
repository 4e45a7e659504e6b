// SPDX-License-Identifier: Apache-2.0
#include "llama.h"

#include <string>

#include "transformer.h"
#include "weights.h"

namespace fovea::engine::llama {
namespace {

// Frequencies as the file scales them; what is not known here is refused, never left out.
void read_rope(ModelKeys& keys, RopeParams& rope) {
  rope.base = keys.positive("rope.freq_base", 10000);
  const std::string scaling = keys.text("rope.scaling.type", "");
  const double old_factor = keys.positive("rope.scale_linear", 1);  // older files' only key
  if (scaling == "linear")
    rope.linear_factor = keys.positive("rope.scaling.factor");
  else if (scaling.empty())  // a factor alone means linear
    rope.linear_factor = keys.positive("rope.scaling.factor", old_factor);
  else if (scaling != "none")
    throw InputError("llama.rope.scaling.type", scaling,
                     "none or linear (or factors in the tensor rope_freqs.weight)");
  for (const char* key : {"factor", "original_context_length", "finetuned"})
    keys.ignore("rope.scaling." + std::string(key));  // nothing to these types
}

TransformerConfig read_config(const GgufFile& file) {
  ModelKeys keys(file);
  TransformerConfig c = read_transformer_config(keys);
  c.rope_factors = true;
  read_rope(keys, c.ropes[0]);
  keys.expect("expert_count", 0);
  keys.expect("expert_used_count", 0);
  keys.refuse_unread();
  return c;
}

}  // namespace

ModelHeader read_header(const GgufFile& file, const AttentionOptions& options) {
  return transformer_header(read_config(file), options);
}

std::unique_ptr<Model> load(const GgufFile& file, const ModelOptions& options) {
  return load_transformer(file, read_config(file), options);
}

}  // namespace fovea::engine::llama
