// SPDX-License-Identifier: Apache-2.0
#include "chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

// The shape of SmolLM2's template, with the newlines as they stand in its file.
const std::string kSmolLM2 =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";
const std::string kPlain =
    R"({% for m in messages %}{{ "<|im_start|>" + m.role + "\n" + m.content + "<|im_end|>\n" }})"
    R"({% endfor %}{% if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %})";
// System turns with and without tools, as larger ChatML models write them.
const std::string kWithTools = R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'Tools and nothing else.' }}
    {%- endif %}
    {{- "\n\n# Tools<|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou\'re made for tests.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
)";
const std::string kGemma = R"({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '

' -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
{%- endif -%}
{%- for message in messages -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {{ message['content'] | trim }}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
)";
const std::string kGemmaWithoutSystem =
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('none') }}{% endif "
    "%}{% for message in messages %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim "
    "+ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}"
    "{% endif %}";

std::string turn(const std::string& role, const std::string& text) {
  return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
}
const std::string kAnswer = "<|im_start|>assistant\n";

InputError refusal(const std::string& text, std::optional<std::string> system = {}) {
  try {
    ADD_FAILURE() << "rendered: " << render_chat(text, system, "user");
  } catch (const InputError& error) {
    return error;
  }
  return {"", "", ""};
}

TEST(ChatTemplate, IsTheReferencesTextForSmolLM2) {
  std::ifstream in(std::string(FOVEA_TEST_DATA) + "/golden_smollm2.json");
  const auto golden = nlohmann::json::parse(in).at("cases").at("chat").at("text");
  EXPECT_EQ(render_chat(kSmolLM2, {}, "Name three colours."), golden.get<std::string>());
}

TEST(ChatTemplate, TakesAGivenSystemTextInsteadOfTheDefault) {
  EXPECT_EQ(render_chat(kSmolLM2, "Be brief.", "Hi"),
            turn("system", "Be brief.") + turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat(kSmolLM2, "", "Hi"), turn("system", "") + turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat(kPlain, "Be brief.", ""),
            turn("system", "Be brief.") + turn("user", "") + kAnswer);
}

TEST(ChatTemplate, WritesNoSystemTurnWithoutADefault) {
  EXPECT_EQ(render_chat(kPlain, {}, "Hi"), turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                        "<|im_end|>\n{% endfor %}<|im_start|>assistant\n{{ '' }}",
                        {}, "Hi"),
            turn("user", "Hi") + kAnswer);
}

TEST(ChatTemplate, IgnoresWhatIsWrittenForToolsOnly) {
  EXPECT_EQ(render_chat(kWithTools, {}, "Hi"),
            turn("system", "You're made for tests.") + turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat(kWithTools, "S", "Hi"), turn("system", "S") + turn("user", "Hi") + kAnswer);
}

TEST(ChatTemplate, FindsADefaultInAVariable) {
  const std::string body =
      "{% if system_message %}{{ '<|im_start|>system\n' + system_message + '<|im_end|>\n' }}"
      "{% endif %}" +
      kPlain;
  const std::string given =
      "{% if messages[0].role == 'system' %}{% set system_message = "
      "messages[0].content %}{% endif %}";
  EXPECT_EQ(render_chat("{% set system_message = 'Help.' %}" + given + body, {}, "Hi"),
            turn("system", "Help.") + turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat("{% set system_message = '' %}" + given + body, {}, "Hi"),
            turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat(given + body, {}, "Hi"), turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat("{% set system_message = 'Help.' %}" + given + body, "S", "Hi"),
            turn("system", "S") + turn("user", "Hi") + kAnswer);
}

TEST(ChatTemplate, PutsGemmasSystemTextInFrontOfTheUsers) {
  EXPECT_EQ(render_chat(kGemma, {}, "Hi"),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render_chat(kGemma, "Be brief.", "Hi"),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render_chat(kGemmaWithoutSystem, {}, "Hi"),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(refusal(kGemmaWithoutSystem, "Be brief.").argument(), "system");
}

TEST(ChatTemplate, TrimsExactlyWhatTheTemplateTrims) {
  const std::string blanks = "\n\t \u00A0\u3000";
  EXPECT_EQ(
      render_chat(kGemma, blanks + "S ", blanks + "é i" + blanks),
      "<bos><start_of_turn>user\n" + blanks + "S \n\né i<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render_chat(kGemma, {}, blanks),
            "<bos><start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render_chat(kSmolLM2, " S ", " U\n"),
            turn("system", " S ") + turn("user", " U\n") + kAnswer);
  std::string trims = kSmolLM2;
  trims.replace(trims.find("message['content']"), 18, "message['content'] | trim");
  EXPECT_EQ(render_chat(trims, " S ", " U\n"), turn("system", "S") + turn("user", "U") + kAnswer);
  // Trimmed in one place only: no matter for a text without blanks at its ends.
  const std::string some = kPlain + "{{ m['content'].strip() }}";
  EXPECT_EQ(render_chat(some, {}, "U U"), turn("user", "U U") + kAnswer);
  EXPECT_THROW(render_chat(some, {}, "U "), InputError);
  EXPECT_EQ(render_chat(kPlain + "{{ m.reasoning_content | trim }}", {}, "U "),
            turn("user", "U ") + kAnswer);
}

TEST(ChatTemplate, RefusesBlanksThatGemmaMayTrimTogether) {
  std::string joint = kGemma;
  joint.replace(joint.find("message['content'] | trim"), 25, "content | trim");
  EXPECT_EQ(render_chat(joint, "S", "Hi"),
            "<bos><start_of_turn>user\nS\n\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_THROW(render_chat(joint, "S", " Hi"), InputError);
  EXPECT_THROW(render_chat(joint, " S", "Hi"), InputError);
  EXPECT_THROW(render_chat(joint, "", "Hi"), InputError);
}

TEST(ChatTemplate, PutsBosWhereTheTemplateDoes) {
  EXPECT_EQ(render_chat("{{ bos_token }}" + kPlain, {}, "Hi", "<s>"),
            "<s>" + turn("user", "Hi") + kAnswer);
  EXPECT_EQ(render_chat(kPlain, {}, "Hi", "<s>"), turn("user", "Hi") + kAnswer);
  EXPECT_EQ(refusal("{{ bos_token }}" + kPlain).argument(), "bos_text");
  EXPECT_TRUE(render_chat(kGemma, {}, "Hi", "<B>").starts_with("<B><start_of_turn>"));
}

TEST(ChatTemplate, RefusesOtherFamiliesByName) {
  const InputError llama = refusal("{{ '<|start_header_id|>' + message['role'] }}");
  EXPECT_EQ(llama.argument(), "chat template");
  EXPECT_NE(llama.given().find("Llama 3"), std::string::npos) << llama.what();
  EXPECT_NE(llama.given().find("{{ '<|start_header_id|>"), std::string::npos) << llama.what();
  EXPECT_NE(llama.expected().find("ChatML"), std::string::npos) << llama.what();
  EXPECT_NE(llama.expected().find("gemma"), std::string::npos) << llama.what();
  EXPECT_NE(refusal("[INST] {{ x }} [/INST]").given().find("Mistral"), std::string::npos);
  const InputError unknown = refusal("{{ messages }}" + std::string(5000, 'x'));
  EXPECT_NE(unknown.given().find("{{ messages }}x"), std::string::npos);
  EXPECT_LT(unknown.given().size(), 300u);
  refusal(kSmolLM2 + kGemma);
  refusal("<|im_start|>");
}

TEST(ChatTemplate, RefusesAModelWithoutATemplate) {
  for (const char* none : {"", " \n"}) {
    const InputError error = refusal(none);
    EXPECT_NE(error.given().find("none"), std::string::npos);
    EXPECT_NE(error.expected().find("yourself"), std::string::npos) << error.what();
  }
}

// Each of these would write something else than the plain form, silently.
TEST(ChatTemplate, RefusesFormsThatItCannotTell) {
  const std::string separator =
      "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + "
      "'<|im_end|>\n' }}";
  const std::string opening = "{{ '<|im_start|>system\n' }}";
  const std::vector<std::string> parts = {
      separator,
      "{{ '<|im_start|>system<|im_sep|>' + m.content + '<|im_end|>' }}",
      "{{ '<|im_start|>assistant\n<think>\n' }}",
      "{{ '<|im_start|>assistant' }}",
      "{{ '<|im_end|> ' }}",
      "{{ '<|im_start|>system\nAlways.<|im_end|>\n' }}",
      "{% if not system %}{{ '<|im_start|>system\nA<|im_end|>\n' }}{% endif %}"
      "{% if no_system %}{{ '<|im_start|>system\nB<|im_end|>\n' }}{% endif %}",
      opening + "{% if system %}{{ messages[0].content }}{% endif %}{{ '<|im_end|>\n' }}",
      opening + "{{ m.content }}{{ '<|im_end|>\n' }}",
      opening + "{{ unknown }}{{ '<|im_end|>\n' }}",
      "{{ '<|im_start|>system\nToday is ' + today + '<|im_end|>\n' }}",
      "{{ '<|im_start|>' + 'system\n' + (m.content if m else 'A') + '<|im_end|>\n' }}",
      "{% set s = 'A' + b %}" + opening + "{{ s }}{{ '<|im_end|>\n' }}",
      "{% set s = 'A' | upper %}" + opening + "{{ s }}{{ '<|im_end|>\n' }}",
      "{% set s = '' %}" + opening + "{{ s }}{{ '<|im_end|>\n' }}",
      "{% set messages = [{'role': 'system', 'content': 'A'}] + messages %}",
      "{% if not system %}{{ '<|im_start|>system\n<|im_start|>user\nA<|im_end|>\n' }}{% endif %}",
  };
  for (const std::string& part : parts) {
    EXPECT_EQ(refusal(part + kPlain).argument(), "chat template") << part;
    EXPECT_EQ(refusal(part + kPlain, "S").argument(), "chat template") << part;
  }
  std::string no_newline = kPlain;
  no_newline.replace(no_newline.find("<|im_end|>\\n"), 12, "<|im_end|>");
  refusal(no_newline);
}

// Thousands of openings and defaults are refused at the second of them, not after all were kept.
TEST(ChatTemplate, RefusesManyDefaultsAtOnce) {
  constexpr int kMany = 20000;
  std::string sets, values, texts = "{% if not system %}";
  for (int i = 0; i < kMany; ++i) {
    sets += "{% set s = 'd" + std::to_string(i) + "' %}";
    values += "{{ '<|im_start|>system\n' + s + '<|im_end|>\n' }}";
    texts += "<|im_start|>system\n";
  }
  refusal(sets + "{% if not system %}" + values + "{% endif %}" + kPlain);
  refusal(texts + "<|im_end|>\n{% endif %}" + kPlain);
}

TEST(ChatTemplate, SurvivesBrokenTemplates) {
  for (const std::string& whole : {kSmolLM2, kWithTools, kGemma}) {
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      for (const std::string& text : {whole.substr(0, cut), whole.substr(cut),
                                      whole.substr(0, cut) + whole.substr(cut + 1)}) {
        try {
          const std::string out = render_chat(text, {}, "Hi");
          EXPECT_TRUE(out.ends_with(kAnswer) || out.ends_with("<start_of_turn>model\n"));
        } catch (const InputError& error) {
          EXPECT_FALSE(error.expected().empty());
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::engine
