// SPDX-License-Identifier: Apache-2.0
// Words for what rows offer, and the reasons that validation builds from them.
#pragma once

#include <string>

#include "fovea/attention/capability.h"

namespace fovea {

// One thing that a row must offer. A feature is named by `feature`, everything else by `what`.
struct Need {
  enum class What : std::uint8_t {
    kHeadSize,
    kDType,
    kKVDType,
    kBlockSize,
    kFeature,
    kDevice,
    kAttnType,
    kHeadSizeV,
    kGroupSize,
    kOutputDType,
    kLayout,
  };
  What what;
  Feature feature = {};
};

// What is asked.
struct Query {
  const Problem& problem;
  const Device& device;
  BlockRule rule;
};

// "{64, 128}", "multiples of 8 to 512", "any"; "nothing" if no value is admitted.
std::string text_of(const Sizes& sizes);
// "1..8", "9..∞"
std::string text_of(const Range& range);
// num_heads / num_kv_heads; 0 unless that is a whole positive number.
int group_size(const Problem& problem);
// The smallest admitted value >= `value`, 0 if there is none below 65536.
int next_admitted(const Sizes& sizes, int value);
// "head_size": the machine-readable word of a need.
std::string field_of(Need need);
// The value of the query in that field: "46", "bf16", "sm_90".
std::string wanted_text(Need need, const Query& query);
// What these rows together offer in that field.
std::string supported_text(Need need, const Rows& rows);
// The whole reason that no row offers `need`.
Reason reason_of(Need need, const Rows& rows, const Query& query);

}  // namespace fovea
