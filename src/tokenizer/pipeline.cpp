#include "tokenizer/pipeline.h"

#include <algorithm>

#include <utf8proc.h>

#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

struct Cut {
  std::string_view text;
  bool at_start;  // of the whole text
};
using Cuts = std::vector<Cut>;

struct Match {
  size_t begin, end;
};

// What becomes of matches, and of what lies between.
void cut_at(const Cut& piece, const std::vector<Match>& matches, CutStep::Keep keep, Cuts& out) {
  using Keep = CutStep::Keep;
  const auto put = [&](size_t begin, size_t end) {
    if (end > begin)
      out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
  };
  size_t done = 0;
  for (size_t i = 0; i < matches.size(); ++i) {
    const Match& match = matches[i];
    switch (keep) {
      case Keep::kRemoved:
        put(done, match.begin);
        done = match.end;
        break;
      case Keep::kIsolated:
        put(done, match.begin);
        put(match.begin, match.end);
        done = match.end;
        break;
      case Keep::kContiguous: {
        put(done, match.begin);
        size_t end = match.end;
        while (i + 1 < matches.size() && matches[i + 1].begin == end) end = matches[++i].end;
        put(match.begin, end);
        done = end;
        break;
      }
      case Keep::kWithPrevious:
        put(done, match.end);
        done = match.end;
        break;
      case Keep::kWithNext:
        put(done, match.begin);
        done = match.begin;
        break;
    }
  }
  put(done, piece.text.size());
}

std::vector<Match> matches_of(std::string_view text, std::string_view what) {
  std::vector<Match> out;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size())
    out.push_back({at, at + what.size()});
  return out;
}

template <class Test>
std::vector<Match> matches_of(std::string_view text, const Test& test) {
  std::vector<Match> out;
  for_characters(
      text,
      [&](uint32_t code, std::string_view bytes) {
        const auto at = static_cast<size_t>(bytes.data() - text.data());
        if (test(code)) out.push_back({at, at + bytes.size()});
      },
      [](std::string_view) {});
  return out;
}

bool is_number(uint32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

// Spaces become marks, and one is put before a text that has none.
Cut mark_spaces(const Cut& piece, const CutStep& step, std::deque<std::string>& made) {
  std::string marked;
  marked.reserve(piece.text.size() + piece.text.size() / 2 + step.text.size());
  for (const char c : piece.text) {
    if (c == ' ')
      marked += step.text;
    else
      marked += c;
  }
  const bool wanted = step.prefix == CutStep::Prefix::kAlways ||
                      (step.prefix == CutStep::Prefix::kFirst && piece.at_start);
  if (wanted && !marked.starts_with(step.text)) marked.insert(0, step.text);
  return {made.emplace_back(std::move(marked)), piece.at_start};
}

void apply_cut(const CutStep& step, const Cut& piece, std::deque<std::string>& made, Cuts& out) {
  switch (step.kind) {
    case CutStep::Kind::kMetaspace: {
      const Cut marked = mark_spaces(piece, step, made);
      if (!step.split)
        out.push_back(marked);
      else
        cut_at(marked, matches_of(marked.text, std::string_view(step.text)),
               CutStep::Keep::kWithNext, out);
      return;
    }
    case CutStep::Kind::kWhiteSpace:
      return cut_at(piece, matches_of(piece.text, is_white_space), step.keep, out);
    case CutStep::Kind::kDigits:
      return cut_at(piece, matches_of(piece.text, is_number), step.keep, out);
    case CutStep::Kind::kText:
      return cut_at(piece, matches_of(piece.text, std::string_view(step.text)), step.keep, out);
  }
}

}  // namespace

Pipeline::Pipeline(const Rules& rules, int64_t tokens) : rules_(rules) {
  // Of texts that became equal the first counts; the hub's library takes any.
  for (const AddedToken& token : rules.added) {
    if (token.id >= tokens || token.text.empty()) continue;
    if (token.normalized)
      normalized_.add(rules.normalizer.apply(token.text), token);
    else
      raw_.add(token.text, token);
  }
}

void Pipeline::Finder::add(std::string_view text, const AddedToken& token) {
  if (text.empty()) return;
  size_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    auto& children = nodes[at].children;
    const auto found = std::ranges::find(children, byte, &std::pair<uint8_t, int32_t>::first);
    if (found != children.end()) {
      at = static_cast<size_t>(found->second);
      continue;
    }
    children.emplace_back(byte, static_cast<int32_t>(nodes.size()));
    at = nodes.size();
    nodes.emplace_back();
  }
  if (nodes[at].token == nullptr) nodes[at].token = &token;
}

const AddedToken* Pipeline::Finder::longest(std::string_view text, size_t& size) const {
  const AddedToken* found = nullptr;
  size_t node = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto& children = nodes[node].children;
    const auto child = std::ranges::find(children, static_cast<uint8_t>(text[at]),
                                         &std::pair<uint8_t, int32_t>::first);
    if (child == children.end()) break;
    node = static_cast<size_t>(child->second);
    if (nodes[node].token == nullptr) continue;
    found = nodes[node].token;
    size = at + 1;
  }
  return found;
}

std::vector<Fragment> Pipeline::Finder::split(std::string_view text, bool parse_special) const {
  std::vector<Fragment> out;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && nodes.size() > 1;) {
    size_t size = 0;
    const AddedToken* token = longest(text.substr(at), size);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + size;
    at = end;
    if (token->special && !parse_special) continue;
    // Up to `done` all is white space, if a token before took it: it is not walked over again.
    if (token->strip_before)
      begin = std::max(done, begin) -
              (begin > done ? white_space_after(text.substr(done, begin - done)) : 0);
    if (token->strip_after) {
      end = std::max(done, end);
      end += white_space_before(text.substr(end));
    }
    if (begin > done) out.push_back({text.substr(done, begin - done)});
    if (end > begin) out.push_back({text.substr(begin, end - begin), token->id});
    done = end;  // a token of white space within what the last one took gives some of it back
  }
  if (done < text.size()) out.push_back({text.substr(done)});
  return out;
}

// Where normalizing takes the first character away, the hub's library holds that what is left does
// not begin the text.
bool Pipeline::keeps_first(std::string_view text) const {
  if (rules_.normalizer.changes_nothing() || text.empty()) return true;
  const Utf8Char first = utf8_char(text, 0);
  const auto size = static_cast<size_t>(std::max(1, first.length));
  return !rules_.normalizer.apply(text.substr(0, size)).empty();
}

std::vector<Fragment> Pipeline::run(std::string_view text, bool parse_special,
                                    std::deque<std::string>& made) const {
  std::vector<Fragment> out;
  for (const Fragment& raw : raw_.split(text, parse_special)) {
    if (raw.token != kNoToken) {
      out.push_back(raw);
      continue;
    }
    const std::string_view normal =
        rules_.normalizer.changes_nothing()
            ? raw.text
            : std::string_view(made.emplace_back(rules_.normalizer.apply(raw.text)));
    const bool begins = raw.text.data() == text.data() && keeps_first(raw.text);
    for (const Fragment& fragment : normalized_.split(normal, parse_special)) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment);
        continue;
      }
      if (rules_.prefix_space && !fragment.text.starts_with(' ')) {
        out.push_back({made.emplace_back(" " + std::string(fragment.text))});
        continue;
      }
      const bool at_start = begins && fragment.text.data() == normal.data();
      Cuts cuts = {{fragment.text, at_start}}, next;
      for (const CutStep& step : rules_.cuts) {
        next.clear();
        for (const Cut& cut : cuts) apply_cut(step, cut, made, next);
        cuts.swap(next);
      }
      for (const Cut& cut : cuts) out.push_back({cut.text});
    }
  }
  return out;
}

}  // namespace lockstep::tokenizer
