// SPDX-License-Identifier: Apache-2.0
#include "sequence.h"

namespace fovea::engine {

Sequence::Sequence(ActiveRequest& owner, int index, std::vector<TokenId> known,
                   SequenceCache cached, const Tokenizer& tokenizer)
    : request(&owner),
      sample(index),
      tokens(std::move(known)),
      cache(std::move(cached)),
      decoder(tokenizer),
      stops(owner.request.stop) {}

const Request& Sequence::wanted() const { return request->request; }
std::int64_t Sequence::num_prompt() const { return std::ssize(wanted().prompt); }
std::pair<RequestId, int> Sequence::age() const { return {request->id, sample}; }

}  // namespace fovea::engine
