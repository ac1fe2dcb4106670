#include "hub/tokenizer_json.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "base/json_reader.h"
#include "base/text.h"
#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/vocab.h"

namespace lockstep::hub {
namespace {

using tokenizer::TokenType;

constexpr int64_t kMostTokens = 4'000'000;
constexpr std::string_view kSpace = "\u2581";  // SentencePiece's mark of a space

// The steps of a Sequence, or the one that stands alone; none where it is null.
Result<std::vector<JsonReader>> steps_of(const JsonReader& part, std::string_view list) {
  if (!part.present()) return std::vector<JsonReader>();
  LS_TRY(const std::string type, part["type"].text());
  if (type != "Sequence") return std::vector<JsonReader>{part};
  return part[list].items();
}

Result<bool> flag_or(const JsonReader& reader, bool otherwise) {
  return reader.present() ? reader.boolean() : Result<bool>(otherwise);
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// A pattern with numbers in place of its characters beyond ASCII, as our table has them.
std::string numbered(std::string_view pattern) {
  std::string out;
  for (size_t at = 0; at < pattern.size();) {
    const Utf8Char here = utf8_char(pattern, at);
    if (here.code < 0x80)
      out += pattern[at];
    else
      out += fmt::format("\\x{{{:x}}}", here.code);
    at += static_cast<size_t>(std::max(1, here.length));
  }
  return out;
}

class Reader {
 public:
  Reader(const JsonReader& root, int64_t rows) : root_(root), model_(root["model"]), rows_(rows) {}

  Result<std::vector<gguf::Entry>> read() {
    LS_TRY(const std::string type, model_["type"].text_or("BPE"));
    if (type != "BPE") return model_["type"].wrong("\"BPE\"");
    LS_TRY_VOID(read_tokens());
    LS_TRY_VOID(read_merges());
    LS_TRY(const std::vector<JsonReader> pre, steps_of(root_["pre_tokenizer"], "pretokenizers"));
    bool byte_level = false;
    for (const JsonReader& step : pre) {
      LS_TRY(const std::string step_type, step["type"].text());
      byte_level |= step_type == "ByteLevel";
    }
    if (byte_level) {
      LS_TRY_VOID(read_byte_level(pre));
    } else {
      LS_TRY_VOID(read_pieces(pre));
    }
    LS_TRY_VOID(read_post_processor());
    return std::move(out_);
  }

 private:
  template <class T>
  void put(std::string_view key, T value) {
    out_.push_back({fmt::format("tokenizer.ggml.{}", key), {std::move(value)}});
  }

  Result<void> add_token(const JsonReader& place, int64_t id, std::string text, TokenType type) {
    if (id >= kMostTokens) return place.wrong(fmt::format("an id below {}", kMostTokens));
    if (id >= rows_) return {};
    if (id >= static_cast<int64_t>(tokens_.size())) {
      for (auto gap = static_cast<int64_t>(tokens_.size()); gap <= id; ++gap)
        tokens_.push_back(fmt::format("[PAD{}]", gap));
      types_.resize(tokens_.size(), static_cast<int32_t>(TokenType::kUnused));
    }
    ids_[text] = id;
    tokens_[static_cast<size_t>(id)] = std::move(text);
    types_[static_cast<size_t>(id)] = static_cast<int32_t>(type);
    return {};
  }

  Result<void> read_tokens() {
    const JsonReader vocabulary = model_["vocab"];
    LS_TRY_VOID(vocabulary.object());
    for (const auto& [text, value] : vocabulary.value().items()) {
      LS_TRY(const int64_t id, vocabulary[text].integer(0, kMostTokens));
      LS_TRY_VOID(add_token(vocabulary[text], id, text, TokenType::kNormal));
    }
    const JsonReader added = root_["added_tokens"];
    if (!added.present()) return {};
    LS_TRY(const std::vector<JsonReader> items, added.items());
    for (const JsonReader& item : items) {
      LS_TRY(const int64_t id, item["id"].integer(0, kMostTokens));
      LS_TRY(std::string text, item["content"].text());
      LS_TRY(const bool special, flag_or(item["special"], false));
      LS_TRY(const bool word, flag_or(item["single_word"], false));
      if (word) return item["single_word"].wrong("false");
      LS_TRY_VOID(add_token(item["id"], id, std::move(text),
                            special ? TokenType::kControl : TokenType::kUserDefined));
    }
    return {};
  }

  // A pair is a list of two, or a text with a space between.
  Result<void> read_merges() {
    LS_TRY(const std::vector<JsonReader> items, model_["merges"].items());
    for (const JsonReader& item : items) {
      std::pair<std::string, std::string> merge;
      if (item.value().is_array()) {
        LS_TRY(const std::vector<JsonReader> sides, item.items());
        if (sides.size() != 2) return item.wrong("two tokens");
        LS_TRY(merge.first, sides[0].text());
        LS_TRY(merge.second, sides[1].text());
      } else {
        LS_TRY(const std::string text, item.text());
        const size_t space = text.find(' ', 1);
        if (space == std::string::npos) return item.wrong("two tokens with a space between");
        merge = {text.substr(0, space), text.substr(space + 1)};
      }
      merges_.push_back(std::move(merge));
    }
    return {};
  }

  void put_tokens() {
    put("tokens", gguf::Array{tokens_});
    put("token_type", gguf::Array{types_});
  }

  Result<void> read_byte_level(const std::vector<JsonReader>& pre) {
    LS_TRY(const std::vector<JsonReader> normal, steps_of(root_["normalizer"], "normalizers"));
    for (const JsonReader& step : normal) {
      LS_TRY(const std::string type, step["type"].text());
      // NFC changes only text that is not in it, which engines leave as it is.
      if (type != "NFC") return step["type"].wrong("\"NFC\", or no normalizer");
    }
    LS_TRY(const std::string name, pre_tokenizer(pre));
    put("model", std::string("gpt2"));
    put("pre", name);
    put_tokens();
    std::vector<std::string> merges;
    for (const auto& [left, right] : merges_) {
      if (left.find(' ') != left.npos || right.find(' ') != right.npos)
        return model_["merges"].wrong("tokens without spaces");
      merges.push_back(left + " " + right);
    }
    put("merges", gguf::Array{std::move(merges)});
    return {};
  }

  // The patterns that cut text into words, as tokenizer/ has them.
  Result<std::string> pre_tokenizer(const std::vector<JsonReader>& pre) {
    const auto* gpt2 = tokenizer::find_pre_tokenizer("gpt-2");
    std::vector<std::string> patterns;
    for (const JsonReader& step : pre) {
      LS_TRY(const std::string type, step["type"].text());
      if (type == "ByteLevel") {
        LS_TRY(const bool space, flag_or(step["add_prefix_space"], true));
        if (space) return step["add_prefix_space"].wrong("false");
        LS_TRY(const bool regex, flag_or(step["use_regex"], true));
        if (regex) patterns.emplace_back(gpt2->patterns[0]);
      } else if (type == "Digits") {
        LS_TRY(const bool single, flag_or(step["individual_digits"], false));
        patterns.emplace_back(single ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "Split") {
        LS_TRY(const bool invert, flag_or(step["invert"], false));
        LS_TRY(const std::string behaviour, step["behavior"].text());
        const bool matches = behaviour == "Isolated" || (behaviour == "Removed" && invert);
        if (!matches) return step["behavior"].wrong("\"Isolated\"");
        LS_TRY(std::string pattern, step["pattern"]["Regex"].text());
        replace(pattern, "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
                "(?:'[sS\\x{17f}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])");
        patterns.push_back(numbered(pattern));
      } else {
        return step["type"].wrong("ByteLevel, Split or Digits");
      }
    }
    LS_TRY(const bool whole_words, flag_or(model_["ignore_merges"], false));
    std::string other;  // but for the rule for whole words
    for (const std::string_view name :
         {"gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2", "qwen35", "tekken", "gpt-4o",
          "deepseek-llm", "deepseek-coder", "deepseek-v3", "seed-coder", "bailingmoe", "falcon",
          "bloom", "viking"}) {
      const auto* known = tokenizer::find_pre_tokenizer(name);
      if (!std::ranges::equal(known->patterns, patterns)) continue;
      if (known->whole_words == whole_words) return std::string(name);
      other = name;
    }
    if (!other.empty() && merges_make_every_token()) return other;
    return root_["pre_tokenizer"].wrong(
        fmt::format("patterns that are known; ignore_merges is {}", whole_words));
  }

  // A word that is a token becomes that token by its merges too: the rule that takes words whole
  // changes nothing.
  bool merges_make_every_token() const {
    std::unordered_map<std::string, size_t> ranks;
    for (size_t i = 0; i < merges_.size(); ++i)
      ranks.emplace(merges_[i].first + ' ' + merges_[i].second, i);
    return std::ranges::all_of(ids_, [&](const auto& token) {
      return types_[static_cast<size_t>(token.second)] !=
                 static_cast<int32_t>(TokenType::kNormal) ||
             merges_make(token.first, ranks);
    });
  }

  static bool merges_make(const std::string& text,
                          const std::unordered_map<std::string, size_t>& ranks) {
    std::vector<std::string> parts;
    for (const char byte : text) {
      if ((static_cast<unsigned char>(byte) & 0xc0U) != 0x80U) parts.emplace_back();
      parts.back() += byte;
    }
    while (parts.size() > 1) {
      size_t best = ranks.size(), place = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i)
        if (const auto found = ranks.find(parts[i] + ' ' + parts[i + 1]);
            found != ranks.end() && found->second < best) {
          best = found->second;
          place = i;
        }
      if (best == ranks.size()) return false;
      parts[place] += parts[place + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
    return true;
  }

  // SentencePiece's: texts with a mark for spaces, bytes for what the vocabulary lacks.
  Result<void> read_pieces(const std::vector<JsonReader>& pre) {
    LS_TRY(const bool bytes, flag_or(model_["byte_fallback"], false));
    if (!bytes) return model_["byte_fallback"].wrong("true, or a ByteLevel pre_tokenizer");
    LS_TRY(const bool prefix, adds_space(pre));
    LS_TRY(const std::vector<float> scores, scores_of_merges());
    LS_TRY(const std::string unknown, model_["unk_token"].text_or(""));
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string& text = tokens_[id];
      const bool byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
      if (byte) types_[id] = static_cast<int32_t>(TokenType::kByte);
      if (!unknown.empty() && text == unknown) {
        types_[id] = static_cast<int32_t>(TokenType::kUnknown);
        put("unknown_token_id", static_cast<uint32_t>(id));
      }
    }
    put("model", std::string("llama"));
    put("pre", std::string("default"));
    put_tokens();
    put("scores", gguf::Array{scores});
    put("add_space_prefix", prefix);
    return {};
  }

  // Whether a text gets a space before it.
  Result<bool> adds_space(const std::vector<JsonReader>& pre) {
    bool prefix = false;
    LS_TRY(const std::vector<JsonReader> normal, steps_of(root_["normalizer"], "normalizers"));
    for (const JsonReader& step : normal) {
      LS_TRY(const std::string type, step["type"].text());
      if (type == "Prepend") {
        LS_TRY(const std::string what, step["prepend"].text());
        if (what != kSpace) return step["prepend"].wrong(fmt::format("\"{}\"", kSpace));
        prefix = true;
      } else if (type == "Replace") {
        LS_TRY(const std::string from, step["pattern"]["String"].text());
        LS_TRY(const std::string to, step["content"].text());
        if (from != " " || to != kSpace)
          return step["pattern"].wrong(fmt::format("a space that becomes \"{}\"", kSpace));
      } else {
        return step["type"].wrong("Prepend or Replace");
      }
    }
    for (const JsonReader& step : pre) {
      LS_TRY(const std::string type, step["type"].text());
      if (type == "Metaspace") {
        LS_TRY(const std::string scheme, step["prepend_scheme"].text_or("always"));
        prefix = scheme != "never";
      } else if (type != "Split") {  // by spaces, of which the normalizer left none
        return step["type"].wrong("Metaspace or Split");
      }
    }
    return prefix;
  }

  // GGUF has a score for each token, not a rank for each pair. Both say the same where every pair
  // that makes a token is a merge and all of them stand together, as in what SentencePiece made.
  Result<std::vector<float>> scores_of_merges() {
    std::vector<float> scores(tokens_.size(), 0);
    std::unordered_map<int64_t, int64_t> counts;  // merges by the token that they make
    int64_t before = -1;
    float score = 0;
    for (const auto& [left, right] : merges_) {
      const auto made = ids_.find(left + right);
      if (made == ids_.end()) return model_["merges"].wrong("pairs that make a token");
      if (made->second != before) {
        before = made->second;
        score -= 1;
        if (counts.contains(before)) return model_["merges"].wrong("the pairs of a token together");
        scores[static_cast<size_t>(before)] = score;
      }
      ++counts[before];
    }
    for (const auto& [text, id] : ids_) {
      if (types_[static_cast<size_t>(id)] != static_cast<int32_t>(TokenType::kNormal)) continue;
      int64_t pairs = 0;
      for (size_t cut = 1; cut < text.size(); ++cut)
        if ((static_cast<unsigned char>(text[cut]) & 0xc0U) != 0x80U)
          pairs += ids_.contains(text.substr(0, cut)) && ids_.contains(text.substr(cut)) ? 1 : 0;
      const bool byte = text.size() == 6 && text.starts_with("<0x");
      if (!byte && pairs != (counts.contains(id) ? counts.at(id) : 0))
        return model_["merges"].wrong("all pairs that make a token, as SentencePiece has them");
    }
    return scores;
  }

  // Which special tokens stand around a text.
  Result<void> read_post_processor() {
    bool bos = false, eos = false;
    LS_TRY(const std::vector<JsonReader> steps, steps_of(root_["post_processor"], "processors"));
    for (const JsonReader& step : steps) {
      LS_TRY(const std::string type, step["type"].text());
      if (type == "ByteLevel") continue;
      if (type != "TemplateProcessing")
        return step["type"].wrong("TemplateProcessing or ByteLevel");
      LS_TRY(const std::vector<JsonReader> parts, step["single"].items());
      bool after = false;
      for (const JsonReader& part : parts) {
        if (part["Sequence"].present()) after = true;
        if (!part["SpecialToken"].present()) continue;
        bool& flag = after ? eos : bos;
        if (flag) return step["single"].wrong("one special token on each side");
        LS_TRY(const std::string text, part["SpecialToken"]["id"].text());
        const auto id = ids_.find(text);
        if (id == ids_.end()) return part["SpecialToken"]["id"].wrong("a token");
        put(after ? "eos_token_id" : "bos_token_id", static_cast<uint32_t>(id->second));
        flag = true;
      }
    }
    put("add_bos_token", bos);
    put("add_eos_token", eos);
    return {};
  }

  JsonReader root_, model_;
  int64_t rows_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::unordered_map<std::string, int64_t> ids_;
  std::vector<std::pair<std::string, std::string>> merges_;
  std::vector<gguf::Entry> out_;
};

}  // namespace

Result<std::vector<gguf::Entry>> read_tokenizer(std::string_view text, const std::string& source,
                                                int64_t rows) {
  constexpr int64_t kMostValues = 20'000'000;
  LS_TRY(const nlohmann::json document, parse_json(text, source, kMostValues));
  const JsonReader root(document, source);
  LS_TRY_VOID(root.object());
  return Reader(root, rows).read();
}

}  // namespace lockstep::hub
