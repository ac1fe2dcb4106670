#include "quality/collect.h"

#include <map>

#include "quality/test_models.h"

namespace lockstep::quality {
namespace {

using Collect = ModelTest;

// All values of a run.
class AllValues : public op::Observer {
 public:
  bool wants(op::ValueId) const override { return true; }
  void see(op::ValueId id, const View& view) override {
    std::vector<double>& rows = of[id];
    for (int64_t i = 0; i < view.size(); ++i) rows.push_back(view.at(i));
  }

  std::map<op::ValueId, std::vector<double>> of;
};

TEST_F(Collect, AddsTheSquaresOfWhatEveryMatrixTakesIn) {
  for (const char* arch : {"llama", "phi3", "gpt2", "qwen2moe", "olmoe"}) {
    SCOPED_TRACE(arch);
    const model::Model model = forged(spec(arch));
    const std::vector<Window> chunks = chunk_text(text(57), 24, {});
    ASSERT_EQ(chunks.size(), 3u);
    const auto found = collect_imatrix(model, chunks, setting("reference-cpu"), ignore);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->chunks, 3);
    EXPECT_EQ(found->chunk_size, 24);

    const op::Program program = model.program(24).value();
    std::map<std::string, gguf::Imatrix::Sums> expected;
    const auto executor = setting("reference-cpu").device->create(program, {}).value();
    for (const Window& chunk : chunks) {
      AllValues values;
      executor->rewind(0);
      ASSERT_TRUE(executor->run({.tokens = chunk.tokens, .observer = &values}).ok());
      for (const op::Op& op : program.ops) {
        const auto* linear = std::get_if<op::Linear>(&op.what);
        const auto* experts = std::get_if<op::ExpertLinear>(&op.what);
        if (linear == nullptr && experts == nullptr) continue;
        const op::Weight& weight = linear != nullptr ? linear->weight : experts->weight;
        if (weight.name == "token_embd.weight") continue;
        const auto columns = static_cast<size_t>(weight.columns);
        auto& sums = expected[weight.name];
        sums.counts.resize(experts != nullptr ? static_cast<size_t>(experts->experts) : 1);
        sums.squares.resize(sums.counts.size() * columns);
        const std::vector<double>& in = values.of.at(op.inputs[0]);
        const size_t tokens = chunk.tokens.size(), width = in.size() / tokens;
        const size_t slots = experts != nullptr ? values.of.at(op.inputs[1]).size() / tokens : 1;
        for (size_t t = 0; t < tokens; ++t)
          for (size_t slot = 0; slot < slots; ++slot) {
            const size_t matrix =
                experts != nullptr
                    ? static_cast<size_t>(values.of.at(op.inputs[1])[t * slots + slot])
                    : 0;
            sums.counts[matrix] += 1;
            for (size_t i = 0; i < columns; ++i) {
              const double x = in[t * width + (width == columns ? 0 : slot * columns) + i];
              sums.squares[matrix * columns + i] += x * x;
            }
          }
      }
    }
    ASSERT_EQ(found->tensors.size(), expected.size());
    for (const auto& [name, sums] : expected) {
      SCOPED_TRACE(name);
      const auto& entry = found->tensors.at(name);
      EXPECT_EQ(entry.counts, sums.counts);
      ASSERT_EQ(entry.squares.size(), sums.squares.size());
      for (size_t i = 0; i < sums.squares.size(); ++i)
        EXPECT_NEAR(entry.squares[i], sums.squares[i], 1e-9 + 1e-6 * sums.squares[i]);
      const gguf::Tensor* tensor = model.file().tensor(name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_TRUE(found->means(name, tensor->dims).ok());
    }
  }
}

TEST_F(Collect, ChunksHoldTheWholeText) {
  for (const int64_t tokens : std::vector<int64_t>{0, 1, 7, 255, 257})
    for (const bool begin : {false, true}) {
      const std::vector<exec::TokenId> whole = text(tokens);
      std::vector<exec::TokenId> joined;
      for (const Window& chunk :
           chunk_text(whole, 16, begin ? std::optional<exec::TokenId>(5) : std::nullopt)) {
        EXPECT_LE(chunk.tokens.size(), 16u);
        ASSERT_GT(chunk.tokens.size(), begin ? 1u : 0u);
        if (begin) {
          EXPECT_EQ(chunk.tokens[0], 5);
        }
        joined.insert(joined.end(), chunk.tokens.begin() + (begin ? 1 : 0), chunk.tokens.end());
      }
      EXPECT_EQ(joined, whole);
    }
}

}  // namespace
}  // namespace lockstep::quality
