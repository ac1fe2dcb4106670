#include "tokenizer/rules.h"

#include <algorithm>
#include <limits>

#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr int64_t kMostIds = std::numeric_limits<TokenId>::max() / 2;
constexpr size_t kMostBytes = 4096;  // of an added token: each is searched for in every text

Result<bool> flag_or(const JsonReader& reader, bool otherwise) {
  return reader.present() ? reader.boolean() : Result<bool>(otherwise);
}

Result<AddedToken> read_added(const JsonReader& item) {
  AddedToken token;
  LS_TRY(const int64_t id, item["id"].integer(0, kMostIds));
  token.id = static_cast<TokenId>(id);
  LS_TRY(token.text, item["content"].text());
  LS_TRY(token.special, flag_or(item["special"], false));
  LS_TRY(token.normalized, flag_or(item["normalized"], !token.special));
  LS_TRY(token.strip_before, flag_or(item["lstrip"], false));
  LS_TRY(token.strip_after, flag_or(item["rstrip"], false));
  LS_TRY(const bool word, flag_or(item["single_word"], false));
  if (word) return item["single_word"].wrong("false");
  if (token.text.size() > kMostBytes)
    return item["content"].wrong(fmt::format("at most {} bytes", kMostBytes));
  return token;
}

Result<CutStep> read_metaspace(const JsonReader& step) {
  CutStep cut{.kind = CutStep::Kind::kMetaspace};
  LS_TRY(cut.text, step["replacement"].text_or(std::string(kSpaceMark)));
  LS_TRY(cut.split, flag_or(step["split"], true));
  // Older files say only whether there is a space before.
  LS_TRY(const bool before, flag_or(step["add_prefix_space"], true));
  LS_TRY(const std::string prefix, step["prepend_scheme"].text_or(before ? "always" : "never"));
  if (prefix == "always")
    cut.prefix = CutStep::Prefix::kAlways;
  else if (prefix == "first")
    cut.prefix = CutStep::Prefix::kFirst;
  else if (prefix == "never")
    cut.prefix = CutStep::Prefix::kNever;
  else
    return step["prepend_scheme"].wrong("\"always\", \"first\" or \"never\"");
  if (cut.text != kSpaceMark) return step["replacement"].wrong(fmt::format("\"{}\"", kSpaceMark));
  return cut;
}

Result<CutStep> read_split(const JsonReader& step) {
  CutStep cut{.kind = CutStep::Kind::kText};
  LS_TRY(const bool invert, flag_or(step["invert"], false));
  if (invert) return step["invert"].wrong("false");
  LS_TRY(cut.text, step["pattern"]["String"].text());
  if (cut.text.empty()) return step["pattern"]["String"].wrong("a text that is not empty");
  LS_TRY(const std::string behaviour, step["behavior"].text());
  using Keep = CutStep::Keep;
  const std::pair<std::string_view, Keep> known[] = {{"Removed", Keep::kRemoved},
                                                     {"Isolated", Keep::kIsolated},
                                                     {"Contiguous", Keep::kContiguous},
                                                     {"MergedWithPrevious", Keep::kWithPrevious},
                                                     {"MergedWithNext", Keep::kWithNext}};
  for (const auto& [name, keep] : known) {
    if (behaviour != name) continue;
    cut.keep = keep;
    return cut;
  }
  return step["behavior"].wrong(
      "Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext");
}

Result<void> add_cuts(const JsonReader& step, Rules& out) {
  LS_TRY(const std::string type, step["type"].text());
  if (type == "Sequence") {
    LS_TRY(const std::vector<JsonReader> steps, step["pretokenizers"].items());
    for (const JsonReader& each : steps) LS_TRY_VOID(add_cuts(each, out));
    return {};
  }
  if (type == "Metaspace") {
    LS_TRY(CutStep cut, read_metaspace(step));
    // The hub's library counts what was put before a text, and what stood there, as its start.
    const bool put_before =
        out.normalizer.prepends() || std::ranges::any_of(out.cuts, [](const CutStep& before) {
          return before.kind == CutStep::Kind::kMetaspace &&
                 before.prefix != CutStep::Prefix::kNever;
        });
    if (cut.prefix == CutStep::Prefix::kFirst && !out.cuts.empty() && put_before)
      return step["prepend_scheme"].wrong("\"always\" or \"never\" after steps that prepend");
    out.cuts.push_back(std::move(cut));
  } else if (type == "WhitespaceSplit") {
    out.cuts.push_back({.kind = CutStep::Kind::kWhiteSpace, .keep = CutStep::Keep::kRemoved});
  } else if (type == "Digits") {
    LS_TRY(const bool single, flag_or(step["individual_digits"], false));
    out.cuts.push_back({.kind = CutStep::Kind::kDigits,
                        .keep = single ? CutStep::Keep::kIsolated : CutStep::Keep::kContiguous});
  } else if (type == "Split") {
    LS_TRY(CutStep cut, read_split(step));
    out.cuts.push_back(std::move(cut));
  } else {
    return step["type"].wrong("Metaspace, WhitespaceSplit, Digits, Split or Sequence");
  }
  return {};
}

// Whether there is a step ByteLevel. It may put a space before a text where no other step has cut
// the text before.
Result<bool> find_byte_level(const JsonReader& step, bool first, bool& prefix_space) {
  LS_TRY(const std::string type, step["type"].text());
  if (type == "ByteLevel") {
    LS_TRY(prefix_space, flag_or(step["add_prefix_space"], true));
    if (prefix_space && !first)
      return step["add_prefix_space"].wrong("false, where other steps stand before");
    return true;
  }
  if (type != "Sequence") return false;
  LS_TRY(const std::vector<JsonReader> steps, step["pretokenizers"].items());
  bool found = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    LS_TRY(const bool here, find_byte_level(steps[i], first && i == 0, prefix_space));
    found |= here;
  }
  return found;
}

Result<std::vector<TokenId>> read_ids(const JsonReader& list) {
  std::vector<TokenId> out;
  if (!list.present()) return out;
  LS_TRY(const std::vector<JsonReader> items, list.items());
  for (const JsonReader& item : items) {
    LS_TRY(const int64_t id, item.integer(0, kMostIds));
    out.push_back(static_cast<TokenId>(id));
  }
  return out;
}

}  // namespace

bool Rules::adds_space() const {
  if (byte_level) return false;  // what is added there stays in the text
  return normalizer.prepends(kSpaceMark) || std::ranges::any_of(cuts, [](const CutStep& cut) {
           return cut.kind == CutStep::Kind::kMetaspace && cut.prefix != CutStep::Prefix::kNever;
         });
}

bool Rules::merges_spaces() const {
  return normalizer.merges_spaces() ||
         std::ranges::find(cuts, CutStep::Kind::kWhiteSpace, &CutStep::kind) != cuts.end();
}

Result<Rules> read_rules(const JsonReader& root) {
  Rules out;
  if (root["added_tokens"].present()) {
    LS_TRY(const std::vector<JsonReader> items, root["added_tokens"].items());
    for (const JsonReader& item : items) {
      LS_TRY(AddedToken token, read_added(item));
      out.added.push_back(std::move(token));
    }
  }
  LS_TRY(out.normalizer, Normalizer::read(root["normalizer"]));
  // The hub's library finds nothing everywhere, and cuts the text there.
  for (size_t i = 0; i < out.added.size(); ++i) {
    const AddedToken& token = out.added[i];
    if (!token.normalized || token.text.empty()) continue;
    const size_t left = out.normalizer.apply(token.text).size();
    if (left > 0 && left <= kMostBytes) continue;
    LS_TRY(const std::vector<JsonReader> items, root["added_tokens"].items());
    return items[i]["content"].wrong(fmt::format(
        "a text of which the normalizer leaves 1 to {} bytes (it leaves {})", kMostBytes, left));
  }
  if (root["pre_tokenizer"].present()) {
    LS_TRY(out.byte_level, find_byte_level(root["pre_tokenizer"], true, out.prefix_space));
    if (!out.byte_level) LS_TRY_VOID(add_cuts(root["pre_tokenizer"], out));
    constexpr size_t kMostCuts = 64;
    if (out.cuts.size() > kMostCuts)
      return root["pre_tokenizer"].wrong(fmt::format("at most {} steps", kMostCuts));
  }
  LS_TRY(out.before, read_ids(root["before"]));
  LS_TRY(out.after, read_ids(root["after"]));
  LS_TRY(out.outside, read_ids(root["outside"]));
  const JsonReader model = root["model"];
  LS_TRY(out.byte_fallback, flag_or(model["byte_fallback"], false));
  LS_TRY(out.fuse_unknown, flag_or(model["fuse_unk"], false));
  LS_TRY(const int64_t unknown, model["unk_id"].integer_or(kNoToken, 0, kMostIds));
  if (unknown >= 0) out.unknown = static_cast<TokenId>(unknown);
  return out;
}

std::string rules_json(const JsonReader& root, const AroundTexts& around,
                       const std::vector<TokenId>& outside) {
  nlohmann::json out = {{"before", around.before}, {"after", around.after}, {"outside", outside}};
  for (const char* name : {"added_tokens", "normalizer", "pre_tokenizer"})
    if (root[name].present()) out[name] = root[name].value();
  for (const char* name : {"byte_fallback", "fuse_unk", "unk_id"})
    if (root["model"][name].present()) out["model"][name] = root["model"][name].value();
  return out.dump();
}

}  // namespace lockstep::tokenizer
