// SPDX-License-Identifier: Apache-2.0

// Makes an MPI library a peer of the benchmarks. This file is compiled once for each MPI library, because their ABIs
// differ.
#include <immintrin.h>
#include <mpi.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <string>

#include "bench/peers/mpi_version.h"
#include "bench/peers/peer.h"

struct ronda_bench_prepared {
  ronda_bench_call call;
  MPI_Datatype type;
  MPI_Op op;
};

namespace ronda::bench {
namespace {

using Call = ronda_bench_call;
using Prepared = ronda_bench_prepared;

// The sum of 16-bit floating-point numbers, a type that MPI does not have. It is what MPI users write themselves: F16C
// instructions convert eight numbers at a time to 32 bits and back.
constexpr size_t kLanes = 8;

__attribute__((target("avx,f16c"))) void AddEight(const uint16_t* input, uint16_t* output) {
  const __m256 left = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(input)));
  const __m256 right = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(output)));
  const __m128i sum = _mm256_cvtps_ph(_mm256_add_ps(left, right), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(output), sum);
}

// Checks for AVX2, because Clang 14 does not accept "f16c" here, and every CPU with AVX2 also has F16C.
bool CanAddHalves() { return __builtin_cpu_supports("avx2") != 0; }

// Computes output[i] += input[i] in IEEE 754 binary16, with the additions in binary32. REQUIRES: CanAddHalves().
__attribute__((target("avx,f16c"))) void AddHalves(const uint16_t* input, uint16_t* output, size_t count) {
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) AddEight(input + i, output + i);
  const size_t rest = count - whole;
  if (rest == 0) return;
  uint16_t left[kLanes] = {};
  uint16_t right[kLanes] = {};
  std::memcpy(left, input + whole, rest * sizeof(uint16_t));
  std::memcpy(right, output + whole, rest * sizeof(uint16_t));
  AddEight(left, right);
  std::memcpy(output + whole, right, rest * sizeof(uint16_t));
}

struct OwnRank {
  std::string description;
  std::string error;
  MPI_Op half_sum = MPI_OP_NULL;
  bool is_owner = false;  // MPI was initialized here, and has to be finalized here
};

OwnRank& Self() {
  static auto* const self = new OwnRank;
  return *self;
}

int Check(int code) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  Self().error.assign(text, static_cast<size_t>(length));
  return 1;
}

void SumHalves(void* input, void* output, int* count, MPI_Datatype*) {
  AddHalves(static_cast<const uint16_t*>(input), static_cast<uint16_t*>(output), static_cast<size_t>(*count));
}

// REQUIRES: MPI is initialized, because some MPI libraries define their types as variables.
MPI_Datatype TypeOf(int dtype) {
  const MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_UINT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T};
  return types[dtype];
}

int IsFirst() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank == 0;
}

int RunReduce(const Prepared& prepared, const void* input) {
  // MPI allows only the root to reduce in place.
  const void* const send = IsFirst() ? input : prepared.call.input;
  return MPI_Reduce(send, prepared.call.output, static_cast<int>(prepared.call.count), prepared.type, prepared.op, 0,
                    MPI_COMM_WORLD);
}

int Init(int, int, const char*) {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  Self().is_owner = is_initialized == 0;
  int provided = 0;
  // MPI_THREAD_FUNNELED suffices, because only one thread calls the plugin. Ronda's own threads call MPI only if Ronda
  // has already initialized it.
  if (Self().is_owner && Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided)) != 0) return 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Self().description = MpiLibraryVersion();
  constexpr int kCommutes = 1;
  return Check(MPI_Op_create(SumHalves, kCommutes, &Self().half_sum));
}

const char* Description() { return Self().description.c_str(); }

int AlgorithmCount(const Call* call) { return call->dtype == RONDA_BENCH_FLOAT16 && !CanAddHalves() ? 0 : 1; }

const char* AlgorithmName(const Call* call, int) {
  return call->dtype == RONDA_BENCH_FLOAT16 ? "user operation with F16C" : "MPI's own";
}

ronda_bench_prepared* Prepare(const Call* call, int) {
  if (call->count > INT_MAX) {
    Self().error = "more elements than MPI counts";
    return nullptr;
  }
  return new Prepared{*call, TypeOf(call->dtype), call->dtype == RONDA_BENCH_FLOAT16 ? Self().half_sum : MPI_SUM};
}

int Run(Prepared* prepared) {
  const Call& call = prepared->call;
  const int count = static_cast<int>(call.count);
  const MPI_Datatype type = prepared->type;
  const void* const input = call.input == call.output ? MPI_IN_PLACE : call.input;
  switch (call.op) {
    case RONDA_BENCH_ALLREDUCE:
      return Check(MPI_Allreduce(input, call.output, count, type, prepared->op, MPI_COMM_WORLD));
    case RONDA_BENCH_REDUCE:
      return Check(RunReduce(*prepared, input));
    case RONDA_BENCH_BROADCAST:
      return Check(MPI_Bcast(call.output, count, type, 0, MPI_COMM_WORLD));
    case RONDA_BENCH_ALLGATHER:
      return Check(MPI_Allgather(call.input, count, type, call.output, count, type, MPI_COMM_WORLD));
    case RONDA_BENCH_REDUCESCATTER:
      return Check(MPI_Reduce_scatter_block(call.input, call.output, count, type, prepared->op, MPI_COMM_WORLD));
    case RONDA_BENCH_ALLTOALL:
      return Check(MPI_Alltoall(call.input, count, type, call.output, count, type, MPI_COMM_WORLD));
    case RONDA_BENCH_BARRIER:
      return Check(MPI_Barrier(MPI_COMM_WORLD));
    default:
      Self().error = "no such operation";
      return 1;
  }
}

void Release(Prepared* prepared) { delete prepared; }

void Finalize() {
  MPI_Op_free(&Self().half_sum);
  if (Self().is_owner) MPI_Finalize();
}

const char* LastError() { return Self().error.c_str(); }

constexpr ronda_bench_peer kTable = {.version = RONDA_BENCH_PEER_VERSION,
                                     .init = Init,
                                     .description = Description,
                                     .algorithm_count = AlgorithmCount,
                                     .algorithm_name = AlgorithmName,
                                     .prepare = Prepare,
                                     .run = Run,
                                     .release = Release,
                                     .finalize = Finalize,
                                     .last_error = LastError};

}  // namespace
}  // namespace ronda::bench

extern "C" __attribute__((visibility("default"))) const ronda_bench_peer* ronda_bench_peer_functions() {
  return &ronda::bench::kTable;
}
