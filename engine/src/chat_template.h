// SPDX-License-Identifier: Apache-2.0
// One question to a chat model, as the text that its template makes of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fovea::engine {

// The prompt of a conversation that begins with the user's text; it ends where the answer begins.
// Its markup is meant to be parsed: encode it with special tokens, and without adding BOS, which is
// in the text if the template puts it there. Markup inside of `system` and `user` counts too.
//
// `template_text` is the Jinja text of the model's file (Tokenizer::chat_template). It is not run
// but recognised: ChatML (<|im_start|>role … <|im_end|>) and gemma (<start_of_turn>role …
// <end_of_turn>). From it come the default system text for when `system` is not given (ChatML; a
// template without a default gets no system turn), BOS, and whether texts are trimmed. gemma has no
// system turn: the system text stands in front of the user's.
//
// `bos_text` is the text of the model's BOS token. It is needed only if the template puts BOS in
// front; for gemma <bos> is assumed.
//
// InputError for no template, for one of another family (named), for a ChatML or gemma template
// that writes more than the plain form or a system text that cannot be told by reading (so that the
// prompt would not be the model's own), and for `system` where the template takes none.
std::string render_chat(std::string_view template_text, const std::optional<std::string>& system,
                        std::string_view user, std::string_view bos_text = {});

}  // namespace fovea::engine
