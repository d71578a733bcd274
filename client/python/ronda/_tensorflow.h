/* SPDX-License-Identifier: Apache-2.0 */

/* The part of TensorFlow's C API that adds an operation and its kernel. TensorFlow documents these functions in
 * tensorflow/c/ops.h, kernels.h, tf_tensor.h and tf_status.h. This file declares them under Ronda's own names, so that
 * Ronda does not need TensorFlow's headers. All structs are opaque, and the functions are looked up at run time. */
#ifndef RONDA_CLIENT_PYTHON_TENSORFLOW_H_
#define RONDA_CLIENT_PYTHON_TENSORFLOW_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TfStatus TfStatus;
typedef struct TfTensor TfTensor;
typedef struct TfOperation TfOperation;       /* an operation that is being defined */
typedef struct TfKernel TfKernel;             /* a kernel that is being defined */
typedef struct TfConstruction TfConstruction; /* an operation of a graph, with its attributes */
typedef struct TfContext TfContext;           /* a call of a kernel */
typedef struct TfShapes TfShapes;             /* of the arguments and the results of an operation in a graph */
typedef struct TfShape TfShape;

/* Codes of a TfStatus. */
enum { kTfOk = 0, kTfUnknown = 2, kTfExhausted = 8, kTfUnavailable = 14 };

/* TensorFlow's numbers of element types, under Ronda's type names. */
enum {
  kTfFloat32 = 1,
  kTfFloat64 = 2,
  kTfInt32 = 3,
  kTfUint8 = 4,
  kTfInt16 = 5,
  kTfInt8 = 6,
  kTfInt64 = 9,
  kTfBool = 10,
  kTfBfloat16 = 14,
  kTfUint16 = 17,
  kTfFloat16 = 19,
  kTfUint32 = 22,
  kTfUint64 = 23
};

/* Calls FUNCTION(result, name, arguments) for each function of TensorFlow. The symbol of each function is TF_<name>. */
#define TF_FUNCTIONS(FUNCTION)                                                                                   \
  FUNCTION(TfStatus*, NewStatus, (void))                                                                         \
  FUNCTION(void, DeleteStatus, (TfStatus*))                                                                      \
  FUNCTION(void, SetStatus, (TfStatus*, int code, const char* text))                                             \
  FUNCTION(int, GetCode, (const TfStatus*))                                                                      \
  FUNCTION(const char*, Message, (const TfStatus*))                                                              \
  FUNCTION(void, DeleteTensor, (TfTensor*))                                                                      \
  FUNCTION(int, TensorType, (const TfTensor*))                                                                   \
  FUNCTION(int, NumDims, (const TfTensor*))                                                                      \
  FUNCTION(int64_t, Dim, (const TfTensor*, int index))                                                           \
  FUNCTION(void*, TensorData, (const TfTensor*))                                                                 \
  FUNCTION(TfOperation*, NewOpDefinitionBuilder, (const char* name))                                             \
  FUNCTION(void, OpDefinitionBuilderAddAttr, (TfOperation*, const char* description))                            \
  FUNCTION(void, OpDefinitionBuilderAddInput, (TfOperation*, const char* description))                           \
  FUNCTION(void, OpDefinitionBuilderAddOutput, (TfOperation*, const char* description))                          \
  FUNCTION(void, OpDefinitionBuilderSetIsStateful, (TfOperation*, bool))                                         \
  FUNCTION(void, OpDefinitionBuilderSetShapeInferenceFunction, (TfOperation*, void (*)(TfShapes*, TfStatus*)))   \
  FUNCTION(void, RegisterOpDefinition, (TfOperation*, TfStatus*))                                                \
  FUNCTION(int64_t, ShapeInferenceContextNumInputs, (TfShapes*))                                                 \
  FUNCTION(TfShape*, NewShapeHandle, (void))                                                                     \
  FUNCTION(void, DeleteShapeHandle, (TfShape*))                                                                  \
  FUNCTION(void, ShapeInferenceContextGetInput, (TfShapes*, int index, TfShape*, TfStatus*))                     \
  FUNCTION(void, ShapeInferenceContextSetOutput, (TfShapes*, int index, TfShape*, TfStatus*))                    \
  FUNCTION(TfKernel*, NewKernelBuilder,                                                                          \
           (const char* operation, const char* device, void* (*create)(TfConstruction*),                         \
            void (*compute)(void*, TfContext*), void (*destroy)(void*)))                                         \
  FUNCTION(void, RegisterKernelBuilder, (const char* name, TfKernel*, TfStatus*))                                \
  FUNCTION(void, OpKernelConstruction_GetAttrSize,                                                               \
           (TfConstruction*, const char* name, int32_t* list_size, int32_t* total_size, TfStatus*))              \
  FUNCTION(void, OpKernelConstruction_GetAttrInt64, (TfConstruction*, const char* name, int64_t*, TfStatus*))    \
  FUNCTION(void, OpKernelConstruction_GetAttrString,                                                             \
           (TfConstruction*, const char* name, char*, size_t length, TfStatus*)) /* writes no zero at the end */ \
  FUNCTION(void, OpKernelConstruction_Failure, (TfConstruction*, TfStatus*))                                     \
  FUNCTION(void, OpKernelContext_Failure, (TfContext*, TfStatus*))                                               \
  FUNCTION(void, GetInput, (TfContext*, int index, TfTensor**, TfStatus*))                                       \
  FUNCTION(TfTensor*, ForwardInputOrAllocateOutput,                                                              \
           (TfContext*, const int* inputs, int input_count, int output, const int64_t* shape, int ndim,          \
            int* forwarded, TfStatus*))

typedef struct TfApi {
#define TF_MEMBER(result, name, arguments) result(*name) arguments;
  TF_FUNCTIONS(TF_MEMBER)
#undef TF_MEMBER
} TfApi;

#endif /* RONDA_CLIENT_PYTHON_TENSORFLOW_H_ */
