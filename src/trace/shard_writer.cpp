#include "trace/shard_writer.h"

#include <algorithm>
#include <filesystem>

#include "base/no_throw.h"
#include "base/parallel.h"
#include "base/text.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShardBytes = 16 << 20;
constexpr int kShardsAtOnce = 4;

// How long steps may wait for a shard to fill: little at first, so that a crash in the first second
// leaves something, and never more than a few seconds.
std::chrono::duration<double> patience(std::chrono::duration<double> since_start) {
  return std::chrono::duration<double>(std::clamp(since_start.count() / 10, 0.1, 3.0));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

ShardWriter::ShardWriter(std::string folder, Manifest manifest, bool durable)
    : folder_(std::move(folder)), durable_(durable), manifest_(std::move(manifest)) {}

Result<void> ShardWriter::make_folder() {
  std::error_code failed;
  if (fs::exists(folder_, failed)) {
    if (!fs::is_directory(folder_, failed))
      return error("{}: exists and is no folder", printable(folder_));
    if (!fs::is_empty(folder_, failed) || failed)
      return error("{}: exists and is not empty; a trace is never written over",
                   printable(folder_));
    return {};
  }
  return make_folders(folder_, durable_, made_folders_);
}

Result<void> ShardWriter::start() {
  start_ = last_flush_ = std::chrono::steady_clock::now();
  Result<void> started = no_throw([&] { return take_folder(); });
  if (!started.ok()) give_up();
  return started;
}

// The manifest is created where none is, so that of several writers that found the folder empty
// only one goes on.
Result<void> ShardWriter::take_folder() {
  LS_TRY_VOID(make_folder());
  LS_TRY(OutputFile file, OutputFile::create(path("manifest.json")));
  LS_TRY_VOID(file.write(bytes_of(to_json(manifest_))));
  if (durable_) LS_TRY_VOID(file.sync());
  LS_TRY_VOID(file.publish_new());
  started_ = true;
  return durable_ ? sync_folder(folder_) : Result<void>();
}

// Durable: nothing is named by the manifest, on the disk, before it is there itself.
Result<void> ShardWriter::publish(OutputFile& file) {
  if (durable_) LS_TRY_VOID(file.sync());
  LS_TRY_VOID(file.publish());
  return durable_ ? sync_folder(folder_) : Result<void>();
}

void ShardWriter::give_up() noexcept {
  static_cast<void>(no_throw([&]() -> Result<void> {
    direct_.reset();
    current_.reset();
    if (const Result<void> kept = no_throw([&] { return flush(); }); !kept.ok()) pending_.clear();
    if (!manifest_.steps.empty()) return {};
    std::error_code ignored;  // what is not empty stays
    if (started_) fs::remove(path("manifest.json"), ignored);
    for (const std::string& folder : made_folders_) fs::remove(folder, ignored);
    return {};
  }));
}

Result<void> ShardWriter::begin_step(const StepInfo& info, std::vector<StoredPlan> plans) {
  Step step{info, std::move(plans), {}, {}, 0};
  std::vector<int64_t> places;
  for (const StoredPlan& plan : step.plans) {
    places.push_back(step.size_bytes);
    step.size_bytes += plan.size_bytes();
  }
  step.data.resize(step.plans.size());
  step.arrived.resize(step.plans.size());
  if (step.size_bytes >= kShardBytes) {
    LS_TRY_VOID(flush());
    step.info.shard = next_shard();
    const std::string header = safetensors_header(step.plans);
    for (int64_t& place : places) place += static_cast<int64_t>(header.size());
    direct_places_ = std::move(places);
    LS_TRY(direct_, OutputFile::create(path(step.info.shard)));
    LS_TRY_VOID(direct_->write(bytes_of(header)));
  }
  current_ = std::move(step);
  return {};
}

Result<void> ShardWriter::put(size_t plan, Buffer bytes) {
  const StoredPlan& announced = current_->plans[plan];
  if (static_cast<int64_t>(bytes.size()) != announced.size_bytes())
    return error("value {}: found {} bytes, expected {}", printable(announced.name), bytes.size(),
                 announced.size_bytes());
  if (current_->arrived[plan])
    return error("value {}: came twice in a step", printable(announced.name));
  current_->arrived[plan] = true;
  if (direct_) {
    LS_TRY_VOID(direct_->write_at(direct_places_[plan], bytes));
    buffers_->give_back(std::move(bytes));
  } else {
    current_->data[plan] = std::move(bytes);
  }
  return {};
}

Result<void> ShardWriter::end_step(bool whole, int64_t waiting) {
  if (!whole) {
    direct_.reset();  // nothing of it is left behind
    current_.reset();
    return {};
  }
  const auto missing = std::ranges::find(current_->arrived, false);
  if (missing != current_->arrived.end())
    return error(
        "value {}: never came, in a step that is whole",
        printable(current_->plans[static_cast<size_t>(missing - current_->arrived.begin())].name));
  if (direct_) {
    LS_TRY_VOID(publish(*direct_));
    direct_.reset();
    manifest_.steps.push_back(current_->info);
    current_.reset();
    return write_manifest();
  }
  pending_bytes_ += current_->size_bytes;
  pending_.push_back(std::move(*current_));
  current_.reset();
  const auto now = std::chrono::steady_clock::now();
  const bool old = now - last_flush_ > patience(now - start_);
  // Several at once where the next ones are there.
  const int64_t enough =
      waiting >= kShardsAtOnce * kShardBytes ? kShardsAtOnce * kShardBytes : kShardBytes;
  return pending_bytes_ >= enough || old ? flush() : Result<void>();
}

std::vector<ShardWriter::Shard> ShardWriter::pending_shards() {
  std::vector<Shard> out;
  for (size_t begin = 0; begin < pending_.size();) {
    size_t end = begin;
    for (int64_t bytes = 0; end < pending_.size() && bytes < kShardBytes; ++end)
      bytes += pending_[end].size_bytes;
    out.push_back({next_shard(), begin, end});
    begin = end;
  }
  return out;
}

Result<void> ShardWriter::write(Shard& shard) const {
  const std::span steps = std::span(pending_).subspan(shard.begin, shard.end - shard.begin);
  std::vector<StoredPlan> plans;
  for (const Step& step : steps) plans.insert(plans.end(), step.plans.begin(), step.plans.end());
  LS_TRY(shard.file, OutputFile::create(path(shard.name)));
  LS_TRY_VOID(shard.file->write(bytes_of(safetensors_header(plans))));
  for (const Step& step : steps)
    for (const Buffer& item : step.data) LS_TRY_VOID(shard.file->write(item));
  return {};
}

Result<void> ShardWriter::flush() {
  last_flush_ = std::chrono::steady_clock::now();
  if (pending_.empty()) return {};
  std::vector<Shard> shards = pending_shards();
  parallel_for(
      std::ssize(shards), 1,
      [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
          shards[i].written = write(shards[i]);
      },
      kShardsAtOnce);
  for (const Shard& shard : shards)
    if (!shard.written.ok()) return shard.written.error();
  for (Shard& shard : shards) LS_TRY_VOID(publish(*shard.file));
  // All steps or none are in the manifest, wherever memory ends: a second flush begins anew.
  for (const Shard& shard : shards)
    for (size_t i = shard.begin; i < shard.end; ++i) pending_[i].info.shard = shard.name;
  manifest_.steps.reserve(manifest_.steps.size() + pending_.size());
  for (Step& step : pending_) manifest_.steps.push_back(std::move(step.info));
  std::vector<Step> written = std::exchange(pending_, {});
  pending_bytes_ = 0;
  LS_TRY_VOID(write_manifest());
  for (Step& step : written)
    for (Buffer& item : step.data) buffers_->give_back(std::move(item));
  return {};
}

Result<void> ShardWriter::finish(const std::vector<int32_t>& tokens, int64_t dropped_steps,
                                 bool complete) {
  LS_TRY_VOID(flush());
  manifest_.tokens = tokens;
  manifest_.dropped_steps = dropped_steps;
  manifest_.complete = complete;
  return write_manifest();
}

std::string ShardWriter::next_shard() {
  return fmt::format("{:06}.safetensors", shards_++);
}

std::string ShardWriter::path(const std::string& name) const {
  return (fs::path(folder_) / name).string();
}

Result<void> ShardWriter::write_manifest() {
  LS_TRY(OutputFile file, OutputFile::create(path("manifest.json")));
  LS_TRY_VOID(file.write(bytes_of(to_json(manifest_))));
  return publish(file);
}

}  // namespace lockstep::trace
