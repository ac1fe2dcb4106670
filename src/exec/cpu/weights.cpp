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
#include "op/experts.h"
#include "quant/decode.h"

namespace lockstep::exec::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

std::vector<float> decode_all(const op::Weight& weight) {
  std::vector<float> out(static_cast<size_t>(weight.rows * weight.columns));
  for (int64_t row = 0; row < weight.rows; ++row)
    quant::decode(weight.format->format(), weight.row(row), weight.columns,
                  out.data() + row * weight.columns);
  return out;
}

std::unique_ptr<PanelWeight> panels_of(const op::What& what, const Kernels& kernels) {
  auto out = std::make_unique<PanelWeight>();
  if (const auto* linear = std::get_if<op::Linear>(&what)) {
    out->sources = {linear->weight};
    if (linear->bias) out->bias = decode_all(*linear->bias);
  } else if (const auto* experts = std::get_if<op::ExpertLinear>(&what)) {
    for (int64_t expert = 0; expert < experts->experts; ++expert)
      out->sources.push_back(op::expert_of(*experts, expert).weight);
    if (experts->bias) out->bias = decode_all(*experts->bias);
  } else {
    return nullptr;
  }
  const op::Weight& one = out->sources.front();
  out->kernel = product_kernel(kernels, one);
  out->takes_codes = takes_codes(one);
  out->rows = one.rows;
  out->columns = one.columns;
  out->panel_bytes = cpu::panel_bytes(one);
  out->panels = panel_count(one);
  return out;
}

int64_t bytes_of(const PanelWeight& weight) {
  constexpr int64_t kLine = 64;
  return (std::ssize(weight.sources) * weight.panels * weight.panel_bytes + kLine - 1) / kLine *
         kLine;
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
  int64_t total = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const op::What& what = program.ops[i].what;
    if (const auto* norm = std::get_if<op::Norm>(&what)) {
      out.norms_[i].first = decode_all(norm->weight);
      if (norm->bias) out.norms_[i].second = decode_all(*norm->bias);
    }
    if (const auto* choose = std::get_if<op::Choose>(&what); choose != nullptr && choose->bias)
      out.norms_[i].second = decode_all(*choose->bias);
    if (const auto* attention = std::get_if<op::Attention>(&what);
        attention != nullptr && attention->sinks)
      out.norms_[i].first = decode_all(*attention->sinks);
    out.linears_[i] = panels_of(what, kernels);
    if (out.linears_[i] != nullptr) total += bytes_of(*out.linears_[i]);
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
        pack_panel(weight->sources[static_cast<size_t>(panel / weight->panels)],
                   panel % weight->panels, data + panel * weight->panel_bytes);
    };
    const int64_t grain = std::max<int64_t>(1, 500'000 / weight->panel_bytes);
    parallel_for(std::ssize(weight->sources) * weight->panels, grain, pack, threads);
    for (const op::Weight& source : weight->sources)
      if (source.mapped) MappedFile::release_pages(source.data);
    weight->data = data;
    const int64_t before = done / 1'000'000;
    done += bytes_of(*weight);
    progress.advance(done / 1'000'000 - before);
  }
  return out;
}

}  // namespace lockstep::exec::cpu
