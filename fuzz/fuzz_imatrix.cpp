// Importance matrices of both forms, and recipes, on any bytes: the first byte chooses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gguf/imatrix.h"
#include "quant/tensor_recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'r') {
    const auto recipe = quant::TensorRecipe::parse(text, "fuzz");
    if (!recipe.ok()) {
      LS_CHECK(recipe.error().message.starts_with("fuzz: "), "{}", recipe.error().message);
      return 0;
    }
    static_cast<void>(recipe->format_of("blk.0.attn_q.weight"));
    static_cast<void>(recipe->unused({"output.weight", "blk.0.attn_q.weight"}));
    return 0;
  }
  const auto imatrix = gguf::Imatrix::parse(std::as_bytes(std::span(text)), "fuzz");
  if (!imatrix.ok()) {
    LS_CHECK(imatrix.error().message.starts_with("fuzz: "), "{}", imatrix.error().message);
    return 0;
  }
  for (const auto& [name, sums] : imatrix->tensors) {
    LS_CHECK(!sums.counts.empty() && sums.columns() > 0);
    const int64_t dims[] = {sums.columns(), 2, static_cast<int64_t>(sums.counts.size())};
    LS_CHECK(imatrix->means(name, dims).ok());
  }
  return 0;
}
