// SPDX-License-Identifier: Apache-2.0

#include "runtime/mpi/mpi_session.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/plugin_search.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kErrorTextBytes = 1024;

// All messages have the same tag, because MPI keeps the messages between two ranks of a communicator in order.
constexpr int kMessageTag = 0;

absl::Status NeedsThreads(const std::string& library, const ronda_mpi_world& world) {
  if (world.initialized != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " was built for programs of one thread, and Ronda calls it from several by turns"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the program has initialized ", library,
                   " for one thread only, and Ronda calls it from several by turns: let the program call "
                   "MPI_Init_thread with MPI_THREAD_SERIALIZED (with MPI_THREAD_MULTIPLE, if it calls MPI while Ronda "
                   "runs), or leave MPI's initialization to Ronda"));
}

}  // namespace

absl::string_view PluginName(MpiFlavor flavor) {
  return flavor == MpiFlavor::kOpenMpi ? "libronda_mpi.so" : "libronda_mpi_mpich.so";
}

absl::StatusOr<const ronda_mpi_plugin*> LoadMpiPlugin(MpiFlavor flavor, const std::string& path) {
  const PluginDescription plugin = {
      .kind = "MPI plugin",
      .file = PluginName(flavor),
      .variable = "RONDA_MPI_PLUGIN",
      .needs = flavor == MpiFlavor::kOpenMpi
                   ? "Debian's libopenmpi3 and openmpi-bin; make install builds it where libopenmpi-dev is, and "
                     "rondarun --launcher ssh starts ranks without it"
                   : "Debian's libmpich12 and mpich; make install builds it where libmpich-dev is, and rondarun "
                     "--launcher ssh starts ranks without it",
      .symbol = RONDA_MPI_PLUGIN_SYMBOL,
      .version = RONDA_MPI_PLUGIN_VERSION,
      .symbols = PluginDescription::Symbols::kGlobal};  // Open MPI's components look for its symbols
  RONDA_ASSIGN_OR_RETURN(const void* const table, LoadPlugin(plugin, path));
  return static_cast<const ronda_mpi_plugin*>(table);
}

absl::StatusOr<std::string> MpiSession::Library(const Options& options) {
  RONDA_ASSIGN_OR_RETURN(const ronda_mpi_plugin* const plugin, LoadMpiPlugin(options.flavor, options.plugin));
  return std::string(plugin->library());
}

absl::StatusOr<std::shared_ptr<MpiSession>> MpiSession::Start(const Options& options) {
  RONDA_ASSIGN_OR_RETURN(const ronda_mpi_plugin* const plugin, LoadMpiPlugin(options.flavor, options.plugin));
  ronda_mpi_world world = {};
  const int error = plugin->initialize(&world);
  if (error != 0) {
    char text[kErrorTextBytes];
    plugin->error_text(error, text, sizeof(text));
    return absl::InternalError(absl::StrCat(plugin->library(), " cannot be initialized: ", text));
  }
  std::shared_ptr<MpiSession> session(new MpiSession(*plugin, world));
  if (world.serialized == 0) return NeedsThreads(session->library(), world);
  return session;
}

MpiSession::MpiSession(const ronda_mpi_plugin& plugin, const ronda_mpi_world& world)
    : plugin_(plugin), world_(world), library_(plugin.library()) {}

MpiSession::~MpiSession() {
  if (world_.initialized != 0 && !has_left()) plugin_.finalize();
}

absl::Status MpiSession::Call(absl::string_view what, absl::FunctionRef<int()> function) const {
  const MutexLock lock(&mu_);
  if (has_left()) return absl::CancelledError("the job has failed: MPI is not used any more");
  const int error = function();
  if (error == 0) return absl::OkStatus();
  char text[kErrorTextBytes];
  plugin_.error_text(error, text, sizeof(text));
  return absl::InternalError(absl::StrCat(library_, " failed in ", what, ": ", text));
}

absl::StatusOr<std::string> MpiSession::Broadcast(absl::string_view text) {
  uint64_t bytes = text.size();
  RONDA_RETURN_IF_ERROR(Call("broadcast", [&] { return plugin_.broadcast(&bytes, sizeof(bytes)); }));
  std::string content(rank() == kCoordinatorRank ? text : absl::string_view());
  content.resize(bytes);
  RONDA_RETURN_IF_ERROR(Call("broadcast", [&] { return plugin_.broadcast(content.data(), content.size()); }));
  return content;
}

// Sends and receives messages through one communicator of the session.
class MpiSession::Messages : public PointToPoint {
 public:
  Messages(std::shared_ptr<MpiSession> session, ronda_mpi_communicator* communicator, RankId rank, int size)
      : session_(std::move(session)), communicator_(communicator), rank_(rank), size_(size) {}

  ~Messages() override {
    const auto disconnect = [&] {
      session_->plugin_.destroy(communicator_);
      return 0;
    };
    session_->Call("disconnect", disconnect).IgnoreError();
  }

  RankId rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override {
    ronda_mpi_request request = {};
    RONDA_RETURN_IF_ERROR(session_->Call(
        "send", [&] { return session_->plugin_.send(communicator_, data, bytes, to, kMessageTag, &request); }));
    return ToRequest(request);
  }

  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override {
    ronda_mpi_request request = {};
    RONDA_RETURN_IF_ERROR(session_->Call(
        "receive", [&] { return session_->plugin_.receive(communicator_, data, bytes, from, kMessageTag, &request); }));
    return ToRequest(request);
  }

  absl::StatusOr<bool> Test(absl::Span<Request> requests) override {
    static_assert(sizeof(Request) == sizeof(ronda_mpi_request));
    int done = 0;
    RONDA_RETURN_IF_ERROR(session_->Call("test", [&] {
      return session_->plugin_.test(reinterpret_cast<ronda_mpi_request*>(requests.data()),
                                    static_cast<int>(requests.size()), &done);
    }));
    return done != 0;
  }

 private:
  static Request ToRequest(const ronda_mpi_request& request) { return {.words = {request.words[0], request.words[1]}}; }

  const std::shared_ptr<MpiSession> session_;
  ronda_mpi_communicator* const communicator_;
  const RankId rank_;
  const int size_;
};

absl::StatusOr<std::unique_ptr<PointToPoint>> MpiSession::Connect(const std::vector<RankId>& ranks, int tag) {
  const int size = static_cast<int>(ranks.size());
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  RONDA_CHECK(self != ranks.end());
  ronda_mpi_communicator* communicator = nullptr;
  RONDA_RETURN_IF_ERROR(Call("connect", [&] { return plugin_.create(ranks.data(), size, tag, &communicator); }));
  return std::make_unique<Messages>(shared_from_this(), communicator, static_cast<int>(self - ranks.begin()), size);
}

}  // namespace ronda
