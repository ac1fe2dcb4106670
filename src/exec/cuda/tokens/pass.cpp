#include "exec/cuda/tokens/pass.h"

#include <algorithm>
#include <bit>

#include "exec/cuda/kernels.h"

namespace lockstep::exec::cuda {

int64_t splits_for(int64_t positions) {
  const auto spans = static_cast<uint64_t>((positions + kAttentionSpan - 1) / kAttentionSpan);
  return static_cast<int64_t>(std::bit_ceil(spans));
}

Result<std::unique_ptr<TokenPass>> TokenPass::create(Parts& parts, const Plan& plan) {
  if (!made_for_hopper()) return std::unique_ptr<TokenPass>();
  int device = 0, multiprocessors = 0, shared_bytes = 0;
  LS_TRY_VOID(check(cudaGetDevice(&device), "cudaGetDevice"));
  LS_TRY_VOID(
      check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute"));
  LS_TRY_VOID(
      check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
            "cudaDeviceGetAttribute"));
  // Later GPUs are not all larger: those for desktops have less memory in a multiprocessor.
  constexpr int kStaticShared = 10 * 1024;
  if (shared_bytes < kMostProductsShared + kStaticShared) return std::unique_ptr<TokenPass>();
  std::unique_ptr<TokenPass> out(new TokenPass(parts));
  LS_TRY_VOID(out->allocate());
  if (!out->build(plan, multiprocessors)) return std::unique_ptr<TokenPass>();
  LS_TRY_VOID(out->choose_tokens());
  return out;
}

Result<void> TokenPass::allocate() {
  const op::Program& program = parts_.program;
  Layout layout, inputs;
  std::vector<int64_t> values;
  for (const op::Value& value : program.values)
    values.push_back(value.shape == op::Value::Shape::kScores ? -1 : layout.place(value.width * 4));
  int64_t part_floats = 0, heads = 0;
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
      heads = std::max(heads, attention->heads);
      part_floats = std::max(part_floats, attention->heads * splits_for(program.context_length) *
                                              (attention->value_size + 2));
    }
  const int64_t attention_parts = layout.place(part_floats * 4);
  const int64_t arrived = layout.place(heads * 4);
  const int64_t state = inputs.place(sizeof(StepState));
  token_place_ = inputs.place(sizeof(TokenId));
  for (const RopeTable& table : parts_.ropes)
    rope_places_.push_back(inputs.place(static_cast<int64_t>(table.frequencies.size()) * 2 * 4));
  const int64_t device_inputs = layout.place(inputs.bytes());
  const int64_t logits[] = {layout.place(program.vocabulary * 4),
                            layout.place(program.vocabulary * 4)};
  LS_TRY(memory_, DeviceMemory::allocate(layout.bytes()));
  for (Side& side : sides_) {
    LS_TRY(side.inputs, PinnedMemory::allocate(inputs.bytes()));
    LS_TRY(side.logits, PinnedMemory::allocate(program.vocabulary * 4));
    LS_TRY(side.computed, Event::create());
    LS_TRY(side.done, Event::create());
    side.device_logits = memory_.as<float>(logits[&side - sides_]);
  }
  LS_TRY(copies_, Stream::create());
  LS_TRY_VOID(check(cudaMemset(memory_.data(), 0, static_cast<size_t>(layout.bytes())),
                    "cudaMemset of the token's memory"));
  // It is not over when it returns, and our streams do not wait for it.
  LS_TRY_VOID(check(cudaStreamSynchronize(nullptr), "cudaMemset of the token's memory"));
  for (const int64_t place : values)
    buffers_.values.push_back(place < 0 ? nullptr : memory_.as<float>(place));
  buffers_.values[static_cast<size_t>(program.logits())] = sides_[0].device_logits;
  attention_parts_ = memory_.as<float>(attention_parts);
  arrived_ = memory_.as<uint32_t>(arrived);
  device_inputs_ = memory_.data() + device_inputs;
  buffers_.state = reinterpret_cast<StepState*>(device_inputs_ + state);
  buffers_.token_ids = reinterpret_cast<int32_t*>(device_inputs_ + token_place_);
  for (const int64_t place : rope_places_)
    buffers_.ropes.push_back(reinterpret_cast<float*>(device_inputs_ + place));
  return {};
}

namespace {

// Where the last results of products go.
float*& last_of(TokenProducts& call) {
  return call.sum != nullptr         ? call.sum
         : call.scaled != nullptr    ? call.scaled
         : call.activated != nullptr ? call.activated
                                     : call.products[call.count - 1].out;
}

}  // namespace

// Where the logits come from one launch of products, it looks for the largest, and the embedding of
// the next token can start from there.
Result<void> TokenPass::choose_tokens() {
  TokenProducts* head = nullptr;
  for (Launch& launch : launches_)
    if (auto* call = std::get_if<TokenProducts>(&launch); call != nullptr && call->count == 1)
      if (last_of(*call) == sides_[0].device_logits) head = call;
  if (head == nullptr) return {};
  best_count_ = head->blocks;
  const auto bytes = best_count_ * static_cast<int64_t>(sizeof(BestLogit));
  LS_TRY(best_, DeviceMemory::allocate(bytes));
  for (Side& side : sides_) {
    LS_TRY(side.best, PinnedMemory::allocate(bytes));
  }
  head->best = best_.as<BestLogit>();
  for (Launch& launch : launches_)
    if (auto* call = std::get_if<EmbedCall>(&launch);
        call != nullptr && call->token_ids != nullptr) {
      call->best = head->best;
      call->best_count = best_count_;
    }
  return {};
}

Result<bool> TokenPass::keep(const std::vector<op::ValueId>& values, cudaStream_t stream) {
  if (values == kept_) return false;
  LS_TRY_VOID(check(cudaStreamSynchronize(stream), "running a token"));
  LS_TRY_VOID(check(cudaStreamSynchronize(copies_), "running a token"));
  graphs_.clear();
  kept_.clear();
  kept_places_.clear();
  std::vector<KeptValue> all;
  int64_t numbers = 0;
  for (const op::ValueId id : values) {
    const int64_t width = parts_.program.value(id).width;
    all.push_back({buffers_.values[static_cast<size_t>(id)], numbers, width});
    kept_places_.push_back(numbers);
    numbers += width;
  }
  const auto bytes = std::ssize(all) * static_cast<int64_t>(sizeof(KeptValue));
  for (Side& side : sides_) {
    side.device_kept = {};
    side.kept = {};
    if (all.empty()) continue;
    LS_TRY(side.device_kept, DeviceMemory::allocate(numbers * 4));
    LS_TRY(side.kept, PinnedMemory::allocate(numbers * 4));
  }
  kept_values_ = {};
  if (all.empty()) return true;
  LS_TRY(kept_values_, DeviceMemory::allocate(bytes));
  LS_TRY_VOID(check(cudaMemcpy(kept_values_.data(), all.data(), static_cast<size_t>(bytes),
                               cudaMemcpyHostToDevice),
                    "cudaMemcpy of what is watched"));
  kept_ = values;
  return true;
}

Result<int> TokenPass::start(TokenId token, int64_t position, cudaStream_t stream) {
  const int pass = chooses() ? std::exchange(next_, 1 - next_) : 0;
  LS_TRY_VOID(wait(pass));  // for what it was used for before
  const Side& side = sides_[pass];
  side.inputs.as<StepState>()->first_position = position;
  *side.inputs.as<TokenId>(token_place_) = token;
  for (size_t i = 0; i < parts_.ropes.size(); ++i) {
    RopeTable& table = parts_.ropes[i];
    table.fill(position, 1);
    auto* out = side.inputs.as<float>(rope_places_[i]);
    std::ranges::copy(table.sines, std::ranges::copy(table.cosines, out).out);
  }
  const int64_t splits = splits_for(position + 1);
  LS_TRY_VOID(
      graphs_.launch(2 * splits + pass, stream, [&] { return enqueue(pass, splits, stream); }));
  LS_TRY_VOID(check(cudaEventRecord(side.computed, stream), "cudaEventRecord"));
  LS_TRY_VOID(check(cudaStreamWaitEvent(copies_, side.computed), "cudaStreamWaitEvent"));
  LS_TRY_VOID(check(cudaMemcpyAsync(side.logits.data(), side.device_logits,
                                    static_cast<size_t>(side.logits.size_bytes()),
                                    cudaMemcpyDeviceToHost, copies_),
                    "cudaMemcpyAsync of the logits"));
  if (!kept_.empty())
    LS_TRY_VOID(check(cudaMemcpyAsync(side.kept.data(), side.device_kept.data(),
                                      static_cast<size_t>(side.kept.size_bytes()),
                                      cudaMemcpyDeviceToHost, copies_),
                      "cudaMemcpyAsync of what is watched"));
  LS_TRY_VOID(check(cudaEventRecord(side.done, copies_), "cudaEventRecord"));
  return pass;
}

Result<void> TokenPass::wait(int pass) const {
  return check(cudaEventSynchronize(sides_[pass].done), "running a token");
}

TokenId TokenPass::chosen(int pass) const {
  BestLogit out;
  for (int i = 0; i < best_count_; ++i)
    out.key = std::max(out.key, sides_[pass].best.as<BestLogit>()[i].key);
  return out.token();
}

void TokenPass::keep_scores(const AttentionCall& watched, int64_t position,
                            cudaStream_t stream) const {
  for (const Launch& launch : launches_) {
    const auto* found = std::get_if<TokenAttention>(&launch);
    if (found == nullptr || found->attention.out != watched.out) continue;
    TokenAttention now = *found;
    now.attention.splits = splits_for(position + 1);
    now.attention.tokens = 1;
    now.attention.positions = watched.positions;
    now.attention.scores = watched.scores;
    run_token_attention(now, stream);
  }
}

Result<void> TokenPass::enqueue(int pass, int64_t splits, cudaStream_t stream) {
  const Side& side = sides_[pass];
  LS_TRY_VOID(check(cudaMemcpyAsync(device_inputs_, side.inputs.data(),
                                    static_cast<size_t>(side.inputs.size_bytes()),
                                    cudaMemcpyHostToDevice, stream),
                    "cudaMemcpyAsync of a token's inputs"));
  struct Run {
    const Side& side;
    int64_t splits;
    cudaStream_t stream;
    void operator()(const EmbedCall& call) const { run_embed(call, stream); }
    void operator()(const RowsCall& call) const { run_rows(call, stream); }
    void operator()(const TokenProducts& call) const {
      TokenProducts now = call;
      if (now.best != nullptr) {
        now.host_best = side.best.as<BestLogit>();
        last_of(now) = side.device_logits;
      }
      run_token_products(now, stream);
    }
    void operator()(const TokenAttention& call) const {
      TokenAttention now = call;
      now.attention.splits = splits;
      run_token_attention(now, stream);
    }
  };
  for (const Launch& launch : launches_) std::visit(Run{side, splits, stream}, launch);
  if (!kept_.empty())
    run_keep({kept_values_.as<KeptValue>(), std::ssize(kept_), side.device_kept.as<float>()},
             stream);
  return check(cudaPeekAtLastError(), "the kernels of a token");
}

}  // namespace lockstep::exec::cuda
