// Speed of loading a vocabulary and of encoding: ordinary text, and runs that punish quadratic
// code.
//
//   bench_tokenizer VOCAB.gguf [TEXT_FILE...]     without files: the sources of this program
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Processor time: all of this runs on one thread, and other work on the machine does not count.
template <class Body>
double seconds(const Body& body) {
  const std::clock_t start = std::clock();
  body();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string own_sources() {
  std::string text;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE)) {
    if (entry.is_regular_file()) text += contents(entry.path());
  }
  return text;
}

void measure(const tokenizer::Tokenizer& tokens, const char* name, const std::string& text) {
  size_t count = 0;
  double best = 1e9;
  for (int round = 0; round < 3; ++round)
    best = std::min(best, seconds([&] { count = tokens.encode(text).size(); }));
  fmt::print("{:<22} {:>9} bytes {:>9} tokens {:>9.1f} ms {:>8.1f} MB/s\n", name, text.size(),
             count, best * 1e3, static_cast<double>(text.size()) / best / 1e6);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_tokenizer VOCAB.gguf [TEXT_FILE...]\n");
    return 2;
  }
  auto file = gguf::File::open(argv[1]);
  if (!file.ok()) {
    fmt::print(stderr, "{}\n", file.error().message);
    return 2;
  }
  std::unique_ptr<tokenizer::Tokenizer> tokens;
  const double open = seconds([&] { file = gguf::File::open(argv[1]); });
  const double load = seconds([&] {
    auto loaded = tokenizer::Tokenizer::load(*file);
    if (loaded.ok()) {
      tokens = std::move(*loaded);
    } else {
      fmt::print(stderr, "{}\n", loaded.error().message);
    }
  });
  if (!tokens) return 2;
  fmt::print("{}: {} tokens, file opened in {:.1f} ms, tokenizer loaded in {:.1f} ms\n", argv[1],
             tokens->size(), open * 1e3, load * 1e3);

  std::string text;
  for (int i = 2; i < argc; ++i) text += contents(argv[i]);
  if (argc == 2) text = own_sources();
  measure(*tokens, "text", text);
  constexpr size_t kMegabyte = 1 << 20;
  measure(*tokens, "1 MB of a", std::string(kMegabyte, 'a'));
  measure(*tokens, "1 MB of spaces", std::string(kMegabyte, ' '));
  measure(*tokens, "1 MB of digits", std::string(kMegabyte, '7'));
  std::string word;
  for (size_t i = 0; word.size() < kMegabyte; ++i) word += "abcdefghijklmnopqrstuvwxyz"[i * i % 26];
  measure(*tokens, "1 MB word", word);
  measure(*tokens, "1 MB of <", std::string(kMegabyte, '<'));
  measure(*tokens, "1 MB of stray bytes", std::string(kMegabyte, '\x9f'));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::main(argc, argv);
}
