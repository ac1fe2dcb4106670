#include "exec/cpu/weights.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "exec/cpu/pack.h"
#include "quant/decode.h"

namespace lockstep::exec::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

std::vector<float> decode_vector(const op::Weight& weight) {
  std::vector<float> out(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.row(0), weight.columns, out.data());
  return out;
}

}  // namespace

Result<Region> Region::allocate(int64_t bytes) {
  Region out;
  if (bytes == 0) return out;
  const auto size = static_cast<size_t>(bytes + kHugePage);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return error("cannot get {:.1f} GB of memory: {}", static_cast<double>(bytes) / 1e9,
                 std::strerror(errno));
  madvise(memory, size, MADV_HUGEPAGE);  // the system may refuse; nothing depends on it
  out.data_ = static_cast<std::byte*>(memory);
  out.bytes_ = size;
  return out;
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<Weights> Weights::load(const op::Program& program, const Kernels& kernels, bool repack,
                              int threads) {
  Weights out;
  out.linears_.resize(program.ops.size());
  out.norms_.resize(program.ops.size());
  constexpr int64_t kLine = 64;
  int64_t total = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* norm = std::get_if<op::Norm>(&program.ops[i].what)) {
      out.norms_[i].first = decode_vector(norm->weight);
      if (norm->bias) out.norms_[i].second = decode_vector(*norm->bias);
    }
    const auto* linear = std::get_if<op::Linear>(&program.ops[i].what);
    if (linear == nullptr) continue;
    auto weight = std::make_unique<PanelWeight>();
    weight->source = linear->weight;
    weight->kernel = product_kernel(kernels, linear->weight);
    weight->takes_codes = takes_codes(linear->weight);
    weight->panel_bytes = panel_bytes(linear->weight);
    weight->panels = panel_count(linear->weight);
    if (linear->bias) weight->bias = decode_vector(*linear->bias);
    total += (weight->panels * weight->panel_bytes + kLine - 1) / kLine * kLine;
    out.linears_[i] = std::move(weight);
  }
  if (!repack) return out;

  if (const int64_t available = available_memory_bytes(); total > available)
    return error(
        "the repacked weights need {:.1f} GB, {:.1f} GB are free; --no-repack runs from "
        "the file, more slowly",
        static_cast<double>(total) / 1e9, static_cast<double>(available) / 1e9);
  LS_TRY(out.region_, Region::allocate(total));
  Progress progress("Repacking weights", total / 1'000'000, "MB");
  int64_t done = 0;
  for (const auto& weight : out.linears_) {
    if (weight == nullptr) continue;
    std::byte* data = out.region_.data() + done;
    const auto pack = [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel)
        pack_panel(weight->source, panel, data + panel * weight->panel_bytes);
    };
    const int64_t grain = std::max<int64_t>(1, 500'000 / weight->panel_bytes);
    parallel_for(weight->panels, grain, pack, threads);
    if (weight->source.mapped) MappedFile::release_pages(weight->source.data);
    weight->data = data;
    const int64_t before = done / 1'000'000;
    done += (weight->panels * weight->panel_bytes + kLine - 1) / kLine * kLine;
    progress.advance(done / 1'000'000 - before);
  }
  return out;
}

}  // namespace lockstep::exec::cpu
