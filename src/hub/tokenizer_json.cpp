#include "hub/tokenizer_json.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/json_reader.h"
#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/rules.h"
#include "tokenizer/vocab.h"

namespace lockstep::hub {
namespace {

using tokenizer::TokenType;

constexpr int64_t kMostTokens = 4'000'000;
constexpr size_t kMostTokenBytes = 4096;  // some of what is done with a token grows with its square

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
    if (type != "BPE" && type != "Unigram") return model_["type"].wrong("\"BPE\" or \"Unigram\"");
    LS_TRY(const tokenizer::Rules rules, tokenizer::read_rules(root_));
    if (type == "Unigram") {
      LS_TRY_VOID(read_unigram(rules));
    } else {
      LS_TRY_VOID(read_pairs(rules));
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
    if (text.size() > kMostTokenBytes)
      return place.wrong(fmt::format("a token of at most {} bytes", kMostTokenBytes));
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

  Result<void> read_pairs(const tokenizer::Rules& rules) {
    LS_TRY_VOID(check_marks_of_words());
    LS_TRY_VOID(read_tokens());
    LS_TRY_VOID(read_merges());
    return rules.byte_level ? read_byte_level() : read_pieces(rules);
  }

  // What vocabularies of byte pairs can have that no model of ours has.
  Result<void> check_marks_of_words() const {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      LS_TRY(const std::string mark, model_[key].text_or(""));
      if (!mark.empty()) return model_[key].wrong("none");
    }
    if (!model_["dropout"].present()) return {};
    LS_TRY(const double dropped, model_["dropout"].number());
    if (dropped != 0)
      return model_["dropout"].wrong("0, or none: else tokens are a matter of chance");
    return {};
  }

  Result<void> read_tokens() {
    const JsonReader vocabulary = model_["vocab"];
    LS_TRY_VOID(vocabulary.object());
    for (const auto& [text, value] : vocabulary.value().items()) {
      LS_TRY(const int64_t id, vocabulary[text].integer(0, kMostTokens));
      LS_TRY_VOID(add_token(vocabulary[text], id, text, TokenType::kNormal));
      in_model_.insert(id);
      model_ids_.emplace(text, id);
    }
    return read_added();
  }

  Result<void> read_added() {
    const JsonReader added = root_["added_tokens"];
    if (!added.present()) return {};
    LS_TRY(const std::vector<JsonReader> items, added.items());
    const auto in_model = static_cast<int64_t>(in_model_.size());
    int64_t next = in_model;
    std::unordered_map<std::string, int64_t> given;
    for (const JsonReader& item : items) {
      LS_TRY(const int64_t id, item["id"].integer(0, kMostTokens));
      LS_TRY(std::string text, item["content"].text());
      LS_TRY(const bool special, flag_or(item["special"], false));
      if (text.empty()) continue;
      // The hub's library does not read the id: a token of the model keeps its own, others are
      // counted on.
      int64_t expected = next;
      if (const auto known = model_ids_.find(text); known != model_ids_.end())
        expected = known->second;
      else if (const auto again = given.find(text); again != given.end())
        expected = again->second;
      if (id != expected)
        return item["id"].wrong(
            fmt::format("{}, the next one or that of the vocabulary", expected));
      given.emplace(text, id);
      next = std::max({next, in_model, id + 1});
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

  Result<void> read_byte_level() {
    LS_TRY(const std::vector<JsonReader> pre, steps_of(root_["pre_tokenizer"], "pretokenizers"));
    LS_TRY(const std::string name, pre_tokenizer(pre));
    LS_TRY(const bool fallback, flag_or(model_["byte_fallback"], false));
    const tokenizer::ByteAlphabet letters;
    for (int byte = 0; byte < 256 && fallback; ++byte)
      if (!ids_.contains(letters.text_of(static_cast<uint8_t>(byte))))
        return model_["byte_fallback"].wrong("false, where a byte is no token of the byte level");
    put("model", std::string("gpt2"));
    put("pre", name);
    put_tokens();
    LS_TRY(const std::string unknown, model_["unk_token"].text_or(""));
    if (const auto id = ids_.find(unknown); id != ids_.end())
      put("unknown_token_id", static_cast<uint32_t>(id->second));
    std::vector<std::string> merges;
    for (const auto& [left, right] : merges_) {
      if (left.find(' ') != left.npos || right.find(' ') != right.npos)
        return model_["merges"].wrong("tokens without spaces");
      merges.push_back(left + " " + right);
    }
    put("merges", gguf::Array{std::move(merges)});
    return {};
  }

  // Falcon's last step, which means the same before and after.
  static bool is_of_ascii_digits(const JsonReader& step) {
    const Result<std::string> pattern = step["pattern"]["Regex"].text_or("");
    return pattern.ok() && *pattern == "[0-9][0-9][0-9]";
  }

  // The patterns that cut text into words, as tokenizer/ has them.
  Result<std::string> pre_tokenizer(const std::vector<JsonReader>& pre) {
    const auto* gpt2 = tokenizer::find_pre_tokenizer("gpt-2");
    std::vector<std::string> patterns;
    bool in_bytes = false;  // the step ByteLevel is done: what comes now sees its letters
    const JsonReader* keeps = nullptr;  // a step that drops what lies between its matches
    for (const JsonReader& step : pre) {
      LS_TRY(const std::string type, step["type"].text());
      if (in_bytes && !is_of_ascii_digits(step))
        return step["type"].wrong("no other step after ByteLevel");
      if (type == "ByteLevel") {
        in_bytes = true;
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
        if (behaviour == "Removed") keeps = &step;
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
      // Of these the matches are the whole text.
      const bool matches_all = patterns.size() == 1 && name != "bloom";
      if (keeps != nullptr && !matches_all) return (*keeps)["behavior"].wrong("\"Isolated\"");
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
    int64_t looks = 300'000'000;  // many times what a real vocabulary takes
    return std::ranges::all_of(ids_, [&](const auto& token) {
      return types_[static_cast<size_t>(token.second)] !=
                 static_cast<int32_t>(TokenType::kNormal) ||
             merges_make(token.first, ranks, looks);
    });
  }

  static bool merges_make(const std::string& text,
                          const std::unordered_map<std::string, size_t>& ranks, int64_t& looks) {
    std::vector<std::string> parts;
    for (const char byte : text) {
      if ((static_cast<unsigned char>(byte) & 0xc0U) != 0x80U) parts.emplace_back();
      parts.back() += byte;
    }
    while (parts.size() > 1) {
      looks -= static_cast<int64_t>(parts.size());
      if (looks < 0) return false;
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
  Result<void> read_pieces(const tokenizer::Rules& rules) {
    LS_TRY(const bool bytes, flag_or(model_["byte_fallback"], false));
    if (!bytes) return model_["byte_fallback"].wrong("true, or a ByteLevel pre_tokenizer");
    LS_TRY(const bool whole_words, flag_or(model_["ignore_merges"], false));
    if (whole_words && !merges_make_every_token()) return model_["ignore_merges"].wrong("false");
    LS_TRY(const std::vector<float> scores, scores_of_merges());
    LS_TRY(const std::string unknown, model_["unk_token"].text_or(""));
    const auto id = ids_.find(unknown);
    mark_pieces(true, id == ids_.end() ? -1 : id->second);
    put("model", std::string("llama"));
    put("pre", std::string("default"));
    put_tokens();
    put("scores", gguf::Array{scores});
    put("add_space_prefix", rules.adds_space());
    return {};
  }

  void mark_pieces(bool bytes, int64_t unknown) {
    for (size_t id = 0; id < tokens_.size() && bytes; ++id)
      if (tokens_[id].size() == 6 && tokens_[id].starts_with("<0x") && tokens_[id].ends_with('>'))
        types_[id] = static_cast<int32_t>(TokenType::kByte);
    if (unknown < 0) return;
    types_[static_cast<size_t>(unknown)] = static_cast<int32_t>(TokenType::kUnknown);
    put("unknown_token_id", static_cast<uint32_t>(unknown));
  }

  // A list of texts with their scores. llama.cpp calls such vocabularies by T5's name.
  Result<void> read_unigram(const tokenizer::Rules& rules) {
    LS_TRY(const std::vector<JsonReader> items, model_["vocab"].items());
    std::vector<double> scores;
    for (const JsonReader& item : items) {
      LS_TRY(const std::vector<JsonReader> pair, item.items());
      if (pair.size() != 2) return item.wrong("a text and a score");
      LS_TRY(std::string text, pair[0].text());
      LS_TRY(const double score, pair[1].number());
      const auto id = static_cast<int64_t>(scores.size());
      LS_TRY_VOID(add_token(item, id, text, TokenType::kNormal));
      scores.push_back(score);
      in_model_.insert(id);
      model_ids_.insert_or_assign(std::move(text), id);  // of equal texts the last counts
    }
    const int64_t count = std::min(static_cast<int64_t>(scores.size()), rows_);
    LS_TRY_VOID(read_added());
    if (!rules.unknown || *rules.unknown >= count)
      return model_["unk_id"].wrong(fmt::format("an id below {}, the tokens", count));
    mark_pieces(rules.byte_fallback, *rules.unknown);
    scores.resize(tokens_.size(), 0);
    const std::vector<float> rounded(scores.begin(), scores.end());
    put("model", std::string("t5"));
    put("pre", std::string("default"));
    put_tokens();
    put("scores", gguf::Array{rounded});
    if (!std::ranges::equal(scores, rounded))
      out_.push_back({"tokenizer.lockstep.scores", {gguf::Array{std::move(scores)}}});
    put("add_space_prefix", rules.adds_space());
    put("remove_extra_whitespaces", rules.merges_spaces());
    if (const std::string_view map = rules.normalizer.charsmap(); !map.empty())
      put("precompiled_charsmap", gguf::Array{std::vector<uint8_t>(map.begin(), map.end())});
    return {};
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
    // Added tokens are cut out of a text before. Where they are plain text, and no merge makes
    // them, they are never what their letters become.
    const nlohmann::json& vocabulary = model_["vocab"].value();
    for (const auto& [text, id] : ids_) {
      if (types_[static_cast<size_t>(id)] != static_cast<int32_t>(TokenType::kNormal)) {
        const bool letter = static_cast<size_t>(utf8_char(text, 0).length) == text.size();
        if (in_model_.contains(id) && !letter && !counts.contains(id))
          apart_.push_back(static_cast<tokenizer::TokenId>(id));
        continue;
      }
      int64_t pairs = 0;
      for (size_t cut = 1; cut < text.size(); ++cut)
        if ((static_cast<unsigned char>(text[cut]) & 0xc0U) != 0x80U)
          pairs += vocabulary.contains(text.substr(0, cut)) && vocabulary.contains(text.substr(cut))
                       ? 1
                       : 0;
      const bool byte = text.size() == 6 && text.starts_with("<0x");
      if (!byte && pairs != (counts.contains(id) ? counts.at(id) : 0))
        return model_["merges"].wrong("all pairs that make a token, as SentencePiece has them");
    }
    return scores;
  }

  // Which special tokens stand around a text.
  Result<void> read_post_processor() {
    LS_TRY(const std::vector<JsonReader> steps, steps_of(root_["post_processor"], "processors"));
    tokenizer::AroundTexts around;
    for (const JsonReader& step : steps) {  // each puts its tokens around those of the one before
      LS_TRY(const std::string type, step["type"].text());
      tokenizer::AroundTexts own;
      if (type == "TemplateProcessing") {
        LS_TRY(own, read_template(step));
      } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        LS_TRY(const tokenizer::TokenId before, id_of_pair(step["cls"]));
        LS_TRY(const tokenizer::TokenId after, id_of_pair(step["sep"]));
        own = {{before}, {after}};
      } else if (type != "ByteLevel") {
        return step["type"].wrong(
            "TemplateProcessing, BertProcessing, RobertaProcessing or ByteLevel");
      }
      around.before.insert(around.before.begin(), own.before.begin(), own.before.end());
      around.after.insert(around.after.end(), own.after.begin(), own.after.end());
    }
    // GGUF has a key for one on each side.
    const auto& [before, after] = around;
    if (before.size() == 1) put("bos_token_id", static_cast<uint32_t>(before[0]));
    if (after.size() == 1) put("eos_token_id", static_cast<uint32_t>(after[0]));
    put("add_bos_token", before.size() == 1);
    put("add_eos_token", after.size() == 1);
    for (const auto& [text, id] : ids_)
      if (!in_model_.contains(id)) apart_.push_back(static_cast<tokenizer::TokenId>(id));
    std::ranges::sort(apart_);
    out_.push_back({tokenizer::kRulesKey, {tokenizer::rules_json(root_, around, apart_)}});
    return {};
  }

  Result<tokenizer::AroundTexts> read_template(const JsonReader& step) const {
    tokenizer::AroundTexts out;
    LS_TRY(const std::vector<JsonReader> parts, step["single"].items());
    int texts = 0;
    for (const JsonReader& part : parts) {
      if (part["Sequence"].present()) {
        LS_TRY(const std::string which, part["Sequence"]["id"].text());
        if (which != "A") return part["Sequence"]["id"].wrong("\"A\"");
        ++texts;
        continue;
      }
      const JsonReader name = part["SpecialToken"]["id"];
      LS_TRY(const std::string text, name.text());
      std::vector<tokenizer::TokenId>& side = texts > 0 ? out.after : out.before;
      // The name of what may be several tokens.
      if (const JsonReader listed = step["special_tokens"][text]["ids"]; listed.present()) {
        LS_TRY(const std::vector<JsonReader> ids, listed.items());
        for (const JsonReader& each : ids) {
          LS_TRY(const tokenizer::TokenId id, known_id(each));
          side.push_back(id);
        }
        continue;
      }
      const auto id = ids_.find(text);
      if (id == ids_.end()) return name.wrong("a token");
      side.push_back(static_cast<tokenizer::TokenId>(id->second));
    }
    if (texts != 1) return step["single"].wrong("one Sequence \"A\" among special tokens");
    return out;
  }

  // ["</s>", 2].
  Result<tokenizer::TokenId> id_of_pair(const JsonReader& pair) const {
    LS_TRY(const std::vector<JsonReader> parts, pair.items());
    if (parts.size() != 2) return pair.wrong("a token and its id");
    return known_id(parts[1]);
  }

  Result<tokenizer::TokenId> known_id(const JsonReader& place) const {
    LS_TRY(const int64_t id, place.integer(0, static_cast<int64_t>(tokens_.size()) - 1));
    return static_cast<tokenizer::TokenId>(id);
  }

  JsonReader root_, model_;
  int64_t rows_;
  std::unordered_set<int64_t> in_model_;   // ids that are no added tokens alone
  std::vector<tokenizer::TokenId> apart_;  // ids that texts are never split into
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<std::string, int64_t> model_ids_;  // without the added tokens
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
