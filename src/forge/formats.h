// The format of each tensor, from the name of a recipe or of a format.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/recipe.h"

namespace lockstep::forge {

class FormatChoice {
 public:
  // `pure`: no mix; all matrices get the recipe's base format where their rows are whole blocks.
  // The name of a format that is no recipe ("q4_k", "iq4_nl") means this too.
  static Result<FormatChoice> find(std::string_view type, bool pure);

  quant::Format format_of(const quant::ModelShape& model, std::string_view tensor,
                          std::span<const int64_t> dims) const;
  uint32_t file_type() const;  // GGUF's number for what most weights are

 private:
  FormatChoice(const quant::Recipe& recipe, bool pure) : recipe_(recipe), pure_(pure) {}

  quant::Recipe recipe_;
  bool pure_;
};

// Everything that find() accepts, in small letters.
std::vector<std::string> type_names();

// As quant::encode, and also the IQ4 formats, whose blocks need not be the best ones here.
void encode(quant::Format format, const float* source, int64_t values, std::byte* out);

}  // namespace lockstep::forge
