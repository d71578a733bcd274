// SPDX-License-Identifier: Apache-2.0

// Compares the declarations of nccl_library.h with NCCL's own header.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "runtime/collectives/nccl/nccl_library.h"

// Some toolkits do not include NCCL.
#if __has_include(<nccl.h>)
#include <nccl.h>

namespace ronda {
namespace {

template <typename Ours, typename Theirs>
constexpr bool IsSame(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

static_assert(IsSame(NcclResult::kSuccess, ncclSuccess));
static_assert(IsSame(NcclResult::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(IsSame(NcclResult::kSystemError, ncclSystemError));
static_assert(IsSame(NcclResult::kInternalError, ncclInternalError));
static_assert(IsSame(NcclResult::kInvalidArgument, ncclInvalidArgument));
static_assert(IsSame(NcclResult::kInvalidUsage, ncclInvalidUsage));
static_assert(IsSame(NcclResult::kRemoteError, ncclRemoteError));
static_assert(IsSame(NcclResult::kInProgress, ncclInProgress));

static_assert(IsSame(NcclDataType::kInt8, ncclInt8));
static_assert(IsSame(NcclDataType::kUint8, ncclUint8));
static_assert(IsSame(NcclDataType::kInt32, ncclInt32));
static_assert(IsSame(NcclDataType::kUint32, ncclUint32));
static_assert(IsSame(NcclDataType::kInt64, ncclInt64));
static_assert(IsSame(NcclDataType::kUint64, ncclUint64));
static_assert(IsSame(NcclDataType::kFloat16, ncclFloat16));
static_assert(IsSame(NcclDataType::kFloat32, ncclFloat32));
static_assert(IsSame(NcclDataType::kFloat64, ncclFloat64));
static_assert(IsSame(NcclDataType::kBfloat16, ncclBfloat16));

static_assert(IsSame(NcclRedOp::kSum, ncclSum));
static_assert(IsSame(NcclRedOp::kProd, ncclProd));
static_assert(IsSame(NcclRedOp::kMax, ncclMax));
static_assert(IsSame(NcclRedOp::kMin, ncclMin));
static_assert(IsSame(NcclRedOp::kAvg, ncclAvg));

static_assert(IsSame(NcclScalarResidence::kHostImmediate, ncclScalarHostImmediate));

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId) && std::is_trivially_copyable_v<NcclUniqueId>);

static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(kNcclUndefined == NCCL_CONFIG_UNDEF_INT);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
static_assert(offsetof(NcclConfig, traffic_class) == offsetof(ncclConfig_t, trafficClass));
static_assert(offsetof(NcclConfig, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(NcclConfig, cta_policy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(NcclConfig, nvlink_centric_sched) == offsetof(ncclConfig_t, nvlinkCentricSched));
static_assert(kNcclCopyEngines == NCCL_CTA_POLICY_ZERO);
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
#endif

// Whether each parameter has the same size in NCCL's own declaration and in nccl_library.h.
template <typename Ours, typename Theirs>
struct HasSameShape : std::false_type {};
template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
struct HasSameShape<OurResult (*)(Ours...), TheirResult (*)(Theirs...)> {
  static constexpr bool Sizes() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return ((sizeof(Ours) == sizeof(Theirs)) && ...) && ((std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);
    }
  }
  static constexpr bool value = Sizes();
};

#define RONDA_SAME_SHAPE(name) static_assert(HasSameShape<decltype(NcclFunctions::name), decltype(&nccl##name)>::value)
RONDA_SAME_SHAPE(GetVersion);
RONDA_SAME_SHAPE(GetUniqueId);
RONDA_SAME_SHAPE(CommInitRankConfig);
RONDA_SAME_SHAPE(CommGetAsyncError);
RONDA_SAME_SHAPE(CommFinalize);
RONDA_SAME_SHAPE(CommDestroy);
RONDA_SAME_SHAPE(CommAbort);
RONDA_SAME_SHAPE(GetErrorString);
RONDA_SAME_SHAPE(GetLastError);
RONDA_SAME_SHAPE(GroupStart);
RONDA_SAME_SHAPE(GroupEnd);
RONDA_SAME_SHAPE(AllReduce);
RONDA_SAME_SHAPE(Reduce);
RONDA_SAME_SHAPE(Broadcast);
RONDA_SAME_SHAPE(AllGather);
RONDA_SAME_SHAPE(ReduceScatter);
RONDA_SAME_SHAPE(RedOpCreatePreMulSum);
RONDA_SAME_SHAPE(RedOpDestroy);
RONDA_SAME_SHAPE(Send);
RONDA_SAME_SHAPE(Recv);
RONDA_SAME_SHAPE(CommSplit);
RONDA_SAME_SHAPE(MemAlloc);
RONDA_SAME_SHAPE(MemFree);
RONDA_SAME_SHAPE(CommRegister);
RONDA_SAME_SHAPE(CommDeregister);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
RONDA_SAME_SHAPE(CommWindowRegister);
RONDA_SAME_SHAPE(CommWindowDeregister);
static_assert(kNcclSymmetricWindow == NCCL_WIN_COLL_SYMMETRIC);
#endif

TEST(NcclHeaderTest, ConfigBeginsAsNcclsDoes) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_LE(ours.version, theirs.version);
  EXPECT_EQ(ours.size, sizeof(ours));
}

}  // namespace
}  // namespace ronda

#else

TEST(NcclHeaderTest, ConfigBeginsAsNcclsDoes) { GTEST_SKIP() << "the toolkit has no nccl.h"; }

#endif
