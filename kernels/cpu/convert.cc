#include "kernels/cpu/convert.h"

#include <cstdint>
#include <cstring>

#include "kernels/cpu/convert_floats.h"
#include "kernels/cpu/integer_scale.h"

namespace ronda::kernels {
namespace {

void NormalizeBools(const void* src, void* dst, size_t count) {
  const auto* from = static_cast<const uint8_t*>(src);
  auto* to = static_cast<uint8_t*>(dst);
  for (size_t i = 0; i < count; ++i) to[i] = from[i] != 0;
}

}  // namespace

void Convert(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, const Scale& scale) {
  if (count == 0) return;
  if (src_dtype == dst_dtype && src_dtype != DType::kBool && scale.IsIdentity()) {
    if (src != dst) std::memcpy(dst, src, count * SizeOf(src_dtype));
    return;
  }
  switch (src_dtype) {
    case DType::kUint8:
      return ScaleIntegers<uint8_t>(src, dst, count, scale);
    case DType::kInt8:
      return ScaleIntegers<int8_t>(src, dst, count, scale);
    case DType::kUint16:
      return ScaleIntegers<uint16_t>(src, dst, count, scale);
    case DType::kInt16:
      return ScaleIntegers<int16_t>(src, dst, count, scale);
    case DType::kUint32:
      return ScaleIntegers<uint32_t>(src, dst, count, scale);
    case DType::kInt32:
      return ScaleIntegers<int32_t>(src, dst, count, scale);
    case DType::kUint64:
      return ScaleIntegers<uint64_t>(src, dst, count, scale);
    case DType::kInt64:
      return ScaleIntegers<int64_t>(src, dst, count, scale);
    case DType::kBool:
      return NormalizeBools(src, dst, count);
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return ConvertFloats(src, src_dtype, dst, dst_dtype, count, scale.Factor());
  }
}

}  // namespace ronda::kernels
