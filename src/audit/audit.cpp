#include "audit/audit.h"

#include <algorithm>

#include "audit/tensors.h"

namespace lockstep::audit {

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return "equal";
    case Verdict::kQuantized:
      return "quantized";
    case Verdict::kWrong:
      return "wrong";
    case Verdict::kMissing:
      return "missing";
    case Verdict::kExtra:
      return "extra";
  }
  return "";
}

std::string_view name(How how) {
  switch (how) {
    case How::kNone:
      return "";
    case How::kTransposed:
      return "transposed";
    case How::kPermuted:
      return "permuted";
    case How::kOffset:
      return "offset";
    case How::kScaled:
      return "scaled";
    case How::kHalvesSwapped:
      return "halves_swapped";
    case How::kOtherLayer:
      return "other_layer";
    case How::kOtherTensor:
      return "other_tensor";
    case How::kUnknown:
      return "unknown";
  }
  return "";
}

std::string_view name(KeyVerdict verdict) {
  switch (verdict) {
    case KeyVerdict::kEqual:
      return "equal";
    case KeyVerdict::kDifferent:
      return "different";
    case KeyVerdict::kMissing:
      return "missing";
    case KeyVerdict::kAssumed:
      return "assumed";
  }
  return "";
}

bool Audit::tensors_equal() const {
  return std::ranges::all_of(tensors, [](const TensorAudit& tensor) {
    return tensor.verdict == Verdict::kEqual || tensor.verdict == Verdict::kQuantized;
  });
}

bool Audit::metadata_equal() const {
  return std::ranges::all_of(metadata, &KeyAudit::fine);
}

bool Audit::equal() const {
  return tensors_equal() && metadata_equal() && tokenizer.equal();
}

Result<Audit> audit(const gguf::File& a, const gguf::File& b,
                    const std::function<void(int64_t)>& advance) {
  Audit out;
  out.path_a = a.path();
  out.path_b = b.path();
  out.metadata = audit_metadata(a, b);
  out.tokenizer = audit_tokenizer(a, b);
  LS_TRY(out.tensors, audit_tensors(a, b, advance));
  return out;
}

}  // namespace lockstep::audit
