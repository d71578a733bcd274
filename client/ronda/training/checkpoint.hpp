// SPDX-License-Identifier: Apache-2.0

// Saves training state to disk as checkpoints. A checkpoint is saved completely or not at all.
#ifndef RONDA_CLIENT_RONDA_TRAINING_CHECKPOINT_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_CHECKPOINT_HPP_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "../job.hpp"
#include "../objects.hpp"
#include "../optimizer.hpp"
#include "../status.hpp"
#include "../tensor.hpp"
#include "checkpoint_file.hpp"

namespace ronda {
inline namespace abi1 {
namespace training {

struct CheckpointOptions {
  std::string folder;               // rank 0 makes it; the other ranks need not see it
  std::string name = "checkpoint";  // files are called NAME-STEP.ronda
  int keep = 3;                     // the number of newest files that stay; at least 1
};

// The content of a loaded checkpoint, except its tensors.
struct Resumed {
  std::int64_t step = -1;             // -1: no checkpoint exists, and nothing has changed
  std::string extra;                  // the bytes that were saved with it
  std::vector<std::string> problems;  // damaged files newer than the loaded one: each with its name
};

// Saves and loads a job's checkpoints. Only rank 0 writes and reads files, because the parameters are the same on every
// rank.
//
//   ronda::training::Checkpoints checkpoints({"run1"});
//   std::int64_t step = checkpoints.resume(state).step + 1;
//   for (; step < last; ++step) {
//     train(step);
//     const bool stop = ronda::should_stop();
//     if (stop || step % 1000 == 999) checkpoints.save(step, state);
//     if (stop) break;
//   }
//
// A file is written under a temporary name, synced to disk, and then renamed. Earlier checkpoints therefore remain
// intact if a job is killed, a disk is full, or a machine loses power. Each file has a checksum, so that a resuming job
// recognizes and skips damaged files.
//
// Thread-compatible. Every rank must make the same calls, with tensors of the same names, shapes and dtypes, in host
// memory.
class Checkpoints {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if an option is out of range.
  explicit Checkpoints(CheckpointOptions options) : options_(std::move(options)) {
    check(!options_.folder.empty(), "there is no folder");
    check(!options_.name.empty() && options_.name.find('/') == std::string::npos,
          "'" + options_.name + "' is no beginning of a file's name");
    check(options_.keep >= 1, "keep is " + std::to_string(options_.keep) + ": it must be at least 1");
  }

  // Saves `tensors`, and rank 0's `extra` bytes, as the state after step `step`, which must be at least 0. Returns on
  // every rank once the file is safely on rank 0's disk. Removes the oldest files if there are more than `keep`.
  // Errors, the same on every rank: RONDA_ERROR_INVALID_ARGUMENT (step; rank 0's tensors: two of one name, or one in
  // GPU memory, with a null pointer or with a negative dimension); RONDA_ERROR_INTERNAL with the system's reason and
  // the file; RONDA_ERROR_OUT_OF_MEMORY; the errors of broadcast_object(). If the file could not be written, at most an
  // unfinished file is left, which the next save replaces. If only the sync of the folder failed, the new file exists
  // and is complete.
  Status try_save(std::int64_t step, const std::vector<Tensor>& tensors, std::string_view extra = {}) {
    return on_rank_zero([&] { return write(step, tensors, extra); });
  }
  void save(std::int64_t step, const std::vector<Tensor>& tensors, std::string_view extra = {}) {
    try_save(step, tensors, extra).throw_if_error();
  }

  // Loads the newest undamaged checkpoint into `tensors` on every rank.
  // Errors, the same on every rank: RONDA_ERROR_INVALID_ARGUMENT, with the first difference, if that checkpoint has
  // different tensors; RONDA_ERROR_INTERNAL, with the system's reason and the file, if rank 0 cannot read the folder or
  // a file that may be that checkpoint; RONDA_ERROR_OUT_OF_MEMORY; the errors of broadcast_parameters(). After any of
  // these errors except RONDA_ERROR_INVALID_ARGUMENT, the tensors are undefined.
  Result<Resumed> try_resume(const std::vector<Tensor>& tensors) {
    Resumed resumed;
    Status status = on_rank_zero([&] { return read(tensors, &resumed); });
    if (!status.ok()) return status;
    Result<std::int64_t> step = try_broadcast_object("ronda.training.checkpoint.step", resumed.step, 0);
    if (!step.ok()) return step.status();
    resumed.step = step.value();
    if (resumed.step < 0) return resumed;
    Result<std::string> extra = try_broadcast_object("ronda.training.checkpoint.extra", resumed.extra, 0);
    if (!extra.ok()) return extra.status();
    resumed.extra = std::move(extra).value();
    status = try_broadcast_parameters(tensors, 0);
    if (!status.ok()) return status;
    return resumed;
  }
  Resumed resume(const std::vector<Tensor>& tensors) { return try_resume(tensors).value(); }

 private:
  using Path = std::filesystem::path;

  static constexpr std::string_view kSuffix = ".ronda";
  static constexpr std::size_t kDigits = 12;

  static void check(bool holds, const std::string& what) {
    if (!holds) throw Error(RONDA_ERROR_INVALID_ARGUMENT, "Checkpoints: " + what);
  }

  // Calls `work` on rank 0, and broadcasts its status to every rank. If `work` throws bad_alloc, rank 0 catches it and
  // broadcasts an error, because the other ranks wait for rank 0.
  template <class Work>
  static Status on_rank_zero(const Work& work) {
    Status own;
    try {
      if (ronda::rank() == 0) own = work();
    } catch (const std::bad_alloc&) {
      own = Status(RONDA_ERROR_OUT_OF_MEMORY, "Checkpoints: rank 0 has not enough memory for the checkpoint");
    }
    const std::string packed = std::string(1, static_cast<char>(own.code())) + own.message();
    Result<std::string> shared = try_broadcast_object("ronda.training.checkpoint.status", packed, 0);
    if (!shared.ok()) return shared.status();
    const std::string& text = shared.value();
    const auto code = static_cast<ronda_status>(text.at(0));
    return code == RONDA_OK ? Status() : Status(code, text.substr(1));
  }

  Path path_of(std::int64_t step) const {
    std::string digits = std::to_string(step);
    digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
    return Path(options_.folder) / (options_.name + "-" + digits + std::string(kSuffix));
  }

  // Returns the steps for which checkpoint files exist, newest first. Returns an empty list if the folder does not
  // exist.
  Result<std::vector<std::int64_t>> steps() const {
    std::vector<std::int64_t> found;
    std::error_code error;
    std::filesystem::directory_iterator entry(options_.folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string file = entry->path().filename().string(), begin = options_.name + "-";
      if (file.size() <= begin.size() + kSuffix.size() || file.compare(0, begin.size(), begin) != 0) continue;
      const std::string digits = file.substr(begin.size(), file.size() - begin.size() - kSuffix.size());
      if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) continue;
      if (path_of(std::stoll(digits)) == entry->path()) found.push_back(std::stoll(digits));
    }
    if (error && error != std::errc::no_such_file_or_directory)
      return detail::file_error("list folder", options_.folder, error.value());
    std::sort(found.rbegin(), found.rend());
    return found;
  }

  // Creates the folder and its parent folders, and syncs their directory entries to disk.
  static Status make_folder(const Path& folder) {
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return {};
    const Path above = folder.parent_path();
    Status status = above.empty() || above == folder ? Status() : make_folder(above);
    if (!status.ok()) return status;
    std::filesystem::create_directory(folder, error);
    if (error) return detail::file_error("make folder", folder.string(), error.value());
    const int unsynced = detail::sync_folder_of(folder.string());
    return unsynced == 0 ? Status() : detail::file_error("sync the folder of", folder.string(), unsynced);
  }

  Status write(std::int64_t step, const std::vector<Tensor>& tensors, std::string_view extra) const {
    if (step < 0) return detail::invalid_argument("Checkpoints: there is no step " + std::to_string(step));
    Status status = make_folder(options_.folder);
    if (!status.ok()) return status;
    // The unfinished file has the same name for all steps, so a save replaces the unfinished file left by a killed job.
    const Path unfinished = Path(options_.folder) / (options_.name + ".unfinished");
    status = detail::write_checkpoint(path_of(step).string(), unfinished.string(), step, tensors, extra);
    if (!status.ok()) return status;
    // At this point the new checkpoint is safely on disk. An old file that cannot be removed now is removed by the next
    // save.
    const Result<std::vector<std::int64_t>> all = steps();
    const std::size_t count = all.ok() ? all.value().size() : 0;
    std::error_code error;
    for (std::size_t i = static_cast<std::size_t>(options_.keep); i < count; ++i) {
      if (all.value()[i] != step) std::filesystem::remove(path_of(all.value()[i]), error);
    }
    return {};
  }

  Status read(const std::vector<Tensor>& tensors, Resumed* resumed) const {
    const Result<std::vector<std::int64_t>> all = steps();
    if (!all.ok()) return all.status();
    for (const std::int64_t step : all.value()) {
      const std::string path = path_of(step).string();
      std::string damage;
      Status status = detail::check_checkpoint(path, step, &damage);
      if (!status.ok()) return status;
      if (!damage.empty()) {
        resumed->problems.push_back(damage);
        continue;
      }
      resumed->step = step;
      return detail::read_checkpoint(path, tensors, &resumed->extra);
    }
    return {};
  }

  const CheckpointOptions options_;
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_CHECKPOINT_HPP_
