// A toy engine that records what it computes. The lines marked with + are all that recording takes.
//
//   c++ -std=c++17 -I include examples/record.cpp -o record
//   ./record toy.trace && lockstep scan toy.trace
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <lockstep/recorder.h>  // +

namespace {

constexpr size_t kWidth = 16;
constexpr size_t kVocab = 40;

float weight(double row, double column) {
  return static_cast<float>(std::sin(row * 12.9898 + column * 78.233));
}

// The forward pass on the tokens from `position` on; the token with the largest logit comes next.
int32_t forward(const std::vector<int32_t>& tokens, size_t position,
                lockstep::TraceRecorder& trace) {
  const size_t count = tokens.size() - position;
  trace.begin_step(static_cast<int64_t>(position), static_cast<int64_t>(count));  // +
  std::vector<float> x(count * kWidth), norm(count * kWidth), logits(count * kVocab);
  for (size_t t = 0; t < count; ++t)
    for (size_t i = 0; i < kWidth; ++i)
      x[t * kWidth + i] = weight(tokens[position + t], static_cast<double>(i)) +
                          weight(static_cast<double>(position + t), 0.5 * static_cast<double>(i));
  trace.record("embedding", x.data(), kWidth);  // +
  for (size_t t = 0; t < count; ++t) {
    float squares = 0;
    for (size_t i = 0; i < kWidth; ++i) squares += x[t * kWidth + i] * x[t * kWidth + i];
    const float scale = 1 / std::sqrt(squares / kWidth + 1e-5f);
    for (size_t i = 0; i < kWidth; ++i) norm[t * kWidth + i] = x[t * kWidth + i] * scale;
  }
  trace.record("final_norm", norm.data(), kWidth);  // +
  for (size_t t = 0; t < count; ++t)
    for (size_t v = 0; v < kVocab; ++v)
      for (size_t i = 0; i < kWidth; ++i)
        logits[t * kVocab + v] +=
            weight(static_cast<double>(i), static_cast<double>(v)) * norm[t * kWidth + i];
  trace.record("logits", logits.data(), kVocab);  // +
  trace.end_step();                               // +
  const auto last = logits.end() - kVocab;
  return static_cast<int32_t>(std::max_element(last, logits.end()) - last);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: record FOLDER\n", stderr), 2;
  std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
  lockstep::TraceInfo info;                           // +
  info.engine = "toy";                                // +
  info.compute = info.activations = info.kv = "f32";  // +
  info.tokens = tokens;                               // +
  info.sampling = {{"temperature", 0}};               // +
  lockstep::TraceRecorder trace(argv[1], info);       // +
  for (size_t position = 0, n = 0; n < 8; ++n) {
    const int32_t chosen = forward(tokens, position, trace);
    position = tokens.size();
    tokens.push_back(chosen);
    trace.add_token(chosen);  // +
    std::printf("%d\n", chosen);
  }
  if (trace.finish()) return 0;                         // +
  std::fprintf(stderr, "%s\n", trace.error().c_str());  // +
  return 1;                                             // +
}
