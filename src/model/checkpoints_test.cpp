// The table of checkpoints against the forward passes of all architectures, and
// docs/checkpoints.md against the table.
#include "lockstep/detail/checkpoints.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "model/forward.h"

namespace lockstep::model {
namespace {

using detail::CheckpointRow;
using detail::kCheckpointRows;

// Has every weight that it is asked for, or only those that a forward pass cannot do without.
class NamedWeights : public Weights {
 public:
  explicit NamedWeights(bool all) : all_(all) {}
  bool has(const std::string& name) const override {
    if (name.ends_with("ffn_norm.weight")) return true;  // what has none stands elsewhere
    return all_ && !name.starts_with("rope_");           // rope factors would be decoded
  }

 protected:
  op::Weight find(const std::string& name, const std::vector<int64_t>&) override {
    op::Weight weight;
    weight.name = name;
    return weight;
  }

 private:
  bool all_;
};

// No two sizes, and no two products of them, are the same.
Config config_of(const Architecture& arch, bool scales) {
  Config config;
  config.arch = &arch;
  config.layers = 3;
  config.width = 1009;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_size = 22;
  config.value_size = 13;
  config.feed_forward = 1511;
  config.vocabulary = 2003;
  config.context_length = 64;
  config.rope.dims = 22;
  config.rope.head_size = 22;
  config.windowed_rope = config.rope;
  if (arch.experts) {
    config.experts.count = 7;
    config.experts.used = 3;
    config.experts.feed_forward = 20;
  }
  if (arch.shared_expert) config.experts.shared_feed_forward = 24;
  if (arch.latent) {
    config.kv_heads = config.heads;
    config.latent = {.keys_values = 31, .queries = 37};
    config.rope.dims = config.rope.head_size = 8;
  }
  if (scales)
    config.embedding_scale = config.residual_scale = config.logit_divisor = config.attention_scale =
        0.5;
  return config;
}

int64_t size_of(const Config& config, const std::string& name) {
  const std::map<std::string, int64_t> sizes = {
      {"width", config.width},
      {"heads", config.heads},
      {"kv_heads", config.kv_heads},
      {"head_size", config.head_size},
      {"value_size", config.value_size},
      {"feed_forward", config.feed_forward},
      {"vocabulary", config.vocabulary},
      {"experts", config.experts.count},
      {"experts_used", config.experts.used},
      {"expert_feed_forward", config.experts.feed_forward},
      {"shared_feed_forward", config.experts.shared_feed_forward},
      {"latent", config.latent.keys_values},
      {"query_latent", config.latent.queries},
      {"rotated", config.rope.dims},
      {"1", 1},
  };
  const auto found = sizes.find(name);
  return found != sizes.end() ? found->second : -1;
}

// "[tokens, heads * head_size]": the numbers of a row.
int64_t width_of(const Config& config, std::string_view shape) {
  std::string inside(shape.substr(1, shape.size() - 2));
  std::string part = inside.substr(inside.find(", ") + 2);
  if (const size_t plus = part.find(" + "); plus != std::string::npos)
    return size_of(config, part.substr(0, plus)) + size_of(config, part.substr(plus + 3));
  int64_t width = 1;
  for (size_t star; (star = part.find(" * ")) != std::string::npos; part.erase(0, star + 3))
    width *= size_of(config, part.substr(0, star));
  return width * size_of(config, part);
}

struct Case {
  Config config;
  op::Program program;
};

// Each architecture with and without what is optional.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Architecture& arch : architectures())
    for (const bool all : {false, true}) {
      Case c{config_of(arch, all && arch.scales), {}};
      NamedWeights weights(all);
      c.program = forward_pass(c.config, 64, weights);
      out.push_back(std::move(c));
    }
  return out;
}

std::string in_layer(std::string_view name, int64_t layer) {
  std::string out(name);
  if (name.starts_with("blk.N.")) out.replace(4, 1, std::to_string(layer));
  return out;
}

TEST(Checkpoints, OfEveryArchitectureAreThoseOfTheTable) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.config.arch->name);
    std::vector<std::string> expected, actual;
    const auto add = [&](const CheckpointRow& row, int64_t layer) {
      if (detail::exists_in(row, c.config.arch->name))
        expected.push_back(in_layer(row.name, layer));
    };
    const auto in_layers = [](const CheckpointRow& row) { return row.name.starts_with("blk.N."); };
    const auto* first = std::ranges::find_if(kCheckpointRows, in_layers);
    const auto* last = first;
    while (in_layers(*last)) ++last;
    for (const auto* row = kCheckpointRows; row != first; ++row) add(*row, -1);
    for (int64_t layer = 0; layer < c.config.layers; ++layer)
      for (const auto* row = first; row != last; ++row) add(*row, layer);
    for (const auto* row = last; row != std::end(kCheckpointRows); ++row) add(*row, -1);
    for (const op::Value& value : c.program.values)
      if (value.checkpoint) actual.push_back(value.name);
    EXPECT_EQ(actual, expected);
  }
}

TEST(Checkpoints, HaveTheShapesOfTheTable) {
  for (const Case& c : cases())
    for (const op::Value& value : c.program.values) {
      if (!value.checkpoint) continue;
      SCOPED_TRACE(fmt::format("{} {}", c.config.arch->name, value.name));
      const CheckpointRow* row = detail::find_checkpoint(value.name);
      ASSERT_NE(row, nullptr);
      if (value.shape == op::Value::Shape::kScores) {
        EXPECT_EQ(row->shape, detail::kScoresShape);
        EXPECT_EQ(value.width, c.config.heads);
      } else {
        EXPECT_TRUE(row->shape.starts_with("[tokens, ")) << row->shape;
        EXPECT_EQ(value.width, width_of(c.config, row->shape)) << row->shape;
      }
    }
}

TEST(Checkpoints, ArchitecturesAndSetsOfTheTableExist) {
  std::string known;
  for (const Architecture& arch : architectures())
    known += (known.empty() ? "" : " ") + std::string(arch.name);
  std::set<std::string_view> names;
  for (const CheckpointRow& row : kCheckpointRows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(detail::has_word(row.sets, "all")) << row.name;
    EXPECT_EQ(detail::has_word(row.sets, "ops"), row.shape != detail::kScoresShape) << row.name;
    for (const std::string_view words : {row.sets, row.architectures}) {
      std::istringstream in{std::string(words)};
      for (std::string word; in >> word;)
        EXPECT_TRUE(detail::has_word(known, word) || word == "all" || word == "but" ||
                    std::ranges::count(detail::kCheckpointSets, word))
            << row.name << ": " << word;
    }
  }
}

TEST(Checkpoints, AreFoundByTheirNames) {
  EXPECT_EQ(detail::find_checkpoint("blk.007.q_rope")->name, "blk.N.q_rope");
  EXPECT_EQ(detail::find_checkpoint("logits")->name, "logits");
  for (const char* name : {"", "blk", "blk.", "blk.1", "blk.1.", "blk..q", "blk.N.q", "blk.1.x.q",
                           "q", "blk.1.logits", "blk.1.embedding", "output", "blk.-1.q", "logits "})
    EXPECT_EQ(detail::find_checkpoint(name), nullptr) << name;
}

// What an op reads, through the inner values before it: weights by their names in the layer, values
// by those of checkpoints.
class Reads {
 public:
  explicit Reads(const op::Program& program) : program_(program) {}

  std::set<std::string> of(op::ValueId id) const {
    std::set<std::string> out;
    add(id, out);
    return out;
  }

 private:
  void add(op::ValueId id, std::set<std::string>& out) const {
    for (const op::Op& op : program_.ops) {
      if (std::ranges::find(op.outputs, id) == op.outputs.end()) continue;
      // Of the results of attention, sinks are read for the probabilities alone.
      const bool reads = !std::holds_alternative<op::Attention>(op.what) || id == op.outputs[2];
      if (reads)
        for (const op::Weight& weight : weights(op.what)) out.insert(without_layer(weight.name));
      for (const op::ValueId input : inputs_of(op, id)) {
        const op::Value& value = program_.value(input);
        if (value.checkpoint)
          out.insert(std::string(detail::checkpoint_leaf(value.name)));
        else
          add(input, out);
      }
    }
  }

  // Attention is one op with three results, each made of the one before.
  static std::vector<op::ValueId> inputs_of(const op::Op& op, op::ValueId output) {
    if (!std::holds_alternative<op::Attention>(op.what)) return op.inputs;
    const op::ValueId mix = op.outputs[0], scores = op.outputs[1], probs = op.outputs[2];
    if (output == scores) return {op.inputs[0], op.inputs[1]};
    if (output == probs) return {scores};
    EXPECT_EQ(output, mix);
    return {probs, op.inputs[2]};
  }

  static std::string without_layer(const std::string& name) {
    return name.starts_with("blk.") ? name.substr(name.find('.', 4) + 1) : name;
  }

  static std::vector<op::Weight> weights(const op::What& what) {
    std::vector<op::Weight> out;
    if (const auto* embed = std::get_if<op::Embed>(&what)) out = {embed->table};
    if (const auto* norm = std::get_if<op::Norm>(&what)) {
      out = {norm->weight};
      if (norm->bias) out.push_back(*norm->bias);
    }
    if (const auto* linear = std::get_if<op::Linear>(&what)) {
      out = {linear->weight};
      if (linear->bias) out.push_back(*linear->bias);
    }
    if (const auto* choose = std::get_if<op::Choose>(&what); choose != nullptr && choose->bias)
      out = {*choose->bias};
    if (const auto* experts = std::get_if<op::ExpertLinear>(&what)) {
      out = {experts->weight};
      if (experts->bias) out.push_back(*experts->bias);
    }
    if (const auto* attention = std::get_if<op::Attention>(&what);
        attention != nullptr && attention->sinks)
      out = {*attention->sinks};
    return out;
  }

  const op::Program& program_;
};

TEST(Checkpoints, FormulasNameWhatTheOpsRead) {
  for (const Case& c : cases()) {
    const Reads reads(c.program);
    for (size_t i = 0; i < c.program.values.size(); ++i) {
      const op::Value& value = c.program.values[i];
      if (!value.checkpoint) continue;
      const CheckpointRow* row = detail::find_checkpoint(value.name);
      ASSERT_NE(row, nullptr);
      const std::string text = fmt::format(" {} {} ", row->formula, row->notes);
      for (const std::string& name : reads.of(static_cast<op::ValueId>(i))) {
        const auto is_part = [](char ch) { return std::isalnum(ch) != 0 || ch == '_'; };
        bool found = false;
        for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
          found = found || (!is_part(text[at - 1]) && !is_part(text[at + name.size()]));
        EXPECT_TRUE(found) << c.config.arch->name << ": " << row->name << " does not name " << name;
      }
    }
  }
}

// The list of docs/checkpoints.md.
std::string document_list() {
  const auto words = [](std::string_view text) {
    std::string out;
    std::istringstream in{std::string(text)};
    for (std::string word; in >> word;) out += (out.empty() ? "`" : ", `") + word + "`";
    return out;
  };
  std::string out;
  for (const CheckpointRow& row : kCheckpointRows) {
    const std::string_view but = "all but ";
    const std::string_view listed = row.architectures;
    const std::string archs = listed == detail::kAllArchitectures ? "all"
                              : listed.starts_with(but)
                                  ? fmt::format("{}{}", but, words(listed.substr(but.size())))
                                  : words(listed);
    out +=
        fmt::format("\n### {}\n\n    {}\n\n{}\n\n- Shape: `{}`\n- Architectures: {}\n- Sets: {}\n",
                    row.name, row.formula, row.notes, row.shape, archs, words(row.sets));
  }
  return out + "\n";
}

// LOCKSTEP_UPDATE=1 writes the list anew.
TEST(Checkpoints, TheDocumentIsTheTable) {
  const std::string path = LOCKSTEP_FIXTURES "/../../docs/checkpoints.md";
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  std::string text = content.str();
  const std::string begin = "<!-- the table of include/lockstep/detail/checkpoints.h -->\n";
  const std::string end = "<!-- end of the table -->\n";
  const size_t first = text.find(begin);
  const size_t last = text.find(end);
  ASSERT_TRUE(first != std::string::npos && last != std::string::npos && first < last) << path;
  const size_t from = first + begin.size();
  const std::string written = text.substr(from, last - from);
  if (std::getenv("LOCKSTEP_UPDATE") != nullptr) {
    text.replace(from, last - from, document_list());
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(written, document_list()) << "LOCKSTEP_UPDATE=1 writes the list of " << path << " anew";
  // The prose around the list names no checkpoint that does not exist.
  text.erase(from, last - from);
  const std::regex name("`blk\\.(N|[0-9]+)\\.(\\w+)`");
  for (std::sregex_iterator it(text.begin(), text.end(), name), none; it != none; ++it)
    EXPECT_NE(detail::find_checkpoint("blk.0." + (*it)[2].str()), nullptr) << it->str();
}

}  // namespace
}  // namespace lockstep::model
