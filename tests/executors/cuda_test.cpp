// The CUDA executor against the reference, one line a case. tests/gpu/run (in ctest: gpu) calls it
// where there is a GPU; elsewhere every test is skipped.
#include <filesystem>
#include <random>

#include "base/temporary_folder.h"
#include "engine/sampler.h"
#include "engine/verify.h"
#include "exec/cuda/executor.h"
#include "executors/models.h"
#include "executors/run.h"
#include "model/archs.h"
#include "model/model.h"

namespace lockstep {
namespace {

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto there = exec::cuda::available(); !there.ok())
      GTEST_SKIP() << "no NVIDIA GPU: " << there.error().message;
  }

  // Runs `program` in several ways; the largest NMSE of its logits against the reference.
  void check(const std::string& name, const op::Program& program,
             std::span<const exec::TokenId> ids, DType kv, double most) {
    ASSERT_FALSE(ids.empty()) << name;
    const Outcome expected = run(program, ids, {.watched = chooses_experts(program)});
    const Way whole{.device = "cuda", .options = {.kv = kv}};
    Way pieces = whole, ones = whole;
    pieces.steps = {7, 1, 13};
    // One by one at the start and at the end.
    constexpr size_t kFirst = 10, kLast = 30;
    ones.steps.assign(std::min(ids.size(), kFirst + kLast), 1);
    if (ids.size() > kFirst + kLast)
      ones.steps.insert(ones.steps.begin() + kFirst,
                        static_cast<int64_t>(ids.size() - kFirst - kLast));
    double worst = 0;
    bool alike = true;
    for (const Way& way : {whole, pieces, ones}) {
      const Outcome actual = run(program, ids, way);
      Way watched = way;
      watched.watched = true;
      const Outcome seen = run(program, ids, watched);
      EXPECT_EQ(bits(seen.logits), bits(actual.logits)) << name;
      const size_t compared = tokens_alike(program, seen, expected);
      worst = std::max(worst, nmse_of_first(compared, program, actual, expected));
      alike = alike && compared == ids.size();
    }
    Way last = whole, last_watched = whole;
    last.all_logits = last_watched.all_logits = false;
    last_watched.watched = true;
    const Outcome alone = run(program, ids, last);
    EXPECT_EQ(bits(run(program, ids, last_watched).logits), bits(alone.logits)) << name;
    const auto rows = static_cast<long>(alone.logits.size());
    // One row may all but vanish by chance, or be a single denormal number.
    double usual = 0;
    for (const double value : expected.logits)
      usual += value * value / static_cast<double>(expected.logits.size());
    if (alike)
      worst = std::max(
          worst, nmse(alone.logits, {expected.logits.end() - rows, expected.logits.end()}, usual));
    EXPECT_LE(worst, most) << name << ", seed " << seed_;
    fmt::print("{} {}, kv {}: NMSE {:.1e}\n", worst <= most ? "ok   " : "WRONG", name,
               kv == DType::kF16 ? "f16" : "f32", worst);
  }

  // The tokens are there once the program is finished.
  void check(const std::string& name, CaseBuilder& builder, DType kv, double most) {
    const op::Program& program = builder.finish();
    check(name, program, builder.ids, kv, most);
  }

  void check_model(const std::string& name, const std::string& path, int64_t tokens,
                   double most_half, double most_single) {
    const auto model = model::Model::load(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto program = model->program(tokens);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const auto executor = exec::find_device("cuda").value()->create(*program, {});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    const auto weights = engine::verify_weights(*program, **executor);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    for (const engine::WeightCheck& weight : *weights)
      EXPECT_EQ(weight.wrong, 0) << name << ", " << weight.tensor << ", value "
                                 << weight.first_wrong;
    const auto ids = random_tokens(random_, program->vocabulary, tokens);
    check(name, *program, ids, DType::kF16, most_half);
    check(name, *program, ids, DType::kF32, most_single);
  }

  // The path of a new model, which takes the place of the one before.
  std::string forged(const forge::Spec& spec) {
    EXPECT_TRUE(folder_.ok());
    const std::string path = (folder_->path() / "model.gguf").string();
    const auto written = forge::write_model(spec, path, forge::Existing::kReplace);
    EXPECT_TRUE(written.ok()) << written.error().message;
    return path;
  }

  struct Forged {
    model::Model model;
    op::Program program;
  };
  Forged forged(const forge::Spec& spec, int64_t context) {
    model::Model model = model::Model::load(forged(spec)).value();
    op::Program program = model.program(context).value();
    return {std::move(model), std::move(program)};
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
  Result<TemporaryFolder> folder_ = TemporaryFolder::create();
};

// Many rows meet quantized weights as halves, and others as two, which keep 22 bits.
double limit(Rounding rounding, bool half_cache) {
  if (rounding == Rounding::kQuantized) return 5e-7;
  if (rounding == Rounding::kFloat) return 5e-12;
  return tolerance(rounding, half_cache);
}
// Of the logits of whole models: llama.cpp has 5e-4 and more on small quantized ones. A cache of
// halves can cost 2e-6 where the tokens make no sense to a trained model.
constexpr double kQuantizedModel = 2e-5, kFloatModel = 5e-6, kFloatModelAndCache = 1e-10;

TEST_F(Cuda, Ops) {
  for (const OpCase& item : op_cases()) {
    SCOPED_TRACE(fmt::format("{}, seed {}", item.name, seed_));
    CaseBuilder builder(seed_);
    item.build(builder);
    const op::Program& program = builder.finish();
    const Outcome expected = run(program, builder.ids, {.watched = true});
    for (const DType kv : {DType::kF16, DType::kF32}) {
      if (kv == DType::kF32 && item.rounding != Rounding::kCache) continue;
      const double most = limit(item.rounding, kv == DType::kF16);
      expect_close(
          run(program, builder.ids, {.device = "cuda", .options = {.kv = kv}, .watched = true}),
          expected, most);
      check(item.name, program, builder.ids, kv, 2 * most);
    }
  }
}

// For the memory checker, which is slow: as Ops, once.
TEST_F(Cuda, EachOpOnce) {
  for (const OpCase& item : op_cases()) {
    CaseBuilder builder(seed_);
    item.build(builder);
    const op::Program& program = builder.finish();
    for (const DType kv : {DType::kF16, DType::kF32}) {
      if (kv == DType::kF32 && item.rounding != Rounding::kCache) continue;
      run(program, builder.ids,
          {.device = "cuda", .options = {.kv = kv}, .steps = {1, 2}, .watched = true});
    }
    fmt::print("ran   {}\n", item.name);
  }
}

TEST_F(Cuda, ShippedModels) {
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_MODELS)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string path = entry.path().string();
    const bool quantized = path.find("q4_k_m") != std::string::npos;
    check_model(entry.path().filename().string(), path, 70,
                quantized ? kQuantizedModel : kFloatModel,
                quantized ? kQuantizedModel : kFloatModelAndCache);
  }
}

TEST_F(Cuda, ForgedModels) {
  for (const model::Architecture& arch : model::architectures())
    for (const std::string& type : some_types(arch.name, random_)) {
      const std::string path = forged(small_spec(arch.name, type, random_.next()));
      const bool exact = type == "f32" || type.ends_with("16");
      check_model(fmt::format("{} {}", arch.name, type), path, 45,
                  exact ? kFloatModel : kQuantizedModel,
                  exact ? kFloatModelAndCache : kQuantizedModel);
    }
}

// A pass that was started on a guess is taken where the guess was right, and changes nothing where
// it was wrong.
TEST_F(Cuda, TokensAhead) {
  for (const model::Architecture& arch : model::architectures()) {
    const std::string name = fmt::format("{} a token ahead", arch.name);
    constexpr int64_t kTokens = 40;
    const Forged made = forged(small_spec(arch.name, "q8_0", random_.next()), kTokens);
    const op::Program& program = made.program;
    auto executor = exec::find_device("cuda").value()->create(program, {});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    std::vector<exec::TokenId> ids = random_tokens(random_, program.vocabulary, 1);
    std::vector<double> logits;
    while (true) {
      const auto row = (*executor)->run({.tokens = {&ids.back(), 1}, .greedy = true});
      ASSERT_TRUE(row.ok()) << row.error().message;
      for (int64_t i = 0; i < row->size(); ++i) logits.push_back(row->at(i));
      if (std::ssize(ids) == kTokens) break;
      const auto next = engine::largest(*row, 0);
      ASSERT_TRUE(next.ok()) << next.error().message;
      ids.push_back(*next);
    }
    Way ones{.device = "cuda", .steps = std::vector<int64_t>(kTokens, 1)};
    Way guesses = ones;
    guesses.greedy = true;
    const auto right = bits(run(program, ids, ones).logits);
    EXPECT_EQ(bits(logits), right) << name << ", seed " << seed_;
    const auto others = random_tokens(random_, program.vocabulary, kTokens);
    EXPECT_EQ(bits(run(program, others, guesses).logits), bits(run(program, others, ones).logits))
        << name << ", seed " << seed_;
    // Back to where a pass is under way, with other tokens before it.
    const int64_t middle = 20;
    (*executor)->rewind(middle);
    ASSERT_TRUE((*executor)->run({.tokens = {&ids[middle], 1}, .greedy = true}).ok());
    (*executor)->rewind(0);
    std::vector<exec::TokenId> mixed(others.begin(), others.begin() + middle + 1);
    mixed.push_back(ids[middle + 1]);
    Way parts{.device = "cuda", .steps = {middle + 1, 1}};
    parts.all_logits = false;
    ASSERT_TRUE((*executor)->run({.tokens = std::span(mixed).first(middle + 1)}).ok());
    const auto row = (*executor)->run({.tokens = std::span(mixed).last(1)});
    ASSERT_TRUE(row.ok());
    std::vector<double> last;
    for (int64_t i = 0; i < row->size(); ++i) last.push_back(row->at(i));
    const auto all = run(program, mixed, parts).logits;
    EXPECT_EQ(bits(last), bits({all.end() - row->size(), all.end()})) << name;
    fmt::print("{} {}\n", HasFailure() ? "WRONG" : "ok   ", name);
  }
}

// What was seen of each value, in a few bytes.
class Digests : public op::Observer {
 public:
  explicit Digests(const op::Program& program, op::ValueId only = -1)
      : of(program.values.size()), only_(only) {}
  bool wants(op::ValueId id) const override { return only_ < 0 || id == only_; }
  void see(op::ValueId id, const View& view) override {
    const std::string_view bytes(static_cast<const char*>(view.data),
                                 static_cast<size_t>(view.size()) * 4);
    size_t& digest = of[static_cast<size_t>(id)];
    digest = digest * 31 + std::hash<std::string_view>()(bytes);
  }
  std::vector<size_t> of;  // by value

 private:
  op::ValueId only_;
};

// Copying takes longer than computing here, kernels write where others have been copied from, and
// pinned memory does not hold it all.
TEST_F(Cuda, WatchedValues) {
  forge::Spec spec = small_spec("llama", "q8_0", random_.next());
  spec.layers = 4;
  spec.width = 1024;
  spec.heads = 8;
  spec.feed_forward = 4096;
  spec.context = 2048;
  const Forged made = forged(spec, 2048);
  const op::Program& program = made.program;
  const auto ids = random_tokens(random_, program.vocabulary, 1903);
  const auto watch = [&](op::ValueId only) {
    auto executor = exec::find_device("cuda").value()->create(program, {});
    Digests digests(program, only);
    std::span<const exec::TokenId> left = ids;
    for (const size_t tokens : {size_t{1200}, size_t{1}, size_t{1}, size_t{1}, size_t{700}}) {
      EXPECT_TRUE((*executor)->run({.tokens = left.first(tokens), .observer = &digests}).ok());
      left = left.subspan(tokens);
    }
    return digests.of;
  };
  const std::vector<size_t> all = watch(-1);
  EXPECT_EQ(watch(-1), all) << "seed " << seed_;
  for (int i = 0; i < 12; ++i) {
    const auto id = static_cast<size_t>(random_.next() % all.size());
    const std::string& name = program.values[id].name;
    const bool right = watch(static_cast<op::ValueId>(id))[id] == all[id];
    EXPECT_TRUE(right) << name << ", seed " << seed_;
    fmt::print("{} {} among all that is watched\n", right ? "ok   " : "WRONG", name);
  }
}

// The pass of the next token is under way while a token is shown. Observers change what they want,
// and leave steps out.
TEST_F(Cuda, WatchedGeneration) {
  class Changing : public Digests {
   public:
    Changing(const op::Program& program, uint64_t seed) : Digests(program), program_(program) {
      for (Random random(seed); sets_.size() < 5;) {
        sets_.emplace_back(program.values.size());
        for (size_t i = 0; i < program.values.size(); ++i) {
          const bool scores = program.values[i].shape == op::Value::Shape::kScores;
          // Nothing, the logits alone, some values, and some with scores.
          sets_.back()[i] =
              sets_.size() > 2 && random.below(3) == 0 && (!scores || sets_.size() == 5);
        }
        if (sets_.size() > 1) sets_.back()[static_cast<size_t>(program_.logits())] = true;
      }
    }
    void begin_step(int64_t position, int64_t) override {
      set_ = static_cast<size_t>(position / 3) % sets_.size();
    }
    bool wants(op::ValueId id) const override { return sets_[set_][static_cast<size_t>(id)]; }

   private:
    const op::Program& program_;
    std::vector<std::vector<bool>> sets_;
    size_t set_ = 0;
  };
  for (const char* arch : {"llama", "gemma2"}) {
    const Forged made = forged(small_spec(arch, "q8_0", random_.next()), 131);
    const op::Program& program = made.program;
    const auto prompt = random_tokens(random_, program.vocabulary, 7);
    const uint64_t seed = random_.next();
    const auto generate = [&](bool greedy) {
      auto executor = exec::find_device("cuda").value()->create(program, {});
      Changing digests(program, seed);
      std::vector<exec::TokenId> tokens(prompt.begin(), prompt.end());
      for (int i = 0; i < 70; ++i) {
        digests.begin_step((*executor)->positions(), 0);
        const auto some = i == 0 ? std::span(tokens) : std::span(tokens).last(1);
        const auto logits =
            (*executor)->run({.tokens = some, .observer = &digests, .greedy = greedy});
        EXPECT_TRUE(logits.ok());
        exec::TokenId best = 0;
        for (int64_t k = 1; k < logits->size(); ++k)
          if (logits->at(k) > logits->at(best)) best = static_cast<exec::TokenId>(k);
        tokens.push_back(best);
      }
      return std::pair(tokens, digests.of);
    };
    const auto plain = generate(false);
    EXPECT_EQ(generate(true), plain) << arch << ", seed " << seed_;
    fmt::print("{} watched generation of {}\n", HasFailure() ? "WRONG" : "ok   ", arch);
  }
}

// In phi2 the feed-forward block of the last layer reads what keys and values are made from: all
// rows are there, and the last one alone is needed.
TEST_F(Cuda, PromptLengths) {
  for (const char* arch : {"qwen2", "phi2"}) {
    forge::Spec spec = small_spec(arch, "q4_k", random_.next());
    spec.context = 1024;
    const auto model = model::Model::load(forged(spec));
    ASSERT_TRUE(model.ok());
    for (const int64_t tokens : {1, 2, 31, 33, 511, 513}) {
      const auto program = model->program(tokens);
      ASSERT_TRUE(program.ok());
      check(fmt::format("{}, prompt of {} tokens", arch, tokens), *program,
            random_tokens(random_, program->vocabulary, tokens), DType::kF16, kQuantizedModel);
    }
  }
}

// Rounding grows with depth; the cache that is chosen where no weight is quantized adds none.
TEST_F(Cuda, DeepModels) {
  for (const char* type : {"f16", "bf16", "f32"}) {
    forge::Spec spec = small_spec("qwen2", type, random_.next());
    spec.layers = 24;
    const Forged made = forged(spec, 131);
    const op::Program& program = made.program;
    const auto ids = random_tokens(random_, program.vocabulary, 131);
    Way way{.device = "cuda", .steps = {100}};
    way.steps.insert(way.steps.end(), 31, 1);
    const double error = nmse(run(program, ids, way).logits, run(program, ids, {}).logits);
    EXPECT_LE(error, kFloatModelAndCache) << "seed " << seed_;
    fmt::print("{} 24 layers, {}: NMSE {:.1e}\n", error <= kFloatModelAndCache ? "ok   " : "WRONG",
               type, error);
  }
}

// Of all head sizes that the tensor cores take, and one that they do not, with caches of both
// kinds.
TEST_F(Cuda, HeadSizes) {
  for (const int64_t head_size : {32, 64, 80, 96, 128}) {
    forge::Spec spec = small_spec("llama", "f16", random_.next());
    spec.width = spec.heads * head_size;
    check_model(fmt::format("heads of {}", head_size), forged(spec), 217, kFloatModel,
                kFloatModelAndCache);
  }
}

// Keys and values that a half does not hold.
TEST_F(Cuda, CacheRanges) {
  for (const double keys : {1e-7, 1e6})
    for (const double values : {1e-8, 1e8}) {
      CaseBuilder builder(seed_);
      builder.tokens = 150;
      const op::Attention attention{
          .heads = 4, .kv_heads = 2, .head_size = 64, .value_size = 64, .scale = 0.125};
      const op::ValueId q = builder.input(4 * 64, 2 / keys);
      const op::ValueId k = builder.input(2 * 64, keys);
      builder.attention(attention, q, k, builder.input(2 * 64, values));
      check(fmt::format("keys of {:.0e}, values of {:.0e}", keys, values), builder, DType::kF32,
            2 * limit(Rounding::kCache, false));
    }
}

// Rows that a half does not hold, and such as it holds only after scaling.
TEST_F(Cuda, RowRanges) {
  for (const double size : {1e-20, 1e-6, 0.1, 3e3, 1e20})
    for (const quant::Format format :
         {quant::Format::kF32, quant::Format::kF16, quant::Format::kBF16, quant::Format::kQ8_0})
      for (const bool of_experts : {false, true}) {
        CaseBuilder builder(seed_);
        builder.tokens = 50;
        const op::ValueId x = builder.input(256, size);
        if (of_experts) {
          const op::ValueId choice = builder.add(op::Choose{}, {builder.input(9)}, 4);
          const op::ExpertLinear linear{9, builder.weight(format, 9 * 96, 256, 0.1), {}};
          builder.add(linear, {x, choice}, 4 * 96);
        } else {
          builder.add(op::Linear{builder.weight(format, 96, 256, 0.1), {}}, {x}, 96);
        }
        const auto rounding =
            format == quant::Format::kQ8_0 ? Rounding::kQuantized : Rounding::kFloat;
        check(fmt::format("rows of {:.0e}, {}{}", size, quant::info(format).name,
                          of_experts ? ", experts" : ""),
              builder, DType::kF32, 2 * limit(rounding, false));
      }
}

// Whole blocks of experts: products that share their rows, in one launch or in several, and a
// choice that serves two stages.
TEST_F(Cuda, BlocksOfExperts) {
  using quant::Format;
  struct Block {
    int64_t experts, used, tokens;
    Format down;
    std::vector<Format> shared;  // the formats of the products that share their rows
  };
  const Block blocks[] = {
      {32, 8, 257, Format::kQ6_K, {Format::kQ4_K, Format::kQ4_K}},
      {7, 3, 65, Format::kF16, {Format::kF16, Format::kF16}},
      {33, 4, 130, Format::kQ4_0, {Format::kQ8_0, Format::kF32, Format::kQ8_0}},
      {5, 2, 2, Format::kMXFP4, std::vector<Format>(6, Format::kQ5_0)},
  };
  for (const Block& block : blocks) {
    constexpr int64_t kWidth = 512, kHidden = 256;
    CaseBuilder builder(seed_);
    builder.tokens = block.tokens;
    const op::ValueId x = builder.input(kWidth), router = builder.input(block.experts, 2);
    const op::ValueId choice = builder.add(op::Choose{}, {router}, block.used);
    const op::ValueId weights = builder.add(op::Weigh{}, {router, choice}, block.used);
    bool quantized = quant::info(block.down).block_values > 1;
    std::vector<op::ValueId> products;
    for (const Format format : block.shared) {
      quantized = quantized || quant::info(format).block_values > 1;
      op::ExpertLinear linear{
          block.experts, builder.weight(format, block.experts * kHidden, kWidth, 0.05), {}};
      if (products.empty()) linear.bias = builder.weight(Format::kF32, block.experts, kHidden);
      products.push_back(builder.add(linear, {x, choice}, block.used * kHidden));
    }
    op::ValueId hidden = products[0];
    for (size_t i = 1; i < products.size(); ++i)
      hidden = i == 1 ? builder.add(op::Activate{}, {hidden, products[i]}, block.used * kHidden)
                      : builder.add(op::Add{}, {hidden, products[i]}, block.used * kHidden);
    const op::ExpertLinear down{
        block.experts, builder.weight(block.down, block.experts * kWidth, kHidden, 0.05), {}};
    const op::ValueId out = builder.add(down, {hidden, choice}, block.used * kWidth);
    builder.add(op::MixExperts{}, {weights, out}, kWidth);
    // Two products and a function, one after another.
    check(fmt::format("{} of {} experts, {} tokens", block.used, block.experts, block.tokens),
          builder, DType::kF32,
          4 * limit(quantized ? Rounding::kQuantized : Rounding::kFloat, false));
  }
}

// Weights of several formats that share their rows: pairs go together, and there are more than one
// call takes.
TEST_F(Cuda, MixedProducts) {
  using quant::Format;
  const std::vector<Format> floats = {Format::kF16,  Format::kF16, Format::kF32,
                                      Format::kBF16, Format::kF32, Format::kF16};
  std::vector<Format> all = floats;
  all.insert(all.begin() + 2, {Format::kQ8_0, Format::kQ4_0, Format::kQ8_0, Format::kQ8_0});
  for (const std::vector<Format>& formats : {floats, all}) {
    CaseBuilder builder(seed_);
    builder.tokens = 70;
    const op::ValueId x = builder.input(320);
    op::ValueId sum = -1;
    for (size_t i = 0; i < formats.size(); ++i) {
      op::Linear linear{builder.weight(formats[i], 136, 320, 0.1), {}};
      if (i % 5 < 2) linear.bias = builder.weight(Format::kF32, 1, 136);
      const op::ValueId y = builder.add(linear, {x}, 136);
      sum = i == 0 ? y : builder.add(op::Add{}, {sum, y}, 136);
    }
    const auto rounding = formats.size() == floats.size() ? Rounding::kFloat : Rounding::kQuantized;
    check(fmt::format("{} products", formats.size()), builder, DType::kF32,
          2 * limit(rounding, false));
  }
}

// What is recorded of attention is what went on: the mix is that of the recorded probabilities,
// even where scores are so large that their rounding shows.
TEST_F(Cuda, RecordedProbabilities) {
  for (const int64_t head_size : {64, 80, 128}) {
    CaseBuilder builder(seed_);
    builder.tokens = 150;
    const int64_t heads = 4, kv_heads = 2;
    const op::Attention attention{.heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_size = head_size,
                                  .value_size = head_size,
                                  .scale = 0.125};
    const op::ValueId q = builder.input(heads * head_size, 6);
    const op::ValueId k = builder.input(kv_heads * head_size, 6);
    const op::ValueId v = builder.input(kv_heads * head_size);
    const op::ValueId mix = builder.attention(attention, q, k, v);
    const op::Program& program = builder.finish();
    Way way{.device = "cuda", .options = {.kv = DType::kF32}, .watched = true};
    Way ones = way;
    ones.steps = {110};
    ones.steps.insert(ones.steps.end(), 40, 1);
    for (const Way& each : {way, ones}) {
      const Outcome outcome = run(program, builder.ids, each);
      const auto values_of = [&](op::ValueId id) {
        return outcome.values.at(program.value(id).name);
      };
      const std::vector<double> mixed = values_of(mix), values = values_of(v);
      const std::vector<double>& probs = outcome.values.at("probs");
      double worst = 0;
      size_t at = 0;  // in probs: steps, one after another, of [heads][tokens][positions]
      int64_t first = 0;
      std::vector<int64_t> steps = each.steps;
      if (steps.empty()) steps = {builder.tokens};
      for (const int64_t count : steps) {
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t t = first; t < first + count; ++t, at += static_cast<size_t>(first + count))
            for (int64_t d = 0; d < head_size; ++d) {
              double sum = 0, size = 0;
              for (int64_t p = 0; p <= t; ++p) {
                const auto place = (p * kv_heads + h / (heads / kv_heads)) * head_size + d;
                const double term =
                    probs[at + static_cast<size_t>(p)] * values[static_cast<size_t>(place)];
                sum += term;
                size += std::abs(term);
              }
              const auto place = static_cast<size_t>((t * heads + h) * head_size + d);
              const double error = std::abs(mixed[place] - sum) / size;
              if (!(error <= worst)) worst = error;  // also where it is not a number
            }
        first += count;
      }
      EXPECT_LE(worst, 0x1p-20) << "seed " << seed_;
      fmt::print("{} probabilities of heads of {}, {}: {:.1e}\n",
                 worst <= 0x1p-20 ? "ok   " : "WRONG", head_size,
                 each.steps.empty() ? "at once" : "one by one", worst);
    }
  }
}

TEST_F(Cuda, LongContext) {
  forge::Spec spec = small_spec("llama", "q8_0", random_.next());
  spec.context = 8192;
  spec.layers = 1;
  const Forged made = forged(spec, 8192);
  const op::Program& program = made.program;
  const auto ids = random_tokens(random_, program.vocabulary, 8192);
  const Outcome expected = run(program, ids, {});
  Way way{.device = "cuda", .steps = {8000}};
  way.steps.insert(way.steps.end(), 192, 1);
  const double error = nmse(run(program, ids, way).logits, expected.logits);
  EXPECT_LE(error, kQuantizedModel);
  fmt::print("{} 8,192 positions: NMSE {:.1e}\n", error <= kQuantizedModel ? "ok   " : "WRONG",
             error);
}

}  // namespace
}  // namespace lockstep
