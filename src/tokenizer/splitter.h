// Cuts text into the words that byte pairs are merged within, by regular expressions (PCRE2).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::tokenizer {

class Splitter {
 public:
  static Result<Splitter> compile(std::span<const std::string_view> patterns);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  // The words of `text` in order; side by side they are the text. Any bytes: one that is no part
  // of a UTF-8 character counts as a control character, so it is no letter, digit or space.
  // Safe from several threads.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Pattern;
  explicit Splitter(std::vector<Pattern> patterns);
  std::vector<Pattern> patterns_;
};

}  // namespace lockstep::tokenizer
