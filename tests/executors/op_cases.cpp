#include "executors/op_cases.h"

#include <cstring>

#include <fmt/format.h>

#include "quant/blocks.h"
#include "quant/encode.h"

namespace lockstep {
namespace {

using quant::Format;

// Random codes with sane scales, for formats that cannot be encoded.
template <class Block>
void fill_random(Random& random, Block& block) {
  auto* bytes = reinterpret_cast<uint8_t*>(&block);
  for (size_t i = 0; i < sizeof block; ++i) bytes[i] = static_cast<uint8_t>(random.below(256));
  if constexpr (requires { block.d; })
    block.d = float_to_half(static_cast<float>(0.01 * random.gaussian()));
  if constexpr (requires { block.d_min; })
    block.d_min = float_to_half(static_cast<float>(0.01 * random.gaussian()));
  if constexpr (requires { block.m; })
    block.m = float_to_half(static_cast<float>(0.1 * random.gaussian()));
  if constexpr (requires { block.exponent; })
    block.exponent = static_cast<uint8_t>(120 + random.below(8));
}

constexpr int64_t kPositions = 300;  // of the cache

void linear_case(std::vector<OpCase>& out, Format format, int64_t rows, int64_t columns,
                 int64_t tokens, bool bias) {
  const quant::FormatInfo& info = quant::info(format);
  if (columns % info.block_values != 0) return;
  const bool quantized = info.block_values > 1;
  out.push_back({fmt::format("linear {} {}x{} on {} tokens{}", info.name, rows, columns, tokens,
                             bias ? " with bias" : ""),
                 quantized ? Rounding::kQuantized : Rounding::kFloat, [=](CaseBuilder& b) {
                   b.tokens = tokens;
                   op::Linear linear{b.weight(format, rows, columns, 0.1), {}};
                   if (bias) linear.bias = b.weight(Format::kF32, 1, rows);
                   b.add(linear, {b.input(columns)}, rows);
                 }});
}

void add_linears(std::vector<OpCase>& out) {
  quant::Format formats[] = {Format::kF32,  Format::kF16,    Format::kBF16,   Format::kQ4_0,
                             Format::kQ4_1, Format::kQ5_0,   Format::kQ5_1,   Format::kQ8_0,
                             Format::kQ2_K, Format::kQ3_K,   Format::kQ4_K,   Format::kQ5_K,
                             Format::kQ6_K, Format::kIQ4_NL, Format::kIQ4_XS, Format::kMXFP4};
  for (const Format format : formats) {
    linear_case(out, format, 40, 256, 1, false);
    linear_case(out, format, 257, 512, 7, true);
    linear_case(out, format, 100, 768, 1, true);
    linear_case(out, format, 1, 32, 13, false);
    linear_case(out, format, 129, 96, 25, false);
    linear_case(out, format, 33, 1120, 2, true);  // three blocks of 256 and a part
    linear_case(out, format, 64, 2816, 49, false);
    linear_case(out, format, 7, 1, 3, true);
    linear_case(out, format, 16, 255, 12, false);
    linear_case(out, format, 17, 257, 1, false);
  }
}

void add_rows(std::vector<OpCase>& out) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kQ4_K, Format::kQ8_0})
    out.push_back(
        {fmt::format("embed {}", quant::info(format).name), Rounding::kNone, [=](CaseBuilder& b) {
           b.add(op::Embed{b.weight(format, kPositions, 256), op::Embed::Index::kToken}, {}, 256);
         }});
  out.push_back(
      {"embed by position", Rounding::kNone, [](CaseBuilder& b) {
         b.add(op::Embed{b.weight(Format::kF32, kPositions, 7), op::Embed::Index::kPosition}, {},
               7);
       }});
  for (const int64_t width : {1, 7, 64, 255, 257, 896}) {
    for (const bool layer : {false, true})
      out.push_back({fmt::format("{} norm of {}", layer ? "layer" : "rms", width), Rounding::kFloat,
                     [=](CaseBuilder& b) {
                       op::Norm norm;
                       norm.kind = layer ? op::Norm::Kind::kLayer : op::Norm::Kind::kRms;
                       norm.group = width;
                       norm.epsilon = 1e-5;
                       norm.weight = b.weight(Format::kF32, 1, width);
                       if (layer) norm.bias = b.weight(Format::kF32, 1, width);
                       b.add(norm, {b.input(2 * width, 3)}, 2 * width);
                     }});
    for (const auto kind : {op::Activate::Kind::kSilu, op::Activate::Kind::kGeluTanh,
                            op::Activate::Kind::kGeluErf, op::Activate::Kind::kClampedSwish})
      for (const bool gated : {false, true})
        out.push_back({fmt::format("activation {}{} of {}", static_cast<int>(kind),
                                   gated ? ", gated," : "", width),
                       Rounding::kFloat, [=](CaseBuilder& b) {
                         std::vector<op::ValueId> inputs = {b.input(width, 4, true)};
                         if (gated) inputs.push_back(b.input(width, 5));
                         b.add(op::Activate{kind}, inputs, width);
                       }});
    out.push_back({fmt::format("add of {}", width), Rounding::kFloat, [=](CaseBuilder& b) {
                     b.add(op::Add{}, {b.input(width, 1, true), b.input(width)}, width);
                   }});
    out.push_back({fmt::format("scale of {}", width), Rounding::kFloat, [=](CaseBuilder& b) {
                     b.add(op::Scale{0.22}, {b.input(width, 1, true)}, width);
                   }});
    out.push_back({fmt::format("soft cap of {}", width), Rounding::kFloat, [=](CaseBuilder& b) {
                     b.add(op::SoftCap{30}, {b.input(width, 40, true)}, width);
                   }});
    out.push_back({fmt::format("slice of {}", width), Rounding::kNone, [=](CaseBuilder& b) {
                     b.add(op::Slice{3}, {b.input(width + 5, 1, true)}, width);
                   }});
  }
  struct PartsCase {
    int64_t heads, size, first, width, rest;
    bool shared;
  };
  for (const PartsCase c :
       {PartsCase{1, 1, 0, 1, 0, false}, PartsCase{7, 33, 5, 17, 0, false},
        PartsCase{16, 192, 0, 128, 64, true}, PartsCase{3, 257, 2, 255, 7, true},
        PartsCase{7, 24, 8, 16, 9, false}, PartsCase{1, 40, 1, 31, 8, true}})
    out.push_back(
        {fmt::format("{} of {} numbers of {} heads{}", c.width, c.size, c.heads,
                     c.rest == 0 ? ""
                     : c.shared  ? ", and a part that all share"
                                 : ", and a part for each"),
         Rounding::kNone, [=](CaseBuilder& b) {
           std::vector<op::ValueId> inputs = {b.input(c.heads * c.size, 1, true)};
           if (c.rest > 0) inputs.push_back(b.input(c.shared ? c.rest : c.heads * c.rest));
           b.add(op::HeadParts{c.heads, c.first, c.width}, inputs, c.heads * (c.width + c.rest));
         }});
  // A program as latent attention has it: what is rotated comes from one row and goes to another.
  for (const int64_t tokens : {1, 9})
    out.push_back({fmt::format("rotated ends of heads on {} tokens", tokens), Rounding::kFloat,
                   [=](CaseBuilder& b) {
                     b.tokens = tokens;
                     const op::ValueId q = b.input(5 * 48, 1, true);
                     op::Rope rope;
                     rope.head_size = rope.dims = 16;
                     const op::ValueId last = b.add(op::HeadParts{5, 32, 16}, {q}, 5 * 16);
                     const op::ValueId turned = b.add(rope, {last}, 5 * 16);
                     b.add(op::HeadParts{5, 0, 32}, {q, turned}, 5 * 48);
                   }});
  for (const bool adjacent : {false, true})
    for (const int64_t dims : {2, 32, 80})
      out.push_back({fmt::format("rope of {} dims, {}", dims, adjacent ? "adjacent" : "halves"),
                     Rounding::kFloat, [=](CaseBuilder& b) {
                       op::Rope rope;
                       rope.head_size = 80;
                       rope.dims = dims;
                       rope.pairing =
                           adjacent ? op::Rope::Pairing::kAdjacent : op::Rope::Pairing::kHalves;
                       rope.base = 500000;
                       rope.magnitude = 1.1;
                       b.add(rope, {b.input(3 * 80)}, 3 * 80);
                     }});
}

struct ExpertsCase {
  Format format = Format::kF32;
  int64_t experts = 8, used = 2;
  int64_t rows = 40, columns = 96;
  int64_t tokens = 37;
  bool bias = false, own_inputs = false;
  bool ties = false;  // all experts alike: every token takes the first ones
};

void expert_linear_case(std::vector<OpCase>& out, const ExpertsCase& c) {
  const quant::FormatInfo& info = quant::info(c.format);
  if (c.columns % info.block_values != 0) return;
  out.push_back({fmt::format("{} of {} experts {} {}x{} on {} tokens{}{}{}", c.used, c.experts,
                             info.name, c.rows, c.columns, c.tokens, c.bias ? " with bias" : "",
                             c.own_inputs ? ", an input each" : "", c.ties ? ", all the same" : ""),
                 info.block_values > 1 ? Rounding::kQuantized : Rounding::kFloat,
                 [=](CaseBuilder& b) {
                   b.tokens = c.tokens;
                   op::ExpertLinear linear{
                       c.experts, b.weight(c.format, c.experts * c.rows, c.columns, 0.1), {}};
                   if (c.bias) linear.bias = b.weight(Format::kF32, c.experts, c.rows);
                   const op::ValueId x = b.input(c.columns * (c.own_inputs ? c.used : 1));
                   const op::ValueId choice =
                       b.add(op::Choose{}, {b.input(c.experts, c.ties ? 0 : 1)}, c.used);
                   b.add(linear, {x, choice}, c.used * c.rows);
                 }});
}

void add_experts(std::vector<OpCase>& out) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16, Format::kQ4_0,
                              Format::kQ8_0, Format::kQ4_K, Format::kQ6_K, Format::kMXFP4}) {
    expert_linear_case(out, {.format = format, .columns = 256});
    expert_linear_case(out, {.format = format, .columns = 512, .tokens = 1, .bias = true});
    expert_linear_case(out, {.format = format, .used = 8, .columns = 256, .own_inputs = true});
    expert_linear_case(out, {.format = format,
                             .experts = 33,
                             .used = 7,
                             .rows = 17,
                             .columns = 768,
                             .tokens = 7,
                             .bias = true,
                             .own_inputs = true});
    expert_linear_case(
        out, {.format = format, .experts = 1, .used = 1, .rows = 1, .columns = 32, .tokens = 255});
    expert_linear_case(out, {.format = format, .rows = 129, .columns = 255, .tokens = 257});
    expert_linear_case(out, {.format = format, .rows = 131, .columns = 1024, .tokens = 190});
    expert_linear_case(
        out, {.format = format, .columns = 512, .tokens = 130, .own_inputs = true, .ties = true});
    expert_linear_case(out, {.format = format, .rows = 65, .columns = 232, .tokens = 2});
    expert_linear_case(out, {.format = format, .rows = 33, .columns = 224, .tokens = 70});
  }
  for (const quant::FormatInfo& info : quant::all_formats())
    if (info.decodable)
      expert_linear_case(
          out, {.format = info.format(), .experts = 5, .rows = 70, .columns = 768, .bias = true});
  struct Routed {
    int64_t experts, used, groups;
  };
  constexpr Routed kRouted[] = {{1, 1, 1}, {7, 7, 1}, {60, 4, 1}, {255, 8, 5}, {256, 6, 8}};
  for (const bool sigmoid : {false, true})
    for (const bool normalize : {false, true})
      for (const Routed& routed : kRouted) {
        const auto scoring = sigmoid ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
        out.push_back({fmt::format("{} of {} experts in {} groups weighed{}{}", routed.used,
                                   routed.experts, routed.groups, sigmoid ? " by sigmoid" : "",
                                   normalize ? ", normalized" : ""),
                       Rounding::kFloat, [=](CaseBuilder& b) {
                         const op::ValueId router = b.input(routed.experts, 2);
                         op::Choose choose{
                             scoring, {}, routed.groups, std::max<int64_t>(1, routed.groups / 2)};
                         if (routed.groups > 1)
                           choose.bias = b.weight(Format::kF32, 1, routed.experts, 0.1);
                         const op::ValueId choice = b.add(choose, {router}, routed.used);
                         b.add(op::Weigh{scoring, normalize, 2.5}, {router, choice}, routed.used);
                       }});
      }
  for (const int64_t width : {1, 7, 255, 257, 896})
    out.push_back(
        {fmt::format("mix of 5 experts of {}", width), Rounding::kFloat, [=](CaseBuilder& b) {
           b.add(op::MixExperts{}, {b.input(5), b.input(5 * width, 3)}, width);
         }});
  for (const int64_t width : {1, 7, 255, 257})
    out.push_back({fmt::format("gate of {}", width), Rounding::kFloat, [=](CaseBuilder& b) {
                     b.add(op::Gate{}, {b.input(width, 3), b.input(1, 4, true)}, width);
                   }});
}

// `sinks`: their spread; 0: none.
void attention_case(std::vector<OpCase>& out, op::Attention attention, int64_t tokens,
                    double sinks = 0) {
  out.push_back(
      {fmt::format("attention of {}/{} heads of {}/{}{}{}{} on {} tokens", attention.heads,
                   attention.kv_heads, attention.head_size, attention.value_size,
                   attention.window > 0 ? fmt::format(", window {},", attention.window) : "",
                   attention.soft_cap > 0 ? ", capped," : "",
                   sinks > 0 ? fmt::format(", sinks {},", sinks) : "", tokens),
       Rounding::kCache, [=](CaseBuilder& b) {
         b.tokens = tokens;
         op::Attention a = attention;
         a.scale = 1 / std::sqrt(static_cast<double>(a.head_size));
         if (sinks > 0) a.sinks = b.sinks(a.heads, sinks);
         const op::ValueId q = b.input(a.heads * a.head_size, 2);
         const op::ValueId k = b.input(a.kv_heads * a.head_size);
         const op::ValueId v = b.input(a.kv_heads * a.value_size);
         b.attention(a, q, k, v);
       }});
}

void add_attentions(std::vector<OpCase>& out) {
  for (const int64_t tokens : {1, 2, 31, 33, 129, 257}) {
    attention_case(out, {.heads = 4, .kv_heads = 4, .head_size = 64, .value_size = 64}, tokens);
    attention_case(out, {.heads = 14, .kv_heads = 2, .head_size = 64, .value_size = 64}, tokens);
    attention_case(out, {.heads = 3, .kv_heads = 1, .head_size = 7, .value_size = 7}, tokens);
    attention_case(out, {.heads = 2, .kv_heads = 2, .head_size = 96, .value_size = 80}, tokens);
    attention_case(out,
                   {.heads = 4, .kv_heads = 2, .head_size = 128, .value_size = 128, .window = 20},
                   tokens);
    attention_case(out, {.heads = 3, .kv_heads = 3, .head_size = 192, .value_size = 128}, tokens);
    attention_case(out,
                   {.heads = 4, .kv_heads = 2, .head_size = 256, .value_size = 256, .window = 40},
                   tokens);
    attention_case(
        out, {.heads = 2, .kv_heads = 1, .head_size = 32, .value_size = 32, .soft_cap = 5}, tokens);
    // Sinks that count, and such that take all or nothing.
    for (const double sinks : {2.0, 200.0}) {
      attention_case(out, {.heads = 8, .kv_heads = 1, .head_size = 64, .value_size = 64}, tokens,
                     sinks);
      attention_case(out, {.heads = 6, .kv_heads = 2, .head_size = 48, .value_size = 40}, tokens,
                     sinks);
    }
    attention_case(out, {.heads = 4, .kv_heads = 2, .head_size = 64, .value_size = 64, .window = 7},
                   tokens, 1);
  }
}

}  // namespace

op::Weight CaseBuilder::weight(Format format, int64_t rows, int64_t columns, double spread) {
  const quant::FormatInfo& info = quant::info(format);
  const int64_t values = rows * columns;
  std::vector<std::byte>& bytes =
      storage_.emplace_back(static_cast<size_t>(quant::size_bytes(info, values)));
  if (quant::encodable(format)) {
    std::vector<float> floats(static_cast<size_t>(values));
    for (float& value : floats) value = static_cast<float>(spread * random.gaussian());
    quant::encode(format, floats.data(), values, bytes.data());
  } else {
    quant::visit_format(format, [&](auto block) {
      for (size_t at = 0; at < bytes.size(); at += sizeof block) {
        fill_random(random, block);
        std::memcpy(bytes.data() + at, &block, sizeof block);
      }
    });
  }
  return {fmt::format("weight {}", storage_.size()), &info, rows, columns, bytes};
}

op::Weight CaseBuilder::sinks(int64_t heads, double spread) {
  const op::Weight all = weight(Format::kF32, 1, heads, spread);
  auto* floats = reinterpret_cast<float*>(storage_.back().data());
  for (int64_t head = 0; head < heads; ++head)
    floats[head] = std::copysign(floats[head], head % 2 == 0 ? -1.0f : 1.0f);
  return all;
}

op::ValueId CaseBuilder::input(int64_t width, double spread, bool edges) {
  const op::Weight table = weight(Format::kF32, kPositions, width, spread);
  if (edges) {
    constexpr float kEdges[] = {0.0f, -0.0f, 1e-45f, -1e-40f, 1e-30f, 60.0f, -60.0f, 1e4f, -1e4f};
    auto* floats = reinterpret_cast<float*>(storage_.back().data());
    for (int64_t i = 0; i < kPositions * width; i += 3)
      floats[i] = kEdges[random.below(std::ssize(kEdges))];
  }
  return add(op::Embed{table, op::Embed::Index::kPosition}, {}, width);
}

op::ValueId CaseBuilder::add(op::What what, std::vector<op::ValueId> inputs, int64_t width) {
  const auto id = static_cast<op::ValueId>(program_.values.size());
  program_.values.push_back({fmt::format("value {}", id), width});
  program_.ops.push_back({std::move(what), std::move(inputs), {id}});
  return id;
}

op::ValueId CaseBuilder::attention(const op::Attention& attention, op::ValueId q, op::ValueId k,
                                   op::ValueId v) {
  const op::ValueId mix = add(attention, {q, k, v}, attention.heads * attention.value_size);
  for (const char* name : {"scores", "probs"}) {
    program_.ops.back().outputs.push_back(static_cast<op::ValueId>(program_.values.size()));
    program_.values.push_back({name, attention.heads, op::Value::Shape::kScores});
  }
  return mix;
}

const op::Program& CaseBuilder::finish() {
  program_.vocabulary = program_.value(program_.logits()).width;
  program_.context_length = kPositions;
  for (int64_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<exec::TokenId>(random.below(program_.vocabulary)));
  return program_;
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> out;
  add_linears(out);
  add_rows(out);
  add_experts(out);
  add_attentions(out);
  return out;
}

}  // namespace lockstep
