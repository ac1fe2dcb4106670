// The mistakes of converters, made in random files of several architectures.
#include <numeric>

#include "audit/test_support.h"
#include "base/temporary_folder.h"
#include "base/test_effort.h"
#include "forge/forge.h"
#include "quant/decode.h"

namespace lockstep::audit::test {
namespace {

using quant::Format;
using Dims = std::vector<int64_t>;

forge::Spec spec_of(const std::string& arch) {
  forge::Spec spec{.arch = arch, .kv_heads = 2, .head_size = 32, .feed_forward = 128};
  spec.layers = 3;
  spec.type = "f32";
  spec.seed = fresh_seed();
  const bool experts = arch.ends_with("moe") || arch == "gpt-oss" || arch == "deepseek2";
  if (experts) {
    spec.experts = 6;
    spec.experts_used = 2;
    spec.expert_feed_forward = 96;
  }
  if (arch == "deepseek2") {
    spec.kv_heads = 0;
    spec.latent = 48;
    spec.rope_dims = 16;
    spec.dense_layers = 1;
    spec.shared_feed_forward = 64;
  }
  if (arch == "gpt2") spec.head_size = spec.kv_heads = 0;
  return spec;
}

// The numbers of a file, tensor by tensor.
struct Numbers {
  std::string name;
  Dims dims;
  Floats values;

  int64_t width() const { return dims[0]; }
  int64_t rows() const { return static_cast<int64_t>(values.size()) / width(); }
  bool is_matrix() const { return dims.size() >= 2; }
  std::string stem() const {
    return name.starts_with("blk.") ? name.substr(name.find('.', 4) + 1) : name;
  }
};

struct Forged {
  std::vector<gguf::Entry> metadata;
  std::vector<Numbers> tensors;

  explicit Forged(const forge::Spec& spec) {
    const TemporaryFolder folder = TemporaryFolder::create().value();
    const std::string path = folder.path().string() + "/model.gguf";
    const auto written = forge::write_model(spec, path);
    LS_CHECK(written.ok(), "{}", written.error().message);
    const gguf::File file = gguf::File::open(path).value();
    metadata.assign(file.metadata().begin(), file.metadata().end());
    for (const gguf::Tensor& tensor : file.tensors()) {
      Numbers numbers{tensor.name, tensor.dims, Floats(static_cast<size_t>(tensor.values()))};
      quant::decode(tensor.format->format(), tensor.data.data(), tensor.values(),
                    numbers.values.data());
      tensors.push_back(std::move(numbers));
    }
  }

  // Matrices in the format, where their rows take it.
  Model file(Format format) const {
    Model model;
    model.metadata = metadata;
    for (const Numbers& numbers : tensors) {
      const bool fits =
          numbers.is_matrix() && numbers.width() % quant::info(format).block_values == 0;
      model.add(numbers.name, numbers.dims, numbers.values, fits ? format : Format::kF32);
    }
    return model;
  }
};

// B's rows are A's in another order.
Numbers with_rows(const Numbers& in, const std::function<int64_t(int64_t)>& row) {
  Numbers out = in;
  for (int64_t r = 0; r < in.rows(); ++r)
    std::copy_n(in.values.begin() + row(r) * in.width(), in.width(),
                out.values.begin() + r * in.width());
  return out;
}

struct ConverterMistake {
  const char* name;
  const char* verdict;
  std::function<bool(const Numbers&)> possible;
  std::function<Numbers(const Numbers&, const Forged&)> make;
};

// Of the same shape, in another layer (`other_layer`) or under another name in the same one.
const Numbers* other_of(const Numbers& in, const Forged& model, bool other_layer) {
  for (const Numbers& other : model.tensors)
    if (other.dims == in.dims && other.name != in.name && in.name.starts_with("blk.") &&
        (other_layer ? other.stem() == in.stem() : other.stem() != in.stem()))
      return &other;
  return nullptr;
}

std::vector<ConverterMistake> converter_mistakes(const Forged& model) {
  const auto is_matrix = [](const Numbers& in) { return in.is_matrix(); };
  const auto is_norm = [](const Numbers& in) { return in.name.ends_with("norm.weight"); };
  const auto any = [](const Numbers&) { return true; };
  const auto is_rotated = [](const Numbers& in) {
    return in.stem().starts_with("attn_q.") || in.stem().starts_with("attn_k.");
  };
  const auto turned = [](const Numbers& in, const Forged&) {
    Numbers out = in;
    const int64_t columns = in.dims[0], rows = in.dims[1], size = columns * rows;
    for (int64_t i = 0; i < static_cast<int64_t>(in.values.size()); ++i) {
      const int64_t at = i % size;
      out.values[static_cast<size_t>(i)] =
          in.values[static_cast<size_t>(i - at + at % rows * columns + at / rows)];
    }
    return out;
  };
  const auto roped = [](bool to_adjacent) {
    return [to_adjacent](const Numbers& in, const Forged&) {
      constexpr int64_t kHead = 32;
      Numbers rows = in;
      if (!in.is_matrix()) rows.dims = {1, static_cast<int64_t>(in.values.size())};
      Numbers out = with_rows(rows, [&](int64_t r) {
        const int64_t j = r % kHead;
        return r - j +
               (to_adjacent ? j % 2 * (kHead / 2) + j / 2 : j % (kHead / 2) * 2 + j / (kHead / 2));
      });
      out.dims = in.dims;
      return out;
    };
  };
  const auto with = [](const std::function<float(float)>& change) {
    return [change](const Numbers& in, const Forged&) {
      Numbers out = in;
      for (float& value : out.values) value = change(value);
      return out;
    };
  };
  const auto taken_from = [](bool other_layer) {
    return [other_layer](const Numbers& in, const Forged& all) {
      Numbers out = in;
      out.values = other_of(in, all, other_layer)->values;
      return out;
    };
  };
  const auto exchangeable = [&model](bool other_layer) {
    return [&model, other_layer](const Numbers& in) {
      return other_of(in, model, other_layer) != nullptr;
    };
  };
  return {
      {"transposed", "wrong transposed", is_matrix, turned},
      {"turned dimensions", "wrong transposed",
       [](const Numbers& in) { return in.dims.size() == 2 && in.dims[0] != in.dims[1]; },
       [turned](const Numbers& in, const Forged& all) {
         Numbers out = turned(in, all);
         std::swap(out.dims[0], out.dims[1]);
         return out;
       }},
      {"adjacent", "wrong permuted", is_rotated, roped(true)},
      {"halves", "wrong permuted", is_rotated, roped(false)},
      {"rows of a latent's queries reversed", "wrong permuted",
       [](const Numbers& in) { return in.stem().starts_with("attn_kv_a_mqa"); },
       [](const Numbers& in, const Forged&) {
         return with_rows(in, [&](int64_t r) { return in.rows() - 1 - r; });
       }},
      {"experts in another order", "wrong permuted",
       [](const Numbers& in) { return in.dims.size() == 3 && in.dims[2] > 2; },
       [](const Numbers& in, const Forged&) {
         const int64_t rows = in.dims[1], experts = in.dims[2];
         return with_rows(in, [=](int64_t r) { return (r + rows) % (rows * experts); });
       }},
      {"norms plus 1", "wrong offset", is_norm, with([](float x) { return x + 1; })},
      {"norms less 1", "wrong offset", is_norm, with([](float x) { return x - 1; })},
      {"twice", "wrong scaled", any, with([](float x) { return 2 * x; })},
      {"a head's root", "wrong scaled", is_matrix, with([](float x) { return x / 5.656854f; })},
      {"halves swapped", "wrong halves_swapped",
       [](const Numbers& in) { return in.is_matrix() && in.rows() % 2 == 0; },
       [](const Numbers& in, const Forged&) {
         return with_rows(in, [&](int64_t r) { return (r + in.rows() / 2) % in.rows(); });
       }},
      {"halves of every expert swapped", "wrong halves_swapped",
       [](const Numbers& in) { return in.dims.size() == 3; },
       [](const Numbers& in, const Forged&) {
         const int64_t rows = in.dims[1];
         return with_rows(in, [=](int64_t r) { return r / rows * rows + (r + rows / 2) % rows; });
       }},
      {"other layer", "wrong other_layer", exchangeable(true), taken_from(true)},
      {"other tensor", "wrong other_tensor", exchangeable(false), taken_from(false)},
      {"one number", "wrong unknown", any,
       [](const Numbers& in, const Forged&) {
         Numbers out = in;
         out.values[out.values.size() / 2] += 100;
         return out;
       }},
  };
}

constexpr const char* kArchitectures[] = {"llama",    "gpt2", "qwen2",    "qwen3moe",
                                          "qwen2moe", "phi3", "gpt-oss",  "deepseek2",
                                          "gemma3",   "glm4", "stablelm", "olmo2"};

TEST(AuditConverters, MistakesAreNamedInEveryArchitecture) {
  Random random(fresh_seed());
  Files files;
  size_t number = 0;
  for (const char* arch : kArchitectures) {
    const Forged right(spec_of(arch));
    const Format format = random.below(2) == 0 ? Format::kF16 : Format::kQ8_0;
    const gguf::File trusted = files.open(right.file(Format::kF32));
    for (const ConverterMistake& mistake : converter_mistakes(right)) {
      std::vector<size_t> possible;
      for (size_t i = 0; i < right.tensors.size(); ++i)
        if (mistake.possible(right.tensors[i])) possible.push_back(i);
      if (possible.empty() || !takes(number++)) continue;
      const size_t at =
          possible[static_cast<size_t>(random.below(static_cast<int64_t>(possible.size())))];
      Forged wrong = right;
      wrong.tensors[at] = mistake.make(right.tensors[at], right);
      const gguf::File suspect = files.open(wrong.file(format));
      const auto found = audit_tensors(trusted, suspect, [](int64_t) {});
      ASSERT_TRUE(found.ok()) << found.error().message;
      for (const TensorAudit& tensor : *found) {
        const std::string verdict = verdict_of(tensor);
        if (tensor.name == right.tensors[at].name)
          EXPECT_EQ(verdict, mistake.verdict)
              << arch << " " << mistake.name << " " << tensor.name << " "
              << quant::info(format).name << ": " << tensor.detail;
        else
          EXPECT_TRUE(verdict == "equal" || verdict == "quantized")
              << arch << " " << mistake.name << " at " << right.tensors[at].name << ": "
              << tensor.name << " is " << verdict << ": " << tensor.detail;
      }
    }
  }
}

TEST(AuditConverters, MissingAndExtraTensorsAreNamed) {
  Random random(fresh_seed());
  Files files;
  for (const char* arch : kArchitectures) {
    const Forged right(spec_of(arch));
    Forged less = right;
    size_t at = 0;
    do at = static_cast<size_t>(random.below(static_cast<int64_t>(less.tensors.size())));
    while (less.tensors[at].name == "output.weight");
    less.tensors.erase(less.tensors.begin() + static_cast<int64_t>(at));
    const gguf::File whole = files.open(right.file(Format::kF32));
    const gguf::File cut = files.open(less.file(Format::kF16));
    const auto missing = audit_tensors(whole, cut, [](int64_t) {});
    const auto extra = audit_tensors(cut, whole, [](int64_t) {});
    for (const TensorAudit& tensor : *missing)
      EXPECT_EQ(tensor.verdict == Verdict::kMissing, tensor.name == right.tensors[at].name);
    for (const TensorAudit& tensor : *extra)
      EXPECT_EQ(tensor.verdict == Verdict::kExtra, tensor.name == right.tensors[at].name);
  }
}

// Cuts a tensor of every layer into parts of so many rows.
Forged cut_apart(const Forged& in, const std::string& stem,
                 const std::vector<std::pair<std::string, int64_t>>& parts) {
  Forged out = in;
  out.tensors.clear();
  for (const Numbers& tensor : in.tensors) {
    if (tensor.stem() != stem) {
      out.tensors.push_back(tensor);
      continue;
    }
    const int64_t width = tensor.is_matrix() ? tensor.width() : 1;
    auto from = tensor.values.begin();
    for (const auto& [name, rows] : parts) {
      const std::string before = tensor.name.substr(0, tensor.name.size() - stem.size());
      const Dims dims = tensor.is_matrix() ? Dims{width, rows} : Dims{rows};
      out.tensors.push_back({before + name, dims, Floats(from, from + rows * width)});
      from += rows * width;
    }
    EXPECT_TRUE(from == tensor.values.end());
  }
  return out;
}

void expect_the_same(const Forged& whole, const Forged& apart, const std::string& part,
                     const std::string& origin) {
  Files files;
  const Format formats[] = {Format::kF32, Format::kF16, Format::kQ8_0, Format::kQ4_0};
  for (const Format format_a : formats)
    for (const Format format_b : formats) {
      if (format_a == Format::kQ4_0 && format_b == Format::kQ4_0) continue;
      const gguf::File a = files.open(whole.file(format_a)), b = files.open(apart.file(format_b));
      for (const bool turned : {false, true}) {
        const auto found =
            turned ? audit_tensors(b, a, [](int64_t) {}) : audit_tensors(a, b, [](int64_t) {});
        ASSERT_TRUE(found.ok());
        EXPECT_EQ(found->size(), apart.tensors.size());
        bool seen = false;
        for (const TensorAudit& tensor : *found) {
          EXPECT_TRUE(tensor.verdict == Verdict::kEqual || tensor.verdict == Verdict::kQuantized)
              << tensor.name << " " << name(tensor.verdict) << ": " << tensor.detail;
          if (tensor.name != part) continue;
          seen = true;
          EXPECT_EQ(tensor.detail, fmt::format("in {}: {}", turned ? "B" : "A", origin));
        }
        EXPECT_TRUE(seen);
      }
    }
}

TEST(AuditConverters, FusedTensorsAreThoseInParts) {
  const Forged phi3(spec_of("phi3"));
  const Forged apart =
      cut_apart(cut_apart(phi3, "attn_qkv.weight",
                          {{"attn_q.weight", 128}, {"attn_k.weight", 64}, {"attn_v.weight", 64}}),
                "ffn_up.weight", {{"ffn_gate.weight", 128}, {"ffn_up.weight", 128}});
  expect_the_same(phi3, apart, "blk.1.attn_k.weight", "rows 128 to 191 of blk.1.attn_qkv.weight");
  expect_the_same(phi3, apart, "blk.2.ffn_up.weight", "rows 128 to 255 of blk.2.ffn_up.weight");
  const Forged gpt2(spec_of("gpt2"));  // with biases
  Forged parts = gpt2;
  for (const std::string kind : {"weight", "bias"})
    parts = cut_apart(parts, "attn_qkv." + kind,
                      {{"attn_q." + kind, 64}, {"attn_k." + kind, 64}, {"attn_v." + kind, 64}});
  expect_the_same(gpt2, parts, "blk.0.attn_v.bias", "rows 128 to 191 of blk.0.attn_qkv.bias");
}

TEST(AuditConverters, ExpertsInOneTensorAreThoseInSeveral) {
  const Forged stacked(spec_of("qwen3moe"));
  Forged single = stacked;
  for (const std::string kind : {"gate", "up", "down"}) {
    std::vector<std::pair<std::string, int64_t>> parts;
    for (int64_t expert = 0; expert < 6; ++expert)
      parts.emplace_back(fmt::format("ffn_{}.{}.weight", kind, expert), kind == "down" ? 64 : 96);
    single = cut_apart(single, fmt::format("ffn_{}_exps.weight", kind), parts);
  }
  expect_the_same(stacked, single, "blk.1.ffn_gate.2.weight",
                  "rows 192 to 287 of blk.1.ffn_gate_exps.weight");
}

TEST(AuditConverters, AWrongPartOfAFusedTensorIsNamed) {
  Files files;
  const Forged right(spec_of("phi3"));
  const Forged apart =
      cut_apart(cut_apart(right, "attn_qkv.weight",
                          {{"attn_q.weight", 128}, {"attn_k.weight", 64}, {"attn_v.weight", 64}}),
                "ffn_up.weight", {{"ffn_up.weight", 128}, {"ffn_gate.weight", 128}});
  const auto found = audit_tensors(files.open(right.file(Format::kF32)),
                                   files.open(apart.file(Format::kF16)), [](int64_t) {});
  for (const TensorAudit& tensor : *found) {
    const bool swapped =
        tensor.name.ends_with("ffn_up.weight") || tensor.name.ends_with("ffn_gate.weight");
    EXPECT_EQ(verdict_of(tensor) == "wrong other_tensor", swapped)
        << tensor.name << " " << verdict_of(tensor);
  }
  // Parts that do not make up the whole are missing and extra, as any others.
  Forged short_one =
      cut_apart(right, "attn_qkv.weight",
                {{"attn_q.weight", 128}, {"attn_k.weight", 64}, {"attn_v.weight", 64}});
  for (Numbers& tensor : short_one.tensors)
    if (tensor.name == "blk.1.attn_v.weight") {
      tensor.dims[1] = 63;
      tensor.values.resize(tensor.values.size() - 64);
    }
  const auto lost = audit_tensors(files.open(right.file(Format::kF32)),
                                  files.open(short_one.file(Format::kF16)), [](int64_t) {});
  std::map<std::string, Verdict> verdicts;
  for (const TensorAudit& tensor : *lost) verdicts[tensor.name] = tensor.verdict;
  EXPECT_EQ(verdicts.at("blk.0.attn_v.weight"), Verdict::kQuantized);
  EXPECT_EQ(verdicts.at("blk.1.attn_qkv.weight"), Verdict::kMissing);
  EXPECT_EQ(verdicts.at("blk.1.attn_v.weight"), Verdict::kExtra);
}

}  // namespace
}  // namespace lockstep::audit::test
