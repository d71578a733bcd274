// SPDX-License-Identifier: Apache-2.0

// The implementation of libronda_mpi*.so, which is built separately for each MPI, because their ABIs differ.
#include "runtime/mpi/plugin.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>

// The plugin's communicator, which is opaque to callers.
struct ronda_mpi_communicator {
  MPI_Comm comm;
};

namespace {

// Returns the communicator of all ranks of the job, which keeps Ronda's messages apart from the program's own. A
// process can have only one job over MPI at a time.
MPI_Comm& World() {
  static MPI_Comm world = MPI_COMM_NULL;
  return world;
}

// MPI counts bytes in an int. A longer message is described as blocks of this size and a remainder.
constexpr size_t kBlockBytes = size_t{1} << 30;

// The plugin's own error code for "MPI has ended". The error codes of MPI libraries are positive.
constexpr int kEnded = -1;

// Describes a message of `bytes` bytes to MPI.
class Layout {
 public:
  explicit Layout(size_t bytes) {
    if (bytes <= INT_MAX) {
      count_ = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype block = MPI_DATATYPE_NULL;
    error_ = MPI_Type_contiguous(static_cast<int>(kBlockBytes), MPI_BYTE, &block);
    if (error_ != MPI_SUCCESS) return;
    const size_t blocks = bytes / kBlockBytes;
    int lengths[] = {static_cast<int>(blocks), static_cast<int>(bytes % kBlockBytes)};
    MPI_Aint places[] = {0, static_cast<MPI_Aint>(blocks * kBlockBytes)};
    MPI_Datatype types[] = {block, MPI_BYTE};
    error_ = MPI_Type_create_struct(2, lengths, places, types, &type_);
    MPI_Type_free(&block);
    if (error_ == MPI_SUCCESS) error_ = MPI_Type_commit(&type_);
    count_ = 1;
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  // MPI keeps the type alive until all messages of this type are complete.
  ~Layout() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }

  int error() const { return error_; }
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int error_ = MPI_SUCCESS;
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

static_assert(sizeof(MPI_Request) <= sizeof(ronda_mpi_request));

MPI_Request RequestOf(const ronda_mpi_request& request) {
  MPI_Request mpi_request;
  std::memcpy(&mpi_request, request.words, sizeof(mpi_request));
  return mpi_request;
}

void Keep(MPI_Request mpi_request, ronda_mpi_request* request) {
  std::memcpy(request->words, &mpi_request, sizeof(mpi_request));
}

// Shortens MPI's description: Open MPI returns a paragraph that begins with "Open MPI v4.1.4", and MPICH several lines
// that begin with "MPICH Version: 4.0.2".
const char* Library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, ",\n")] = '\0';
  std::replace(text, text + std::strlen(text), '\t', ' ');
  return text;
}

int Join(ronda_mpi_world* world) {
  if (World() == MPI_COMM_NULL) {
    const int error = MPI_Comm_dup(MPI_COMM_WORLD, &World());
    if (error != MPI_SUCCESS) return error;
    // Without this call, an MPI error would abort the process.
    MPI_Comm_set_errhandler(World(), MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(World(), &world->rank);
  return MPI_Comm_size(World(), &world->size);
}

int Initialize(ronda_mpi_world* world) {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized != 0) return kEnded;
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  world->initialized = is_initialized == 0;
  int level = MPI_THREAD_SINGLE;
  const int error =
      is_initialized != 0 ? MPI_Query_thread(&level) : MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  if (error != MPI_SUCCESS) return error;
  world->serialized = level >= MPI_THREAD_SERIALIZED;
  return Join(world);
}

int Finalize() { return MPI_Finalize(); }

void ErrorText(int error, char* text, size_t size) {
  if (error == kEnded) {
    std::snprintf(text, size, "it has ended in this process, and cannot begin again");
    return;
  }
  char whole[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, whole, &length) != MPI_SUCCESS) length = 0;
  std::snprintf(text, size, "%.*s", length, whole);
}

int Broadcast(void* data, size_t size) {
  const Layout layout(size);
  if (layout.error() != MPI_SUCCESS) return layout.error();
  return MPI_Bcast(data, layout.count(), layout.type(), 0, World());
}

int Create(const int* ranks, int size, int tag, ronda_mpi_communicator** communicator) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  int error = MPI_Comm_group(World(), &all);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Group_incl(all, size, ranks, &members);
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_create_group(World(), members, tag, &comm);
    MPI_Group_free(&members);
  }
  MPI_Group_free(&all);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  *communicator = new ronda_mpi_communicator{comm};
  return MPI_SUCCESS;
}

void Destroy(ronda_mpi_communicator* communicator) {
  MPI_Comm_free(&communicator->comm);
  delete communicator;
}

int Send(ronda_mpi_communicator* communicator, const void* data, size_t bytes, int to, int tag,
         ronda_mpi_request* request) {
  const Layout layout(bytes);
  if (layout.error() != MPI_SUCCESS) return layout.error();
  MPI_Request mpi_request = MPI_REQUEST_NULL;
  const int error = MPI_Isend(data, layout.count(), layout.type(), to, tag, communicator->comm, &mpi_request);
  Keep(mpi_request, request);
  return error;
}

int Receive(ronda_mpi_communicator* communicator, void* data, size_t bytes, int from, int tag,
            ronda_mpi_request* request) {
  const Layout layout(bytes);
  if (layout.error() != MPI_SUCCESS) return layout.error();
  MPI_Request mpi_request = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, layout.count(), layout.type(), from, tag, communicator->comm, &mpi_request);
  Keep(mpi_request, request);
  return error;
}

int Test(ronda_mpi_request* requests, int count, int* done) {
  *done = 1;
  for (int i = 0; i < count && *done != 0; ++i) {
    MPI_Request request = RequestOf(requests[i]);
    const int error = MPI_Test(&request, done, MPI_STATUS_IGNORE);
    // A complete request becomes a null request, which MPI treats as complete if it is tested again with the others.
    Keep(request, &requests[i]);
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

constexpr ronda_mpi_plugin kTable = {.version = RONDA_MPI_PLUGIN_VERSION,
                                     .library = Library,
                                     .initialize = Initialize,
                                     .finalize = Finalize,
                                     .error_text = ErrorText,
                                     .broadcast = Broadcast,
                                     .create = Create,
                                     .destroy = Destroy,
                                     .send = Send,
                                     .receive = Receive,
                                     .test = Test};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ronda_mpi_plugin* ronda_mpi_plugin_table(void) {
  return &kTable;
}
