// SPDX-License-Identifier: Apache-2.0
// Serves several requests at once: one streams its text, one has three samples, one comes later and
// shares its beginning with the first, one is cancelled. Usage: example_serving MODEL.gguf
#include <cstdio>
#include <exception>
#include <string>

#include "fovea/engine/engine.h"

namespace {

using namespace fovea::engine;

Request request_for(const Engine& engine, const std::string& text) {
  Request request;
  request.prompt = engine.encode_prompt(text);
  request.max_tokens = 24;
  return request;
}

void print(const char* title, const Result& result) {
  std::printf("%s\n", title);
  for (const Sample& sample : result.samples)
    std::printf("  [%s] %s\n", std::string(name_of(sample.finish_reason)).c_str(),
                sample.text.c_str());
}

void serve(const std::string& path) {
  EngineOptions options;
  options.max_batch_tokens = 256;
  options.kv_blocks = 100;
  Engine engine(path, options);

  const std::string beginning =
      "Once upon a time, in a land of mountains and deep green valleys, there lived a small "
      "dragon ";
  Request streamed = request_for(engine, beginning + "who");
  streamed.on_text = [](int, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  Request sampled = request_for(engine, "Three things that I like are");
  sampled.num_samples = 3;
  sampled.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 1};

  const RequestId first = engine.submit(streamed), second = engine.submit(sampled);
  const RequestId unwanted = engine.submit(request_for(engine, "Nobody reads this"));
  engine.cancel(unwanted);
  engine.take_result(unwanted);  // what nobody takes stays
  // What cannot be served is refused up front, with every reason.
  Request too_long = request_for(engine, "A");
  too_long.max_tokens = 100000;  // more than the cache can hold
  too_long.stop = {""};
  for (const fovea::Reason& reason : engine.check(too_long).reasons)
    std::printf("refused: %s = %s, supported: %s\n", reason.field.c_str(), reason.wanted.c_str(),
                reason.supported.c_str());

  for (int i = 0; i < 8; ++i) engine.step();
  const RequestId late = engine.submit(request_for(engine, beginning + "that could not"));
  while (engine.step()) {
  }
  print("\nfirst", *engine.take_result(first));
  print("second", *engine.take_result(second));
  print("late", *engine.take_result(late));
  const Statistics s = engine.statistics();
  std::printf("%lld steps, %lld tokens found in the cache, at most %lld of %lld blocks used\n",
              static_cast<long long>(s.steps), static_cast<long long>(s.prefix_hit_tokens),
              static_cast<long long>(s.kv_blocks_peak), static_cast<long long>(s.kv_blocks));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::invalid_argument("usage: example_serving MODEL.gguf");
    serve(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
