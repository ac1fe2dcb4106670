// An audit for people: what was found, what to do about it, then the tables.
#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "audit/audit.h"
#include "base/table.h"
#include "base/text.h"

namespace lockstep::audit {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLongestValue = 40;
constexpr size_t kMostRows = 40;

std::string counted(int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

int64_t count_of(const Audit& audit, Verdict verdict) {
  return std::ranges::count(audit.tensors, verdict, &TensorAudit::verdict);
}

bool is_fine(const TensorAudit& tensor) {
  return tensor.verdict == Verdict::kEqual || tensor.verdict == Verdict::kQuantized;
}

std::string verdict_line(const Audit& audit, const Paint& paint) {
  if (audit.equal()) {
    const int64_t quantized = count_of(audit, Verdict::kQuantized);
    return paint.green(paint.bold(quantized == 0 ? "The same model."
                                                 : "The same model, quantization aside.")) +
           fmt::format(" {}: {} equal, {} quantized. Metadata and tokenizer agree.\n",
                       counted(static_cast<int64_t>(audit.tensors.size()), "tensor", "tensors"),
                       count_of(audit, Verdict::kEqual), quantized);
  }
  std::vector<std::string> problems;
  if (const int64_t n = count_of(audit, Verdict::kWrong); n > 0)
    problems.push_back(counted(n, "tensor is wrong", "tensors are wrong"));
  if (const int64_t n = count_of(audit, Verdict::kMissing); n > 0)
    problems.push_back(counted(n, "tensor is missing in B", "tensors are missing in B"));
  if (const int64_t n = count_of(audit, Verdict::kExtra); n > 0)
    problems.push_back(counted(n, "tensor is only in B", "tensors are only in B"));
  const int64_t keys =
      std::ranges::count_if(audit.metadata, [](const KeyAudit& key) { return !key.fine(); });
  if (keys > 0)
    problems.push_back(
        counted(keys, "number of the metadata differs", "numbers of the metadata differ"));
  if (!audit.tokenizer.equal()) problems.emplace_back("the tokenizers differ");
  return paint.red(paint.bold("Not the same model:")) +
         fmt::format(" {}.\n", fmt::join(problems, "; "));
}

std::string_view advice(How how) {
  switch (how) {
    case How::kTransposed:
      return "the converter must transpose this matrix, or must not: compare with the layout that "
             "the source has";
    case How::kPermuted:
      return "the converter put rows in another order: q and k are permuted once where GGUF's rope "
             "turns adjacent pairs (llama), and not where it turns halves";
    case How::kOffset:
      return "a constant was added: some norms are stored without their 1, which the converter "
             "adds "
             "exactly once";
    case How::kScaled:
      return "a factor was multiplied in: look for a scale that is applied twice, "
             "or never";
    case How::kHalvesSwapped:
      return "a fused tensor has its parts in the wrong order: gate comes before up";
    case How::kOtherLayer:
      return "the converter filed it under the wrong layer";
    case How::kOtherTensor:
      return "the converter filed it under the wrong name";
    case How::kUnknown:
      return "no known mistake explains these numbers: convert this tensor again";
    case How::kNone:
      break;
  }
  return "";
}

std::string advices(const Audit& audit) {
  std::map<How, std::vector<std::string>> by_how;
  std::vector<std::string> missing;
  for (const TensorAudit& tensor : audit.tensors) {
    if (tensor.verdict == Verdict::kWrong) by_how[tensor.how].push_back(printable(tensor.name));
    if (tensor.verdict == Verdict::kMissing) missing.push_back(printable(tensor.name));
  }
  const auto listed = [](const std::vector<std::string>& names) {
    return names.size() == 1 ? names[0] : fmt::format("{} and {} more", names[0], names.size() - 1);
  };
  std::string out;
  for (const auto& [how, names] : by_how)
    out += fmt::format("- {} ({}): {}.\n", name(how), listed(names), advice(how));
  if (!missing.empty())
    out += fmt::format("- missing ({}): the converter left it out.\n", listed(missing));
  for (const KeyAudit& key : audit.metadata)
    if (key.verdict == KeyVerdict::kMissing)
      out += fmt::format("- {}: write it into {}, which lacks it.\n", printable(key.key),
                         key.a.is_null() ? "A" : "B");
    else if (key.verdict == KeyVerdict::kDifferent)
      out += fmt::format("- {}: the files disagree; the model's own configuration decides.\n",
                         printable(key.key));
  return out;
}

std::string error_text(const std::optional<double>& error) {
  if (!error) return "";
  return *error == 0 ? "0" : fmt::format("{:.2e}", *error);
}

std::string times_text(const std::optional<double>& times) {
  return times ? fmt::format("{:.2f}", *times) : "";
}

std::string wrong_tensors(const Audit& audit, int64_t width, const Paint& paint) {
  Table table({{"tensor", false, 0, true},
               {"A", false, 2},
               {"B", false, 2},
               {"verdict"},
               {"error", true, 1},
               {"", false, 0, true}});
  size_t rows = 0;
  for (const TensorAudit& tensor : audit.tensors) {
    if (is_fine(tensor) || ++rows > kMostRows) continue;
    const bool wrong = tensor.verdict == Verdict::kWrong;
    table.add({printable(tensor.name), tensor.format_a, tensor.format_b,
               std::string(wrong ? name(tensor.how) : name(tensor.verdict)),
               error_text(tensor.error), tensor.detail});
  }
  if (rows == 0) return "";
  std::string out = fmt::format("\n{}", table.render(width, paint));
  if (rows > kMostRows)
    out += fmt::format("and {} more (--all or --json lists all)\n", rows - kMostRows);
  return out;
}

std::string all_tensors(const Audit& audit, int64_t width, const Paint& paint) {
  Table table({{"tensor", false, 0, true},
               {"A", false, 2},
               {"B", false, 2},
               {"verdict"},
               {"how"},
               {"error", true},
               {"our encoder", true, 3},
               {"best scale", true, 4},
               {"", false, 0, true}});
  for (const TensorAudit& tensor : audit.tensors)
    table.add({printable(tensor.name), tensor.format_a, tensor.format_b,
               std::string(name(tensor.verdict)), std::string(name(tensor.how)),
               error_text(tensor.error), error_text(tensor.encoder_error),
               error_text(tensor.best_scale_error), tensor.detail});
  return fmt::format("\n{}", table.render(width, paint));
}

// Quantized tensors by their formats: the worst of each.
std::string quantized_tensors(const Audit& audit, int64_t width, const Paint& paint) {
  struct Group {
    int64_t tensors = 0;
    const TensorAudit* worst = nullptr;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const TensorAudit& tensor : audit.tensors) {
    if (tensor.verdict != Verdict::kQuantized) continue;
    Group& group = groups[{tensor.format_a, tensor.format_b}];
    ++group.tensors;
    if (group.worst == nullptr ||
        tensor.times_encoder.value_or(0) > group.worst->times_encoder.value_or(0))
      group.worst = &tensor;
  }
  if (groups.empty()) return "";
  Table table({{"A"},
               {"B"},
               {"quantized tensors", true},
               {"worst", false, 1, true},
               {"error", true},
               {"our encoder", true, 2},
               {"times it", true},
               {"best scale", true, 3}});
  for (const auto& [formats, group] : groups)
    table.add({formats.first, formats.second, fmt::format("{}", group.tensors),
               printable(group.worst->name), error_text(group.worst->error),
               error_text(group.worst->encoder_error), times_text(group.worst->times_encoder),
               error_text(group.worst->best_scale_error)});
  return fmt::format("\n{}", table.render(width, paint));
}

std::string short_value(const ordered_json& value) {
  if (value.is_number_float()) return fmt::format("{:.7g}", value.get<double>());
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return printable(text, kLongestValue);
}

std::string side_value(const ordered_json& value, const ordered_json& assumed) {
  if (!value.is_null()) return short_value(value);
  return assumed.is_null() ? "-" : fmt::format("- (assumed: {})", short_value(assumed));
}

void add_key(const KeyAudit& key, Table& table) {
  table.add({printable(key.key), side_value(key.a, key.assumed_a), side_value(key.b, key.assumed_b),
             std::string(name(key.verdict))});
}

std::vector<Column> key_columns(std::string title) {
  return {{std::move(title), false, 0, true},
          {"A", false, 0, true},
          {"B", false, 0, true},
          {"verdict"}};
}

std::string metadata_table(const Audit& audit, int64_t width, const Paint& paint) {
  Table table(key_columns("metadata"));
  // What differs first.
  for (const bool fine : {false, true})
    for (const KeyAudit& key : audit.metadata)
      if (key.fine() == fine) add_key(key, table);
  return fmt::format("\n{}", table.render(width, paint));
}

std::string list_size(const std::optional<int64_t>& size) {
  return size ? counted(*size, "item", "items") : "-";
}

std::string tokenizer_table(const TokenizerAudit& tokenizer, int64_t width, const Paint& paint) {
  if (tokenizer.lists.empty() && tokenizer.keys.empty()) return "";
  Table table(key_columns("tokenizer"));
  for (const ListAudit& list : tokenizer.lists) {
    const bool one_sided = list.size_a.has_value() != list.size_b.has_value();
    table.add({printable(list.key), list_size(list.size_a), list_size(list.size_b),
               list.fine() ? "equal"
               : one_sided ? "missing"
                           : fmt::format("{} different", list.different)});
    if (one_sided) continue;
    for (const ListAudit::Item& item : list.first)
      table.add({fmt::format("  [{}]", item.index), side_value(item.a, nullptr),
                 side_value(item.b, nullptr), "different"});
  }
  for (const KeyAudit& key : tokenizer.keys) add_key(key, table);
  return fmt::format("\n{}", table.render(width, paint));
}

}  // namespace

std::string to_text(const Audit& audit, int64_t width, const Paint& paint, bool all) {
  std::string out = verdict_line(audit, paint);
  if (!audit.equal()) out += advices(audit);
  out += fmt::format("A: {}\nB: {}\n", printable(audit.path_a), printable(audit.path_b));
  out += all ? all_tensors(audit, width, paint)
             : wrong_tensors(audit, width, paint) + quantized_tensors(audit, width, paint);
  out += metadata_table(audit, width, paint);
  return out + tokenizer_table(audit.tokenizer, width, paint);
}

}  // namespace lockstep::audit
