// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "architectures.h"
#include "utf8.h"
#include "weights.h"

namespace fovea::engine {
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
    throw keys.wrong("rope.scaling.type", in_quotes(scaling),
                     "none or linear (or factors in the tensor rope_freqs.weight)");
  for (const char* key : {"factor", "original_context_length", "finetuned"})
    keys.ignore("rope.scaling." + std::string(key));  // nothing to these types
}

}  // namespace

TransformerConfig read_llama(const GgufFile& file) {
  ModelKeys keys(file);
  TransformerConfig c = read_transformer_config(keys);
  c.rope_factors = true;
  read_rope(keys, c.ropes[0]);
  keys.expect("expert_count", 0);
  keys.expect("expert_used_count", 0);
  keys.refuse_unread();
  return c;
}

}  // namespace fovea::engine
