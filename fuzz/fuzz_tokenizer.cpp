// Any bytes through small vocabularies: no crash, and byte-level text comes back as it was.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "tokenizer/test_vocabs.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace lockstep::tokenizer {
namespace {

std::unique_ptr<Tokenizer> make(Vocab vocab) {
  auto made = Tokenizer::create(std::move(vocab));
  LS_CHECK(made.ok(), "{}", made.error().message);
  return std::move(*made);
}

void stream(const Tokenizer& tokens, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokens);
  std::string shown;
  for (const TokenId id : ids) shown += decoder.push(id);
  shown += decoder.finish();
  for (std::string_view rest = shown; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    LS_CHECK(step.state == Utf8::kWhole, "the stream is no UTF-8");
    rest.remove_prefix(step.length);
  }
}

void run(std::string_view input) {
  static const std::unique_ptr<Tokenizer> pairs[] = {
      make(small_byte_pairs("gpt-2")), make(small_byte_pairs("llama-bpe")),
      make(small_byte_pairs("qwen2")), make(small_byte_pairs("tekken")),
      make(small_byte_pairs("deepseek-llm"))};
  static const std::unique_ptr<Tokenizer> pieces = make(small_sentence_pieces());
  static const std::unique_ptr<Tokenizer> unigram = make(small_unigram());
  if (input.empty()) return;
  // The first byte chooses the vocabulary and the options; the rest is text.
  const auto choice = static_cast<uint8_t>(input[0]);
  const std::string_view text = input.substr(1);
  const EncodeOptions options{.add_special = false, .parse_special = (choice & 1) != 0};
  const Tokenizer& chosen = *pairs[(choice >> 1) % std::size(pairs)];
  const std::vector<TokenId> ids = chosen.encode(text, options);
  LS_CHECK(chosen.decode(ids, true) == text, "the text did not come back");
  stream(chosen, ids);
  stream(*pieces, pieces->encode(text, options));
  stream(*unigram, unigram->encode(text, options));
}

}  // namespace
}  // namespace lockstep::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::tokenizer::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
